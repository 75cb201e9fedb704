package client

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anacrolix/torrent/metainfo"
	engine "github.com/anacrolix/torrent/storage"

	"braid/pathsel"
	"braid/storage"
)

// gated is a store that reads only so many bytes while its gate is locked: no download ends before
// all connections are made, or before something has happened in its middle.
type gated struct {
	storage.Store
	gate *sync.RWMutex
	free *atomic.Int64 // bytes that pass the locked gate; nil: none
}

func (s gated) OpenTorrent(ctx context.Context, info *metainfo.Info, hash metainfo.Hash) (engine.TorrentImpl, error) {
	t, err := s.Store.OpenTorrent(ctx, info, hash)
	inner := t.Piece
	t.Piece = func(p metainfo.Piece) engine.PieceImpl { return gatedPiece{inner(p), s} }
	return t, err
}

type gatedPiece struct {
	engine.PieceImpl
	store gated
}

func (p gatedPiece) ReadAt(b []byte, off int64) (int, error) {
	if free := p.store.free; free == nil || free.Add(-int64(len(b))) < 0 {
		p.store.gate.RLock()
		defer p.store.gate.RUnlock()
	}
	return p.PieceImpl.ReadAt(b, off)
}

// All paths up to the budget carry data with "all", one with "first"; several torrents share a
// session.
func TestPathSelection(t *testing.T) {
	data := t.TempDir()
	randomFiles(t, data, "one", 8<<20, 100_000)
	randomFiles(t, data, "two", 300_000)
	one := makeTorrent(t, filepath.Join(data, "one"), CreateOptions{PieceLength: 16 << 10}).Source
	two := makeTorrent(t, filepath.Join(data, "two"), CreateOptions{}).Source
	seeder := openFan(t, Config{}, "127.0.0.1", 1)
	var gate sync.RWMutex
	for _, s := range []Source{one, two} {
		if _, err := seeder.Add(s, gated{storage.OpenVerified(data, testLog(t)), &gate, nil}, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		selector string
		max      int
		want     int
	}{{"first", 8, 1}, {"all", 8, 5}, {"all", 3, 3}} {
		t.Run(c.selector, func(t *testing.T) {
			sel, err := pathsel.New(c.selector)
			if err != nil {
				t.Fatal(err)
			}
			gate.Lock()
			open := sync.OnceFunc(gate.Unlock)
			defer open()
			out := t.TempDir()
			store := openStore(t, out)
			s := openFan(t, Config{Selector: sel, MaxPaths: c.max}, "127.0.0.1", 5)
			var all []*Transfer
			for _, src := range []Source{one, two} {
				tr, err := s.Add(src, store, Options{Peers: seeder.Listening()})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, tr)
			}
			if _, err := s.Add(one, store, Options{}); err == nil {
				t.Error("a torrent was added twice")
			}
			until(t, all[0], "connected over all paths", func(p Progress) bool {
				used := 0
				for _, x := range p.Paths {
					if x.BytesRead > 0 {
						used++
					}
				}
				return used >= c.want
			})
			open()
			wait(t, all[1])
			used := 0
			seen := map[pathsel.Fingerprint]bool{}
			p := wait(t, all[0])
			for _, x := range p.Paths {
				if x.BytesRead > 0 {
					used++
				}
				if seen[x.Path.Fingerprint] {
					t.Errorf("path %s is there twice", x.Path.Fingerprint)
				}
				seen[x.Path.Fingerprint] = true
			}
			if used != c.want || p.Fetched != one.Layout.Length {
				t.Errorf("%d paths used, want %d; fetched %d of %d", used, c.want, p.Fetched, one.Layout.Length)
			}
			for _, tr := range all {
				tr.Close()
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			sameFiles(t, one, data, out)
			sameFiles(t, two, data, out)
		})
	}
}

// The seeder sees each path-level peer, and what it sends on it.
func TestSeederSeesPaths(t *testing.T) {
	data := t.TempDir()
	randomFiles(t, data, "set", 4<<20)
	src := makeTorrent(t, filepath.Join(data, "set"), CreateOptions{}).Source
	seeder := openFan(t, Config{}, "127.0.0.1", 1)
	var gate sync.RWMutex
	gate.Lock()
	open := sync.OnceFunc(gate.Unlock)
	defer open()
	serving, err := seeder.Add(src, gated{storage.OpenVerified(data, testLog(t)), &gate, nil}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	leecher := openFan(t, Config{}, "127.0.0.1", 4)
	tr, err := leecher.Add(src, openStore(t, t.TempDir()), Options{Peers: seeder.Listening()})
	if err != nil {
		t.Fatal(err)
	}
	until(t, serving, "all four connected", func(p Progress) bool { return len(p.Paths) == 4 })
	open()
	wait(t, tr)
	until(t, serving, "all four seen", func(p Progress) bool {
		var sent uint64
		for _, x := range p.Paths {
			if !x.Accepted {
				return false
			}
			sent += x.BytesWritten
		}
		return len(p.Paths) == 4 && sent >= uint64(src.Layout.Length) && p.Sent >= src.Layout.Length // stolen requests are served twice
	})
}
