package node

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Queue says how many torrents a service runs at a time: the first ones, by priority and then by
// position.
type Queue struct {
	Downloads int `json:"downloads"` // 0: any number
	Seeds     int `json:"seeds"`     // 0: any number
	// Stalled is a time without data after which a running torrent no longer counts, so that
	// torrents without peers do not hold up the others; 0: DefaultStalled.
	Stalled time.Duration `json:"stalled_ns,omitempty"`
}

// DefaultStalled is Queue.Stalled of a queue that has none.
const DefaultStalled = 2 * time.Minute

func (q Queue) stalled() time.Duration { return cmp.Or(q.Stalled, DefaultStalled) }

func (q Queue) check() error {
	if q.Downloads < 0 || q.Seeds < 0 || q.Stalled < 0 {
		return fmt.Errorf("a queue with %d downloads, %d seeds and a time of %v: want 0 or more",
			q.Downloads, q.Seeds, q.Stalled)
	}
	return nil
}

// turn is a torrent as the queue sees it.
type turn struct {
	seeds    bool // it is complete; otherwise it downloads
	running  bool
	stalled  bool // it runs and has carried no data for a while
	forced   bool // it runs in any case
	priority Priority
}

// plan decides which torrents run. all is in the order of their positions.
//
// A running torrent that is stalled continues and does not count. If it were stopped, a torrent
// without peers could never find any.
func (q Queue) plan(all []turn) (run []bool) {
	run = make([]bool, len(all))
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(all[j].priority, all[i].priority)
	})
	used := map[bool]int{}
	most := map[bool]int{false: q.Downloads, true: q.Seeds}
	for _, i := range order {
		t := all[i]
		switch {
		case t.forced, t.running && t.stalled, most[t.seeds] == 0:
			run[i] = true
		case used[t.seeds] < most[t.seeds]:
			run[i] = true
			used[t.seeds]++
		}
	}
	return run
}
