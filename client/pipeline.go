package client

import (
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
//	           ################################    doubled, since half lasted less than a second
type pipeline struct {
	target int       // requests to have outstanding after the next look; 0 stands for wire.FirstRequests
	most   int       // outstanding at most since the last look; 0: none was sent since
	since  time.Time // of the last look, or of the first request after none was outstanding
}

const (
	// maxRequests bounds the outstanding requests of a connection; the engine has no higher limit.
	maxRequests = 963
	// A batch grows if half of it lasts less than growBelow, which is longer than the round trip of
	// any usual path, so that the peer never runs out of requests. It shrinks if half of it lasts
	// longer than shrinkAbove: other connections cannot have these blocks meanwhile.
	growBelow, shrinkAbove = time.Second, 4 * time.Second
)

// sent records that so many requests are outstanding now, one of them new.
func (p pipeline) sent(outstanding int, now time.Time) pipeline {
	if outstanding == 1 {
		p.since = now
	}
	p.most = max(p.most, outstanding)
	return p
}

// answered records that so many requests are outstanding now, one less than before. It looks at the
// target once half of them are answered.
func (p pipeline) answered(outstanding int, now time.Time) pipeline {
	if p.most == 0 || 2*outstanding > p.most {
		return p
	}
	size := p.most
	switch lasted := now.Sub(p.since); {
	case lasted < growBelow:
		size *= 2
	case lasted > shrinkAbove:
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
