package pathsel

import "fmt"

// fixed keeps the first paths of every peer's lookup open, whatever their measurements: one path
// ("first"), or as many as the budget allows ("all"). It is the original system's mapping without a
// selection after it.
type fixed struct {
	name  string
	limit int // paths for each peer; 0: the view's budget
}

func (f fixed) Name() string { return f.name }

func (f fixed) Paths(budget int) int { return budget }

func (f fixed) Decide(v View) Plan {
	limit := v.MaxPaths
	if f.limit > 0 {
		limit = min(limit, f.limit)
	}
	rank := map[PeerID]int{}
	var closes, opens []Decision
	open := func(c Candidate, reason string, args ...any) {
		opens = append(opens, Decision{c.Key, Open, fmt.Sprintf(reason, args...)})
	}
	for _, c := range v.Candidates {
		r := rank[c.Key.Peer]
		rank[c.Key.Peer]++
		switch isOpen := c.State.Open(); {
		case r >= limit && isOpen:
			why := fmt.Sprintf("path %d of this peer exceeds the limit of %d", r+1, limit)
			closes = append(closes, Decision{c.Key, Close, why})
		case isOpen && broken(c) != "":
			closes = append(closes, Decision{c.Key, Fail, broken(c)})
		case r >= limit || isOpen || v.Now.Before(c.RetryAt):
		case c.Failures > 0:
			open(c, "retry after %s", count(c.Failures, "failure"))
		default:
			open(c, "path %d of at most %d for this peer", r+1, limit)
		}
	}
	return Plan{Decisions: append(closes, opens...), Waiting: waiting(v)}
}
