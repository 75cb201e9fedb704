package linkemu

import (
	"bytes"
	"slices"
)

// Carry puts a packet on the link at one of its ends. It is for hosts on IP, whose packets come
// from network devices and not from a router's socket; they share rate, queue, delay and losses
// with the routers' packets. Unless the packet is lost, arrive is called when it reaches the other
// end, with bytes that arrive may keep. The link's goroutine calls arrive, which must not block.
// Packets wait while the link does not run.
func (l *Link) Carry(from End, p []byte, arrive func(p []byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == ended || l.state == closed {
		return
	}
	line := l.lines[from]
	line.carried = append(line.carried, carried{l.clock.now(), bytes.Clone(p), arrive})
	if len(line.carried) >= maxCarried {
		line.admit(l.clock.now())
	}
	if l.asleep { // a loop that gathers packets needs no waking
		l.asleep = false
		l.wire.wake()
	}
}

// carried is a packet that the line has not looked at yet. The routers' packets wait in their
// sockets for up to a quantum, with the times of their arrival. If carried packets did not wait as
// well, they would overtake those in a full queue, and win nearly every place that becomes free.
type carried struct {
	at     instant
	data   []byte
	arrive func([]byte)
}

// maxCarried bounds the packets that wait.
const maxCarried = 4096

// admit puts the packets on the line that were carried until then.
func (l *line) admit(until instant) {
	n := 0
	for ; n < len(l.carried) && l.carried[n].at <= until; n++ {
		c := l.carried[n]
		if place := l.arrive(c.at, len(c.data)); place != nil {
			place.data, place.arrive = c.data, c.arrive
		}
		l.received = true
	}
	l.carried = slices.Delete(l.carried, 0, n)
}

// deliverCarried calls arrive for carried packets. The caller must not hold the lock: arrive may
// put a packet onto another link, whose goroutine may put one onto this link at the same time.
func (l *Link) deliverCarried() {
	for _, p := range l.arrivals {
		p.arrive(p.data)
	}
	clear(l.arrivals) // the packets belong to others now
	l.arrivals = l.arrivals[:0]
}
