package node

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/anacrolix/torrent/metainfo"
)

// The logs of thousands of torrents together are bounded, too.
func TestLogIsBounded(t *testing.T) {
	n := &Node{log: slog.New(slog.DiscardHandler), byHash: map[metainfo.Hash]*Torrent{}}
	x := newTorrent(n, Options{})
	if err := n.register(x); err != nil || n.count.Load() != 1 {
		t.Errorf("%d torrents are counted: %v", n.count.Load(), err)
	}
	log := x.logger()
	for i := range maxLog + 10 {
		log.Info(fmt.Sprint(i))
	}
	if l := x.Log(); len(l) != maxLog || l[maxLog-1].Text != fmt.Sprint(maxLog+9) {
		t.Errorf("one torrent has %d entries, the last is %q", len(l), l[len(l)-1].Text)
	}
	n.count.Store(10_000)
	log.Info(strings.Repeat("x", 2*maxEntry))
	if l := x.Log(); len(l) != leastLog || len(l[leastLog-1].Text) != maxEntry {
		t.Errorf("one of many torrents has %d entries, the last with %d bytes",
			len(l), len(l[len(l)-1].Text))
	}
	if have := cap(x.events.entries); have > 2*leastLog {
		t.Errorf("it keeps memory for %d entries", have)
	}
}
