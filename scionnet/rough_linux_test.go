package scionnet

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync/atomic"

	"golang.org/x/net/ipv4"
)

// roughFast loses, doubles, swaps and cuts packets that a fastConn has received, and can fall
// silent.
type roughFast struct {
	*fastConn
	every  int // each fate meets one packet in so many; 0: none
	silent *atomic.Bool
	rand   *rand.Rand
}

func roughFastIO(every int, silent *atomic.Bool) packetIO {
	return func(ctx context.Context, h *Host, port uint16) (packetConn, error) {
		p, err := openFast(ctx, h, port)
		if err != nil {
			return nil, err
		}
		return &roughFast{p.(*fastConn), every, silent, rand.New(rand.NewPCG(1, uint64(port)))}, nil
	}
}

// ReadBatch moves bytes and not buffers, since each buffer belongs to its place in quic-go's batch.
func (c *roughFast) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	set := func(i int, b []byte, m ipv4.Message) { ms[i].N, ms[i].Addr = copy(ms[i].Buffers[0], b), m.Addr }
	for {
		n, err := c.fastConn.ReadBatch(ms, flags)
		if err != nil {
			return n, err
		}
		kept := 0
		for i := 0; i < n; i++ {
			m := ms[i]
			b := bytes.Clone(m.Buffers[0][:m.N])
			fate := 9
			if c.every > 0 {
				fate = c.rand.IntN(c.every)
			}
			switch {
			case c.silent.Load() || fate == 0: // lost
				continue
			case fate == 1 && n < len(ms): // doubled
				set(n, b, m)
				n++
			case fate == 2 && i+1 < n: // overtaken
				next := ms[i+1]
				set(kept, bytes.Clone(next.Buffers[0][:next.N]), next)
				set(i+1, b, m)
				kept++
				continue
			case fate == 3: // cut off
				b = b[:len(b)/2]
			}
			set(kept, b, m)
			kept++
		}
		if kept > 0 {
			return kept, nil
		}
	}
}

var roughIO = map[string]func(every int, silent *atomic.Bool) packetIO{"fast": roughFastIO, "plain": roughPlainIO}

var packetConns = map[string]ListenConfig{"fast": {}, "plain": {PlainPackets: true}}
