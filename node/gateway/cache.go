package gateway

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"braid/tracker/wire"
)

// holding is a torrent that takes room in the cache: all of its size, whatever was fetched of it.
type holding struct {
	hash    wire.InfoHash
	size    int64
	state   state
	used    time.Time
	network string // that has made the gateway join
}

// makeRoom returns the torrents whose data has to go before another one may join. all is in the
// order of the last use. Torrents that nobody uses go first. Then networks that hold more than the
// one that asks would hold make room, so that no network takes the cache from others. ok is false
// if there is no room. A torrent that is just joining or leaving stays.
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

// openCache finds what earlier processes have left, and deletes the data of torrents that are no
// longer allowed, and what is too much. It needs the lock.
func (g *Gateway) openCache() error {
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
	out, _ := makeRoom(holding{}, g.holdings(), g.cfg.Size, "") // nothing is in use yet: there is always room
	for _, hash := range out {
		if err := os.RemoveAll(g.dirOf(hash)); err != nil {
			return fmt.Errorf("delete old data from the cache: %w", err)
		}
		g.torrents[hash].kept = false
	}
	return nil
}
