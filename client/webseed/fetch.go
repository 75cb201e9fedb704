package webseed

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	pp "github.com/anacrolix/torrent/peer_protocol"

	"braid/storage"
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
// ended.
func (c *Conn) next() (*run, context.Context) {
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
	i := c.first()
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

// first is the place in the queue of the request with which the next run begins: the oldest. A
// server without ranges sends a file from its beginning, so requests behind the place that it has
// reached come first, in their order.
func (c *Conn) first() (first int) {
	if c.ranged {
		return 0
	}
	passed := func(b block) bool { return b.at < c.whole.place() }
	for i, b := range c.queue {
		best := c.queue[first]
		if passed(best) && !passed(b) || passed(best) == passed(b) && b.at < best.at {
			first = i
		}
	}
	return first
}

func (c *Conn) fetchRuns() {
	defer c.whole.close()
	for {
		r, ctx := c.next()
		if r == nil {
			return
		}
		err := c.fetch(ctx, r)
		r.cancel()
		c.end(r, err)
	}
}

// fetch fetches the blocks of a run, file after file.
func (c *Conn) fetch(ctx context.Context, r *run) error {
	last := r.blocks[len(r.blocks)-1]
	x := answers{conn: c, ctx: ctx, end: last.at + int64(last.Length)}
	defer x.close()
	for _, b := range r.blocks {
		m := b.answer() // in which padding is zero
		err := c.cfg.Layout.Span(b.at, int(b.Length), func(i int, at int64, from, to int) error {
			return x.read(c.cfg.Layout.Files[i], at, m[answerHead+from:answerHead+to])
		})
		if err != nil {
			return err
		}
		c.deliver(r, b, m)
	}
	return nil
}

// answers reads the bytes of a run, file after file. If an answer ends early, it asks for the rest:
// some servers limit the length of an answer, and connections break.
type answers struct {
	conn  *Conn
	ctx   context.Context
	end   int64 // of the run, in the torrent's data
	file  storage.File
	body  io.ReadCloser // the present answer, of file; nil: none
	got   int           // bytes of it
	short int           // answers that have ended early
}

func (x *answers) close() {
	if x.body != nil {
		x.body.Close()
		x.body = nil
	}
}

// read fills b with the bytes of a file from that place on.
func (x *answers) read(f storage.File, at int64, b []byte) error {
	if f != x.file {
		x.close()
		x.file = f
	}
	for {
		if x.body == nil {
			body, err := x.conn.open(x.ctx, f, at, min(x.end-f.Offset, f.Length)-at)
			if err != nil {
				return err
			}
			x.body, x.got = body, 0
		}
		// If nobody wants the run any more, its bytes are left for the next one.
		if err := x.ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(x.body, b)
		if err == nil {
			x.got += n
			return nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errShort
		}
		useless := x.got+n == 0 || errors.Is(err, errStalled)
		if useless || x.short == maxShort || x.ctx.Err() != nil {
			return err
		}
		x.short++
		x.close()
		at, b = at+int64(n), b[n:]
	}
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
