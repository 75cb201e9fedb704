package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Move moves the torrent to another directory. It returns an error if that is impossible. Otherwise
// the move happens in the background; the torrent is Moving meanwhile, and then continues as
// before. If the data cannot be moved, it stays where it is, and the torrent's log says why. If
// several calls wait for a move, only the last of them is carried out.
//
// If data is true, the data is moved there: renamed on the same file system, otherwise copied.
// Other files are never overwritten. If data is false, the data must be there already, and is
// verified. A magnet link that no peer has described yet has no data. Its data will go to dir.
func (t *Torrent) Move(dir string, data bool) error {
	failed := func(err error) error {
		return fmt.Errorf("move torrent %s: %w", t.Options().title(), err)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return failed(err)
	}
	if data {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return failed(err)
		}
	}
	t.mu.Lock()
	if t.state == Removed {
		t.mu.Unlock()
		return failed(errors.New("it is removed"))
	}
	t.nextMove = &move{dir, data}
	t.moving = t.moving || data // now, so that no reader of the status expects the data to stay
	t.mu.Unlock()
	t.save() // if this process is killed, the next one moves the torrent
	t.node.background(t.moveAway)
	return nil
}

// move is the directory to which a torrent will move.
type move struct {
	Dir  string `json:"dir"`
	Data bool   `json:"data"` // with its data
}

// isSameDir tells whether two paths name the same directory, perhaps through a symbolic link.
func isSameDir(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return filepath.Clean(a) == filepath.Clean(b) || err1 == nil && err2 == nil && os.SameFile(x, y)
}

// moveAway makes the torrent's next move.
func (t *Torrent) moveAway() {
	if t.State() != Moving { // a move that is under way is not cancelled
		t.cancelStart()
	}
	t.op.Lock()
	defer t.op.Unlock()
	t.moveNext()
}

// moveNext stops the torrent, makes its next move, and starts it again. The caller holds op.
func (t *Torrent) moveNext() {
	t.mu.Lock()
	state, reason, next := t.state, t.reason, t.nextMove
	t.mu.Unlock()
	if state == Removed || next == nil || t.node.ctx.Err() != nil {
		return
	}
	if isSameDir(t.Options().Storage.Dir, next.Dir) {
		t.mu.Lock()
		t.beginsLocked(next)
		t.mu.Unlock()
		t.endMove("changed")
		t.save()
	} else {
		t.carry(next, state, reason)
	}
	t.mu.Lock()
	verify := (!next.Data || t.unverified) && (t.state == Paused || t.state == Served)
	t.mu.Unlock()
	if verify {
		if err := t.Verify(); err != nil {
			t.logger().Warn("the data is not verified until the next start", "error", err)
		}
	}
}

// carry makes a move to another directory. state and reason are those before it.
func (t *Torrent) carry(next *move, state State, reason string) {
	ctx, cancel := t.beginMove() // before the end of the run, which can take seconds
	defer cancel()
	t.end(Moving)
	t.mu.Lock()
	t.beginsLocked(next)
	if state == Served {
		t.reason = reason // of a torrent that is Served afterwards
	}
	if o := &t.options; next.Data && o.Storage.Dir != "" && !o.Source.IsMagnet() {
		t.moveTo = next.Dir
	} else {
		t.moveTo, o.Storage.Dir, o.Storage.Recheck = "", next.Dir, true
	}
	t.mu.Unlock()
	t.save()
	t.moveOn(ctx, state)
}

// beginsLocked notes that a move no longer waits. Another one may have taken its place by now.
func (t *Torrent) beginsLocked(m *move) {
	if t.nextMove == m {
		t.nextMove = nil
	}
}

// finishMoves continues the move that an earlier process has begun, and makes one that waits.
func (t *Torrent) finishMoves() {
	t.op.Lock()
	defer t.op.Unlock()
	t.mu.Lock()
	state, before := t.state, Queued
	if t.reason != "" {
		before = Served
	}
	t.mu.Unlock()
	if state == Moving {
		ctx, cancel := t.beginMove()
		defer cancel()
		t.moveOn(ctx, before)
	}
	t.moveNext()
}

// beginMove makes the torrent Moving. From now on Pause and Resume hold for the time after the
// move, and a removal cancels the context.
func (t *Torrent) beginMove() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.node.ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state, t.abort, t.moving = Moving, cancel, true
	return ctx, cancel
}

// moveOn moves the data, and lets the torrent continue as before. The caller holds op.
func (t *Torrent) moveOn(ctx context.Context, before State) {
	err := t.copyAway(ctx)
	if t.node.ctx.Err() != nil && err != nil {
		return // the next process continues
	}
	if err != nil {
		t.logger().Error("the data cannot be moved", "error", err)
		t.endMove("changed")
	} else {
		t.endMove("moved")
	}
	t.goOn(before)
	t.save()
}

// endMove resets the status of the move and publishes an event.
func (t *Torrent) endMove(event string) {
	t.mu.Lock()
	t.moving, t.abort, t.arriving = t.nextMove != nil, nil, false
	t.mu.Unlock()
	t.changed(event)
}

// copyAway copies the data to moveTo, and deletes it in the old place. It saves the state after
// each step, so that another process can continue: see storage.Stored.CopyTo. The caller holds op.
func (t *Torrent) copyAway(ctx context.Context) error {
	t.mu.Lock()
	o, to := t.options, t.moveTo
	t.mu.Unlock()
	if to != "" {
		err := t.refuseGone()
		if err == nil {
			err = o.stored().CopyTo(ctx, to, o.Storage.Complete, nil)
		}
		if t.node.ctx.Err() != nil && err != nil {
			return err
		}
		t.mu.Lock()
		if t.moveTo = ""; err == nil {
			t.options.Storage.Dir, t.leaving = to, o.Storage.Dir
		}
		t.mu.Unlock()
		if keepErr := t.keep(); err != nil || keepErr != nil {
			return errors.Join(err, keepErr) // the old place stays, and nothing is deleted
		}
	}
	err := t.leave(ctx)
	if err != nil && ctx.Err() == nil {
		t.logger().Error("the data was moved, but cannot be deleted in the old place", "error", err)
		return nil
	}
	return err
}

// leave deletes the data in the place that the torrent has left.
func (t *Torrent) leave(ctx context.Context) error {
	t.mu.Lock()
	o, from := t.options, t.leaving
	t.mu.Unlock()
	if from != "" && !isSameDir(from, o.Storage.Dir) { // the user may have moved it back
		if err := t.deleteIn(ctx, from); err != nil {
			return err // the next process tries again
		}
	}
	t.mu.Lock()
	t.leaving = ""
	t.mu.Unlock()
	return nil
}

// moveComplete moves the data of a download that is complete for the first time to the directory
// for complete data. Later the user may have moved it elsewhere.
func (t *Torrent) moveComplete() {
	dir := t.node.Settings().CompleteDir
	t.mu.Lock()
	t.arriving = t.arriving && dir != ""
	arriving := t.arriving && t.complete
	t.mu.Unlock()
	if !arriving {
		return
	}
	if err := t.Move(dir, true); err != nil {
		t.logger().Error("the complete data cannot be moved", "error", err)
		t.mu.Lock()
		t.arriving = false
		t.mu.Unlock()
	}
}

// Verify hashes all data of the torrent again, in the background. Afterwards a running torrent
// continues, and downloads wrong pieces again. A paused torrent stays paused, and downloads them
// when it is resumed. The files of a magnet link are hashed when a peer has described it.
func (t *Torrent) Verify() error {
	t.mu.Lock()
	o, state, verifying := t.options, t.state, t.verifying
	t.mu.Unlock()
	switch {
	case verifying: // that check goes on
		return nil
	case state == Removed, state == Moving:
		return fmt.Errorf("verify torrent %s: it is %s", o.title(), state)
	case (state == Paused || state == Served) && !o.Source.IsMagnet():
		t.mu.Lock()
		t.unverified = true
		t.mu.Unlock()
		t.save() // if this process ends, the next one verifies the data
		t.node.background(t.verifyStopped)
	default:
		t.node.background(func() { t.restart(func(o *Options) { o.Storage.Recheck = true }) })
	}
	return nil
}

// verifyStopped hashes the data of a torrent that does not run.
func (t *Torrent) verifyStopped() {
	t.op.Lock()
	defer t.op.Unlock()
	state := t.State()
	if state != Paused && state != Served {
		return
	}
	ctx, cancel := context.WithCancel(t.node.ctx)
	defer cancel()
	t.mu.Lock()
	t.state, t.abort, t.verifying = Starting, cancel, true
	o := t.options
	t.mu.Unlock()
	select {
	case t.node.checks <- struct{}{}:
		defer func() { <-t.node.checks }()
	case <-ctx.Done():
	}
	began := time.Now()
	r, err := o.stored().CheckWanted(ctx, o.Selection.Wants(o.Source.Layout), func(n int64) {
		t.mu.Lock()
		t.last.Checked = n
		t.mu.Unlock()
	})
	again := !r.Complete()
	for i, recorded := range o.stored().Recorded() {
		again = again || err == nil && r.Good[i] && !recorded
	}
	defer t.endVerify(state)
	if err != nil {
		if ctx.Err() == nil { // Pause, Remove and Close end a check, too
			t.logger().Error("the data cannot be verified", "error", err)
		}
		return
	}
	t.mu.Lock()
	t.unverified = false
	t.options.Storage.Recheck = again // so that the next start corrects the record
	t.found = r.Good
	t.setShape(t.options.shapeOf(func(i int) bool { return r.Good[i] }))
	t.complete = t.complete && r.Complete()
	t.mu.Unlock()
	t.logger().Info("verified", "complete", r.Complete(), "seconds", time.Since(began).Seconds())
}

// endVerify lets a torrent continue as before, unless it was resumed meanwhile.
func (t *Torrent) endVerify(before State) {
	t.mu.Lock()
	t.abort, t.verifying, t.last.Checked = nil, false, 0
	// A move ends a check, which begins anew after it.
	t.unverified = t.unverified && (t.nextMove != nil || t.node.ctx.Err() != nil)
	t.mu.Unlock()
	t.goOn(before)
	t.save()
	t.changed("changed")
}
