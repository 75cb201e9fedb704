package transportbench

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/scionnet/congestion"
	"braid/scionnet/quic"
)

// job is what a process of the benchmark is told on its standard input: to send (server) or to receive (client) so many
// bytes. The server answers with ready when it can be dialled, and both end with done.
type job struct {
	Case      string        `json:"case"`
	Dial      string        `json:"dial,omitempty"` // where the server listens; empty: be the server
	ConfigDir string        `json:"config_dir,omitempty"`
	Local     string        `json:"local"`
	MTU       int           `json:"mtu"`
	Paths     int           `json:"paths"`
	Bytes     int64         `json:"bytes"`
	Timeout   time.Duration `json:"timeout_ns"`

	Congestion congestion.Algorithm `json:"congestion"` // of braid's own QUIC
}

type report struct {
	Ready   string  `json:"ready,omitempty"`
	Done    bool    `json:"done,omitempty"`
	CPU     float64 `json:"cpu_s"`
	Seconds float64 `json:"seconds"`
}

// End is one end of a transfer: the work of a process of its own, so that its CPU time can be told from the others'. It
// reads a job from in and writes reports to out.
func End(ctx context.Context, in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read the job (this is started by 'braid bench transport', not by hand): %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, j.Timeout)
	defer cancel()
	// Who started us may go away.
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	t, err := open(ctx, j)
	if err != nil {
		return err
	}
	defer t.close()
	e := json.NewEncoder(out)
	if j.Dial == "" {
		if err := e.Encode(report{Ready: t.address()}); err != nil {
			return err
		}
	}
	conns, err := t.connect(ctx, j)
	if err != nil {
		return err
	}
	cpu, start := cpuTime(), time.Now()
	if err := move(conns, j); err != nil {
		return err
	}
	r := report{Done: true, CPU: cpuTime() - cpu, Seconds: time.Since(start).Seconds()}
	if err := e.Encode(r); err != nil {
		return err
	}
	if j.Dial != "" {
		return nil
	}
	// Until the client is content: the last packets may have to be sent again, or others in their place.
	if j.Case == "raw" {
		for send(conns[0], block) == nil {
		}
	}
	<-ctx.Done()
	return nil
}

// transport is a way to make connections.
type transport interface {
	address() string
	connect(ctx context.Context, j job) ([]io.ReadWriter, error)
	close()
}

// move sends or receives, an equal share on each connection.
func move(conns []io.ReadWriter, j job) error {
	errs := make([]error, len(conns))
	share := j.Bytes / int64(len(conns))
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			if j.Dial == "" {
				errs[i] = send(c, share)
			} else {
				errs[i] = receive(c, share)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// block is what is read or written at once: a piece of some size, as a client of BitTorrent has.
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

// cpuTime is the CPU seconds that this process has used, user and system.
func cpuTime() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

func open(ctx context.Context, j job) (transport, error) {
	switch j.Case {
	case "tcp", "tls":
		return openTCP(j)
	case "quic-udp":
		return openQUIC(j)
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
		d, err := h.OpenDatagrams(ctx, 0)
		if err != nil {
			return nil, errors.Join(err, h.Close())
		}
		return &rawTransport{h, d}, nil
	}
	e, err := h.Listen(ctx, scionnet.ListenConfig{PlainPackets: j.Case == "quic-snet", Congestion: j.Congestion})
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return &scionTransport{h, e}, nil
}

type tcpTransport struct {
	listener net.Listener
	tls      *tls.Config // nil: plain TCP
}

func openTCP(j job) (*tcpTransport, error) {
	t := &tcpTransport{}
	if j.Case == "tls" {
		id, err := scionnet.NewIdentity()
		if err != nil {
			return nil, err
		}
		t.tls = id.TLS("bench", nil)
	}
	if j.Dial != "" {
		return t, nil
	}
	var err error
	t.listener, err = net.Listen("tcp", net.JoinHostPort(j.Local, "0"))
	return t, err
}

func (t *tcpTransport) address() string { return t.listener.Addr().String() }

func (t *tcpTransport) connect(ctx context.Context, j job) ([]io.ReadWriter, error) {
	var c net.Conn
	var err error
	if t.listener != nil {
		c, err = t.listener.Accept()
	} else {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", j.Dial)
	}
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	switch {
	case t.tls == nil:
		// Without io.ReaderFrom, by which Go would leave the copying to the kernel.
		return []io.ReadWriter{struct{ io.ReadWriter }{c}}, nil
	case t.listener != nil:
		return []io.ReadWriter{tls.Server(c, t.tls)}, nil
	}
	s := tls.Client(c, t.tls)
	return []io.ReadWriter{s}, s.HandshakeContext(ctx)
}

func (t *tcpTransport) close() {
	if t.listener != nil {
		t.listener.Close()
	}
}

// quicTransport is quic-go over a UDP socket, configured as ours is but for the packets.
type quicTransport struct {
	quic     *quic.Transport
	socket   *net.UDPConn
	listener *quic.Listener
	tls      *tls.Config
	config   *quic.Config
}

func openQUIC(j job) (*quicTransport, error) {
	ip, err := netip.ParseAddr(j.Local)
	if err != nil {
		return nil, err
	}
	id, err := scionnet.NewIdentity()
	if err != nil {
		return nil, err
	}
	t := &quicTransport{tls: id.TLS("bench", nil), config: &quic.Config{
		InitialPacketSize: uint16(min(j.MTU, 1452)), DisablePathMTUDiscovery: true,
		InitialStreamReceiveWindow: 1 << 20, MaxStreamReceiveWindow: 12 << 20,
		InitialConnectionReceiveWindow: 1 << 20, MaxConnectionReceiveWindow: 12 << 20,
	}}
	if t.socket, err = net.ListenUDP("udp", &net.UDPAddr{IP: ip.AsSlice()}); err != nil {
		return nil, err
	}
	t.quic = &quic.Transport{Conn: t.socket}
	if j.Dial == "" {
		if t.listener, err = t.quic.Listen(t.tls, t.config); err != nil {
			return nil, errors.Join(err, t.socket.Close())
		}
	}
	return t, nil
}

func (t *quicTransport) address() string { return t.socket.LocalAddr().String() }

func (t *quicTransport) connect(ctx context.Context, j job) ([]io.ReadWriter, error) {
	if t.listener != nil {
		c, err := t.listener.Accept(ctx)
		if err != nil {
			return nil, err
		}
		s, err := c.AcceptStream(ctx)
		if err != nil {
			return nil, err
		}
		_, err = s.Read(make([]byte, 1))
		return []io.ReadWriter{s}, err
	}
	to, err := net.ResolveUDPAddr("udp", j.Dial)
	if err != nil {
		return nil, err
	}
	c, err := t.quic.Dial(ctx, to, t.tls, t.config)
	if err != nil {
		return nil, err
	}
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	_, err = s.Write([]byte{1}) // else the server does not hear of the stream
	return []io.ReadWriter{s}, err
}

func (t *quicTransport) close() {
	t.quic.Close()
	t.socket.Close()
}

// scionTransport is braid's own, over either packet connection.
type scionTransport struct {
	host     *scionnet.Host
	endpoint *scionnet.Endpoint
}

func (t *scionTransport) address() string { return t.endpoint.Addr().String() }

func (t *scionTransport) connect(ctx context.Context, j job) ([]io.ReadWriter, error) {
	var conns []io.ReadWriter
	if j.Dial == "" {
		for range j.Paths {
			c, err := t.endpoint.Accept(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := c.Read(make([]byte, 1)); err != nil {
				return nil, err
			}
			conns = append(conns, c)
		}
		return conns, nil
	}
	remote, paths, err := choose(ctx, t.host, j)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		c, err := t.endpoint.Dial(ctx, remote, p, nil)
		if err != nil {
			return nil, err
		}
		if _, err := c.Write([]byte{1}); err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	return conns, nil
}

func (t *scionTransport) close() {
	t.endpoint.Close()
	t.host.Close()
}

// choose takes the first paths whose MTU is the job's. A control service that is just finding newer ones does not name
// all of them at every moment.
func choose(ctx context.Context, h *scionnet.Host, j job) (scionnet.Addr, []pathsel.Path, error) {
	remote, err := scionnet.ParseAddr(j.Dial)
	if err != nil {
		return remote, nil, err
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		paths, err := h.Paths(ctx, remote.IA)
		paths = slices.DeleteFunc(paths, func(p pathsel.Path) bool { return p.MTU != j.MTU })
		if err == nil && len(paths) >= j.Paths {
			return remote, paths[:j.Paths], nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return remote, nil, fmt.Errorf("%d paths of MTU %d to %s, want %d: %w", len(paths), j.MTU, remote.IA, j.Paths, errors.Join(err, ctx.Err()))
		}
		if err := h.Refresh(ctx, remote.IA); err != nil {
			return remote, nil, err
		}
	}
}

// rawTransport sends datagrams as fast as the receiver takes them: it says how much it has from time to time, and the
// sender keeps a window of it under way. What is lost is not repeated, but more is sent in its place.
type rawTransport struct {
	host *scionnet.Host
	d    *scionnet.Datagrams
}

const (
	rawWindow = 512 << 10 // bytes under way
	rawCredit = 64 << 10  // received for each answer
	rawSilent = 20 * time.Millisecond
	rawMark   = 0x40 // of the first byte, which tells a datagram from a frame
)

func (t *rawTransport) address() string { return t.d.Addr().String() }

func (t *rawTransport) connect(ctx context.Context, j job) ([]io.ReadWriter, error) {
	context.AfterFunc(ctx, func() { t.d.Close() })
	if j.Dial != "" {
		remote, paths, err := choose(ctx, t.host, j)
		if err != nil {
			return nil, err
		}
		to, size, err := t.d.Route(ctx, remote, paths[0])
		if err != nil {
			return nil, err
		}
		hello := make([]byte, size)
		hello[0] = rawMark
		return []io.ReadWriter{&rawConn{t: t, to: to, size: size}}, t.d.Send(hello, size, to)
	}
	b := make([]byte, 2048)
	n, to, err := t.d.Receive(b)
	if err != nil {
		return nil, err
	}
	return []io.ReadWriter{&rawConn{t: t, to: to, size: n, large: j.MTU}}, nil
}

func (t *rawTransport) close() {
	t.d.Close()
	t.host.Close()
}

type rawConn struct {
	t      *rawTransport
	to     net.Addr
	size   int
	large  int
	sent   int64
	credit int64
	got    int64
	told   int64
}

func (c *rawConn) Write(b []byte) (int, error) {
	if c.large > 0 {
		c.t.d.Large(c.to, c.large)
		c.large = 0
	}
	batch := 14 * c.size
	for rest := b; len(rest) > 0; {
		n := min(batch, len(rest))
		for i := 0; i < n; i += c.size {
			rest[i] |= rawMark
		}
		if err := c.t.d.Send(rest[:n], c.size, c.to); err != nil {
			return 0, err
		}
		rest = rest[n:]
		c.sent += int64(n)
		for c.sent-c.credit > rawWindow {
			_ = c.t.d.SetReadDeadline(time.Now().Add(rawSilent))
			var answer [16]byte
			if _, _, err := c.t.d.Receive(answer[:]); errors.Is(err, os.ErrDeadlineExceeded) {
				c.credit = c.sent // the answers, or what they would answer, are lost
			} else if err != nil {
				return 0, err
			} else {
				c.credit += rawCredit
			}
		}
	}
	return len(b), nil
}

func (c *rawConn) Read(b []byte) (int, error) {
	n, from, err := c.t.d.Receive(b)
	if err != nil {
		return n, err
	}
	if c.got += int64(n); c.got-c.told >= rawCredit {
		c.told += rawCredit
		return n, c.t.d.Send([]byte{rawMark}, 1, from)
	}
	return n, nil
}

func readReport(r *bufio.Scanner) (report, error) {
	var v report
	if !r.Scan() {
		if err := r.Err(); err != nil {
			return v, err
		}
		return v, io.ErrUnexpectedEOF
	}
	return v, json.Unmarshal(r.Bytes(), &v)
}
