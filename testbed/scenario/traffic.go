package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/testbed"
)

// host returns the runner's own SCION host in an AS.
func (h *fixtures) host(ctx context.Context, ia pathsel.IA) (*scionnet.Host, error) {
	if host, ok := h.hosts[ia]; ok {
		return host, nil
	}
	host, err := scionnet.Open(ctx, scionnet.Config{
		ConfigDir: h.network.ConfigDir(ia), LocalIP: h.network.HostIP(ia),
		Logger: slog.New(slog.NewTextHandler(h.log, nil)),
	})
	if err != nil {
		return nil, fmt.Errorf("open a host in %s: %w", ia, err)
	}
	h.hosts[ia] = host
	return host, nil
}

// flow is cross traffic under way.
type flow struct {
	Traffic
	path     pathsel.Path
	route    route
	header   int // bytes of SCION and UDP in a packet on the path
	from, to *scionnet.Host

	bytes   atomic.Int64       // of payload that has arrived
	stop    context.CancelFunc // nil: it does not run
	working sync.WaitGroup
	err     error // how it broke; read it when working is over
}

// prepare looks up the path of the flow.
func (f *flow) prepare(ctx context.Context, h *fixtures) (err error) {
	t := f.Traffic
	if f.from, err = h.host(ctx, t.From); err != nil {
		return err
	}
	if f.to, err = h.host(ctx, t.To); err != nil {
		return err
	}
	paths, err := f.from.Paths(ctx, t.To)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(paths, func(p pathsel.Path) bool { return slices.Contains(p.Interfaces, t.Over.Interface) })
	if i < 0 {
		return fmt.Errorf("none of %d paths from %s to %s crosses %s", len(paths), t.From, t.To, t.Over)
	}
	f.path = paths[i]
	if f.header, err = testbed.PathHeader(h.network.Topology(), f.path.Interfaces); err != nil {
		return err
	}
	f.route, err = routeOf(h.network.Topology(), f.path, false)
	return err
}

// start starts the flow.
func (f *flow) start() {
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	run := f.bulk
	if f.Kind == Datagrams {
		run = f.datagrams
	}
	f.working.Go(func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			f.err = fmt.Errorf("traffic %s: %w", f.Name, err)
		}
	})
}

// bulk sends over one QUIC connection as fast as possible.
func (f *flow) bulk(ctx context.Context) error {
	const chunk = 64 << 10
	sink, err := f.to.Listen(ctx, scionnet.ListenConfig{})
	if err != nil {
		return err
	}
	defer sink.Close()
	source, err := f.from.Listen(ctx, scionnet.ListenConfig{})
	if err != nil {
		return err
	}
	defer source.Close()
	defer context.AfterFunc(ctx, func() { source.Close() })()
	f.working.Go(func() {
		c, err := sink.Accept(ctx)
		if err != nil {
			return // the sender says why
		}
		b := make([]byte, chunk)
		for {
			n, err := c.Read(b)
			f.bytes.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	c, err := source.Dial(ctx, sink.Addr(), f.path, nil)
	if err != nil {
		return err
	}
	for b := make([]byte, chunk); ; {
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}

// datagrams sends at the flow's rate, even if datagrams are lost.
func (f *flow) datagrams(ctx context.Context) error {
	const (
		size = 1200
		tick = 2 * time.Millisecond // a burst of as many as are due; a link's queue smooths it
	)
	sink, err := f.to.OpenDatagrams(ctx)
	if err != nil {
		return err
	}
	defer sink.Close()
	f.working.Go(func() {
		b := make([]byte, size)
		for {
			n, _, err := sink.Receive(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			f.bytes.Add(int64(n))
		}
	})
	source, err := f.from.OpenDatagrams(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	to, _, err := source.Route(ctx, sink.Addr(), f.path)
	if err != nil {
		return err
	}
	b := make([]byte, size)
	b[0] = 0x40 // as in QUIC, which Send asks for
	begin, sent := time.Now(), int64(0)
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			due := int64(float64(f.Rate) / 8 * now.Sub(begin).Seconds())
			for ; sent < due; sent += int64(size + f.header) {
				if err := source.Send(b, size, to); err != nil {
					return err
				}
			}
		}
	}
}
