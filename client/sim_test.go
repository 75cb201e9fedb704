package client

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"braid/pathsel"
	"braid/scionnet"
	"braid/storage"
)

// simulated is a transport on which each address leads to a function that plays the peer, over a
// pipe in memory: in a synctest bubble a session over it lives in simulated time.
type simulated struct {
	onIP
	peers map[string]func(net.Conn) // the connection is closed when it returns
	trip  time.Duration             // what is measured of a connection
	wrap  func(storage.Store) storage.Store
}

func (s *simulated) Name() string { return "tcp" }

func (s *simulated) Dial(_ context.Context, p Peer, _ pathsel.Path, _ *scionnet.PeerKey) (Wire, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		s.peers[p.String()](theirs)
	}()
	return simulatedWire{ours, p, s.trip}, nil
}

func (s *simulated) Listening() []Peer { return nil }

func (s *simulated) Close() error {
	s.stop()
	return nil
}

type simulatedWire struct {
	net.Conn
	peer Peer
	trip time.Duration
}

func (w simulatedWire) Peer() Peer             { return w.peer }
func (w simulatedWire) Path() pathsel.Path     { return pathsel.Path{} }
func (w simulatedWire) Key() *scionnet.PeerKey { return nil }
func (w simulatedWire) Origin() pathsel.Origin { return w.peer.origin() }
func (w simulatedWire) Measure() Measurement   { return Measurement{RTT: w.trip} }

// simulateDownload downloads the data from the peers, and returns how long that took. Meanwhile it
// calls the given functions.
func simulateDownload(t *testing.T, src Source, data string, sim simulated, during ...func(*Transfer)) time.Duration {
	t.Helper()
	sim.onIP = newOnIP("")
	s, err := newSession(Config{}, testLog(t), []Transport{&sim})
	if err != nil {
		t.Fatal(err)
	}
	var addresses []Peer
	for a := range sim.peers {
		addresses = append(addresses, mustPeer(t, a))
	}
	out := t.TempDir()
	store := openStore(t, out)
	begin := time.Now()
	inner := store
	if sim.wrap != nil {
		inner = sim.wrap(store)
	}
	tr, err := s.Add(src, inner, Options{Peers: addresses})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range during {
		f(tr)
	}
	select {
	case <-tr.Done():
	case <-time.After(time.Hour):
		t.Errorf("not done: %+v", tr.Progress())
	}
	took := time.Since(begin)
	time.Sleep(time.Second) // what the peers are in the middle of
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if !t.Failed() {
		sameFiles(t, src, data, out)
	}
	return took
}

// simulateUntil waits in simulated time until the progress is as wanted.
func simulateUntil(t *testing.T, tr *Transfer, wanted func(Progress) bool) {
	t.Helper()
	for begin := time.Now(); !wanted(tr.Progress()); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Hour {
			t.Fatalf("waited an hour in vain: %+v", tr.Progress())
		}
	}
}

// Peers that have everything and do not answer, or hardly, do not hold up those who do answer, even
// where all that is missing is one block.
func TestMutePeers(t *testing.T) {
	const most = 6 * time.Minute // each mute peer is asked once or twice, for 8 s
	for name, c := range map[string]struct {
		size, mute, honest int
		slow               bool
	}{
		"one block, one mute peer":     {7000, 1, 2, false},
		"one block, several":           {7000, 6, 1, false},
		"a few blocks, more mute ones": {100_000, 8, 1, false},
		"a byte a second":              {7000, 1, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				data := filepath.Join(dir, "file")
				writeRandom(t, data, c.size)
				const length = 32 << 10
				src := makeTorrent(t, data, CreateOptions{PieceLength: length}).Source
				peers := map[string]func(net.Conn){}
				for i := range c.mute + c.honest {
					f := forgetful{data: readFile(t, data), length: length, fast: true, every: 1, slow: c.slow}
					if i >= c.mute {
						f.every = 1 << 30
					}
					a := net.JoinHostPort(net.IPv4(10, byte(i), 0, 1).String(), "1")
					peers[a] = func(conn net.Conn) { f.serve(conn, src) }
				}
				if took := simulateDownload(t, src, dir, simulated{peers: peers}); took > most {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// On IP a peer has one path that never changes, so no goroutine waits for changes: there may be
// thousands of torrents, each with hundreds of peers.
func TestPathsOnIPAreLookedUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connector{core: &core{inbox: newInbox()}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		c.lookPaths(ctx, &simulated{}, mustPeer(t, "10.0.0.1:1"))
		if ctx.Err() != nil || len(c.inbox.take()) != 1 {
			t.Error("a goroutine waits for another path, or there is none")
		}
	})
}

// A peer that has what we want and does not serve us is shown as such.
func TestInterestedInAChokingPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := smallTorrent(t)
		sim := &simulated{onIP: newOnIP(""), peers: map[string]func(net.Conn){"10.0.0.1:1": func(c net.Conn) {
			p := newRaw(c)
			if _, err := p.handshake(greeting(src, "-XX0001-")); err != nil {
				return
			}
			go p.send(raw(msgHaveAll))
			for {
				if _, err := p.next(); err != nil {
					return
				}
			}
		}}}
		s, err := newSession(Config{}, testLog(t), []Transport{sim})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		store := openStore(t, t.TempDir())
		defer store.Close()
		tr, err := s.Add(src, store, Options{Peers: []Peer{mustPeer(t, "10.0.0.1:1")}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if p := tr.Peers(); len(p) != 1 || !p[0].Interested || !p[0].Choked || p[0].Have != 1 {
			t.Errorf("peers %+v", p)
		}
	})
}

// dying is a connection over which only so many bytes arrive.
type dying struct {
	net.Conn
	left int
}

func (d *dying) Write(b []byte) (int, error) {
	if d.left -= len(b); d.left < 0 {
		return len(b), nil
	}
	return d.Conn.Write(b)
}

// Nothing comes any more over the only connection, as after a change of our address. It is dialled
// again.
func TestDeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		data := filepath.Join(dir, "file")
		writeRandom(t, data, 1<<20)
		const length = 32 << 10
		src := makeTorrent(t, data, CreateOptions{PieceLength: length}).Source
		seed := forgetful{data: readFile(t, data), length: length, fast: true, every: 1 << 30}
		dialled := 0
		sim := simulated{peers: map[string]func(net.Conn){"10.0.0.1:1": func(c net.Conn) {
			if dialled++; dialled == 1 {
				c = &dying{c, 200_000}
			}
			seed.serve(c, src)
		}}}
		if took := simulateDownload(t, src, dir, sim); took > 5*time.Minute || dialled != 2 {
			t.Errorf("took %v, dialled %d times", took, dialled)
		}
	})
}
