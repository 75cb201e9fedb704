package trackerbench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/net/ipv4"

	"braid/tracker/wire"
)

// sockets is the number of clients of a load over UDP. With few of them, a tracker that answers in
// batches is at its best; udp-apart shows the opposite.
const sockets = 8

func overUDP(ctx context.Context, j Job) (*tally, error) {
	n := min(sockets, j.Window)
	if j.Transport == "udp-apart" {
		n = j.Window
	}
	return workers(j, n, func(choose *chooser, t *tally) error { return udpSocket(ctx, j, max(1, j.Window/n), choose, t) })
}

// answerPatience is the time after which a packet counts as lost.
const answerPatience = 500 * time.Millisecond

// flight holds the announces of one socket that are under way.
type flight struct {
	batch   *ipv4.PacketConn
	id      uint64 // of the connection
	tally   *tally
	choose  *chooser
	peers   []int // by place; the place is the transaction ID
	sent    []time.Time
	waiting []bool
	free    []int
	out     []ipv4.Message // one for each place
}

// udpSocket keeps n announces under way on one socket.
func udpSocket(ctx context.Context, j Job, n int, choose *chooser, t *tally) error {
	c, id, err := dialUDP(j.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	_ = c.SetReadBuffer(4 << 20) // the system may grant less
	f := &flight{batch: ipv4.NewPacketConn(c), id: id, tally: t, choose: choose}
	f.peers, f.sent, f.waiting = make([]int, n), make([]time.Time, n), make([]bool, n)
	in := make([]ipv4.Message, n)
	for i := range n {
		f.free = append(f.free, i)
		in[i].Buffers = [][]byte{make([]byte, wire.MaxUDP)}
		f.out = append(f.out, ipv4.Message{Buffers: make([][]byte, 1)})
	}
	for {
		if err := f.send(); err != nil {
			return err
		}
		if len(f.free) == n {
			return nil
		}
		if err := c.SetReadDeadline(time.Now().Add(answerPatience)); err != nil {
			return err
		}
		got, err := f.batch.ReadBatch(in, 0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err := f.again(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		now := time.Now()
		for _, m := range in[:got] {
			b := m.Buffers[0][:m.N]
			if len(b) < 8 || wire.Action(binary.BigEndian.Uint32(b)) != wire.AnnounceUDP {
				return fmt.Errorf("the tracker refuses: %q", b)
			}
			if i := int(binary.BigEndian.Uint32(b[4:])); i < n && f.waiting[i] {
				f.tally.answered(now.Sub(f.sent[i]))
				f.waiting[i] = false
				f.free = append(f.free, i)
			}
		}
	}
}

// send fills the window.
func (f *flight) send() error {
	f.out = f.out[:0]
	now := time.Now()
	for len(f.free) > 0 {
		p, ok := f.choose.peer()
		if !ok {
			break
		}
		i := f.free[len(f.free)-1]
		f.free = f.free[:len(f.free)-1]
		f.peers[i], f.sent[i], f.waiting[i] = p, now, true
		f.add(i)
	}
	return f.flush()
}

func (f *flight) add(i int) {
	r := wire.UDPRequest{Action: wire.AnnounceUDP, Connection: f.id, Transaction: uint32(i), Announce: peer(f.peers[i])}
	k := len(f.out)
	f.out = f.out[:k+1]
	f.out[k].Buffers[0] = r.Append(f.out[k].Buffers[0][:0])
}

func (f *flight) flush() error {
	for ready := f.out; len(ready) > 0; {
		n, err := f.batch.WriteBatch(ready, 0)
		if err != nil {
			return err
		}
		ready = ready[n:]
	}
	return nil
}

// again sends all announces that were not answered once more.
func (f *flight) again() error {
	f.out = f.out[:0]
	for i, waiting := range f.waiting {
		if waiting {
			f.tally.lost++
			f.add(i)
		}
	}
	return f.flush()
}
