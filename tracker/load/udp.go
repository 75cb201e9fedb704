package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sync/errgroup"

	"braid/tracker/wire"
)

// sockets of a load over UDP: clients that a tracker sees. Few have a tracker that answers in batches at its best, for which
// there is udp-apart too.
const sockets = 8

func overUDP(ctx context.Context, j Job) (*tally, error) {
	n := min(sockets, j.Window)
	if j.Transport == "udp-apart" {
		n = j.Window
	}
	tallies := make([]*tally, n)
	var all errgroup.Group
	for i := range n {
		all.Go(func() (err error) {
			tallies[i], err = udpSocket(ctx, j, i, n)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	for _, t := range tallies[1:] {
		tallies[0].add(t)
	}
	return tallies[0], nil
}

// answerPatience is after how long a packet counts as lost.
const answerPatience = 500 * time.Millisecond

// flight is the announces of one socket that are under way.
type flight struct {
	conn    *net.UDPConn
	batch   *ipv4.PacketConn
	id      uint64 // of the connection
	tally   *tally
	choose  *chooser
	peers   []int // by place, which is the transaction
	sent    []time.Time
	waiting []bool
	free    []int
	out     []ipv4.Message // as many as there are places
}

func udpSocket(ctx context.Context, j Job, worker, workers int) (*tally, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", j.Addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	f := &flight{conn: c.(*net.UDPConn), tally: &tally{}, choose: j.chooser(worker, workers)}
	_ = f.conn.SetReadBuffer(4 << 20) // the system may grant less
	if f.id, err = connect(f.conn); err != nil {
		return nil, err
	}
	f.batch = ipv4.NewPacketConn(f.conn)
	n := max(1, j.Window/workers)
	f.peers, f.sent, f.waiting = make([]int, n), make([]time.Time, n), make([]bool, n)
	in := make([]ipv4.Message, n)
	for i := range n {
		f.free = append(f.free, i)
		in[i].Buffers = [][]byte{make([]byte, wire.MaxUDP)}
		f.out = append(f.out, ipv4.Message{Buffers: make([][]byte, 1)})
	}
	for {
		if err := f.send(); err != nil {
			return nil, err
		}
		if len(f.free) == n {
			return f.tally, nil
		}
		if err := f.conn.SetReadDeadline(time.Now().Add(answerPatience)); err != nil {
			return nil, err
		}
		got, err := f.batch.ReadBatch(in, 0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err := f.again(); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		now := time.Now()
		for _, m := range in[:got] {
			b := m.Buffers[0][:m.N]
			if len(b) < 8 || wire.Action(binary.BigEndian.Uint32(b)) != wire.AnnounceUDP {
				return nil, fmt.Errorf("the tracker refuses: %q", b)
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

// again sends what was lost.
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

// connect asks for the ID of a connection (BEP 15).
func connect(c *net.UDPConn) (uint64, error) {
	b := make([]byte, wire.MaxUDP)
	for range 10 {
		r := wire.UDPRequest{Action: wire.Connect, Transaction: 1}
		if _, err := c.Write(r.Append(nil)); err != nil {
			return 0, err
		}
		if err := c.SetReadDeadline(time.Now().Add(answerPatience)); err != nil {
			return 0, err
		}
		if n, err := c.Read(b); err == nil {
			a, err := wire.ParseUDPAnswer(b[:n], false)
			if err == nil && a.Action == wire.Connect {
				return a.Connection, nil
			}
		}
	}
	return 0, errors.New("the tracker does not answer")
}
