package linkemu

// End is an end of a link.
type End = side

// The ends of a link, in the order of New.
const (
	A End = 0
	B End = 1
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
	place := line.arrive(l.clock.now(), len(p))
	line.carried = true
	if place == nil {
		return
	}
	place.data, place.arrive = line.store.keep(p), arrive
	// The loop sleeps until the next packet that it knew of is due; this one may be due earlier. A
	// loop that gathers packets needs no waking.
	if l.asleep && (l.until < 0 || place.due < l.until) {
		l.asleep = false
		l.wire.wake()
	}
}

// arrival is a carried packet that has reached the other end.
type arrival struct {
	data   []byte
	arrive func([]byte)
}

// deliverCarried calls arrive for carried packets. The caller must not hold the lock: arrive may
// put a packet onto another link, whose goroutine may put one onto this link at the same time.
func (l *Link) deliverCarried() {
	for i, a := range l.arrivals {
		a.arrive(a.data)
		l.arrivals[i] = arrival{}
	}
	l.arrivals = l.arrivals[:0]
}
