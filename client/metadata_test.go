package client

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	pp "github.com/anacrolix/torrent/peer_protocol"

	"braid/client/wire"
)

// wirePeer is a peer of metadata that keeps what it is asked for.
type wirePeer struct {
	name   string
	asked  []string
	closed bool
}

func (p *wirePeer) WriteExtendedMessage(_ pp.ExtensionName, b []byte) error {
	p.asked = append(p.asked, string(b))
	return nil
}

func (p *wirePeer) Close() error {
	p.closed = true
	return nil
}

func (p *wirePeer) host() netip.Addr {
	sum := sha1.Sum([]byte(p.name))
	return netip.AddrFrom16([16]byte(sum[:16]))
}

// fetchTest is a fetch with a clock.
type fetchTest struct {
	*metadata
	now  time.Time
	info []byte
}

func newFetchTest(info []byte) *fetchTest {
	return &fetchTest{metadata: &metadata{hash: sha1.Sum(info)}, now: time.Unix(1e9, 0), info: info}
}

// next carries out a step after some time and tells who was asked for which pieces, and the result.
func (f *fetchTest) next(after time.Duration) (asked map[*wirePeer][]int, liars int, got []byte) {
	f.now = f.now.Add(after)
	send, bad, got := f.step(f.now)
	asked = map[*wirePeer][]int{}
	for _, x := range send {
		if x.kind == metadataRequest {
			p := x.peer.(*wirePeer)
			asked[p] = append(asked[p], x.piece)
		}
	}
	return asked, len(bad), got
}

// received has a peer send a message.
func (f *fetchTest) received(p *wirePeer, payload []byte) {
	if x, data, err := parseMetadata(payload); err == nil {
		x.peer = p
		f.metadata.received(x, bytes.Clone(data), f.now)
	}
}

func infoPiece(info []byte, i int) []byte {
	return append(fmt.Appendf(nil, "d8:msg_typei1e5:piecei%de10:total_sizei%dee", i, len(info)), info[i*metadataPiece:min(len(info), (i+1)*metadataPiece)]...)
}

// answer has a peer send pieces of an info dictionary.
func (f *fetchTest) answer(p *wirePeer, info []byte, pieces ...int) {
	for _, i := range pieces {
		f.received(p, infoPiece(info, i))
	}
}

func TestMetadata(t *testing.T) {
	info := bytes.Repeat([]byte("0123456789"), 5000) // four pieces, the last a short one
	wrong := bytes.Repeat([]byte("x"), len(info))
	peers := func(f *fetchTest, n int) (out []*wirePeer) {
		for i := range n {
			p := &wirePeer{name: fmt.Sprint(i)}
			out = append(out, p)
			f.offer(p, p.host(), len(info))
			f.offer(p, p.host(), len(info)) // said twice
		}
		return out
	}
	all := []int{0, 1, 2, 3}

	t.Run("one", func(t *testing.T) {
		f := newFetchTest(info)
		p := peers(f, 1)[0]
		asked, _, _ := f.next(0)
		if fmt.Sprint(asked[p]) != fmt.Sprint(all) {
			t.Fatalf("asked for %v", asked[p])
		}
		f.answer(p, info, 3, 1, 0, 1, 2)
		if _, _, got := f.next(0); !bytes.Equal(got, info) {
			t.Errorf("%d bytes", len(got))
		}
	})
	t.Run("a liar spoils nothing", func(t *testing.T) {
		f := newFetchTest(info)
		p := peers(f, 2)
		f.next(0)
		f.answer(p[0], wrong, all...)
		f.answer(p[1], info, 0, 1)
		if _, liars, got := f.next(0); liars != 1 || got != nil {
			t.Errorf("%d liars, %d bytes", liars, len(got))
		}
		f.leave(p[0])
		f.offer(p[0], p[0].host(), len(info)) // it comes again, and another after it
		q := &wirePeer{name: "q"}
		f.offer(q, q.host(), len(info))
		if asked, _, _ := f.next(0); len(asked[q]) != 4 || len(asked[p[0]]) != 0 {
			t.Errorf("asked the honest newcomer for %v, the liar for %v", asked[q], asked[p[0]])
		}
		f.answer(p[1], info, 2, 3)
		if _, _, got := f.next(0); got == nil {
			t.Error("not complete")
		}
	})
	t.Run("silent peers", func(t *testing.T) {
		f := newFetchTest(info)
		p := peers(f, 40)
		for range 600 {
			asked, _, _ := f.next(200 * time.Millisecond)
			if n := len(f.asked()); n > maxMetadataAsked {
				t.Fatalf("%d are asked at once", n)
			}
			if len(asked[p[39]]) > 0 {
				return
			}
		}
		t.Error("the last peer was never asked")
	})
	t.Run("dripping peers", func(t *testing.T) {
		long := bytes.Repeat([]byte("y"), wire.MaxMetadata)
		f := newFetchTest(info)
		var slow []*wirePeer
		for i := range 10 {
			p := &wirePeer{name: fmt.Sprint("slow", i)}
			slow = append(slow, p)
			f.offer(p, p.host(), len(long))
		}
		p := peers(f, 1)[0]
		for i := range 1000 {
			for _, s := range slow {
				f.answer(s, long, i/5) // one each second
			}
			if asked, _, _ := f.next(200 * time.Millisecond); len(asked[p]) > 0 {
				return
			}
		}
		t.Error("the honest peer was never asked")
	})
	t.Run("empty promises", func(t *testing.T) {
		f := newFetchTest(info)
		for i := range 40 {
			p := &wirePeer{name: fmt.Sprint(i)}
			f.offer(p, p.host(), wire.MaxMetadata)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 600 {
			f.next(200 * time.Millisecond)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > wire.MaxMetadata {
			t.Errorf("%d MiB allocated for peers that send nothing", n>>20)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		f := newFetchTest(info)
		p := peers(f, 1)[0]
		f.next(0)
		f.received(p, []byte("d8:msg_typei2e5:piecei0ee"))
		if len(f.sources) != 0 {
			t.Error("a peer that refuses is asked on")
		}
	})
	t.Run("nonsense", func(t *testing.T) {
		f := newFetchTest(info)
		p := peers(f, 1)[0]
		f.next(0)
		for _, m := range []string{"", "de", "d8:msg_typei1ee", "d8:msg_typei1e5:piecei-1ee", "d8:msg_typei1e5:piecei4eex", "d8:msg_typei1e5:piecei999999999eex", "d8:msg_typei9e5:piecei0ee"} {
			f.received(p, []byte(m))
		}
		f.answer(p, info, all...)
		if _, _, got := f.next(0); got == nil {
			t.Error("not complete")
		}
		g := newFetchTest(info)
		for _, size := range []int{0, -1, wire.MaxMetadata + 1} {
			g.offer(p, p.host(), size)
		}
		if len(g.sources) != 0 {
			t.Error("an absurd size was believed")
		}
		g.offer(p, p.host(), len(info))
		g.next(0)
		g.received(p, []byte("d8:msg_typei1e5:piecei0eeshort"))
		if len(g.sources) != 0 {
			t.Error("a short piece was taken")
		}
	})
}

// hostilePeer serves connections with an info dictionary of its own, whatever its hash.
func hostilePeer(t *testing.T, hash metainfo.Hash, info []byte) Peer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go serveInfo(c, hash, info)
		}
	}()
	return mustPeer(t, l.Addr().String())
}

func serveInfo(c net.Conn, hash metainfo.Hash, info []byte) error {
	hello := protocolName + "\x00\x00\x00\x00\x00\x10\x00\x04" + string(hash[:]) + "-XX0001-............"
	_, err := io.ReadFull(c, make([]byte, handshakeSize))
	extended := func(id byte, payload []byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(2+len(payload)))
		return append(append(b, 20, id), payload...)
	}
	_, e := io.WriteString(c, hello)
	_, f := c.Write(extended(0, fmt.Appendf(nil, "d1:md11:ut_metadatai3ee13:metadata_sizei%dee", len(info))))
	for err = errors.Join(err, e, f); err == nil; {
		var length [4]byte
		if _, err = io.ReadFull(c, length[:]); err != nil {
			break
		}
		m := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err = io.ReadFull(c, m); err != nil || len(m) < 2 || m[0] != 20 || m[1] != 3 {
			continue
		}
		x, _, e := parseMetadata(m[2:])
		if e == nil && x.kind == metadataRequest {
			_, err = c.Write(extended(1, infoPiece(info, x.piece)))
		}
	}
	return err
}

// A peer answers with a dictionary that is small on the wire and large in memory. Its hash is
// wrong, which the engine looks at afterwards.
func TestMetadataBomb(t *testing.T) {
	bomb := []byte("d5:filesl" + strings.Repeat("de", 2<<20) + "ee")
	data, out := t.TempDir(), t.TempDir()
	randomFiles(t, data, "set", 100_000)
	c := makeTorrent(t, data+"/set", CreateOptions{PieceLength: 16 << 10})
	src, err := ParseMagnet(c.Source.Magnet())
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	store := openStore(t, out)
	bombers := []Peer{hostilePeer(t, src.InfoHash, bomb), hostilePeer(t, src.InfoHash, bomb)}
	tr, err := openSession(t, Config{}).Add(src, store, Options{Peers: bombers})
	if err != nil {
		t.Fatal(err)
	}
	until(t, tr, "the bombs have come", func(p Progress) bool {
		n := uint64(0)
		for _, x := range p.Paths {
			n += x.BytesRead
		}
		return n > uint64(2*len(bomb))
	})
	tr.AddPeers(seed(t, c.Source, data).Listening()...)
	wait(t, tr)
	runtime.ReadMemStats(&after)
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, c.Source, data, out)
	if n := after.TotalAlloc - before.TotalAlloc; n > 400<<20 {
		t.Errorf("%d MiB allocated", n>>20)
	}
}

// The hash is right, and the torrent is not acceptable: the transfer fails and says why. It must
// not fetch on and on.
func TestMetadataOfBadTorrent(t *testing.T) {
	info := []byte("d5:filesld6:lengthi5e4:pathl2:..1:xeee4:name1:n12:piece lengthi16384e6:pieces20:xxxxxxxxxxxxxxxxxxxxe")
	hash := metainfo.HashBytes(info)
	src := Source{InfoHash: hash}
	store := openStore(t, t.TempDir())
	defer store.Close()
	tr, err := openSession(t, Config{}).Add(src, store, Options{Peers: []Peer{hostilePeer(t, hash, info)}})
	if err != nil {
		t.Fatal(err)
	}
	until(t, tr, "failed", func(p Progress) bool { return p.Phase == Broken })
	if err := tr.Progress().Err; !strings.Contains(err.Error(), "leads out") {
		t.Errorf("%v", err)
	}
	tr.Close()
}

// Messages in any order, from three peers that take turns. Nothing is asked for twice in a turn or
// out of bounds, and only what has the right hash comes out.
func FuzzMetadata(f *testing.F) {
	info := bytes.Repeat([]byte("m"), metadataPiece+7)
	f.Add(append([]byte{200, 1, 64, byte(len(infoPiece(info, 1)))}, infoPiece(info, 1)...))
	f.Add([]byte("\x00\x00\x10d8:msg_typei0e5:piecei0ee"))
	f.Add([]byte{3, 4, 5, 255, 254, 253, 0, 1, 2, 250})
	f.Fuzz(func(t *testing.T, script []byte) {
		m := newFetchTest(info)
		peers := []*wirePeer{{name: "a"}, {name: "b"}, {name: "c"}}
		next := func() (b byte) {
			if len(script) > 0 {
				b, script = script[0], script[1:]
			}
			return b
		}
		for len(script) > 0 {
			op := next()
			p := peers[int(op)%len(peers)]
			switch op / 3 % 6 {
			case 0:
				m.offer(p, p.host(), len(info)+int(int8(next())))
			case 1:
				m.leave(p)
			case 2:
				n := min(int(next()), len(script))
				m.received(p, script[:n])
				script = script[n:]
			case 3:
				m.answer(p, info, int(next())%2)
			case 4:
				m.received(p, append([]byte("d8:msg_typei1e5:piecei0ee"), make([]byte, metadataPiece)...))
			case 5:
				asked, _, got := m.next(time.Duration(next()) * 100 * time.Millisecond)
				if got != nil && !bytes.Equal(got, info) {
					t.Fatal("a wrong dictionary came out")
				}
				for p, pieces := range asked {
					for _, i := range pieces {
						if i < 0 || i > 1 {
							t.Fatalf("%s is asked for piece %d", p.name, i)
						}
					}
				}
			}
			if len(m.sources) > len(peers) || len(m.asked()) > maxMetadataAsked || len(m.lied) > maxLiars {
				t.Fatalf("%d sources, %d asked, %d liars", len(m.sources), len(m.asked()), len(m.lied))
			}
		}
	})
}

// A peer may ask for a torrent's description before the engine has it, for example while the store
// looks at existing files. braid rejects each request, also one that is read late.
func TestMetadataRequestsWhileClaiming(t *testing.T) {
	src := smallTorrent(t)
	f := &fakeTorrent{described: make(chan struct{})}
	c := &core{common: &common{}, log: testLog(t), source: src, torrent: f, store: &oneFile{}, ctx: t.Context()}
	c.fetching.Store(&metadata{hash: src.InfoHash})
	d := describer{core: c, options: &Options{}, claiming: true}
	p := &wirePeer{}
	ask := func(piece int) { d.onMessage(metadataMessage{p, metadataRequest, piece}, nil) }
	ask(0)
	ask(7)
	if err := d.advance(); err != nil || !slices.Equal(p.asked, []string{"d8:msg_typei2e5:piecei0ee", "d8:msg_typei2e5:piecei7ee"}) {
		t.Errorf("meanwhile: %q, %v", p.asked, err)
	}
	if err := d.onClaimed(src, nil); err != nil || c.fetching.Load() != nil {
		t.Errorf("not left to the engine: %v", err)
	}
	ask(0)
	if len(p.asked) != 3 {
		t.Errorf("at the end: %q", p.asked)
	}
}

// smallTorrent is the torrent of a small file.
func smallTorrent(t *testing.T) Source {
	data := filepath.Join(t.TempDir(), "file")
	writeRandom(t, data, 100_000)
	return makeTorrent(t, data, CreateOptions{}).Source
}
