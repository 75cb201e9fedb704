package node

import (
	"testing"

	"braid/client"
	"braid/tracker/announce"
	"braid/tracker/wire"
)

// Only who has the whole torrent is a seed to trackers; who has all that he wants, and it is not
// all, is a partial one.
func TestAnnounceProgress(t *testing.T) {
	for name, tt := range map[string]struct {
		p    client.Progress
		want announce.Progress
	}{
		"magnet link":          {client.Progress{Phase: client.Metadata}, announce.Progress{Left: wire.NoCount}},
		"begun":                {client.Progress{Phase: client.Downloading, Total: 10, Missing: 7, Fetched: 3, Sent: 2}, announce.Progress{Left: 7, Downloaded: 3, Uploaded: 2}},
		"not verified":         {client.Progress{Phase: client.Downloading, Total: 10}, announce.Progress{Left: 1}},
		"complete":             {client.Progress{Phase: client.Complete, Total: 10}, announce.Progress{}},
		"some files, begun":    {client.Progress{Phase: client.Downloading, Total: 5, Have: 5, Missing: 95}, announce.Progress{Left: 95}},
		"some files, complete": {client.Progress{Phase: client.Complete, Total: 5, Have: 5, Missing: 95}, announce.Progress{Left: 95, Partial: true}},
	} {
		if got := announceProgress(tt.p); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
