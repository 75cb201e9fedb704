package client

import (
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A seed dials the peers of which it hears, since those may not be able to dial it. It does not
// dial a complete peer again and again.
func TestSeedDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		writeRandom(t, filepath.Join(dir, "file"), 16<<10)
		src := makeTorrent(t, filepath.Join(dir, "file"), CreateOptions{PieceLength: 16 << 10}).Source
		var blocks, calls atomic.Int64
		peer := func(first []byte, dialled func(*rawPeer)) func(net.Conn) {
			return func(c net.Conn) {
				p := newRaw(c)
				if _, err := p.handshake(greeting(src, "-XX0001-")); err == nil {
					go p.send(first)
					dialled(p)
				}
			}
		}
		sim := &simulated{onIP: newOnIP(""), peers: map[string]func(net.Conn){
			"10.0.0.1:1": peer(raw(msgHaveNone), func(p *rawPeer) {
				go p.send(interested)
				for m, err := p.next(); err == nil; m, err = p.next() {
					switch m[0] {
					case 1:
						go p.send(encode(msgRequest, block{0, 0, 16 << 10}))
					case msgPiece:
						blocks.Add(1)
					}
				}
			}),
			"10.1.0.1:1": peer(raw(msgHaveAll), func(p *rawPeer) {
				calls.Add(1)
				for _, err := p.next(); err == nil; _, err = p.next() {
				}
			}),
		}}
		s, err := newSession(Config{}, testLog(t), []Transport{sim})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		store := openStore(t, dir)
		defer store.Close()
		tr, err := s.Add(src, store, Options{})
		if err != nil {
			t.Fatal(err)
		}
		<-tr.Done()
		for range 6 { // as trackers name them every half hour
			tr.Found(FromTracker, mustPeer(t, "10.0.0.1:1"), mustPeer(t, "10.1.0.1:1"))
			time.Sleep(30 * time.Minute)
		}
		if blocks.Load() == 0 || calls.Load() != 1 {
			t.Errorf("the leecher got %d blocks, the other seed %d calls", blocks.Load(), calls.Load())
		}
	})
}
