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

// store keeps the bytes of packets. It reuses memory, so that a packet needs no allocation.
type store struct{ free [][]byte }

// Bounds of the memory that is kept for reuse after a burst.
const (
	maxFree   = 1024 // packets
	maxReused = 9216 // bytes of each: the largest packet that a router passes on, and some
)

// keep returns a copy of p.
func (s *store) keep(p []byte) []byte {
	var b []byte
	if n := len(s.free); n > 0 {
		b, s.free = s.free[n-1], s.free[:n-1]
	}
	return append(b[:0], p...)
}

// release takes back what keep returned, if it is not needed any more.
func (s *store) release(b []byte) {
	if len(s.free) < maxFree && cap(b) <= maxReused {
		s.free = append(s.free, b)
	}
}
