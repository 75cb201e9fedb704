package gateway

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"braid/tracker/wire"
)

// holding is a torrent in the cache. It takes room for all of its data, even before that is
// fetched.
type holding struct {
	hash    wire.InfoHash
	size    int64
	state   state
	used    time.Time
	network string // the network whose announce has made the gateway join
}

// makeRoom returns the torrents whose data must be deleted before another torrent may join. all is
// in the order of the last use. First it chooses torrents that nobody uses, then torrents of
// networks that hold more than the asking network would hold, so that no network takes the cache
// from others. It never chooses a torrent that is joining or leaving. ok is false if there is no
// room.
func makeRoom(
	want holding, all []holding, size int64, network string,
) (out []wire.InfoHash, ok bool) {
	taken, of := want.size, map[string]int64{network: want.size}
	for _, h := range all {
		if h.hash == want.hash {
			continue // it has its room already
		}
		taken += h.size
		if h.state != away {
			of[h.network] += h.size
		}
	}
	gone := map[wire.InfoHash]bool{want.hash: true}
	drop := func(may func(holding) bool) {
		for _, h := range all {
			if taken <= size {
				return
			}
			if !gone[h.hash] && may(h) {
				gone[h.hash] = true
				taken -= h.size
				if h.state != away {
					of[h.network] -= h.size
				}
				out = append(out, h.hash)
			}
		}
	}
	drop(func(h holding) bool { return h.state == away })
	drop(func(h holding) bool {
		return h.state == here && h.network != network && of[h.network] > of[network]
	})
	if taken > size {
		return nil, false
	}
	return out, true
}

// openCache makes the directory, or finds the data of earlier processes there. It deletes data of
// torrents that are no longer allowed, and data above the bound. The caller holds the lock.
func (g *Gateway) openCache() error {
	if err := os.MkdirAll(g.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the cache: %w", err)
	}
	entries, err := os.ReadDir(g.cfg.Dir)
	if err != nil {
		return fmt.Errorf("read the cache: %w", err)
	}
	for _, e := range entries {
		b, err := hex.DecodeString(e.Name())
		if err != nil || len(b) != len(wire.InfoHash{}) || !e.IsDir() {
			continue // it is not the gateway's
		}
		t := g.torrents[wire.InfoHash(b)]
		info, err := e.Info()
		if t == nil || err != nil {
			if err := os.RemoveAll(filepath.Join(g.cfg.Dir, e.Name())); err != nil {
				return fmt.Errorf("delete old data from the cache: %w", err)
			}
			continue
		}
		t.kept, t.used = true, info.ModTime()
	}
	// Nothing is in use yet, so there is always room.
	out, _ := makeRoom(holding{}, g.holdings(), g.cfg.Size, "")
	for _, hash := range out {
		if err := os.RemoveAll(g.dirOf(hash)); err != nil {
			return fmt.Errorf("delete old data from the cache: %w", err)
		}
		g.torrents[hash].kept = false
	}
	return nil
}
