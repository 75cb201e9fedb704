package client

import (
	"cmp"
	"reflect"
	"time"
	"unsafe"

	"github.com/anacrolix/torrent"

	"braid/client/wire"
)

// pipeline decides how many requests a connection keeps outstanding.
//
// The engine alone asks for one block, waits for it, asks for two, waits for both, then for four: a
// round trip without data after each batch, which on a long path is most of the time. With a
// pipeline the first batch is larger, and the next one is requested when a part of the last one is
// there (wire.Part).
//
//	requests   ################                    first
//	           ########        half of them is there
//	           ################################    doubled, since half took little time
type pipeline struct {
	target int       // requests to have outstanding after the next look; 0: not looked yet
	most   int       // outstanding at most since the last look; 0: none was sent since
	since  time.Time // of the last look, or of the first request after none was outstanding
	eighth time.Time // when the last eighth of the batch before the next look began; zero: not yet
}

const (
	// maxRequests bounds the outstanding requests of a connection; the engine has no higher limit.
	maxRequests = 963
	// A batch grows if half of it lasts less than this and less than growTrips round trips, so that
	// the peer never runs out of requests, not in slow start, and not while we are busy for a
	// moment.
	growBelow = 300 * time.Millisecond
	growTrips = 3
	// The last eighth shows the present rate: slow start takes some round trips for the first
	// blocks, and Transmission answers all requests at once, each 500 ms. So a batch grows, too, if
	// it is the first or its half would be short at this rate, and if the last look is no longer
	// ago than this, or than slow start takes.
	pause     = 600 * time.Millisecond
	slowStart = 8 // round trips
	// It shrinks if half of it lasts this many times longer. Other connections cannot have these
	// blocks meanwhile, and a reader who turns to another place in a film has to wait for them.
	shrinkFactor = 3
	// unknownTrip stands for a round trip that is not known. It is longer than that of any usual
	// path.
	unknownTrip = 500 * time.Millisecond
	// firstRate, in blocks a second, is what a longer path is expected to carry: 32 Mbit/s. At a
	// lower rate, the first batch would be used up before more requests have come over such a path.
	firstRate, maxFirst = 250, 4 * wire.FirstRequests
)

// firstBatch is the number of requests to begin with. trip is 0 if it is not known.
func firstBatch(trip time.Duration) int {
	return min(max(wire.FirstRequests, int(firstRate*trip/time.Second)), maxFirst)
}

// inLastEighth tells whether less than an eighth of the batch is to be answered before the next
// look.
func (p pipeline) inLastEighth(outstanding int) bool {
	return 8*(outstanding-1-p.most+wire.Part(p.most)) < p.most
}

// sent records that so many requests are outstanding now, one of them new.
func (p pipeline) sent(outstanding int, now time.Time) pipeline {
	if outstanding == 1 {
		p.since = now
	}
	if p.most = max(p.most, outstanding); !p.inLastEighth(outstanding) {
		p.eighth = time.Time{}
	}
	return p
}

// answered records that a request was answered or taken back, and how many are outstanding now.
func (p pipeline) answered(outstanding int, now time.Time) pipeline {
	if p.eighth.IsZero() && p.inLastEighth(outstanding) {
		p.eighth = now
	}
	return p
}

// isDue tells whether it is time for the next look, if so many requests are outstanding now.
func (p pipeline) isDue(outstanding int) bool {
	return p.most > 0 && p.most-outstanding >= wire.Part(p.most)
}

// look sets the target. trip is the present round-trip time; 0: not known.
func (p pipeline) look(now time.Time, trip time.Duration) pipeline {
	trip = cmp.Or(trip, unknownTrip)
	size, grow := p.most, max(growBelow, growTrips*trip)
	lasted := now.Sub(p.since)
	half := lasted * time.Duration(p.most) / time.Duration(2*wire.Part(p.most))
	switch {
	case half < grow, lasted < max(pause, slowStart*trip) && (p.target == 0 || 4*now.Sub(p.eighth) < grow):
		size *= 2
	case half > shrinkFactor*grow:
		size /= 2
	}
	return pipeline{target: min(max(size, wire.FirstRequests), maxRequests), since: now}
}

// peakRequests is the engine's own count of the size of the last batch: it requests twice as many
// blocks the next time. The engine has no option for it, so this reaches for the field by its name.
// Returns nil if an engine of another version has no such field; it then asks as it always did.
func peakRequests(p *torrent.Peer) *int {
	f := reflect.ValueOf(p).Elem().FieldByName("peakRequests")
	if !f.IsValid() || f.Kind() != reflect.Int {
		return nil
	}
	return (*int)(unsafe.Pointer(f.UnsafeAddr()))
}
