package linkemu

// fifo is a queue in a ring buffer, which grows and never shrinks.
type fifo[T any] struct {
	ring  []T // its length is a power of two
	first int
	n     int
}

func (f *fifo[T]) len() int { return f.n }

// at returns the i-th element from the front; the pointer is valid until the next push.
func (f *fifo[T]) at(i int) *T { return &f.ring[(f.first+i)&(len(f.ring)-1)] }

func (f *fifo[T]) push(v T) {
	if f.n == len(f.ring) {
		ring := make([]T, max(16, 2*len(f.ring)))
		for i := range f.n {
			ring[i] = *f.at(i)
		}
		f.ring, f.first = ring, 0
	}
	f.n++
	*f.at(f.n - 1) = v
}

func (f *fifo[T]) pop() T {
	p := f.at(0)
	v := *p
	*p = *new(T)
	f.first = (f.first + 1) & (len(f.ring) - 1)
	f.n--
	return v
}

// store keeps the bytes of packets, which are released in the order in which they were kept. It
// reuses chunks of memory, so that a packet needs no allocation.
type store struct {
	chunks fifo[chunk] // the last one is being filled
	free   [][]byte
}

type chunk struct {
	buf     []byte // filled up to its length
	packets int    // not yet released
}

const (
	chunkSize = 1 << 16 // the largest UDP payload fits
	maxFree   = 16      // chunks kept for reuse after a burst
)

// keep returns a copy of p that is valid until it is released.
func (s *store) keep(p []byte) []byte {
	if n := s.chunks.len(); n == 0 || len(s.chunks.at(n-1).buf)+len(p) > chunkSize {
		s.chunks.push(chunk{buf: s.take()})
	}
	c := s.chunks.at(s.chunks.len() - 1)
	start := len(c.buf)
	c.buf = append(c.buf, p...)
	c.packets++
	return c.buf[start:len(c.buf):len(c.buf)]
}

func (s *store) take() []byte {
	if n := len(s.free); n > 0 {
		buf := s.free[n-1]
		s.free = s.free[:n-1]
		return buf
	}
	return make([]byte, 0, chunkSize)
}

// release releases the oldest packet.
func (s *store) release() {
	c := s.chunks.at(0)
	c.packets--
	switch {
	case c.packets > 0:
	case s.chunks.len() == 1:
		c.buf = c.buf[:0]
	default:
		if buf := s.chunks.pop().buf; len(s.free) < maxFree {
			s.free = append(s.free, buf[:0])
		}
	}
}

// reset releases all packets.
func (s *store) reset() {
	for s.chunks.len() > 0 {
		s.chunks.pop()
	}
}
