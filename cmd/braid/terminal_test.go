package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// console is a real one, tmux, in which a shell runs.
type console struct {
	t      *testing.T
	socket string
}

func newTerminal(t *testing.T, dir string, columns, rows int, env ...string) *console {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed: scripts/install-deps does it")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	x := &console{t, filepath.Join(t.TempDir(), "tmux")}
	args := []string{"-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows), "-c", dir}
	for _, e := range append([]string{braidProcess + "=1", "HOME=" + dir, "PS1=$ ", "BRAID=" + self}, env...) {
		args = append(args, "-e", e)
	}
	x.tmux(append(args, "env -u NO_COLOR sh")...)
	t.Cleanup(func() { x.tmux("kill-server") })
	return x
}

func (x *console) tmux(args ...string) string {
	x.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// enter types a command.
func (x *console) enter(command string) { x.tmux("send-keys", command, "Enter") }

func (x *console) resize(columns, rows int) {
	x.tmux("resize-window", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows))
}

// shows waits until the screen with all that has scrolled off it is as wanted, and returns it.
func (x *console) shows(what string, wanted func(screen string) bool) string {
	x.t.Helper()
	screen := ""
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if screen = strings.TrimRight(x.tmux("capture-pane", "-p", "-S", "-"), "\n"); wanted(screen) {
			return screen
		}
	}
	x.t.Fatalf("%s: in vain\n%s", what, screen)
	return ""
}

// A download on a real terminal: through resizes, log lines and a stop there is one frame, below
// everything else, and none in what has scrolled off.
func TestTerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	randomFile(t, dir, 70, 500<<10) // at its rate it takes longer than the test
	must(t, dir, "create", "file")
	peer := smallSeed(t, dir)
	x := newTerminal(t, dir, 80, 24)
	const head, path = "file  [", "  tcp  "
	// Above the frame are lines of the log, but no remains of an older frame.
	isFrame := func(line string) bool { return strings.Contains(line, "KiB") || strings.Contains(line, "kbit/s") }
	frames := func(screen string) int { return strings.Count(screen, "% of 500 KiB") }
	x.enter("clear; seq 30; $BRAID download file.torrent -o out --download-rate 10kbit --peer " + peer)
	x.shows("the first frame", func(s string) bool { return frames(s) == 1 && strings.Contains(s, path) })
	for _, size := range [][2]int{{50, 12}, {120, 40}, {30, 10}, {80, 24}} {
		x.resize(size[0], size[1])
		bar := size[0] >= 80
		x.shows(fmt.Sprint("one frame at ", size), func(s string) bool {
			lines := strings.Split(s, "\n")
			i := len(lines) - 2
			return frames(s) == 1 && i >= 30 && strings.Contains(lines[i], "500 KiB") && strings.HasPrefix(lines[i], head) == bar && !slices.ContainsFunc(lines[:i], isFrame)
		})
	}
	x.tmux("send-keys", "C-z")
	x.shows("no frame while the shell has the terminal", func(s string) bool { return frames(s) == 0 && strings.Contains(s, "topped") })
	x.enter("fg")
	x.shows("the frame again", func(s string) bool { return frames(s) == 1 && strings.Contains(s, path) })
	x.tmux("send-keys", "C-c")
	s := x.shows("the end", func(s string) bool { return strings.Contains(s, "run the same command again to resume") })
	if frames(s) != 0 || strings.Count(s, "interrupted at") != 1 {
		t.Errorf("after the end:\n%s", s)
	}
}

// A terminal that only prints gets lines, and a user who wants no colours none.
func TestPlainTerminals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smallTorrent(t, dir)
	peer := smallSeed(t, dir)
	x := newTerminal(t, dir, 80, 24)
	coloured := func() bool { return strings.Contains(x.tmux("capture-pane", "-p", "-e"), "\x1b[1mfile") }
	for i, c := range []struct {
		env              string
		wantBar, wantSGR bool
	}{
		{env: "", wantBar: true, wantSGR: true},
		{env: "NO_COLOR=1", wantBar: true},
		{env: "TERM=dumb"},
	} {
		x.enter(fmt.Sprintf("clear; %s $BRAID download file.torrent -o out%d --download-rate 10kbit --peer %s", c.env, i, peer))
		s := x.shows(c.env, func(s string) bool {
			return strings.Count(s, "% of 48.8 KiB") == 1 && (strings.Contains(s, "s left") || i == 2)
		}) // the second frame at least
		if bar := strings.Contains(s, "["); bar != c.wantBar || coloured() != c.wantSGR {
			t.Errorf("%s: colours %t\n%s", c.env, coloured(), s)
		}
		x.tmux("send-keys", "C-c")
		x.shows("the end", func(s string) bool { return strings.Contains(s, "interrupted at") })
		x.enter("clear")
		x.tmux("clear-history")
		x.shows("nothing", func(s string) bool { return !strings.Contains(s, "interrupted") })
	}
}

// The table of braid watch does the same, also when nothing changes. A terminal that only prints
// gets events.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := startDaemon(t, dir)
	d.does(t, "add", "magnet:?xt=urn:btih:"+strings.Repeat("ab", 20), "--paused")
	x := newTerminal(t, dir, 80, 24)
	const watch = "$BRAID watch --api unix:s"
	isDrawn := func(s string) bool {
		lines := strings.Split(s, "\n")
		return strings.Count(s, "No  State") == 1 && strings.HasPrefix(lines[len(lines)-1], "1 torrent  ")
	}
	x.enter("clear; echo top; " + watch)
	x.shows("the table", isDrawn)
	if !strings.Contains(x.tmux("capture-pane", "-p", "-e"), "\x1b[1mNo") {
		t.Error("the heading is not bold")
	}
	x.resize(40, 12)
	x.resize(60, 12)
	x.shows("one table below what was there", func(s string) bool { return isDrawn(s) && strings.HasPrefix(s, "top\nNo") })
	x.tmux("send-keys", "C-z")
	x.shows("no table while the shell has the terminal", func(s string) bool { return !strings.Contains(s, "No  State") && strings.Contains(s, "topped") })
	x.enter("fg")
	x.shows("the table again", isDrawn)
	x.tmux("send-keys", "C-c")
	x.shows("no table", func(s string) bool { return !strings.Contains(s, "No  State") })
	x.enter("clear; TERM=dumb " + watch)
	x.shows("events", func(s string) bool { return strings.Contains(s, `{"event":"snapshot"`) })
	x.tmux("send-keys", "C-c")
}

// Ctrl-C ends the question for a password, and the terminal shows typed text again.
func TestInterruptedPassword(t *testing.T) {
	t.Parallel()
	x := newTerminal(t, t.TempDir(), 80, 24)
	x.enter("$BRAID password --api unix:none; echo code $?")
	x.shows("the question", func(s string) bool { return strings.Contains(s, "New password:") })
	x.tmux("send-keys", "C-c")
	x.shows("the end", func(s string) bool { return strings.Contains(s, "code 130") })
	x.enter("true typed")
	x.shows("typed text", func(s string) bool { return strings.Contains(s, "true typed") })
}
