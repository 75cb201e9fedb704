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
	return workers(j, n, func(choose *chooser, t *tally) error {
		return udpSocket(ctx, j, max(1, j.Window/n), choose, t)
	})
}

// answerPatience is the time after which a packet counts as lost.
const answerPatience = 500 * time.Millisecond

// flight holds the announces of one socket that are under way.
type flight struct {
	batch  *ipv4.PacketConn
	id     uint64 // of the connection
	tally  *tally
	choose *chooser
	places []place // by transaction ID
	out    []ipv4.Message
}

// place has room for one announce.
type place struct {
	peer  int
	taken bool
	sent  time.Time // for the first time
}

// udpSocket keeps n announces under way on one socket.
func udpSocket(ctx context.Context, j Job, n int, choose *chooser, t *tally) error {
	c, id, err := dialUDP(ctx, j.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetReadBuffer(4 << 20) // the system may grant less
	f := &flight{
		batch: ipv4.NewPacketConn(c), id: id, tally: t, choose: choose,
		places: make([]place, n), out: make([]ipv4.Message, n),
	}
	in := make([]ipv4.Message, n)
	for i := range n {
		in[i].Buffers = [][]byte{make([]byte, wire.MaxUDP)}
		f.out[i].Buffers = make([][]byte, 1)
	}
	for silent := false; ; {
		if underWay, err := f.send(silent); err != nil || !underWay {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(answerPatience)); err != nil {
			return err
		}
		got, err := f.batch.ReadBatch(in, 0)
		if silent = errors.Is(err, os.ErrDeadlineExceeded); silent {
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
			if i := int(binary.BigEndian.Uint32(b[4:])); i < n && f.places[i].taken {
				f.tally.answered(now.Sub(f.places[i].sent))
				f.places[i].taken = false
			}
		}
	}
}

// send fills all places and sends their announces. If the tracker is silent, it also sends the
// announces under way again. It tells whether any announce is under way.
func (f *flight) send(silent bool) (underWay bool, err error) {
	ready, now := f.out[:0], time.Now()
	for i := range f.places {
		p := &f.places[i]
		switch {
		case !p.taken:
			if p.peer, p.taken = f.choose.peer(); !p.taken {
				continue
			}
			p.sent = now
		case silent:
			f.tally.lost++
		default:
			underWay = true
			continue
		}
		underWay = true
		r := wire.UDPRequest{
			Action: wire.AnnounceUDP, Connection: f.id, Transaction: uint32(i), Announce: peer(p.peer),
		}
		ready = ready[:len(ready)+1]
		buffer := &ready[len(ready)-1].Buffers[0]
		*buffer = r.Append((*buffer)[:0])
	}
	for len(ready) > 0 {
		n, err := f.batch.WriteBatch(ready, 0)
		if err != nil {
			return true, err
		}
		ready = ready[n:]
	}
	return underWay, nil
}
