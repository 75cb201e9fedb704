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
// round trip without data after each batch, which on a long path is most of the time. With a pipeline
// the first batch is larger, and the next one is requested when half of the last one is there.
//
//	requests   ################                    first
//	           ########        half of them is there
//	           ################################    doubled, since half took little time
type pipeline struct {
	target int           // requests to have outstanding after the next look; 0 stands for wire.FirstRequests
	most   int           // outstanding at most since the last look; 0: none was sent since
	since  time.Time     // of the last look, or of the first request after none was outstanding
	last   time.Time     // when the last answer came
	gap    time.Duration // the longest time without an answer since the last look
}

const (
	// maxRequests bounds the outstanding requests of a connection; the engine has no higher limit.
	maxRequests = 963
	// A batch grows if half of it lasts less than this and less than two round trips, so that the peer
	// never runs out of requests, not even while we are busy for a moment.
	growBelow = 300 * time.Millisecond
	// A peer may answer all that it was asked at once, and then nothing for a while: Transmission does so each
	// 500 ms. Half of a batch lasts as long as that pause then, however small it is. So a batch grows, too, if less than
	// this is mostly one pause.
	pause = 600 * time.Millisecond
	// It shrinks if half of it lasts this many times longer. Other connections cannot have these blocks
	// meanwhile, and a reader who turns to another place in a film has to wait for them.
	shrinkFactor = 3
	// unknownTrip stands for a round trip that is not known. It is longer than that of any usual path.
	unknownTrip = 500 * time.Millisecond
)

// sent records that so many requests are outstanding now, one of them new.
func (p pipeline) sent(outstanding int, now time.Time) pipeline {
	if outstanding == 1 {
		p.since = now
	}
	p.most = max(p.most, outstanding)
	return p
}

// answered records that a request was answered or taken back.
func (p pipeline) answered(now time.Time) pipeline {
	p.gap = max(p.gap, min(now.Sub(p.last), now.Sub(p.since)))
	p.last = now
	return p
}

// isHalf tells whether half of the requests are answered, if so many are outstanding now. Then it is
// time for the next look.
func (p pipeline) isHalf(outstanding int) bool { return p.most > 0 && 2*outstanding <= p.most }

// look sets the target. trip is the present round-trip time; 0: not known.
func (p pipeline) look(now time.Time, trip time.Duration) pipeline {
	size, grow := p.most, max(growBelow, 2*cmp.Or(trip, unknownTrip))
	switch lasted := now.Sub(p.since); {
	case lasted < grow, lasted < pause && p.gap > lasted*3/4:
		size *= 2
	case lasted > shrinkFactor*grow:
		size /= 2
	}
	return pipeline{target: min(max(size, wire.FirstRequests), maxRequests), since: now, last: p.last}
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
