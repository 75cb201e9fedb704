package client

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"braid/pathsel"
)

// peerBook is what a transfer knows, without one: peers that are dialled fail, or connect if they
// are there.
type peerBook struct {
	now   time.Time
	all   []acquaintance
	there map[string]bool // hosts
}

func (b *peerBook) add(ips ...string) {
	for _, ip := range ips {
		b.all = append(b.all, acquaintance{origin: fromIP(ip)})
	}
}

func (b *peerBook) step(t *testing.T) {
	t.Helper()
	dial, forget := choosePeers(b.all, MaxPeers, b.now)
	n, nets, hosts := 0, map[string]int{}, map[string]int{}
	var next []acquaintance
	for i, a := range b.all {
		if dial[i] && forget[i] {
			t.Fatal("a peer is dialled and forgotten")
		}
		if a.isDialled && a.connected && !dial[i] {
			t.Fatal("a connected peer was put aside")
		}
		if a.isDialled = dial[i]; a.isDialled {
			n++
			nets[a.origin.Net]++
			hosts[a.origin.Host]++
			if n > MaxPeers || nets[a.origin.Net] > maxPeersPerNet || hosts[a.origin.Host] > maxPeersPerHost {
				t.Fatalf("%d peers are dialled, %d of %s", n, nets[a.origin.Net], a.origin)
			}
			if a.connected = b.there[a.origin.Host]; !a.connected {
				a.failures++
				a.retry = b.now.Add(time.Duration(a.failures) * time.Second)
			}
		}
		if !forget[i] {
			next = append(next, a)
		}
	}
	if b.all = next; len(b.all) > maxKnown {
		t.Fatalf("%d peers are known", len(b.all))
	}
	b.now = b.now.Add(time.Second)
}

func (b *peerBook) connected() (n int) {
	for _, a := range b.all {
		if a.connected {
			n++
		}
	}
	return n
}

// Lists of dead addresses, before and after the one that is there, and however they are spread over
// networks.
func TestDeadPeersMakeRoom(t *testing.T) {
	for _, c := range []struct {
		name string
		dead func(i int) string
	}{
		{"one network each", func(i int) string { return fmt.Sprintf("10.%d.%d.1", i/250, i%250) }},
		{"one network", func(i int) string { return fmt.Sprintf("10.0.0.%d", i%250) }},
		{"one host", func(int) string { return "10.0.0.1" }},
	} {
		for _, before := range []int{0, 100, 256, 700, 2000} {
			b := &peerBook{now: time.Unix(1e9, 0), there: map[string]bool{"192.0.2.1": true}}
			for i := range before {
				b.add(c.dead(i))
			}
			b.step(t)
			b.add("192.0.2.1")
			for i := range 2000 {
				b.add(c.dead(before + i))
			}
			for range 5 {
				b.step(t)
			}
			if b.connected() != 1 {
				t.Errorf("%s: %d dead peers first, and the one that is there was not reached", c.name, before)
			}
		}
	}
}

// Who delivered keeps its place over a failure or two, and those that were put aside are tried
// again.
func TestPeersTakeTurns(t *testing.T) {
	b := &peerBook{now: time.Unix(1e9, 0), there: map[string]bool{}}
	for i := range 600 {
		b.add(fmt.Sprintf("10.%d.%d.1", i/250, i%250))
	}
	b.all[7].delivered, b.all[8].banned = true, true
	tried := b.all[7].origin
	for range deliveredPatience {
		b.step(t)
		for _, a := range b.all {
			if a.origin == tried && !a.isDialled {
				t.Fatal("a peer that has delivered was put aside at once")
			}
		}
	}
	for range 20 {
		b.step(t)
	}
	least, most := 1<<30, 0
	for _, a := range b.all {
		if a.banned && a.failures > 0 {
			t.Error("a banned peer was tried")
		}
		if !a.banned && !a.delivered {
			least, most = min(least, a.failures), max(most, a.failures)
		}
	}
	if least == 0 || most > 2*least {
		t.Errorf("tried %d to %d times", least, most)
	}
}

func TestChoosePeersProperties(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 5))
		b := &peerBook{now: time.Unix(1e9, 0), there: map[string]bool{}}
		for range 30 {
			for range r.IntN(200) {
				ip := fmt.Sprintf("10.%d.%d.%d", r.IntN(4), r.IntN(1+r.IntN(200)), r.IntN(1+r.IntN(9)))
				b.there[ip] = b.there[ip] || r.IntN(8) == 0
				b.add(ip)
			}
			b.step(t)
		}
	}
}

// A tracker names 300 addresses at which nobody is. The seed that is named after them is found all
// the same.
func TestSeedBehindDeadPeers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRandom(t, filepath.Join(dir, "file"), 100_000)
	src := makeTorrent(t, filepath.Join(dir, "file"), CreateOptions{}).Source
	tr, err := openSession(t, Config{}).Add(src, openStore(t, t.TempDir()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var dead []Peer
	for i := range 300 {
		dead = append(dead, mustPeer(t, fmt.Sprintf("127.1.%d.%d:9", i%250, 1+i/250)))
	}
	tr.AddPeers(dead...)
	tr.AddPeers(seed(t, src, dir).Listening()...)
	wait(t, tr)
}

// With a limit fewer peers are dialled, the connected ones first, and those beyond a limit that has
// become lower are put aside.
func TestPeerLimit(t *testing.T) {
	var s peerSet
	for i := range 10 {
		s.add(mustPeer(t, fmt.Sprintf("10.0.%d.1:7", i)), nil, FromTracker)
	}
	now := time.Unix(1e9, 0)
	for _, step := range []struct{ most, dial, aside, dialled int }{{3, 3, 0, 3}, {5, 2, 0, 5}, {2, 0, 3, 2}, {0, 8, 0, 10}} {
		s.most = step.most
		dial, aside := s.choose(now)
		if len(dial) != step.dial || len(aside) != step.aside || len(s.dialled) != step.dialled {
			t.Errorf("at most %d: %d more are dialled, %d put aside, %d dialled", step.most, len(dial), len(aside), len(s.dialled))
		}
	}
}

// The rate of a long-running seed goes on after old connections were forgotten.
func TestRatesAfterForgottenRows(t *testing.T) {
	old, present := &row{}, &row{}
	peers := peerSet{accepted: []*row{old, present}}
	start := time.Now()
	r := rates{since: start}
	old.past.written = 1 << 30
	r.measure(&peers, start.Add(time.Second))
	peers.accepted = peers.accepted[1:]
	for i := range 60 {
		present.past.written += 1 << 20
		r.measure(&peers, start.Add(time.Duration(2+i)*time.Second))
	}
	if want := float64(8 << 20); r.out.rate < want*0.9 || r.out.rate > want*1.1 {
		t.Errorf("%.0f bit/s, want %.0f", r.out.rate, want)
	}
}

// A peer whose paths change for years keeps the latest ones. It still counts as one that has
// delivered data.
func TestOldPathsAreForgotten(t *testing.T) {
	tr := transferWithoutPeers(t, smallTorrent(t), Options{})
	p := &peerState{peer: mustPeer(t, "10.0.0.1:7"), transport: &tcpTransport{}, endLookups: func() {}}
	p.isDialled = true
	tr.do(func() {
		tr.cfg.MaxPaths = 1
		tr.peers.byID = map[pathsel.PeerID]*peerState{p.peer.ID(): p}
		tr.peers.dialled = []*peerState{p}
		for i := range 3 * maxUnlisted {
			now := pathsel.Path{Fingerprint: pathsel.Fingerprint(fmt.Sprint(i))}
			tr.loop.connector.onPaths(p.peer, []pathsel.Path{now}, nil)
			p.paths[0].past.read, p.paths[0].delivered = 1, i == 0
			tr.loop.connector.look()
			if n := len(p.paths); n != 1+min(i, maxUnlisted) || p.paths[0].path.Fingerprint != now.Fingerprint {
				t.Errorf("%d paths after %d changes", n, i)
				return
			}
		}
		if last := p.paths[maxUnlisted].path.Fingerprint; last != pathsel.Fingerprint(fmt.Sprint(2*maxUnlisted-1)) {
			t.Errorf("the oldest path is %s", last)
		}
		if !p.now(time.Now()).delivered || len(tr.peers.deliverers(1)) != 1 {
			t.Error("the peer counts as one that has not delivered data")
		}
	})
}
