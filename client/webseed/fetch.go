package webseed

import (
	"context"
	"errors"
	"slices"
	"time"

	pp "github.com/anacrolix/torrent/peer_protocol"
)

// run is a sequence of neighbouring blocks that one fetcher fetches. Conn.mu guards its fields.
type run struct {
	blocks  []block
	missing map[block]struct{} // those that are neither delivered nor taken back
	cancel  context.CancelFunc // ends its HTTP request
}

// drop takes a block out of the run. It tells whether the block was in it.
func (r *run) drop(b block) bool {
	if _, ok := r.missing[b]; !ok {
		return false
	}
	if delete(r.missing, b); len(r.missing) == 0 {
		r.cancel()
	}
	return true
}

// next waits for requests, and takes the oldest with its neighbours; nil if the connection has
// ended. place is where the answer of a server without ranges is, in the torrent's data.
func (c *Conn) next(place int64) (*run, context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 && c.ctx.Err() == nil {
		c.changed.Wait()
	}
	if c.ctx.Err() != nil {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(c.ctx)
	r := &run{missing: map[block]struct{}{}, cancel: cancel}
	i := c.first(place)
	begin := c.queue[i].at
	for end := begin; i >= 0 && end-begin < maxRun; i = c.queued(end) {
		b := c.queue[i]
		c.queue = slices.Delete(c.queue, i, i+1)
		r.blocks = append(r.blocks, b)
		r.missing[b] = struct{}{}
		end += int64(b.Length)
	}
	c.runs[r] = struct{}{}
	return r, ctx
}

// first returns the index of the request with which the next run begins: the oldest one in the
// queue. A server without ranges always sends a file from its beginning. For such a server, the run
// begins with the lowest offset that it has not passed yet.
func (c *Conn) first(place int64) (first int) {
	if c.ranged {
		return 0
	}
	passed := func(b block) bool { return b.at < place }
	for i, b := range c.queue {
		best := c.queue[first]
		if passed(best) && !passed(b) || passed(best) == passed(b) && b.at < best.at {
			first = i
		}
	}
	return first
}

func (c *Conn) fetchRuns() {
	a := answers{conn: c}
	defer a.close()
	for {
		r, ctx := c.next(a.place())
		if r == nil {
			return
		}
		err := a.fetch(ctx, r)
		r.cancel()
		c.end(r, err)
	}
}

// fetch fetches the blocks of a run, file after file.
func (a *answers) fetch(ctx context.Context, r *run) error {
	if a.conn.ranged {
		defer a.close()
	}
	l := a.conn.cfg.Layout
	last := r.blocks[len(r.blocks)-1]
	a.end, a.short = last.at+int64(last.Length), 0
	for _, b := range r.blocks {
		m := b.answer() // in which padding is zero
		err := l.Span(b.at, int(b.Length), func(i int, at int64, from, to int) error {
			return a.read(ctx, l.Files[i], at, m[answerHead+from:answerHead+to])
		})
		if err != nil {
			return err
		}
		a.conn.deliver(r, b, m)
	}
	return nil
}

// end notes how a run went. It rejects the requests that are left, so that the engine makes them
// again, here or elsewhere.
func (c *Conn) end(r *run, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, r)
	if err == nil || len(r.missing) == 0 { // without missing blocks an error does not matter
		if err == nil {
			c.failures = 0
		}
		return
	}
	for b := range r.missing {
		c.sendLocked(b.reject())
	}
	if c.ctx.Err() != nil || c.choked {
		return
	}
	c.failures++
	busy := (*busyError)(nil)
	if errors.As(err, new(*finalError)) || c.failures > maxFailures {
		c.err = err
		c.cancel()
		return
	}
	pause := firstPause << (c.failures - 1)
	if errors.As(err, &busy) {
		pause = max(pause, busy.pause)
	}
	c.pause(min(pause, maxPause))
}

// pause leaves the server alone for a while. Meanwhile the engine asks others.
func (c *Conn) pause(d time.Duration) {
	c.choked = true
	c.sendLocked(message(pp.Choke))
	for _, b := range c.queue {
		c.sendLocked(b.reject())
	}
	c.queue = nil
	time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.choked = false
		c.sendLocked(message(pp.Unchoke))
	})
}
