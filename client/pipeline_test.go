package client

import (
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anacrolix/torrent"

	"braid/client/wire"
)

func TestPipeline(t *testing.T) {
	for _, c := range []struct {
		outstanding int // at most
		half        time.Duration
		want        int // outstanding in the next batch
	}{
		{16, 100 * time.Millisecond, 32},
		{300, 999 * time.Millisecond, 600},
		{300, 2 * time.Second, 300},
		{300, 5 * time.Second, 150},
		{800, 0, maxRequests},
		{16, time.Minute, wire.FirstRequests},
		{1, 0, wire.FirstRequests},
	} {
		var p pipeline
		now := time.Unix(1e9, 0)
		for n := range c.outstanding {
			p = p.sent(n+1, now)
		}
		for n := c.outstanding - 1; 2*n > c.outstanding; n-- {
			if p = p.answered(n, now.Add(c.half)); p.target != 0 {
				t.Errorf("%+v: looked at with %d outstanding", c, n)
			}
		}
		for n := c.outstanding / 2; n >= 0; n-- { // the rest changes nothing
			if p = p.answered(n, now.Add(c.half)); p.target != c.want {
				t.Errorf("%+v: %d with %d outstanding", c, p.target, n)
			}
		}
	}
}

// The engine's field is still there, and is what decides.
func TestPeakRequests(t *testing.T) {
	if peakRequests(&torrent.Peer{}) == nil {
		t.Fatal("this engine has no field peakRequests: pipelines are empty for a round trip after each batch")
	}
}

// distant is a connection whose writes arrive after a round trip, at a rate.
type distant struct {
	net.Conn
	queue chan []byte
}

func newDistant(c net.Conn, trip time.Duration, bytesPerSecond int) distant {
	d := distant{c, make(chan []byte, 1<<16)}
	go func() {
		type arrival struct {
			b  []byte
			at time.Time
		}
		way := make(chan arrival, 1<<16)
		go func() {
			for a := range way {
				time.Sleep(time.Until(a.at))
				if _, err := c.Write(a.b); err != nil {
					c.Close()
				}
			}
		}()
		for b := range d.queue {
			time.Sleep(time.Duration(len(b)) * time.Second / time.Duration(bytesPerSecond))
			way <- arrival{b, time.Now().Add(trip)}
		}
		close(way)
	}()
	return d
}

func (d distant) Write(b []byte) (int, error) {
	d.queue <- append([]byte(nil), b...)
	return len(b), nil
}

// A single connection fills a long link soon, and keeps it full.
func TestPipelineOnALongLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, rate, trip = 10_000_000, 5_000_000, 200 * time.Millisecond
		dir := t.TempDir()
		data := filepath.Join(dir, "file")
		writeRandom(t, data, size)
		const length = 64 << 10
		src := makeTorrent(t, data, CreateOptions{PieceLength: length}).Source
		f := forgetful{data: readFile(t, data), length: length, fast: true, every: 1 << 30}
		took := simulateDownload(t, src, dir, map[string]func(net.Conn){"10.0.0.1:1": func(c net.Conn) {
			d := newDistant(c, trip, rate)
			defer close(d.queue)
			f.serve(d, src)
		}})
		// Two seconds for the bytes, and a few round trips for the handshake and the first batches. The engine
		// alone takes a round trip for each of eleven batches.
		if most := 2*time.Second + 5*trip; took > most {
			t.Errorf("took %v, want at most %v", took, most)
		}
	})
}
