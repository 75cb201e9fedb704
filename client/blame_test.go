package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	g "github.com/anacrolix/generics"
	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"

	"braid/client/wire"
	"braid/pathsel"
	"braid/scionnet"
	"braid/storage"
)

// liar is a store that claims every piece but one, whatever is on disk.
type liar struct{ lacks int }

func (l liar) Get(k metainfo.PieceKey) (engine.Completion, error) {
	return engine.Completion{Ok: true, Complete: k.Index != l.lacks}, nil
}
func (liar) Set(metainfo.PieceKey, g.Option[bool]) error { return nil }
func (liar) Close() error                                { return nil }

func openLiar(dir string, lacks int) storage.Store {
	return engine.NewFileOpts(engine.NewFileClientOpts{
		ClientBaseDir: dir, PieceCompletion: liar{lacks}, UsePartFiles: g.Some(false), DisableMmap: true,
	})
}

// spoil copies the file and changes bytes of the first pieces.
func spoil(t *testing.T, from, to string, pieceLength, pieces int) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pieces {
		b[i*pieceLength+100] ^= 0xff
	}
	if err := os.WriteFile(to, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A peer that sends wrong pieces over several path-level connections is banned on all of them, no
// matter which side has opened them. The download completes from an honest peer. The engine panics
// in this test if an address has no IP.
func TestWrongPieces(t *testing.T) {
	t.Parallel()
	const pieceLength, pieces = 32 << 10, 64
	for _, c := range []struct {
		name     string
		accepted bool
	}{{"dialled", false}, {"accepted", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			good, bad, out := t.TempDir(), t.TempDir(), t.TempDir()
			writeRandom(t, filepath.Join(good, "file"), pieceLength*pieces)
			spoil(t, filepath.Join(good, "file"), filepath.Join(bad, "file"), pieceLength, pieces-1)
			src := makeTorrent(t, filepath.Join(good, "file"), CreateOptions{PieceLength: pieceLength}).Source

			leecher := openFan(t, Config{}, "127.0.0.1", 3)
			villain := openFan(t, Config{}, "127.0.0.1", 3)
			store := openStore(t, out)
			tr, err := leecher.Add(src, store, Options{})
			if err != nil {
				t.Fatal(err)
			}
			opts := Options{}
			if c.accepted {
				opts.Peers = leecher.Listening()
			}
			if _, err := villain.Add(src, openLiar(bad, pieces-1), opts); err != nil {
				t.Fatal(err)
			}
			if !c.accepted {
				tr.AddPeers(villain.Listening()...)
			}
			host := suspectOf(villain.Listening()[0].origin())
			until(t, tr, "banned", func(p Progress) bool {
				if !leecher.offers.isBanned(host) || p.Dropped == 0 {
					return false
				}
				for _, x := range p.Paths {
					if x.State == pathsel.Active || x.State == pathsel.Opening {
						return false
					}
				}
				return true
			})
			if _, err := leecher.offers.add(t.Context(), nil, villain.Listening()[0], pathsel.Path{}, nil); err == nil {
				t.Error("the banned host may be dialled again")
			}
			// Another host of loopback, so that the ban does not hold for it.
			honest := openFan(t, Config{}, "127.0.0.2", 1)
			if _, err := honest.Add(src, storage.OpenVerified(good, testLog(t)), Options{}); err != nil {
				t.Fatal(err)
			}
			tr.AddPeers(honest.Listening()...)
			wait(t, tr)
			tr.Close()
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			sameFiles(t, src, good, out)
		})
	}
}

// A peer that sends wrong blocks, alone or of pieces that three peers have a part in, is banned,
// and the others are not. After how many wrong pieces is tested in simulated time: see TestLiars.
func TestWrongBlocksInSharedPieces(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name        string
		pieceLength int
		honest      []string
	}{
		{"one of three", 512 << 10, []string{"127.0.0.2", "127.0.0.3"}},
		{"alone", 256 << 10, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			wrongBlocks(t, x.pieceLength, x.honest)
		})
	}
}

func wrongBlocks(t *testing.T, pieceLength int, at []string) {
	good, bad, out := t.TempDir(), t.TempDir(), t.TempDir()
	writeRandom(t, filepath.Join(good, "file"), 12*pieceLength)
	b, err := os.ReadFile(filepath.Join(good, "file"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b); i += 16 << 10 {
		b[i] ^= 0xff // in every block
	}
	if err := os.WriteFile(filepath.Join(bad, "file"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	src := makeTorrent(t, filepath.Join(good, "file"), CreateOptions{PieceLength: int64(pieceLength)}).Source
	slow := Config{Limits: Limits{Upload: 16e6}} // so that the engine wants all of them
	seed := func(ip string, store storage.Store) *Session {
		s := openFan(t, slow, ip, 2)
		if _, err := s.Add(src, store, Options{}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	villain := seed("127.0.0.1", openLiar(bad, -1))
	guilty := suspectOf(villain.Listening()[0].origin())
	peers := villain.Listening()
	var honest []*Session
	for _, ip := range at {
		h := seed(ip, storage.OpenVerified(good, testLog(t)))
		honest = append(honest, h)
		peers = append(peers, h.Listening()...)
	}
	leecher := openFan(t, Config{}, "127.0.0.1", 2)
	store := openStore(t, out)
	tr, err := leecher.Add(src, store, Options{Peers: peers})
	if err != nil {
		t.Fatal(err)
	}
	until(t, tr, "banned", func(Progress) bool { return leecher.offers.isBanned(guilty) })
	t.Logf("wrong pieces until the ban: %d", tr.Progress().Dropped)
	if tr.Progress().Dropped == 0 {
		t.Error("no piece was wrong: nothing was tested")
	}
	if len(honest) == 0 {
		h := seed("127.0.0.2", storage.OpenVerified(good, testLog(t)))
		honest = append(honest, h)
		tr.AddPeers(h.Listening()...)
	}
	wait(t, tr)
	for _, h := range honest {
		if leecher.offers.isBanned(suspectOf(h.Listening()[0].origin())) {
			t.Error("an honest peer is banned too")
		}
	}
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, src, good, out)
}

// piecework is a torrent in the engine's hands, as blame sees it: blocks come, and a piece whose
// last one has come is right or begins anew.
type piecework struct {
	blame  *blame
	blocks int
	pieces []workpiece
	wrong  int64
}

type workpiece struct {
	has       wire.Bitset
	n         int
	bad, done bool
}

func newPiecework(pieces, blocks int) *piecework {
	w := &piecework{blame: newBlame(fromPeers), blocks: blocks, pieces: make([]workpiece, pieces)}
	for i := range w.pieces {
		w.pieces[i].has = wire.NewBitset(blocks)
	}
	return w
}

func (w *piecework) receive(piece, block int, from suspect, bad bool) {
	p := &w.pieces[piece]
	if p.done || p.has.Has(block) {
		return // of no use
	}
	w.blame.received(piece, block<<blockBits, 1<<blockBits, from)
	p.has.Set(block)
	p.bad = p.bad || bad
	if p.n++; p.n < w.blocks {
		return
	}
	if p.done = !p.bad; p.done {
		w.blame.complete(piece)
	} else {
		w.wrong++
		*p = workpiece{has: wire.NewBitset(w.blocks)}
	}
}

func (w *piecework) whole(piece int, from suspect, bad bool) {
	for b := range w.blocks {
		w.receive(piece, b, from, bad)
	}
}

func (w *piecework) judge() []string {
	return w.blame.judge(w.wrong)
}

func proven(host, key string) suspect { return suspect{"10.0.0." + host, key} }

func TestBlame(t *testing.T) {
	a, b, c := proven("1", "a"), proven("2", "b"), proven("3", "c")
	claimsA := suspect{"", "x"} // says that it is at a's address
	for _, x := range []struct {
		name string
		do   func(w *piecework)
		want []string
	}{
		{"one wrong piece is not enough", func(w *piecework) { w.whole(0, a, true); w.whole(0, b, false) }, nil},
		{"two are", func(w *piecework) { w.whole(0, a, true); w.whole(0, a, true); w.whole(0, b, false) }, a.names()},
		{"a host with many keys", func(w *piecework) {
			for i := range 3 * w.blocks {
				w.receive(0, i%w.blocks, suspect{a.host, fmt.Sprint(i)}, true)
			}
		}, []string{"host " + a.host}},
		{"a key from many places", func(w *piecework) {
			for i := range 3 * w.blocks {
				w.receive(0, i%w.blocks, suspect{fmt.Sprint(i), "k"}, true)
			}
		}, []string{"key k"}},
		{"not the host that a peer claims", func(w *piecework) { w.whole(0, claimsA, true); w.whole(0, claimsA, true); w.whole(0, a, false) },
			claimsA.names()},
		{"not who has sent the rest of what another, who has left, has spoilt", func(w *piecework) {
			for i := range 9 {
				w.receive(0, i%w.blocks, claimsA, true)
				w.whole(0, a, false)
			}
		}, nil},
		{"not if the disk was at fault", func(w *piecework) {
			for i := range 9 {
				w.blame.received(0, i%2<<blockBits, 1<<blockBits, a)
			}
		}, nil},
		{"after thousands of connections that have ended", func(w *piecework) {
			for i := range 5000 {
				w.receive(i%900, 0, suspect{fmt.Sprint("h", i), fmt.Sprint("k", i)}, false)
				w.whole(i%900, b, false)
				if i%90 == 0 {
					w.judge()
				}
			}
			for range 3 {
				w.whole(950, c, true)
			}
		}, c.names()},
		{"after many pieces that are begun and left", func(w *piecework) {
			for i := range 2 * maxRounds {
				w.receive(i, 0, a, true)
			}
			for i := range 3 {
				w.whole(2*maxRounds+i, c, true)
				w.whole(2*maxRounds+i, c, true)
			}
			w.whole(7, b, false) // not seen whole
			w.whole(7, b, false)
			w.whole(7, b, false)
		}, c.names()},
	} {
		w := newPiecework(3*maxRounds, 4)
		x.do(w)
		if got := w.judge(); fmt.Sprint(got) != fmt.Sprint(x.want) {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
		if n := len(w.blame.rounds.m); n > maxRounds || len(w.blame.rounds.order) != n || len(w.blame.wrong.m) > maxWrong {
			t.Errorf("%s: %d pieces remembered", x.name, n)
		}
	}
}

// Whatever the order of events: nobody is blamed who has sent nothing wrong, and what is remembered
// is bounded. Each event is three bytes: who, which piece, which block; the last of the peers send
// wrong blocks, as do their keys from elsewhere.
func FuzzBlame(f *testing.F) {
	f.Add([]byte{7, 0, 0, 7, 0, 1, 7, 0, 2, 7, 0, 3, 7, 0, 0, 7, 0, 1, 7, 0, 2, 7, 0, 3, 7, 0, 0, 255, 0, 0})
	f.Add([]byte{6, 1, 0, 1, 1, 1, 1, 1, 2, 1, 1, 3, 1, 1, 0, 255, 0, 0, 254, 1, 9, 6, 1, 0})
	f.Add([]byte{253, 0, 0, 3, 0, 0, 252, 200, 7, 255, 0, 0})
	f.Fuzz(func(t *testing.T, events []byte) {
		w := newPiecework(8, 4)
		w.blame.rounds.most, w.blame.wrong.most = 3, 2
		for ; len(events) >= 3; events = events[3:] {
			who, piece, block := int(events[0]), int(events[1]), int(events[2])
			switch who {
			case 255:
				for _, name := range w.judge() {
					if name < "host 10.0.0.6" || name > "host 10.0.0.7" && name != "key 6" && name != "key 7" {
						t.Fatalf("%s has sent nothing wrong", name)
					}
				}
			case 254: // a piece is lost from the disk, or a block could not be written
				w.blame.distrust()
				w.pieces[piece%8] = workpiece{has: wire.NewBitset(w.blocks)}
			default:
				from := proven(fmt.Sprint(who%8), fmt.Sprint(who%8))
				if who/8%3 == 1 {
					from.host = ""
				}
				w.receive(piece%8, block%4, from, who%8 >= 6)
			}
			if len(w.blame.rounds.m) > 3 || len(w.blame.rounds.order) > 3 || len(w.blame.wrong.m) > 2 || len(w.blame.failed) > maxRounds {
				t.Fatal("more is remembered than should be")
			}
		}
	})
}

// disguise is TCP whose accepted connections show a key, and claim to come from somebody else's
// address.
type disguise struct {
	*tcpTransport
	as Peer
}

func (d disguise) Accept(ctx context.Context) (Wire, error) {
	w, err := d.tcpTransport.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return disguised{w, d.as}, nil
}

type disguised struct {
	Wire
	as Peer
}

func (d disguised) Peer() Peer             { return d.as }
func (d disguised) Key() *scionnet.PeerKey { return &scionnet.PeerKey{1} }
func (d disguised) Origin() pathsel.Origin { return pathsel.OriginUnproven(string(d.Key()[:])) }

// A peer that claims another's address sends wrong pieces. It is banned by its key, and the other
// one is not: the download completes from it.
func TestWrongPiecesInAnothersName(t *testing.T) {
	t.Parallel()
	const pieceLength, pieces = 32 << 10, 32
	good, bad, out := t.TempDir(), t.TempDir(), t.TempDir()
	writeRandom(t, filepath.Join(good, "file"), pieceLength*pieces)
	spoil(t, filepath.Join(good, "file"), filepath.Join(bad, "file"), pieceLength, pieces-1)
	src := makeTorrent(t, filepath.Join(good, "file"), CreateOptions{PieceLength: pieceLength}).Source
	honest := seed(t, src, good)
	tcp, err := openTCP([]Peer{mustPeer(t, "127.0.0.1:0")}, "", nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	leecher, err := newSession(Config{}, testLog(t), []Transport{disguise{tcp, honest.Listening()[0]}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { leecher.Close() })
	store := openStore(t, out)
	tr, err := leecher.Add(src, store, Options{})
	if err != nil {
		t.Fatal(err)
	}
	villain := openSession(t, Config{})
	if _, err := villain.Add(src, openLiar(bad, pieces-1), Options{Peers: leecher.Listening()}); err != nil {
		t.Fatal(err)
	}
	key := suspectOf(disguised{}.Origin())
	until(t, tr, "banned", func(Progress) bool { return leecher.offers.isBanned(key) })
	tr.AddPeers(honest.Listening()...)
	wait(t, tr)
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, src, good, out)
}

// What is remembered of engine addresses and bans does not grow with the connections that have
// ended.
func TestOffersForget(t *testing.T) {
	o := newOffers()
	for i := range 2 * maxBanned {
		w := &pipeWire{peer: mustPeer(t, fmt.Sprintf("10.%d.%d.%d:7", i>>16, i>>8&255, i&255))}
		f, err := o.takeSlot(addrOfAccepted(w))
		if err != nil {
			t.Fatal(err)
		}
		if err := o.attach(linkOf(w, "tcp", f, func() {})); err != nil {
			t.Fatal(err)
		}
		o.freeSlot(f)
		o.ban(suspectOf(w.peer.origin()).names()...)
	}
	if len(o.used) != 0 || len(o.users.m) > maxUsers || len(o.banned.m) > maxBanned {
		t.Errorf("%d slots, %d engine addresses, %d bans", len(o.used), len(o.users.m), len(o.banned.m))
	}
	if !o.isBanned(suspectOf(mustPeer(t, "10.0.31.255:1").origin())) {
		t.Error("the last ban is forgotten")
	}
}

// All connections of a peer show one key; a peer that has gone may come back with another. Who
// claims the address of a connected peer and shows another key is refused.
func TestKeyIsPinned(t *testing.T) {
	const peer, other = "1-ff00:0:110,[127.0.0.1]:7", "1-ff00:0:110,[127.0.0.1]:8"
	o := newOffers()
	a, b := &scionnet.PeerKey{1}, &scionnet.PeerKey{2}
	connect := func(to string, key *scionnet.PeerKey, accepted bool) (*link, error) {
		t.Helper()
		w, _ := pipeTo(t, to)
		w.key = key
		at, err := o.takeSlot(engineAddrOf(w.peer))
		if err != nil {
			t.Fatal(err)
		}
		l := linkOf(w, "scion", at, nil)
		l.to, l.accepted = w.peer, accepted
		return l, o.attach(l)
	}
	for _, x := range []struct {
		what     string
		to       string
		key      *scionnet.PeerKey
		accepted bool
		refused  bool
	}{
		{"accepted before the peer was dialled", peer, b, true, false},
		{"the first connection", peer, a, false, false},
		{"the second connection", peer, a, false, false},
		{"a second key", peer, b, false, true},
		{"another peer", other, b, false, false},
		{"accepted with the same key", peer, a, true, false},
		{"accepted with another key", peer, b, true, true},
		{"accepted without a key", peer, nil, true, false},
		{"accepted from another peer", other, b, true, false},
	} {
		if _, err := connect(x.to, x.key, x.accepted); (err != nil) != x.refused {
			t.Errorf("%s: %v", x.what, err)
		}
	}
	open := 0
	for _, l := range o.used {
		if l == nil || l.accepted || l.to != mustPeer(t, peer) {
			continue
		}
		if k := o.wanted(l.to); k == nil || *k != *a {
			t.Errorf("wanted %v while a connection is open", k)
		}
		l.Close()
		open++
	}
	if k := o.wanted(mustPeer(t, peer)); k != nil || open != 2 {
		t.Errorf("%v is wanted after %d connections", k, open)
	}
	if _, err := connect(peer, b, false); err != nil {
		t.Errorf("a peer that has come back: %v", err)
	}
}

// fromPeers is for blame without a disk.
func fromPeers(int, int64, int64) bool { return false }
