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
	past   int       // answered or taken back since the first one that was sent since
	since  time.Time // of the last look, or of the first request after none was outstanding
	eighth time.Time // when the last eighth of the requests before it began; zero: not yet
}

const (
	// maxRequests bounds the outstanding requests of a connection; the engine has no higher limit.
	maxRequests = 963
	// A batch grows if half of it lasts less than the longer one of growBelow and growTrips round
	// trips. So the peer does not run out of requests in slow start, or while we are busy for a
	// moment.
	growBelow = 300 * time.Millisecond
	growTrips = 3
	// A slow batch grows all the same if the slowness may pass: in slow start the first blocks take
	// some round trips, and Transmission answers all requests at once, each 500 ms. That is assumed
	// if the last look is not longer ago than pause or slowStart, and if the batch is the first one
	// or its last eighth came fast.
	pause     = 600 * time.Millisecond
	slowStart = 8 // round trips
	// A batch shrinks if half of it lasts shrinkFactor times longer than the time above. Other
	// connections cannot have these blocks meanwhile, and a reader who turns to another place in a
	// film has to wait for them.
	shrinkFactor = 3
	// In a swarm each peer sends little, and blocks that were requested long ahead would often come
	// sooner from another peer. There a batch of at most wire.FirstRequests, which needs no slack
	// for slow start, grows if half of it lasts less than a bound: the longer one of smallBelow and
	// a round trip. It shrinks, down to smallest, if half of it lasts smallFactor times this bound.
	smallBelow            = 100 * time.Millisecond
	smallFactor, smallest = 2, 4
	// unknownTrip stands for a round trip that is not known. It is longer than that of any usual
	// path.
	unknownTrip = 500 * time.Millisecond
	// firstRate is the rate that a long path is expected to have, in blocks a second: 32 Mbit/s.
	// The first batch has enough requests for a round trip at this rate, but at most maxFirst. With
	// fewer, the peer would run out of requests before more can reach it.
	firstRate, maxFirst = 250, 4 * wire.FirstRequests
)

// firstBatch is the number of requests to begin with. trip is 0 if it is not known.
func firstBatch(trip time.Duration) int {
	return min(max(wire.FirstRequests, int(firstRate*trip/time.Second)), maxFirst)
}

// inLastEighth tells whether less than an eighth of the batch is to be answered before the next
// look.
func (p pipeline) inLastEighth() bool { return 8*(wire.Part(p.most)-p.past-1) < p.most }

// sent records a new request, which is one of those that are outstanding now.
func (p pipeline) sent(outstanding int, now time.Time) pipeline {
	if outstanding == 1 {
		p.since = now
	}
	if p.most = max(p.most, outstanding); !p.inLastEighth() {
		p.eighth = time.Time{}
	}
	return p
}

func (p pipeline) answered(now time.Time) pipeline {
	if p.most == 0 {
		return p
	}
	p.past++
	if p.eighth.IsZero() && p.inLastEighth() {
		p.eighth = now
	}
	return p
}

// isDue tells whether it is time for the next look. The requests that are outstanding now would not
// tell: in a swarm the engine adds some with each piece that the peer announces.
func (p pipeline) isDue() bool { return p.most > 0 && p.past >= wire.Part(p.most) }

// look sets the target. trip is the present round-trip time; 0: not known. swarm tells whether some
// of the peers lack pieces themselves.
func (p pipeline) look(now time.Time, trip time.Duration, swarm bool) pipeline {
	trip = cmp.Or(trip, unknownTrip)
	size, grow := p.most, max(growBelow, growTrips*trip)
	factor, least := time.Duration(shrinkFactor), wire.FirstRequests
	if swarm && p.most <= wire.FirstRequests {
		grow, factor, least = max(smallBelow, trip), smallFactor, smallest
	}
	lasted := now.Sub(p.since)
	mayPass := p.target == 0 || 4*now.Sub(p.eighth) < grow // the slowness may
	half := lasted * time.Duration(p.most) / time.Duration(2*wire.Part(p.most))
	switch {
	case half < grow, mayPass && lasted < max(pause, slowStart*trip):
		size *= 2
	case half > factor*grow:
		size /= 2
	}
	return pipeline{target: min(max(size, least), maxRequests), since: now}
}

// peakRequests is the engine's field with the size of the last batch: it requests twice as many
// blocks the next time. The engine has no option for that, so this finds the field by its name. It
// returns nil if another version of the engine has no such field: then there are no pipelines.
func peakRequests(p *torrent.Peer) *int {
	f := reflect.ValueOf(p).Elem().FieldByName("peakRequests")
	if !f.IsValid() || f.Kind() != reflect.Int {
		return nil
	}
	return (*int)(unsafe.Pointer(f.UnsafeAddr()))
}
