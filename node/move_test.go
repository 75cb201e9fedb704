package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/units/await"
)

// A seed moves while it runs: it is served from the new place, the old one is empty, and nothing is
// hashed or fetched again. A file of somebody else in the new place stops the move, and both stay
// as they are.
func TestMove(t *testing.T) {
	t.Parallel()
	data, out, to, full, state := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	seeder, _ := seedOf(t, src, data)
	n := openService(t, state, out)
	x := add(t, n, Options{Source: src, Peers: seeder.Listening()})
	await.Value(t, "the download", x.Done())
	foreign := filepath.Join(full, "file")
	if err := os.WriteFile(foreign, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	move := func(dir string, data bool, want string) {
		t.Helper()
		events := n.Subscribe(1000)
		defer events.Close()
		if err := x.Move(dir, data); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the move", func() bool { return x.State() == Running && len(x.Log()) > 0 && x.Status().Storage.Dir == want })
	}
	move(to, true, to)
	sameFile(t, filepath.Join(data, "file"), filepath.Join(to, "file"))
	if left, err := os.ReadDir(out); err != nil || len(left) != 1 || left[0].Name() != ".braid" {
		t.Errorf("left in the old place: %v, %v", left, err)
	}
	if err := x.Move(full, true); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the refusal", func() bool {
		return x.State() != Moving && slices.ContainsFunc(x.Log(), func(e LogEntry) bool { return e.Level == slog.LevelError })
	})
	if b, err := os.ReadFile(foreign); err != nil || len(b) != 1<<20 || b[7] != 0 {
		t.Errorf("the file of somebody else: %v", err)
	}
	if left, err := os.ReadDir(full); err != nil || len(left) > 2 {
		t.Errorf("left in the full place: %v, %v", left, err)
	}
	sameFile(t, filepath.Join(data, "file"), filepath.Join(to, "file"))
	// Somebody serves it from the new place.
	await.True(t, "the seed", func() bool { return x.State() == Running && x.Progress().Phase == client.Complete })
	other := open(t, Config{})
	y := add(t, other, Options{Source: src, Storage: fileIn(t.TempDir()), Peers: n.Listening()})
	await.Value(t, "a download from the new place", y.Done())
	// Data that is there already is verified.
	move(data, false, data)
	await.True(t, "it is complete there", func() bool { return x.Progress().Phase == client.Complete })
	if s := x.Status(); s.Fetched != 1<<20 || s.Have != 1<<20 {
		t.Errorf("%+v", s)
	}
}

// A process that was killed in the middle of a move is followed by one that ends it: before and
// after the new place holds.
func TestMoveAfterKill(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		data, out, to, state := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
		src := create(t, data, "file", 1<<20)
		n := openService(t, state, out)
		sameBytes(t, filepath.Join(data, "file"), filepath.Join(out, "file"))
		x := add(t, n, Options{Source: src})
		await.Value(t, "the data that is there", x.Done())
		if err := x.Pause(); err != nil {
			t.Fatal(err)
		}
		if late {
			if err := x.Options().stored().CopyTo(t.Context(), to, false, nil); err != nil {
				t.Fatal(err)
			}
			x.mu.Lock()
			x.options.Storage.Dir, x.leaving = to, out
			x.mu.Unlock()
		} else {
			// Half of a copy, and a file of the same content.
			sameBytes(t, filepath.Join(data, "file"), filepath.Join(to, "file"))
			x.mu.Lock()
			x.moveTo = to
			x.mu.Unlock()
		}
		if err := x.keep(); err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		n = openService(t, state, out)
		x = torrent(t, n, src)
		await.True(t, "the end of the move", func() bool { return x.State() == Paused })
		if s := x.Status(); s.Storage.Dir != to {
			t.Errorf("it is in %s", s.Storage.Dir)
		}
		sameFile(t, filepath.Join(data, "file"), filepath.Join(to, "file"))
		if _, err := os.Lstat(filepath.Join(out, "file")); !os.IsNotExist(err) {
			t.Errorf("the old place: %v", err)
		}
		if err := x.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		await.Value(t, "the data in the new place", x.Done())
	}
}

// A move that waits for another operation is made by the next process if this one is killed.
func TestWaitingMoveAfterKill(t *testing.T) {
	t.Parallel()
	out, to, state := t.TempDir(), t.TempDir(), t.TempDir()
	src := create(t, out, "file", 1000)
	n := openService(t, state, out)
	x := add(t, n, Options{Source: src})
	await.Value(t, "the data that is there", x.Done())
	x.op.Lock() // an operation
	if err := x.Move(to, true); err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(t.TempDir(), "state")
	if err := os.CopyFS(killed, os.DirFS(state)); err != nil {
		t.Fatal(err)
	}
	x.mu.Lock()
	x.nextMove = nil
	x.mu.Unlock()
	x.op.Unlock()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	x = torrent(t, openService(t, killed, out), src)
	await.True(t, "the move", func() bool {
		s := x.Status()
		return s.Storage.Dir == to && !s.Moving && s.State == Running
	})
	if left := x.saved().NextMove; left != nil {
		t.Errorf("it will move again, to %s", left.Dir)
	}
}

func sameBytes(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Complete data goes where the settings say. Verifying finds what was damaged; the torrent fetches
// it again.
func TestCompleteAndVerify(t *testing.T) {
	t.Parallel()
	data, out, complete := t.TempDir(), t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	seeder, _ := seedOf(t, src, data)
	n := openService(t, t.TempDir(), out)
	if err := n.Change(func(s *Settings) error { s.CompleteDir = complete; return nil }); err != nil {
		t.Fatal(err)
	}
	x := add(t, n, Options{Source: src, Peers: seeder.Listening()})
	place := filepath.Join(complete, "file")
	await.True(t, "the move", func() bool { return x.Status().Storage.Dir == complete && x.Progress().Phase == client.Complete })
	st, err := os.Stat(place)
	if err != nil {
		t.Fatal(err)
	}
	damage := func() {
		f, err := os.OpenFile(place, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt(make([]byte, 100), 5000)
		}
		if err == nil {
			err = f.Close()
		}
		if err == nil {
			err = os.Chtimes(place, st.ModTime(), st.ModTime()) // so that only hashing finds it
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	damage()
	before := x.Status().Fetched
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the repair", func() bool { return x.Status().Fetched > before && x.Progress().Phase == client.Complete })
	sameFile(t, filepath.Join(data, "file"), place)
	if err := x.Pause(); err != nil {
		t.Fatal(err)
	}
	if st, err = os.Stat(place); err != nil {
		t.Fatal(err)
	}
	damage()
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the check of a paused torrent", func() bool { return x.State() == Paused && x.Status().Done == 31 })
	if err := x.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the second repair", func() bool { return x.Progress().Phase == client.Complete })
	sameFile(t, filepath.Join(data, "file"), place)
}

// A paused torrent that is resumed while it moves runs afterwards.
func TestResumeWhileMoving(t *testing.T) {
	t.Parallel()
	data, out, state := t.TempDir(), t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	n := openService(t, state, out)
	x := add(t, n, Options{Source: src, Paused: true})
	x.mu.Lock()
	x.state, x.options.Storage.Dir = Moving, data // as in the middle of Move
	x.mu.Unlock()
	if err := x.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.finishMoves()
	await.True(t, "the torrent", func() bool { return x.State() == Running && x.Progress().Phase == client.Complete })
}

// The data of a torrent that has never run has no record. It moves with the torrent all the same,
// and of moves that wait for another one the last counts.
func TestMoveBeforeFirstStart(t *testing.T) {
	t.Parallel()
	out, skipped, to := t.TempDir(), t.TempDir(), t.TempDir()
	src := create(t, out, "file", 1<<20)
	n := openService(t, t.TempDir(), out)
	x := add(t, n, Options{Source: src, Paused: true})
	x.op.Lock() // as if a move were under way
	for _, dir := range []string{skipped, to} {
		if err := x.Move(dir, true); err != nil {
			t.Fatal(err)
		}
	}
	x.op.Unlock()
	await.True(t, "the move", func() bool { return x.State() == Paused && x.Status().Storage.Dir == to })
	for _, dir := range []string{out, skipped} {
		if _, err := os.Lstat(filepath.Join(dir, "file")); !os.IsNotExist(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := x.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.Value(t, "the data in the new place", x.Done())
}

// A torrent without data, whose directory does not exist yet, moves too.
func TestMoveBeforeDirectoryExists(t *testing.T) {
	t.Parallel()
	data, out, to := t.TempDir(), filepath.Join(t.TempDir(), "new"), t.TempDir()
	x := add(t, openService(t, t.TempDir(), out), Options{Source: create(t, data, "file", 1), Paused: true})
	if err := x.Move(to, true); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the move", func() bool { return !x.Status().Moving })
	if s := x.Status(); s.Storage.Dir != to {
		t.Errorf("it stays in %s: %+v", s.Storage.Dir, x.Log())
	}
}

// A check that a move has ended begins anew after it.
func TestMoveWhileVerifying(t *testing.T) {
	t.Parallel()
	out, to := t.TempDir(), t.TempDir()
	src := create(t, out, "file", 1<<20)
	n := openService(t, t.TempDir(), out)
	for range startsAtOnce {
		n.checks <- struct{}{} // the check waits
	}
	x := add(t, n, Options{Source: src, Paused: true}) // begins the check
	await.True(t, "the check", func() bool { return x.Status().Verifying })
	if err := x.Move(to, true); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the move", func() bool { return !x.Status().Moving && x.Status().Storage.Dir == to })
	for range startsAtOnce {
		<-n.checks
	}
	await.True(t, "the result", func() bool { return x.State() == Paused && x.Status().Have == 1<<20 })
}

// A torrent that is Served stays so when it moves, also after a restart and after a kill in the
// middle of the move, unless it is resumed meanwhile.
func TestMoveServed(t *testing.T) {
	t.Parallel()
	for _, c := range []string{"restart", "kill", "resume"} {
		data, to, state := t.TempDir(), t.TempDir(), t.TempDir()
		src := create(t, data, "file", 1<<20)
		n := openService(t, state, data)
		x := add(t, n, Options{Source: src, Goal: Goal{Time: time.Millisecond}})
		await.Value(t, "the goal", x.Ended())
		if err := set(x, func(o *Options) { o.Goal = Goal{} }); err != nil {
			t.Fatal(err)
		}
		if c == "resume" {
			x.op.Lock() // as in the middle of Move
			x.mu.Lock()
			x.state, x.moveTo = Moving, to
			x.mu.Unlock()
			if err := x.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			x.moveOn(t.Context(), Served)
			x.op.Unlock()
			await.True(t, "the resumed torrent", func() bool { return x.State() == Running })
			continue
		}
		if err := x.Move(to, true); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the move", func() bool { return x.Status().Storage.Dir == to && x.State() == Served })
		if c == "kill" {
			x.mu.Lock()
			x.state, x.leaving = Moving, data
			x.mu.Unlock()
			if err := x.keep(); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		x = torrent(t, openService(t, state, data), src)
		await.True(t, c, func() bool { return x.State() != Moving })
		if s := x.Status(); s.State != Served || s.Reason == "" {
			t.Errorf("%s: it is %s, reason %q", c, s.State, s.Reason)
		}
	}
}

// Data that became complete once, and that the user has moved elsewhere since, stays there. If a
// process was killed before it could move complete data, the next one does so.
func TestCompleteDataStays(t *testing.T) {
	t.Parallel()
	data, out, complete, mine, state := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	seeder, _ := seedOf(t, src, data)
	n := openService(t, state, out)
	if err := n.Change(func(s *Settings) error { s.CompleteDir = complete; return nil }); err != nil {
		t.Fatal(err)
	}
	x := add(t, n, Options{Source: src, Peers: seeder.Listening()})
	isIn := func(dir string) func() bool {
		return func() bool {
			s := x.Status()
			return s.State == Running && s.Storage.Dir == dir && !s.Moving
		}
	}
	await.True(t, "the move of complete data", isIn(complete))
	for _, killed := range []bool{false, true} {
		if err := x.Move(mine, true); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the user's move", isIn(mine))
		x.mu.Lock()
		x.arriving = killed
		x.mu.Unlock()
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		n = openService(t, state, out)
		x = torrent(t, n, src)
		await.Value(t, "the data", x.Done())
		if killed {
			await.True(t, "the move of the next process", isIn(complete))
		} else if s := x.Status(); s.Moving || s.Storage.Dir != mine {
			t.Errorf("it is in %s, moves: %v", s.Storage.Dir, s.Moving)
		}
	}
}

// A paused torrent that was found damaged is repaired by hand, with the same time. If a check finds
// it complete, it is complete when it is resumed.
func TestRepairedByHand(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	src := create(t, out, "file", 1<<20)
	n := openService(t, t.TempDir(), out)
	x := add(t, n, Options{Source: src})
	await.Value(t, "the data", x.Done())
	name := filepath.Join(out, "file")
	right, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		phase client.Phase
		done  int
	}{{client.Downloading, 31}, {client.Complete, 32}} {
		if err := x.Pause(); err != nil {
			t.Fatal(err)
		}
		b := slices.Clone(right)
		if c.done < 32 {
			clear(b[5000:6000])
		}
		st, err := os.Stat(name)
		if err == nil {
			err = errors.Join(os.WriteFile(name, b, 0o644), os.Chtimes(name, st.ModTime(), st.ModTime()))
		}
		if err == nil {
			err = x.Verify()
		}
		if err != nil {
			t.Fatal(err)
		}
		await.True(t, "the check", func() bool { return x.State() == Paused && x.Status().Done == c.done })
		if err := x.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		await.True(t, string(c.phase), func() bool {
			p := x.Progress()
			return x.State() == Running && p.Phase == c.phase && p.Done == c.done
		})
	}
}

// Old data that could not be deleted after a move is forgotten if the torrent moves back to it, and
// deleted if the torrent is removed with its data.
func TestOldDataIsLeft(t *testing.T) {
	t.Parallel()
	old, data, state := t.TempDir(), t.TempDir(), t.TempDir()
	src := create(t, old, "file", 1<<20)
	n := openService(t, state, old)
	if err := os.Link(filepath.Join(old, "file"), filepath.Join(data, "file")); err != nil {
		t.Fatal(err)
	}
	x := add(t, n, Options{Source: src, Paused: true, Storage: fileIn(data)})
	x.mu.Lock()
	x.leaving = old // as after a move that could not delete it
	x.mu.Unlock()
	for _, dir := range []string{old, data} { // the data stays where it is
		if err := x.Move(dir, false); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the move", func() bool { return x.State() == Paused && x.Status().Storage.Dir == dir })
	}
	sameFile(t, filepath.Join(data, "file"), filepath.Join(old, "file"))
	x.mu.Lock()
	x.leaving = old
	x.mu.Unlock()
	if err := n.Remove(x.InfoHash(), true); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{old, data} {
		if _, err := os.Lstat(filepath.Join(dir, "file")); !os.IsNotExist(err) {
			t.Errorf("the data of the removed torrent: %v", err)
		}
	}
}

// The data of a paused torrent is verified in its new directory without a start.
func TestMovePausedToData(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	src := create(t, data, "file", 1<<20)
	x := add(t, openService(t, t.TempDir(), t.TempDir()), Options{Source: src, Paused: true})
	if err := x.Move(data, false); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the check", func() bool { return x.Status().Have == src.Layout.Length && x.State() == Paused })
}

// A restart, as after a change of the selection, does not cancel a move.
func TestRestartLetsMove(t *testing.T) {
	t.Parallel()
	n := openService(t, t.TempDir(), t.TempDir()) // without the data, which would be checked
	x := add(t, n, Options{Source: create(t, t.TempDir(), "file", 1<<20), Paused: true})
	cancelled := false
	x.mu.Lock()
	x.state, x.abort = Moving, func() { cancelled = true } // as in the middle of Move
	x.mu.Unlock()
	x.restart(func(*Options) { t.Error("the options of a torrent that moves were changed") })
	if cancelled {
		t.Error("the move was cancelled")
	}
	x.mu.Lock()
	x.state, x.abort = Paused, nil
	x.mu.Unlock()
}

// A torrent can be paused while a move ends its connections: the call does not wait until all data
// is copied, and the torrent is paused afterwards.
func TestPauseAtBeginOfMove(t *testing.T) {
	t.Parallel()
	data, other := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1<<20)
	n := openService(t, t.TempDir(), data)
	x := add(t, n, Options{Source: src})
	await.Value(t, "the data", x.Done())
	r := x.current()
	r.sourcing.Lock() // the run does not end meanwhile
	if err := x.Move(other, true); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the begin of the move", func() bool { return x.State() == Moving })
	if err := x.Pause(); err != nil {
		t.Error(err)
	}
	r.sourcing.Unlock()
	await.True(t, "the end of the move", func() bool { return x.State() == Paused })
	if _, err := os.Stat(filepath.Join(other, "file")); err != nil {
		t.Error(err)
	}
}

// Resume does not wait while data is verified. The torrent starts afterwards.
func TestResumeWhileVerifying(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	src := create(t, data, "file", 1<<20)
	n := openService(t, t.TempDir(), data)
	x := add(t, n, Options{Source: src, Paused: true})
	x.op.Lock() // as in the middle of verifyStopped
	x.mu.Lock()
	x.state, x.verifying = Starting, true
	x.mu.Unlock()
	if !x.Status().Verifying {
		t.Error("the status does not say that the torrent is verified")
	}
	resumed := make(chan struct{})
	go func() {
		defer close(resumed)
		if err := x.Resume(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	await.Value(t, "the call", resumed)
	x.endVerify(Paused)
	x.op.Unlock()
	await.Value(t, "the resumed torrent", x.Done())
}

// Pause ends the check of a paused torrent. That is no error, although it is paused already.
func TestPauseWhileVerifying(t *testing.T) {
	t.Parallel()
	n := openService(t, t.TempDir(), t.TempDir())
	x := add(t, n, Options{Source: create(t, t.TempDir(), "file", 1000), Paused: true})
	x.op.Lock() // as in the middle of verifyStopped
	ctx, cancel := context.WithCancel(t.Context())
	x.mu.Lock()
	x.state, x.verifying, x.abort = Starting, true, cancel
	x.mu.Unlock()
	paused := make(chan error)
	go func() { paused <- x.Pause() }()
	<-ctx.Done()
	x.endVerify(Paused)
	x.op.Unlock()
	if err := <-paused; err != nil || x.State() != Paused {
		t.Errorf("%v, and the torrent is %s", err, x.State())
	}
}

// A second call of Verify lets the check of a paused torrent go on.
func TestVerifyWhileVerifying(t *testing.T) {
	t.Parallel()
	n := openService(t, t.TempDir(), t.TempDir())
	x := add(t, n, Options{Source: create(t, t.TempDir(), "file", 1000), Paused: true})
	x.op.Lock() // as in the middle of verifyStopped
	x.mu.Lock()
	x.state, x.verifying = Starting, true
	x.mu.Unlock()
	if err := x.Verify(); err != nil {
		t.Error(err)
	}
	x.endVerify(Paused)
	x.op.Unlock()
	if err := n.Close(); err != nil || x.Options().Storage.Recheck {
		t.Errorf("%v; the data is checked at the next start instead: %v", err, x.Options().Storage.Recheck)
	}
}

// A check that is ended is no error.
func TestEndedCheck(t *testing.T) {
	t.Parallel()
	n := openService(t, t.TempDir(), t.TempDir())
	x := add(t, n, Options{Source: create(t, t.TempDir(), "file", 1<<20), Paused: true})
	n.stop()
	x.verifyStopped()
	if l := x.Log(); len(l) > 0 {
		t.Error(l)
	}
}

// A torrent that moves twice is moving until the second move has ended: nobody may use the data in
// the first place.
func TestMovesTwice(t *testing.T) {
	t.Parallel()
	data, second := t.TempDir(), t.TempDir()
	n := openService(t, t.TempDir(), data)
	x := add(t, n, Options{Source: create(t, data, "file", 1<<20), Paused: true})
	x.op.Lock()
	if err := errors.Join(x.Move(t.TempDir(), true), x.Move(second, true)); err != nil {
		t.Fatal(err)
	}
	if x.endMove("moved"); !x.Status().Moving { // as if the first had begun before the second call
		t.Error("it does not move any more")
	}
	x.op.Unlock()
	await.True(t, "the second move", func() bool { return !x.Status().Moving })
	if dir := x.Options().Storage.Dir; dir != second {
		t.Errorf("it is in %s", dir)
	}
}

// A check that a process has not ended is made by the next one.
func TestCheckAfterKill(t *testing.T) {
	t.Parallel()
	data, state := t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1000)
	n := openService(t, state, data)
	for range startsAtOnce {
		n.checks <- struct{}{}
	}
	x := add(t, n, Options{Source: src, Paused: true}) // and verify it
	await.True(t, "the check", func() bool { return x.Status().Verifying })
	killed := filepath.Join(t.TempDir(), "state")
	if err := os.CopyFS(killed, os.DirFS(state)); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for what, state := range map[string]string{"killed": killed, "closed": state} {
		x := torrent(t, openService(t, state, data), src)
		await.True(t, "the check after the process was "+what, func() bool {
			s := x.Status()
			return s.State == Paused && s.Have == 1000 && !x.saved().Verify
		})
	}
}

// Few torrents are checked at a time. One that waits for its check can be paused.
func TestChecksAtOnce(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	n := openService(t, t.TempDir(), data)
	for range startsAtOnce {
		n.checks <- struct{}{}
	}
	x := add(t, n, Options{Source: create(t, data, "file", 1000), Paused: true}) // and verify it
	verifying := func() bool { return x.Status().Verifying }
	await.True(t, "the check", verifying)
	if err := x.Pause(); err != nil {
		t.Fatal(err)
	}
	if s := x.Status(); s.State != Paused || s.Have != 0 {
		t.Errorf("%s, with %d bytes", s.State, s.Have)
	}
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "another check", verifying)
	<-n.checks
	await.True(t, "its end", func() bool { return x.State() == Paused && x.Status().Have == 1000 })
}

// A process that is killed after a check has begun does not begin it anew: the completion record
// says what is left of it.
func TestBegunCheckIsSaved(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	n := openService(t, state, t.TempDir())
	x := add(t, n, Options{Source: create(t, t.TempDir(), "file", 1<<20)}) // nobody has its data
	await.True(t, "the start", func() bool { return x.State() == Running })
	began := x.Status().Started
	if err := x.Verify(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the second start", func() bool { return x.State() == Running && x.Status().Started.After(began) })
	x.op.Lock() // the start has ended
	defer x.op.Unlock()
	b, err := os.ReadFile(n.stateFile(x.InfoHash(), ".json"))
	if err != nil || bytes.Contains(b, []byte(`"recheck":true`)) {
		t.Errorf("%s, %v", b, err)
	}
}

// A move to the directory where the data is does not end the check of a paused torrent.
func TestMoveNowhereWhileVerifying(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	n := openService(t, t.TempDir(), out)
	for range startsAtOnce {
		n.checks <- struct{}{} // the check waits
	}
	x := add(t, n, Options{Source: create(t, out, "file", 1<<20), Paused: true}) // begins the check
	await.True(t, "the check", func() bool { return x.Status().Verifying })
	if err := x.Move(out, true); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the move", func() bool { return !x.Status().Moving })
	for range startsAtOnce {
		<-n.checks
	}
	await.True(t, "the result", func() bool { return x.State() == Paused && x.Status().Have == 1<<20 })
}

// A move has succeeded even if the old data cannot be deleted, and the log says so. The next
// process tries to delete it again.
func TestOldDataCannotBeDeleted(t *testing.T) {
	t.Parallel()
	data, state, other := t.TempDir(), t.TempDir(), t.TempDir()
	src := create(t, data, "file", 1000)
	n := openService(t, state, data)
	x := add(t, n, Options{Source: src, Paused: true})
	await.True(t, "the check", func() bool { return !x.saved().Verify })
	old := filepath.Join(other, "old")
	if err := os.WriteFile(old, nil, 0o644); err != nil { // no directory
		t.Fatal(err)
	}
	x.mu.Lock()
	x.leaving = old
	x.mu.Unlock()
	if err := errors.Join(x.keep(), n.Close()); err != nil {
		t.Fatal(err)
	}
	x = torrent(t, openService(t, state, data), src)
	await.True(t, "the attempt", func() bool { return x.State() == Paused && len(x.Log()) > 0 })
	if l := x.Log(); len(l) != 1 || !strings.Contains(l[0].Text, "was moved, but cannot be deleted") {
		t.Error(l)
	}
	if left := x.saved().Leaving; left != old {
		t.Errorf("%q is left", left)
	}
}
