package dht

import (
	"cmp"
	"context"
	"net"
	"slices"
	"sync"

	"golang.org/x/time/rate"

	"braid/pathsel"
	"braid/scionnet"
)

const (
	// maxLookups bounds the path lookups under way, and newASes the new ones in a second. A
	// stranger can claim any AS in a query, and causes a lookup when we ask it something.
	maxLookups, newASes = 16, 20
	// maxWaiting bounds the queries that wait for a lookup.
	maxWaiting = 16
	// maxASes bounds the ASes whose path is remembered.
	maxASes = 1024
)

// scionSocket is a Socket on SCION, at a port of its own.
type scionSocket struct {
	*scionnet.Datagrams
	host    *scionnet.Host
	allow   func([]pathsel.Path) []pathsel.Path
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	lookups sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	turns   map[pathsel.IA]int // which of the paths to an AS is used; the first one if it is not there
	waiting map[pathsel.IA][]waiting
	rate    *rate.Limiter // of lookups
}

// waiting is a query that waits for the lookup of paths to its AS.
type waiting struct {
	b     []byte
	to    Addr
	again bool
}

// ListenSCION opens a socket on SCION; port 0 is any free one. allow returns the paths that may be
// used; nil: all.
func ListenSCION(
	ctx context.Context, h *scionnet.Host, port uint16, allow func([]pathsel.Path) []pathsel.Path,
) (Socket, error) {
	d, err := h.OpenMessages(ctx, port)
	if err != nil {
		return nil, err
	}
	s := &scionSocket{
		Datagrams: d, host: h, allow: allow,
		turns: map[pathsel.IA]int{}, waiting: map[pathsel.IA][]waiting{},
		rate: rate.NewLimiter(newASes, newASes),
	}
	if allow == nil {
		s.allow = func(p []pathsel.Path) []pathsel.Path { return p }
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

func (s *scionSocket) Network() Network { return OverSCION }

func (s *scionSocket) Addr() Addr { return s.Datagrams.Addr() }

func (s *scionSocket) Receive(b []byte) (int, Origin, net.Addr, error) {
	for {
		n, back, err := s.Datagrams.Receive(b)
		if err != nil {
			return 0, Origin{}, nil, err
		}
		if a, proven, ok := s.Sender(back); ok {
			return n, Origin{Addr: a, Proven: proven}, back, nil
		}
	}
}

func (s *scionSocket) Reply(b []byte, back net.Addr) { _ = s.Datagrams.Send(b, len(b), back) }

// Send sends a query along a path that the control plane offers to the AS. So an answer proves that
// somebody in that AS has received the query.
func (s *scionSocket) Send(b []byte, to Addr, again bool) {
	if paths, ok := s.host.KnownPaths(to.IA); ok {
		s.sendOver(b, to, paths, s.pathTurn(to.IA, again))
		return
	}
	if !s.waitForPaths(waiting{b, to, again}) {
		return
	}
	// The first lookup takes some milliseconds, or seconds if the control service is busy.
	go func() {
		defer s.lookups.Done()
		paths, err := s.host.PathsOnce(s.ctx, to.IA)
		s.mu.Lock()
		all := s.waiting[to.IA]
		delete(s.waiting, to.IA)
		s.mu.Unlock()
		if err != nil {
			return
		}
		for _, w := range all {
			s.sendOver(w.b, w.to, paths, s.pathTurn(to.IA, w.again))
		}
	}()
}

// pathTurn tells which path to an AS is next.
func (s *scionSocket) pathTurn(ia pathsel.IA, again bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if again { // and stay with that path if it is the better one
		if len(s.turns) >= maxASes {
			clear(s.turns)
		}
		s.turns[ia]++
	}
	return s.turns[ia]
}

// waitForPaths keeps a query for the time when the paths to its AS are known. It returns true if
// the caller has to look them up. It drops the query if too many are waiting.
func (s *scionSocket) waitForPaths(w waiting) (lookUp bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, asking := s.waiting[w.to.IA]
	if !asking && (s.closed || len(s.waiting) >= maxLookups || !s.rate.Allow()) || len(all) >= maxWaiting {
		return false
	}
	s.waiting[w.to.IA] = append(all, w)
	if !asking {
		s.lookups.Add(1)
	}
	return !asking
}

// sendOver sends over one of the paths, best first: announced latency, then hops.
func (s *scionSocket) sendOver(b []byte, to Addr, paths []pathsel.Path, turn int) {
	if paths = s.usable(paths); len(paths) > 0 {
		_ = s.SendOver(s.ctx, b, to, paths[turn%len(paths)]) // a lost message is repeated
	}
}

// usable returns the allowed paths in the order in which they are tried. Paths over a link that is
// down are left out, unless there are no others.
func (s *scionSocket) usable(paths []pathsel.Path) []pathsel.Path {
	paths = s.allow(slices.Clone(paths))
	isDown := func(p pathsel.Path) bool {
		_, down := s.host.Revoked(p)
		return down
	}
	if up := slices.DeleteFunc(slices.Clone(paths), isDown); len(up) > 0 {
		paths = up
	}
	slices.SortStableFunc(paths, comparePaths)
	return paths
}

// comparePaths has those with an announced latency first.
func comparePaths(a, b pathsel.Path) int {
	if a.LatencyKnown && b.LatencyKnown {
		return cmp.Compare(a.Latency, b.Latency)
	}
	return cmp.Or(flag(b.LatencyKnown)-flag(a.LatencyKnown), cmp.Compare(a.Hops(), b.Hops()))
}

func (s *scionSocket) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	err := s.Datagrams.Close()
	s.lookups.Wait()
	return err
}
