package node

import (
	"sync/atomic"
	"testing"
	"time"

	"braid/client"
	"braid/units/await"
)

// watched is a source that notes what it hears of a torrent.
type watched struct {
	begun     chan begun
	announced atomic.Int32
}

// begun is when a search began, and in which phase of the transfer.
type begun struct {
	at    time.Time
	phase client.Phase
}

func (w *watched) Start(s Swarm) (Search, error) {
	w.begun <- begun{time.Now(), s.Progress().Phase}
	return watchedSearch{w}, nil
}

type watchedSearch struct{ *watched }

func (watchedSearch) Hungry(bool) {}
func (watchedSearch) Completed()  {}
func (w watchedSearch) Announce() { w.announced.Add(1) }
func (watchedSearch) Close()      {}

// A torrent that is complete is announced as complete after a restart. If its data must be checked
// first, it is announced once more after that.
func TestAnnouncedAsComplete(t *testing.T) {
	t.Parallel()
	data, out := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 16<<20)
	seeder, _ := seedOf(t, src, data)
	for _, recheck := range []bool{false, false, true} {
		w := &watched{begun: make(chan begun, 10)}
		n := open(t, Config{Sources: []Source{w}})
		o := Options{Source: src, Storage: fileIn(out), Peers: seeder.Listening()}
		o.Storage.Recheck = recheck
		start := time.Now()
		x := add(t, n, o)
		await.Value(t, "the data", x.Done())
		began, fetched := <-w.begun, x.Progress().Fetched > 0
		if err := n.Close(); err != nil { // after it has told the search
			t.Fatal(err)
		}
		late := began.phase != client.Complete && !fetched
		if !recheck && late && began.at.Sub(start) < confirmPatience { // no slow disk
			t.Errorf("complete data: the search began in phase %s", began.phase)
		}
		if again := w.announced.Load(); late != (again == 1) {
			t.Errorf("the search began in phase %s and announced %d more times", began.phase, again)
		}
	}
}
