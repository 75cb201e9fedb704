package foreign

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"reflect"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"braid/client"
	"braid/node"
	"braid/storage"
	"braid/tracker"
)

// atOnce bounds the torrents that Each changes at the same time. A change may wait for the disk.
const atOnce = 16

// Each calls do for all torrents, some of them at the same time, and joins the errors. It ignores
// torrents that another request is removing, as clients expect of unknown ones: they are listed
// until their data is deleted.
func Each(all []*node.Torrent, do func(*node.Torrent) error) error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	errs := make([]error, len(all))
	for i, t := range all {
		g.Go(func() error {
			if t.State() == node.Removed {
				return nil
			}
			if err := do(t); !errors.Is(err, node.ErrUnknown) {
				errs[i] = err
			}
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(errs...)
}

// Add adds a torrent and, unless it is paused, starts it, even if the settings say that new
// torrents are paused. If now is true, it does not wait in the queue.
func Add(
	ctx context.Context, n *node.Node, o node.Options, now bool,
) (*node.Torrent, error) {
	t, err := n.Add(ctx, o)
	if err != nil || !now && (o.Paused || !t.Options().Paused) {
		return t, err
	}
	return t, Start(ctx, t, now)
}

// Start starts a stopped torrent. If now is true, the torrent does not wait in the queue. Running
// torrents stay as they are.
func Start(ctx context.Context, t *node.Torrent, now bool) error {
	switch {
	case !starts(t.Status(), now):
		return nil
	case now:
		return t.ResumeNow(ctx)
	}
	return t.Resume(ctx)
}

// starts tells whether a start changes something.
func starts(s node.Status, now bool) bool {
	switch s.State { // a torrent that has failed while it ran is not Running
	case node.Queued, node.Starting:
		return now || s.Verifying
	}
	return s.State != node.Running && s.State != node.Removed
}

// Stop stops a torrent. A paused one stays as it is.
func Stop(t *node.Torrent) error {
	if t.State() == node.Paused {
		return nil
	}
	return t.Pause()
}

// Announce asks the trackers of a torrent now.
func Announce(t *node.Torrent) error {
	t.Announce()
	return nil
}

// MapTrackers returns tiers of trackers in which f has replaced some and removed others.
func MapTrackers(
	tiers [][]tracker.URL, f func(tracker.URL) (to tracker.URL, keep bool),
) [][]tracker.URL {
	out := [][]tracker.URL{}
	for _, tier := range tiers {
		var kept []tracker.URL
		for _, u := range tier {
			if to, keep := f(u); keep {
				kept = append(kept, to)
			}
		}
		if len(kept) > 0 {
			out = append(out, kept)
		}
	}
	return out
}

// IsComplete tells whether all wanted data of a torrent is on disk.
func IsComplete(s node.Status) bool {
	return !s.Source.IsMagnet() && s.Total > 0 && s.Have >= s.Total
}

// Flags returns those of the letters that apply to a peer. They mean the same to both clients.
func Flags(p client.PeerProgress, letters string) (out []string) {
	is := map[rune]bool{
		'D': p.ReadRate > 0, 'd': p.Interested && p.Choked,
		'U': p.WriteRate > 0, 'u': p.PeerInterested && p.Held,
		'I': p.Accepted, 'E': p.Transport != "tcp",
		'H': p.Source == client.FromDHT, 'X': p.Source == client.FromPEX,
		'L': p.Source == client.FromLSD,
	}
	for _, l := range letters {
		if is[l] {
			out = append(out, string(l))
		}
	}
	return out
}

// SplitPeer separates host and port. The host of a SCION address is ISD-AS,[IP].
func SplitPeer(address string) (host string, port int) {
	host, text, err := net.SplitHostPort(address)
	if i := strings.LastIndex(address, ":"); err != nil && i < 0 {
		return address, 0
	} else if err != nil {
		host, text = address[:i], address[i+1:]
	}
	port, _ = strconv.Atoi(text)
	return host, port
}

// Switch switches the alternative rates on or off by hand.
func Switch(a *node.Alternative, on bool) { a.Hand, a.Since = &on, time.Now() }

// Final returns the directory for complete data.
func Final(s node.Settings) string { return cmp.Or(s.CompleteDir, s.Dir) }

// FreeSpace returns the free bytes in the directory for complete data; -1 if they are unknown.
func FreeSpace(s node.Settings) int64 {
	free, _, err := storage.DiskSpace(Final(s))
	if err != nil {
		return -1
	}
	return free
}

// Minutes returns a number of minutes as a duration, at most about 190 years.
func Minutes(m float64) time.Duration { return time.Duration(min(m, 1e8) * float64(time.Minute)) }

// WholeMinutes returns a duration as clients read it. They read whole numbers only.
func WholeMinutes(d time.Duration) float64 { return math.Ceil(d.Minutes()) }

// SetMinutes changes a duration, unless a client sends back what it has read.
func SetMinutes(d *time.Duration, m float64) {
	if m != WholeMinutes(*d) {
		*d = Minutes(m)
	}
}

// Seconds returns a duration in whole seconds, at least 0.
func Seconds(d time.Duration) int64 { return int64(max(d, 0) / time.Second) }

// Same tells whether the JSON that a client has sent means the value that a setting has.
func Same(raw json.RawMessage, value any) bool {
	var sent, has any
	b, err := json.Marshal(value)
	return err == nil && json.Unmarshal(b, &has) == nil && json.Unmarshal(raw, &sent) == nil &&
		reflect.DeepEqual(sent, has)
}

// Number returns 1 for true and 0 for false.
func Number(b bool) int {
	if b {
		return 1
	}
	return 0
}
