package client

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anacrolix/torrent"

	"braid/client/wire"
)

func TestPipeline(t *testing.T) {
	for _, c := range []struct {
		outstanding int // at most
		trip, half  time.Duration
		want        int // outstanding in the next batch
		swarm       bool
	}{
		{16, 0, 100 * time.Millisecond, 32, false},
		{300, 0, 999 * time.Millisecond, 600, false}, // an unknown round trip may be long
		{300, 0, 2 * time.Second, 300, false},
		{300, 0, 5 * time.Second, 150, false},
		{300, 10 * time.Millisecond, 299 * time.Millisecond, 600, false},
		{300, 10 * time.Millisecond, 301 * time.Millisecond, 300, false}, // a short one need not be filled for long
		{300, 10 * time.Millisecond, 901 * time.Millisecond, 150, false},
		{300, time.Second, 1900 * time.Millisecond, 600, false},
		{300, time.Second, 5 * time.Second, 300, false},
		{800, 0, 0, maxRequests, false},
		{16, 0, time.Minute, wire.FirstRequests, false},
		{1, 0, 0, wire.FirstRequests, false},
		{16, 0, time.Second, 16, true},
		{16, 0, 1001 * time.Millisecond, 8, true},
		{16, 200 * time.Millisecond, 401 * time.Millisecond, 8, true},
		{300, 200 * time.Millisecond, 801 * time.Millisecond, 300, true},
		{8, 10 * time.Millisecond, 99 * time.Millisecond, 16, true},
		{8, 200 * time.Millisecond, 199 * time.Millisecond, 16, true},
		{8, 200 * time.Millisecond, 201 * time.Millisecond, 8, true},
		{8, 0, time.Minute, 4, true},
		{4, 0, time.Minute, smallest, true},
		{1, 0, 0, smallest, true},
	} {
		p := pipeline{target: c.outstanding}
		now := time.Unix(1e9, 0)
		for n := range c.outstanding {
			p = p.sent(n+1, now)
		}
		part := wire.Part(c.outstanding)
		for n := range part {
			if p.isDue() {
				t.Errorf("%+v: looked at after %d answers", c, n)
			}
			p = p.answered(now.Add(c.half * time.Duration(n+1) / time.Duration(part)))
		}
		if !p.isDue() {
			t.Errorf("%+v: not looked at", c)
		}
		p = p.look(now.Add(c.half), c.trip, c.swarm)
		if p.target != c.want || p.answered(now).isDue() { // the rest changes nothing
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

// A peer in a swarm announces pieces all the time, and the engine asks for each at once: the number
// of outstanding requests never falls by half, and the pipeline is looked at all the same.
func TestPipelineThatIsRefilled(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := pipeline{target: 16, since: now}
	for n := range 10 {
		p = p.sent(n+1, now)
	}
	for range wire.Part(10) {
		if p.isDue() {
			t.Fatal("looked at too early")
		}
		now = now.Add(300 * time.Millisecond)
		p = p.answered(now).sent(10, now)
	}
	if !p.isDue() {
		t.Fatal("not looked at")
	}
	if p = p.look(now, 200*time.Millisecond, true); p.target != 5 {
		t.Errorf("a target of %d", p.target)
	}
}

// A peer that answers all at once and then pauses, as Transmission does, gets larger batches until
// it cannot answer half of one at once. So does one in slow start.
func TestPipelineOfPulses(t *testing.T) {
	const ms = time.Millisecond
	steady := [4]float64{0.25, 0.25, 0.25, 0.25}
	for _, c := range []struct {
		name   string
		batch  int // 0: the first one
		trip   time.Duration
		lasted time.Duration // until the next look
		parts  [4]float64    // of this time, for each quarter of the requests that are answered until then
		want   int
	}{
		{"after a pause", 320, ms, 500 * ms, [4]float64{0.98, 0, 0, 0.02}, 640},
		{"half of the rest after a pause", 320, ms, 500 * ms, [4]float64{0, 0.8, 0.1, 0.1}, 640},
		{"all the time", 320, ms, 500 * ms, steady, 320},
		{"after a long pause", 320, ms, 700 * ms, [4]float64{0.98, 0, 0, 0.02}, 320},
		{"a few after a pause", 96, ms, 500 * ms, [4]float64{0.98, 0, 0, 0.02}, 192},
		{"a few all the time", 96, ms, 400 * ms, steady, 96},
		{"a few slowly", 96, ms, 500 * ms, steady, 48},
		{"slow start", 32, 120 * ms, 400 * ms, [4]float64{0.5, 0.3, 0.12, 0.08}, 64},
		{"as slow as slow start", 32, 120 * ms, 400 * ms, steady, 32},
		{"first", 0, 120 * ms, 600 * ms, steady, 2 * wire.FirstRequests},
		{"slow first", 0, 120 * ms, 970 * ms, steady, wire.FirstRequests},
		{"slower than slow start", 320, 120 * ms, 970 * ms, [4]float64{0.5, 0.3, 0.12, 0.08}, 320},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1e9, 0)
			p := pipeline{target: c.batch, most: cmp.Or(c.batch, wire.FirstRequests), since: now}
			each := wire.Part(p.most) / 4
			for _, part := range c.parts {
				for n := range each {
					if p.isDue() {
						t.Fatalf("looked at after %d of %d answers", n, each)
					}
					now = now.Add(time.Duration(part * float64(c.lasted) / float64(each)))
					p = p.answered(now)
				}
			}
			if !p.isDue() {
				t.Error("not looked at")
			}
			if p = p.look(now, c.trip, false); p.target != c.want || !p.eighth.IsZero() {
				t.Errorf("%+v, want %d", p, c.want)
			}
		})
	}
}

// Slow start on a long path does not end for lack of requests.
func TestFirstBatch(t *testing.T) {
	for trip, want := range map[time.Duration]int{
		0: wire.FirstRequests, 20 * time.Millisecond: wire.FirstRequests, 120 * time.Millisecond: 30, time.Second: maxFirst,
	} {
		if got := firstBatch(trip); got != want {
			t.Errorf("round trip of %v: %d, want %d", trip, got, want)
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

// overLink is a seeder of a file at the other end of a link.
func overLink(t *testing.T, src Source, name string, bytesPerSecond int, trip time.Duration) simulated {
	f := forgetful{data: readFile(t, name), length: int(src.Layout.PieceLength), fast: true, every: 1 << 30}
	return simulated{trip: trip, peers: map[string]func(net.Conn){"10.0.0.1:1": func(c net.Conn) {
		d := newDistant(c, trip, bytesPerSecond)
		defer close(d.queue)
		f.serve(d, src)
	}}}
}

// A single connection fills a long link soon, and keeps it full.
func TestPipelineOnALongLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, rate, trip = 10_000_000, 5_000_000, 200 * time.Millisecond
		dir := t.TempDir()
		data := filepath.Join(dir, "file")
		writeRandom(t, data, size)
		src := makeTorrent(t, data, CreateOptions{PieceLength: 64 << 10}).Source
		took := simulateDownload(t, src, dir, overLink(t, src, data, rate, trip))
		// Two seconds for the bytes, and a few round trips for the handshake and the first batches.
		// The engine alone takes a round trip for each of eleven batches.
		if most := 2*time.Second + 5*trip; took > most {
			t.Errorf("took %v, want at most %v", took, most)
		}
	})
}

// A player on a line of 20 Mbit/s starts, turns to the middle, and back. What was requested before
// has to come first.
func TestSeekOnALongLink(t *testing.T) {
	t.Parallel()
	for _, trip := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			const size, rate, most = 40_000_000, 20e6 / 8, 1500 * time.Millisecond
			dir := t.TempDir()
			data := filepath.Join(dir, "film")
			writeRandom(t, data, size)
			src := makeTorrent(t, data, CreateOptions{PieceLength: 256 << 10}).Source
			simulateDownload(t, src, dir, overLink(t, src, data, rate, trip), func(tr *Transfer) {
				r, err := tr.OpenFile(t.Context(), 0)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				time.Sleep(3 * time.Second) // the download has begun
				for _, at := range []int64{0, size / 2, size / 4} {
					if _, err := r.Seek(at, io.SeekStart); err != nil {
						t.Fatal(err)
					}
					begin := time.Now()
					if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(begin); took > most {
						t.Errorf("round trip of %v: the first byte at %d came after %v, want at most %v", trip, at, took, most)
					}
					if _, err := io.ReadFull(r, make([]byte, 2_000_000)); err != nil { // it plays
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// A player turns to another place again and again. Peers are told to forget the requests for
// earlier places, and all of them send blocks of the wanted piece. The peers have 20 Mbit/s
// together.
func TestSeekTakesRequestsBack(t *testing.T) {
	seekTakesRequestsBack(t, film{256 << 10, 1}, film{1 << 20, 2})
}

func TestLargeSeekTakesRequestsBack(t *testing.T) {
	seekTakesRequestsBack(t, film{256 << 10, 2}, film{1 << 20, 1})
}

type film struct{ pieceLength, peers int }

func seekTakesRequestsBack(t *testing.T, films ...film) {
	t.Parallel()
	const size, rate, trip, seeks = 60_000_000, 20e6 / 8, 40 * time.Millisecond, 12
	for _, c := range films {
		t.Run(fmt.Sprintf("pieces of %d KiB from %d peers", c.pieceLength>>10, c.peers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				data := filepath.Join(dir, "film")
				writeRandom(t, data, size)
				src := makeTorrent(t, data, CreateOptions{PieceLength: int64(c.pieceLength)}).Source
				f := steady{data: readFile(t, data), length: c.pieceLength, pause: time.Duration(c.peers) * time.Second * (16 << 10) / rate}
				sim := simulated{trip: trip, peers: map[string]func(net.Conn){}}
				for i := range c.peers {
					sim.peers[fmt.Sprintf("10.%d.0.1:1", i)] = func(conn net.Conn) {
						d := newDistant(conn, trip, 1<<30)
						defer close(d.queue)
						f.serve(d, src)
					}
				}
				simulateDownload(t, src, dir, sim, func(tr *Transfer) {
					r, err := tr.OpenFile(t.Context(), 0)
					if err != nil {
						t.Fatal(err)
					}
					defer r.Close()
					time.Sleep(3 * time.Second)
					var all []time.Duration
					for i := range seeks {
						// Successive places are far from each other.
						if _, err := r.Seek(int64((i*7+6)%seeks)*size/seeks, io.SeekStart); err != nil {
							t.Fatal(err)
						}
						begin := time.Now()
						if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
							t.Fatal(err)
						}
						all = append(all, time.Since(begin).Round(time.Millisecond))
						time.Sleep(700 * time.Millisecond) // it plays
					}
					t.Log(all)
					// Without cancels half of them take more than 0.57 s to 0.98 s.
					usual := time.Second*time.Duration(c.pieceLength)/rate + 330*time.Millisecond
					if slices.Sort(all); all[seeks/2] > usual || all[seeks-1] > 1500*time.Millisecond {
						t.Errorf("the first bytes came after %v, want half of them within %v, and all within 1.5 s", all, usual)
					}
				})
			})
		})
	}
}
