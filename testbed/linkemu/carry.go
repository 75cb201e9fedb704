package linkemu

// Packets that do not come from a router's socket may use the link too: those of hosts on IP, whose packets are read from
// and written to network devices. They share rate, queue, delay and losses with the routers'.

// End is an end of a link.
type End = side

// The ends of a link, in the order of New.
const (
	A End = 0
	B End = 1
)

// Carry puts a packet on the link at one of its ends. If it is not lost, arrive gets its bytes, which are its own, when
// it comes out at the other end; it is called from the link's goroutine, and must not block it. While the link does not
// run, packets wait on it.
func (l *Link) Carry(from End, p []byte, arrive func(p []byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == ended || l.state == closed {
		return
	}
	line := l.lines[from]
	place := line.arrive(l.clock.now(), len(p))
	line.carried = true
	if place == nil {
		return
	}
	place.data, place.arrive = line.store.keep(p), arrive
	// The loop sleeps until something that it knew of is due: this may be earlier. While it gathers it comes by itself.
	if l.asleep && (l.until < 0 || place.due < l.until) {
		l.asleep = false
		l.wire.wake()
	}
}

// arrival is a carried packet that has come out.
type arrival struct {
	data   []byte
	arrive func([]byte)
}

// hand gives carried packets to whom they are for. It must not have the lock: they may go onto the next link, whose packets
// may be on their way to this one.
func (l *Link) hand() {
	for i, a := range l.arrivals {
		a.arrive(a.data)
		l.arrivals[i] = arrival{}
	}
	l.arrivals = l.arrivals[:0]
}
