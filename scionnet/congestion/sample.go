package congestion

import "time"

// Delivery rate samples (draft-cheng-iccrg-delivery-rate-estimation): each packet carries how much
// had been delivered when it left, so that its acknowledgement shows how much the path has
// delivered in between. The slower of sending and of acknowledging is the rate: packets that were
// sent in a burst or acknowledged in one do not look like a fast path.

// A sent packet, as it was when it left.
type sentPacket struct {
	size       int // 0: not in flight, or no packet of ours
	at         time.Duration
	first      time.Duration // when the first packet of the sample was sent
	delivered  uint64        // bytes delivered by then
	deliveredT time.Duration // when the last of them was
	inflight   int           // with this packet
	appLimited bool
}

// An event is what an acknowledgement or a loss timer shows.
type event struct {
	now             time.Duration
	acked, lost     int           // bytes
	prior, inflight int           // bytes in flight before and after
	rtt             time.Duration // of the packet that was sent last; 0: nothing acknowledged
	rate            float64       // delivery rate; 0: no sample
	appLimited      bool          // the application, not the path, may have limited the rate
	delivered       uint64        // bytes since the start
	sentDelivered   uint64        // of that, when the acknowledged packet was sent
	lostInflight    int           // in flight when the last of the lost packets was sent
	limitedNow      bool          // the application does not use what it may
	pause           time.Duration // without acknowledgements when the packet of rtt was sent
}

// maxTracked bounds the table of packets. quic-go itself stops at 40000.
const maxTracked = 1 << 16

type sampler struct {
	packets    []sentPacket // of numbers from base on; a power of two, used as a ring
	base, end  int64        // numbers of the oldest tracked packet and of the next one
	first      time.Duration
	delivered  uint64
	deliveredT time.Duration
	limited    uint64 // the flow is limited by the application until this much is delivered; 0: it is not
}

func (s *sampler) appLimited() bool { return s.limited != 0 }

// limit marks what is in flight as limited by the application.
func (s *sampler) limit(inflight int) { s.limited = max(1, s.delivered+uint64(inflight)) }

func (s *sampler) sent(now time.Duration, number int64, size, inflight int) {
	// Time without data is not time on the path, nor is the time before the flow heard of its first
	// packet: those of the handshake may be in flight by then.
	if inflight <= size || len(s.packets) == 0 {
		s.first, s.deliveredT = now, now
	}
	p := s.place(number)
	if p == nil {
		return
	}
	*p = sentPacket{
		size: size, at: now, first: s.first, delivered: s.delivered, deliveredT: s.deliveredT,
		inflight: inflight, appLimited: s.limited != 0,
	}
}

// place makes room for a packet number. Numbers rise, with gaps; if they start again (another
// packet number space) or jump, what was tracked is forgotten.
func (s *sampler) place(number int64) *sentPacket {
	if number < s.end || number-s.end > maxTracked/2 {
		clear(s.packets)
		s.base, s.end = number, number
	}
	for number-s.base >= int64(len(s.packets)) {
		if len(s.packets) == maxTracked { // forget the oldest
			s.packets[s.base&(maxTracked-1)] = sentPacket{}
			s.base++
			continue
		}
		larger := make([]sentPacket, max(256, 2*len(s.packets)))
		for n := s.base; n < s.end; n++ {
			larger[n&int64(len(larger)-1)] = *s.at(n)
		}
		s.packets = larger
	}
	s.end = number + 1
	return s.at(number)
}

func (s *sampler) at(number int64) *sentPacket { return &s.packets[number&int64(len(s.packets)-1)] }

// take returns a packet in flight and forgets it.
func (s *sampler) take(number int64) (p sentPacket, ok bool) {
	if number < s.base || number >= s.end {
		return p, false
	}
	p = *s.at(number)
	*s.at(number) = sentPacket{}
	for s.base < s.end && s.at(s.base).size == 0 {
		s.base++
	}
	return p, p.size != 0
}

// acked turns packets into an event. Unknown packets are counted, and otherwise ignored.
func (s *sampler) acked(now time.Duration, acked, lost []Packet, inflight int) event {
	e := event{now: now, prior: inflight}
	var lastLost time.Duration
	for _, l := range lost {
		e.lost += l.Size
		if p, ok := s.take(l.Number); ok && p.at >= lastLost {
			lastLost, e.lostInflight = p.at, p.inflight
		}
	}
	var newest sentPacket
	for _, a := range acked {
		e.acked += a.Size
		s.delivered += uint64(a.Size)
		s.deliveredT = now
		if p, ok := s.take(a.Number); ok && (newest.size == 0 || p.at >= newest.at) {
			newest = p
		}
	}
	if s.limited != 0 && s.delivered > s.limited {
		s.limited = 0
	}
	e.inflight = max(0, inflight-e.acked-e.lost)
	e.delivered, e.limitedNow = s.delivered, s.limited != 0
	if newest.size == 0 {
		return e
	}
	s.first = newest.at
	e.rtt = max(1, now-newest.at)
	e.sentDelivered = newest.delivered
	e.appLimited = newest.appLimited
	e.pause = newest.at - newest.deliveredT
	interval := max(newest.at-newest.first, now-newest.deliveredT)
	if interval > 0 {
		e.rate = float64(s.delivered-newest.delivered) / interval.Seconds()
	}
	return e
}
