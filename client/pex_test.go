package client

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pexHello is an extended handshake that takes both kinds of addresses, and names a port.
const pexHello = "d1:md9:scion_pexi8e11:ut_metadatai3e6:ut_pexi7ee1:pi%dee"

// exchangeSession takes part in peer exchange for a torrent of which it has nothing.
func exchangeSession(t *testing.T, cfg Config, src Source, peers ...Peer) (*Session, *Transfer) {
	t.Helper()
	cfg.PEX = true
	s := openSession(t, cfg)
	store := openStore(t, t.TempDir())
	t.Cleanup(func() { _ = store.Close() }) // before the session's
	tr, err := s.Add(src, store, Options{Peers: peers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return s, tr
}

// Everybody knows one peer, the hub, which is on both networks. Who is on IP learns of the others
// on IP, who is on SCION of the others there, and who is on both of all. Nobody is told of an
// address that the engine has instead of a peer's own.
func TestPeerExchange(t *testing.T) {
	data := t.TempDir()
	randomFiles(t, data, "set", 100_000)
	src := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{PieceLength: 16 << 10}).Source
	hub, _ := exchangeSession(t, Config{Host: scionHost(t, "127.0.0.1"), Listen: []Peer{mustPeer(t, "127.0.0.1:0")}}, src)
	var scion, ip []Peer
	knows := map[*Transfer]func() []Peer{}
	for i, c := range []struct{ scion, ip bool }{{true, false}, {true, false}, {false, true}, {false, true}, {true, true}} {
		cfg, at := Config{IP: NoIP}, hub.Listening()[:1]
		if c.scion {
			cfg.Host = scionHost(t, fmt.Sprintf("127.0.0.1%d", i))
		}
		if c.ip {
			cfg.IP, cfg.Listen = TCP, []Peer{mustPeer(t, "127.0.0.1:0")}
			at = hub.Listening()[1:]
		}
		s, tr := exchangeSession(t, cfg, src, at...)
		for _, p := range s.Listening() {
			if isSCION(p) {
				scion = append(scion, p)
			} else {
				ip = append(ip, p)
			}
		}
		knows[tr] = func() (out []Peer) {
			if c.scion {
				out = append(out, scion...)
			}
			if c.ip {
				out = append(out, ip...)
			}
			return slices.DeleteFunc(out, func(p Peer) bool { return slices.Contains(s.Listening(), p) })
		}
	}
	// A peer that takes part by hand sees each byte that the hub sends.
	raw := tapped{Conn: dialFrom(t, "127.0.0.20", hub.Listening()[1].String())}
	r := greet(t, src, &raw)
	r.send(extended(0, fmt.Sprintf(pexHello, 1)))
	named := map[string]bool{}
	// The last one is on both networks. The hub knows it where it has connected, over IP.
	want := slices.Concat(scion[:2], ip)
	for len(named) < len(want) {
		m, err := r.next()
		if err != nil {
			t.Fatalf("told of %v, want %v: %v", named, want, err)
		}
		if m[0] != msgExtended || m[1] != 7 && m[1] != 8 {
			continue
		}
		x, err := parsePEX(m[2:])
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range x.added {
			if (m[1] == 8) != (p.kind() == pexSCION) {
				t.Errorf("extension %d names %v", m[1], p.at)
			}
			named[PeerAt(p.at).String()] = true
		}
	}
	for _, p := range want {
		if !named[p.String()] {
			t.Errorf("%v was not named: %v", p, named)
		}
	}
	hub.offers.mu.Lock()
	if len(hub.offers.used) < 5 {
		t.Errorf("only %d engine addresses", len(hub.offers.used))
	}
	for f := range hub.offers.used {
		if host := f.host.As16(); bytes.Contains(raw.seen.Bytes(), host[:]) {
			t.Errorf("engine address %v was sent", f)
		}
	}
	hub.offers.mu.Unlock()
	for tr, wanted := range knows {
		all := wanted()
		until(t, tr, fmt.Sprintf("told of %v", all), func(p Progress) bool {
			for _, a := range all {
				direct := slices.ContainsFunc(p.Paths, func(x PathProgress) bool { return x.Peer == a.String() && (x.Source == FromPEX || x.Accepted) })
				if !direct && slices.Contains(want, a) {
					return false
				}
			}
			return true
		})
	}
}

func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// tapped keeps what was read.
type tapped struct {
	net.Conn
	seen bytes.Buffer
}

func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.seen.Write(b[:n])
	return n, err
}

// exchangingPeer plays a peer that has nothing, and says of each message of peer exchange when it
// came.
func exchangingPeer(src Source, hello string, heard func(time.Duration, pexMessage), hellos chan<- string) func(net.Conn) {
	return func(c net.Conn) {
		p := newRaw(c)
		if _, err := p.handshake(greeting(src, "-XX0002-"+c.RemoteAddr().String())); err != nil {
			return
		}
		go p.send(extended(0, hello), raw(msgHaveNone))
		begin := time.Now()
		for {
			m, err := p.next()
			switch {
			case err != nil:
				return
			case m[0] == msgExtended && m[1] == 0 && hellos != nil:
				hellos <- string(m[2:])
			case m[0] == msgExtended && m[1] == 7 && heard != nil:
				if x, err := parsePEX(m[2:]); err == nil {
					heard(time.Since(begin), x)
				}
			}
		}
	}
}

// Messages come at most once a minute, and name at most 50 peers.
func TestPeerExchangeIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		writeRandom(t, filepath.Join(dir, "file"), 100_000)
		src := makeTorrent(t, filepath.Join(dir, "file"), CreateOptions{PieceLength: 16 << 10}).Source
		var mu sync.Mutex
		var at []time.Duration
		var told []pexPeer
		peers := map[string]func(net.Conn){}
		var addresses []Peer
		const others = 70
		for i := range others + 1 {
			a := fmt.Sprintf("10.0.%d.1:1", i)
			peers[a] = exchangingPeer(src, fmt.Sprintf(pexHello, 1), nil, nil)
			addresses = append(addresses, mustPeer(t, a))
		}
		peers["10.0.0.1:1"] = exchangingPeer(src, fmt.Sprintf(pexHello, 1), func(since time.Duration, m pexMessage) {
			if len(m.added) > maxNamed {
				t.Errorf("%d peers in a message", len(m.added))
			}
			mu.Lock()
			defer mu.Unlock()
			at, told = append(at, since), append(told, m.added...)
		}, nil)
		s, err := newSession(Config{PEX: true}, testLog(t), []Transport{&simulated{onIP: newOnIP(""), peers: peers}})
		if err != nil {
			t.Fatal(err)
		}
		store := openStore(t, t.TempDir())
		if _, err := s.Add(src, store, Options{Peers: addresses}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(140 * time.Second) // the engine ends silent connections later
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < pexEvery {
				t.Errorf("%v between two messages", gap)
			}
		}
		if len(told) != others {
			t.Errorf("told of %d peers, want %d", len(told), others)
		}
	})
}

// A private torrent exchanges nothing, and says so in the handshake. A session without peer
// exchange neither.
func TestNoPeerExchange(t *testing.T) {
	for name, c := range map[string]struct{ private, pex bool }{"private": {true, true}, "off": {false, false}, "on": {false, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				writeRandom(t, filepath.Join(dir, "file"), 100_000)
				src := makeTorrent(t, filepath.Join(dir, "file"), CreateOptions{PieceLength: 16 << 10, Private: c.private}).Source
				var messages, third atomic.Int64
				hellos := make(chan string, 2)
				heard := func(time.Duration, pexMessage) { messages.Add(1) }
				// One of them names a third. Nobody is to dial that: it has no function.
				name := exchangingPeer(src, fmt.Sprintf(pexHello, 1), heard, hellos)
				peers := map[string]func(net.Conn){"10.0.0.1:1": name, "10.0.1.1:1": name}
				peers["10.0.2.1:1"] = func(net.Conn) { third.Add(1) }
				peers["10.0.3.1:1"] = func(c net.Conn) {
					p := newRaw(c)
					if _, err := p.handshake(greeting(src, "-XX0003-")); err != nil {
						return
					}
					p.send(extended(0, "de"), raw(msgHaveNone), extended(2, string(pexMessage{added: pexPeers(t, "10.0.2.1:1")}.encode())))
					for {
						if _, err := p.next(); err != nil {
							return
						}
					}
				}
				s, err := newSession(Config{PEX: c.pex}, testLog(t), []Transport{&simulated{onIP: newOnIP(""), peers: peers}})
				if err != nil {
					t.Fatal(err)
				}
				store := openStore(t, t.TempDir())
				var addresses []Peer
				for _, a := range []string{"10.0.0.1:1", "10.0.1.1:1", "10.0.3.1:1"} {
					addresses = append(addresses, mustPeer(t, a))
				}
				if _, err := s.Add(src, store, Options{Peers: addresses}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if err := store.Close(); err != nil {
					t.Error(err)
				}
				on := c.pex && !c.private
				for range 2 {
					if h := <-hellos; strings.Contains(h, "_pex") != on {
						t.Errorf("the handshake says %q", h)
					}
				}
				if messages.Load() > 0 != on || third.Load() > 0 != on {
					t.Errorf("%d messages; the peer that was named was dialled %d times", messages.Load(), third.Load())
				}
			})
		})
	}
}

// A web seed is no peer: nobody is told of its address.
func TestWebSeedIsNotExchanged(t *testing.T) {
	dir, src := webData(t)
	files, enough := http.FileServer(http.Dir(dir)), make(chan struct{})
	var asked atomic.Int64
	url := webServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 { // so that the connection lasts
			<-enough
		}
		files.ServeHTTP(w, r)
	}))
	tr := webDownload(t, src, t.TempDir(), Options{}, url)
	var named []pexPeer
	until(t, tr, "connected to the web seed", func(Progress) (connected bool) {
		tr.do(func() {
			rows := slices.Collect(tr.peers.connected())
			connected, named = len(rows) == 1, tr.loop.exchanger.addresses(rows)
		})
		return connected
	})
	if len(named) != 0 {
		t.Errorf("peers are told of %v", named)
	}
	close(enough)
	wait(t, tr)
}
