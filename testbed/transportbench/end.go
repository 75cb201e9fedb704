package transportbench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"braid/pathsel"
	"braid/scionnet"
	"braid/scionnet/congestion"
	"braid/scionnet/quic"
	"braid/testbed"
	"braid/testbed/bench"
)

// job tells one end of a transfer to send (the server) or to receive (the client) so many bytes.
// The server first reports where it can be dialled; both report once they are done.
type job struct {
	Case      string        `json:"case"`
	Dial      string        `json:"dial,omitempty"` // where the server listens; empty for the server itself
	ConfigDir string        `json:"config_dir,omitempty"`
	Local     string        `json:"local"`
	MTU       int           `json:"mtu"`
	Paths     int           `json:"paths"`
	Bytes     int64         `json:"bytes"`
	Timeout   time.Duration `json:"timeout_ns"`

	Congestion congestion.Algorithm `json:"congestion"` // of braid's own QUIC
}

func (j job) serves() bool { return j.Dial == "" }

type report struct {
	Ready   string  `json:"ready,omitempty"`
	CPU     float64 `json:"cpu_s"`
	Seconds float64 `json:"seconds"`
}

// End is one end of a transfer. It runs in a process of its own; see [bench.Work].
func End(ctx context.Context, j job, tell func(any) error) error {
	ctx, cancel := context.WithTimeout(ctx, j.Timeout)
	defer cancel()
	conns, err := connect(ctx, j, func(a net.Addr) error { return tell(report{Ready: a.String()}) })
	if err != nil {
		return err
	}
	cpu, start := bench.CPUTime(), time.Now()
	if err := move(conns, j); err != nil {
		return err
	}
	done := report{CPU: bench.CPUTime() - cpu, Seconds: time.Since(start).Seconds()}
	if err := tell(done); err != nil || !j.serves() {
		return err
	}
	// The client may still need repetitions of the last packets; the benchmark ends this
	// process. Raw datagrams are not repeated, so more of them replace those that were lost.
	if j.Case == "raw" {
		for send(conns[0], block) == nil {
		}
	}
	<-ctx.Done()
	return nil
}

// move sends or receives, an equal share on each connection.
func move(conns []io.ReadWriter, j job) error {
	share := j.Bytes / int64(len(conns))
	var all errgroup.Group
	for _, c := range conns {
		all.Go(func() error {
			if j.serves() {
				return send(c, share)
			}
			return receive(c, share)
		})
	}
	return all.Wait()
}

// block is how much is read or written at once: as much as a small piece of a torrent.
const block = 128 << 10

func send(w io.Writer, n int64) error {
	b := make([]byte, block)
	for ; n > 0; n -= block {
		if _, err := w.Write(b[:min(block, n)]); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

func receive(r io.Reader, n int64) error {
	b := make([]byte, block)
	for n > 0 {
		k, err := r.Read(b[:min(block, n)])
		n -= int64(k)
		if err != nil && n > 0 {
			return fmt.Errorf("receive: %w", err)
		}
	}
	return nil
}

// connect makes the connections of a job. The server calls ready with its address, then waits for
// the client. Everything that connect opens stays open until the process ends.
func connect(ctx context.Context, j job, ready func(net.Addr) error) ([]io.ReadWriter, error) {
	switch j.Case {
	case "tcp", "tls":
		c, err := overTCP(ctx, j, ready)
		return []io.ReadWriter{c}, err
	case "quic-udp":
		c, err := overQUIC(ctx, j, ready)
		return []io.ReadWriter{c}, err
	}
	local, err := netip.ParseAddr(j.Local)
	if err != nil {
		return nil, err
	}
	h, err := scionnet.Open(ctx, scionnet.Config{ConfigDir: j.ConfigDir, LocalIP: local})
	if err != nil {
		return nil, err
	}
	if j.Case == "raw" {
		c, err := overDatagrams(ctx, h, j, ready)
		return []io.ReadWriter{c}, err
	}
	return overSCION(ctx, h, j, ready)
}

func overTCP(ctx context.Context, j job, ready func(net.Addr) error) (io.ReadWriter, error) {
	id, err := scionnet.NewIdentity()
	if err != nil {
		return nil, err
	}
	secret := id.TLS("bench", nil)
	var c net.Conn
	if j.serves() {
		l, err := net.Listen("tcp", net.JoinHostPort(j.Local, "0"))
		if err != nil {
			return nil, err
		}
		if err := ready(l.Addr()); err != nil {
			return nil, err
		}
		if c, err = l.Accept(); err != nil {
			return nil, err
		}
	} else if c, err = new(net.Dialer).DialContext(ctx, "tcp", j.Dial); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { c.Close() }) // reading and writing know no context
	switch {
	case j.Case == "tcp":
		return struct{ io.ReadWriter }{c}, nil // hides io.ReaderFrom, by which the kernel would copy the data
	case j.serves():
		return tls.Server(c, secret), nil
	}
	s := tls.Client(c, secret)
	return s, s.HandshakeContext(ctx)
}

// overQUIC makes a QUIC connection over a UDP socket. Its settings are those of braid's own.
func overQUIC(ctx context.Context, j job, ready func(net.Addr) error) (io.ReadWriter, error) {
	id, err := scionnet.NewIdentity()
	if err != nil {
		return nil, err
	}
	config := &quic.Config{
		InitialPacketSize: uint16(min(j.MTU, 1452)), DisablePathMTUDiscovery: true,
		InitialStreamReceiveWindow: 1 << 20, MaxStreamReceiveWindow: 12 << 20,
		InitialConnectionReceiveWindow: 1 << 20, MaxConnectionReceiveWindow: 12 << 20,
	}
	socket, err := net.ListenPacket("udp", net.JoinHostPort(j.Local, "0"))
	if err != nil {
		return nil, err
	}
	t := &quic.Transport{Conn: socket}
	if j.serves() {
		l, err := t.Listen(id.TLS("bench", nil), config)
		if err != nil {
			return nil, err
		}
		if err := ready(socket.LocalAddr()); err != nil {
			return nil, err
		}
		c, err := l.Accept(ctx)
		if err != nil {
			return nil, err
		}
		s, err := c.AcceptStream(ctx)
		if err != nil {
			return nil, err
		}
		_, err = s.Read(make([]byte, 1)) // the client's first byte
		return s, err
	}
	to, err := net.ResolveUDPAddr("udp", j.Dial)
	if err != nil {
		return nil, err
	}
	c, err := t.Dial(ctx, to, id.TLS("bench", nil), config)
	if err != nil {
		return nil, err
	}
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	_, err = s.Write([]byte{1}) // without it, the server would not notice the stream
	return s, err
}

// overSCION makes braid's own connections, one for each path, over the packet connection that the
// case names.
func overSCION(ctx context.Context, h *scionnet.Host, j job, ready func(net.Addr) error) ([]io.ReadWriter, error) {
	e, err := h.Listen(ctx, scionnet.ListenConfig{PlainPackets: j.Case == "quic-snet", Congestion: j.Congestion})
	if err != nil {
		return nil, err
	}
	var conns []io.ReadWriter
	if j.serves() {
		if err := ready(e.Addr()); err != nil {
			return nil, err
		}
		for range j.Paths {
			c, err := e.Accept(ctx)
			if err != nil {
				return nil, err
			}
			conns = append(conns, c)
		}
		return conns, nil
	}
	remote, paths, err := choosePaths(ctx, h, j)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		c, err := e.Dial(ctx, remote, p, nil)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// choosePaths takes the first paths whose MTU is the job's. It asks until there are enough, since a
// control service that is looking for newer paths does not always name all of them.
func choosePaths(ctx context.Context, h *scionnet.Host, j job) (scionnet.Addr, []pathsel.Path, error) {
	remote, err := scionnet.ParseAddr(j.Dial)
	if err != nil {
		return remote, nil, err
	}
	for {
		paths, err := h.Paths(ctx, remote.IA)
		paths = slices.DeleteFunc(paths, func(p pathsel.Path) bool { return p.MTU != j.MTU })
		if err == nil && len(paths) >= j.Paths {
			return remote, paths[:j.Paths], nil
		}
		if ended := testbed.Sleep(ctx, 100*time.Millisecond); ended != nil {
			return remote, nil, fmt.Errorf("%d paths of MTU %d to %s, want %d: %w",
				len(paths), j.MTU, remote.IA, j.Paths, errors.Join(err, ended))
		}
		if err := h.Refresh(ctx, remote.IA); err != nil {
			return remote, nil, err
		}
	}
}

const (
	rawWindow = 512 << 10 // bytes under way
	rawCredit = 64 << 10  // bytes received for each acknowledgement
	rawSilent = 20 * time.Millisecond
	rawMark   = 0x40 // set in the first byte of each datagram, as scionnet.Datagrams.Send demands
)

// rawConn sends datagrams with a window: the receiver acknowledges what it gets from time to time.
// Lost datagrams are not repeated; the sender sends more instead.
type rawConn struct {
	d     *scionnet.Datagrams
	to    net.Addr
	size  int
	bytes int64 // sent or received
	acked int64 // of them
}

func overDatagrams(ctx context.Context, h *scionnet.Host, j job, ready func(net.Addr) error) (*rawConn, error) {
	d, err := h.OpenDatagrams(ctx)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { d.Close() })
	c := &rawConn{d: d}
	if j.serves() {
		if err := ready(d.Addr()); err != nil {
			return nil, err
		}
		// The client's first datagram is as large as the path carries.
		if c.size, c.to, err = d.Receive(make([]byte, 2048)); err == nil {
			d.Large(c.to, j.MTU)
		}
		return c, err
	}
	remote, paths, err := choosePaths(ctx, h, j)
	if err != nil {
		return nil, err
	}
	if c.to, c.size, err = d.Route(ctx, remote, paths[0]); err != nil {
		return nil, err
	}
	hello := make([]byte, c.size)
	hello[0] = rawMark
	return c, d.Send(hello, c.size, c.to)
}

func (c *rawConn) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(14*c.size, len(rest)) // one batch
		for i := 0; i < n; i += c.size {
			rest[i] |= rawMark
		}
		if err := c.d.Send(rest[:n], c.size, c.to); err != nil {
			return 0, err
		}
		rest = rest[n:]
		c.bytes += int64(n)
		for c.bytes-c.acked > rawWindow {
			_ = c.d.SetReadDeadline(time.Now().Add(rawSilent))
			var ack [16]byte
			if _, _, err := c.d.Receive(ack[:]); errors.Is(err, os.ErrDeadlineExceeded) {
				c.acked = c.bytes // the window's datagrams or their acknowledgements are lost
			} else if err != nil {
				return 0, err
			} else {
				c.acked += rawCredit
			}
		}
	}
	return len(b), nil
}

func (c *rawConn) Read(b []byte) (int, error) {
	n, from, err := c.d.Receive(b)
	if c.bytes += int64(n); err == nil && c.bytes-c.acked >= rawCredit {
		c.acked += rawCredit
		err = c.d.Send([]byte{rawMark}, 1, from)
	}
	return n, err
}
