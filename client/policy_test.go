package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"braid/pathsel"
	"braid/scionnet"
)

// atlas is TCP that passes for SCION: every SCION peer is at one TCP address, and the test says
// which paths there are.
type atlas struct {
	*tcpTransport
	at      Peer
	changes chan struct{}
	dialled chan pathsel.Fingerprint

	mu    sync.Mutex
	paths []pathsel.Path
}

func (a *atlas) Reaches(Peer) bool { return true }

func (a *atlas) Paths(context.Context, Peer) ([]pathsel.Path, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.paths), nil
}

func (a *atlas) set(paths ...pathsel.Path) {
	a.mu.Lock()
	a.paths = paths
	a.mu.Unlock()
	a.changes <- struct{}{}
}

func (a *atlas) Watch(Peer) (<-chan struct{}, func()) { return a.changes, func() {} }

func (a *atlas) Dial(ctx context.Context, _ Peer, path pathsel.Path, want *scionnet.PeerKey) (Wire, error) {
	a.dialled <- path.Fingerprint
	w, err := a.tcpTransport.Dial(ctx, a.at, path, want)
	if err != nil {
		return nil, err
	}
	return fanWire{w, path}, nil
}

// A policy holds for every lookup, not only for the first; what was chosen stays chosen while it is
// away.
func TestPolicyHoldsOverRefreshes(t *testing.T) {
	src, peers, _, _ := limitedSeed(t, 64<<20, 1<<20)
	tcp, err := openTCP(nil, "", nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	peer := mustPeer(t, "1-ff00:0:110,[127.0.0.1]:7")
	dst := peer.scion.IA
	path := func(name string, mtu int) pathsel.Path {
		return pathsel.Path{
			Fingerprint: pathsel.Fingerprint(strings.Repeat(name, 64)), Dst: dst, MTU: mtu,
			Interfaces: []pathsel.Interface{{IA: 1<<48 | 1, ID: 1}, {IA: dst, ID: 1}},
		}
	}
	a, b, small := path("a", 1400), path("b", 1400), path("c", 1280)
	world := &atlas{tcpTransport: tcp, at: peers[0], changes: make(chan struct{}), dialled: make(chan pathsel.Fingerprint, 1000), paths: []pathsel.Path{b, small, a}}
	all, err := pathsel.New("all")
	if err != nil {
		t.Fatal(err)
	}
	policy := pathsel.Policy{MinMTU: 1300, Chosen: map[pathsel.IA][]pathsel.Fingerprint{dst: {a.Fingerprint, small.Fingerprint}}}
	s, err := newSession(Config{Selector: all, Policy: policy}, testLog(t), []Transport{world})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	tr, err := s.Add(src, openStore(t, t.TempDir()), Options{Peers: []Peer{peer}})
	if err != nil {
		t.Fatal(err)
	}
	carries := func(p Progress) bool {
		return slices.ContainsFunc(p.Paths, func(x PathProgress) bool {
			return x.Path.Fingerprint == a.Fingerprint && x.State == pathsel.Active && x.BytesRead > 0
		})
	}
	until(t, tr, "the chosen path at work", carries)
	world.set(b, small)
	until(t, tr, "nothing allowed", func(p Progress) bool {
		// The connection that is there lives on.
		return len(p.Paths) == 1 && p.Paths[0].Path.Fingerprint == a.Fingerprint
	})
	world.set(b, small, a)
	until(t, tr, "the chosen path still at work", carries)
	tr.Close()
	for len(world.dialled) > 0 {
		if f := <-world.dialled; f != a.Fingerprint {
			t.Errorf("path %s was dialled", f.Short())
		}
	}
}

// A policy that leaves nothing is said as long as it does, with how many paths there are and what
// refuses them.
func TestPolicyThatLeavesNothing(t *testing.T) {
	src, peers, _, _ := limitedSeed(t, 64<<10, 1<<20)
	tcp, err := openTCP(nil, "", nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	peer := mustPeer(t, "1-ff00:0:110,[127.0.0.1]:7")
	path := pathsel.Path{Fingerprint: pathsel.Fingerprint(strings.Repeat("a", 64)), MTU: 1280, Interfaces: []pathsel.Interface{{IA: 1, ID: 1}, {IA: 2, ID: 1}}}
	world := &atlas{tcpTransport: tcp, at: peers[0], changes: make(chan struct{}), dialled: make(chan pathsel.Fingerprint, 1000), paths: []pathsel.Path{path}}
	s, err := newSession(Config{Policy: pathsel.Policy{MinMTU: 1300}}, testLog(t), []Transport{world})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	tr, err := s.Add(src, openStore(t, t.TempDir()), Options{Peers: []Peer{peer}})
	if err != nil {
		t.Fatal(err)
	}
	until(t, tr, "said", func(p Progress) bool {
		return len(p.Paths) == 1 && p.Paths[0].Err != nil && strings.Contains(p.Paths[0].Err.Error(), "none of the 1 paths to 1-ff00:0:110 is allowed: 1 by min-mtu (MTU of 1280 is below 1300)")
	})
	path.MTU = 1400
	world.set(path)
	if p := wait(t, tr); p.Paths[0].Err != nil {
		t.Errorf("an error that is over: %v", p.Paths[0].Err)
	}
}

// The paths of ordinary peers are nobody's to choose: a policy says nothing about them.
func TestPolicyLeavesTCPAlone(t *testing.T) {
	src, peers, dir, _ := limitedSeed(t, 64<<10, 10<<20)
	acl, err := pathsel.ParseACL("-")
	if err != nil {
		t.Fatal(err)
	}
	sequence, err := pathsel.ParseSequence("1 2")
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	store := openStore(t, out)
	tr, err := openSession(t, Config{Policy: pathsel.Policy{ACL: acl, Sequence: sequence}}).Add(src, store, Options{Peers: peers})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, tr)
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, src, dir, out)
}

// Policies of the session and of a transfer change while it runs: a path that is now forbidden is
// left, another one is opened, and a path that is allowed again returns.
func TestPolicyChanges(t *testing.T) {
	src, peers, _, _ := limitedSeed(t, 64<<20, 1<<20)
	tcp, err := openTCP(nil, "", nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	peer := mustPeer(t, "1-ff00:0:110,[127.0.0.1]:7")
	path := func(name string, id uint64) pathsel.Path {
		return pathsel.Path{
			Fingerprint: pathsel.Fingerprint(strings.Repeat(name, 64)), Dst: peer.scion.IA, MTU: 1400,
			Interfaces: []pathsel.Interface{{IA: 1<<48 | 1, ID: id}, {IA: peer.scion.IA, ID: id}},
		}
	}
	world := &atlas{
		tcpTransport: tcp, at: peers[0], changes: make(chan struct{}), dialled: make(chan pathsel.Fingerprint, 1000),
		paths: []pathsel.Path{path("a", 1), path("b", 2)},
	}
	all, err := pathsel.New("all")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSession(Config{Selector: all}, testLog(t), []Transport{world})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	without := func(id string) pathsel.Policy {
		acl, err := pathsel.ParseACL("- 1-ff00:0:110#" + id + ", +")
		if err != nil {
			t.Fatal(err)
		}
		return pathsel.Policy{ACL: acl}
	}
	tr, err := s.Add(src, openStore(t, t.TempDir()), Options{Peers: []Peer{peer}, Policy: without("2")})
	if err != nil {
		t.Fatal(err)
	}
	only := func(names string) func(Progress) bool {
		return func(p Progress) bool {
			var open []string
			for _, x := range p.Paths {
				if x.State.Open() {
					open = append(open, string(x.Path.Fingerprint[:1]))
				}
			}
			slices.Sort(open)
			return strings.Join(open, "") == names
		}
	}
	until(t, tr, "the path that the transfer allows", only("a"))
	if r := tr.Refused(); len(r) != 1 || r[0].Clause != pathsel.ByACL || r[0].Path.Fingerprint[:1] != "b" {
		t.Errorf("refused: %+v", r)
	}
	s.SetPolicy(without("1"))
	until(t, tr, "no path", only(""))
	tr.SetPolicy(pathsel.Policy{})
	until(t, tr, "the path that the session allows", only("b"))
	s.SetPolicy(pathsel.Policy{})
	until(t, tr, "both paths", only("ab"))
	until(t, tr, "data", func(p Progress) bool { return p.Fetched > 1<<20 && len(tr.Deliverers(7)) > 0 })
	if p := tr.Peers(); len(p) != 1 || p[0].Conns == 0 || p[0].Have != 1 {
		t.Errorf("peers: %+v", p)
	}
	if d := tr.Deliverers(7); len(d) != 1 || d[0].String() != peer.String() {
		t.Errorf("delivered: %v", d)
	}
	if p := tr.Pieces(); len(p.State) != src.Layout.Pieces() || p.Peers[0] != 1 {
		t.Errorf("pieces: %d, %d peers", len(p.State), p.Peers[0])
	}
}

// Packets that examine the ways to peers and trackers take no forbidden path, also after a change
// of the policy. A tracker whose paths are all forbidden is examined over none.
func TestExaminationObeysPolicies(t *testing.T) {
	at := mustPeer(t, "1-ff00:0:110,[127.0.0.1]:7").scion
	path := func(name string, mtu int) pathsel.Path {
		return pathsel.Path{
			Fingerprint: pathsel.Fingerprint(strings.Repeat(name, 64)), Dst: at.IA, MTU: mtu,
			Interfaces: []pathsel.Interface{{IA: 1<<48 | 1, ID: 1}, {IA: at.IA, ID: 1}},
		}
	}
	small, middle, large := path("a", 1280), path("b", 1400), path("c", 1472)
	all := []pathsel.Path{small, middle, large}
	c := &checkup{core: &core{common: &common{}, policy: pathsel.Policy{MinMTU: 1300}}}
	c.common.policy.Store(&pathsel.Policy{Chosen: map[pathsel.IA][]pathsel.Fingerprint{
		at.IA: {small.Fingerprint, middle.Fingerprint},
	}})
	isMiddle := func(paths []pathsel.Path) bool {
		return len(paths) == 1 && paths[0].Fingerprint == middle.Fingerprint
	}
	next := c.next([]target{{Name: "peer", At: at, examination: examination{Paths: all}}})
	if len(next) != 1 || !isMiddle(next[0].Paths) {
		t.Errorf("examines %+v", next)
	}
	tracker, world := target{Tracker: true, At: at}, &atlas{paths: all}
	if got, err := tracker.ways(t.Context(), world, c.policies()); err != nil || !isMiddle(got) {
		t.Errorf("examines a tracker over %+v; %v", got, err)
	}
	c.policy.MinMTU = 1450
	got, err := tracker.ways(t.Context(), world, c.policies())
	e, ok := errors.AsType[*pathsel.RefusedError](err)
	if !ok || len(e.Refused) != 3 || len(got) != 0 {
		t.Errorf("examines a tracker that the policy forbids over %+v; %v", got, err)
	}
}
