package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"braid/pathsel"
	"braid/units/await"
)

// Policies as a user gives them, on a network of two links: what is refused carries nothing, and a
// policy that leaves nothing ends the command with the reason.
func TestPolicy(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	s := startSwarm(t, twoPaths(t), size)
	braid := braidProgram(t)
	torrent := filepath.Join(t.TempDir(), "file.torrent")
	if err := os.WriteFile(torrent, s.torrent.Torrent, 0o644); err != nil {
		t.Fatal(err)
	}
	from, to := ia(t, "1-ff00:0:110"), ia(t, "1-ff00:0:111")
	paths := s.bothPaths(t)
	where := []string{"--config-dir", s.network.ConfigDir(to), "--local", s.network.HostIP(to).String()}
	download := func(flags ...string) *exec.Cmd {
		dir := t.TempDir()
		return exec.CommandContext(t.Context(), braid, append(append([]string{"download", torrent, "-o", dir, "--json",
			"--identity", filepath.Join(dir, "identity.pem"), "--peer", s.seeder.String()}, where...), flags...)...)
	}
	list := func(flags ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), braid, append(append([]string{"paths", from.String()}, where...), flags...)...)
	}

	denied, left := paths[0], paths[1]
	for selection, flags := range map[string][]string{
		"adaptive": {"--acl", fmt.Sprintf("- %s, +", denied.Interfaces[0])},
		"all":      {"--acl", fmt.Sprintf("- %s", denied.Interfaces[1]), "--acl", "+"},
		"slots":    {"--sequence", fmt.Sprintf("%s 0*", left.Interfaces[0]), "--preference", "latency,mtu"},
	} {
		await.True(t, "both paths, one of them allowed", func() bool { // a busy control service tells one or none
			out, err := list(flags...).CombinedOutput()
			t.Logf("braid paths %v: %v: %s", flags, err, out)
			if strings.Contains(string(out), denied.Fingerprint.Short()) {
				t.Fatal("lists a path that is not allowed")
			}
			return err == nil && strings.Contains(string(out), left.Fingerprint.Short()) &&
				strings.Contains(string(out), "Not allowed: 1 more path: 1 by "+strings.TrimPrefix(flags[0], "--"))
		})
		carried := bytesByPath(t, download(append(flags, "--path-selection", selection)...))
		if carried[denied.Fingerprint] != 0 || carried[left.Fingerprint] < size {
			t.Errorf("%v: carried by path: %v", flags, carried)
		}
	}

	// A limit for one link: its path obeys, the other one carries the rest.
	carried, seconds := downloaded(t, download("--path-selection", "all", "--download-rate", "4mbit",
		"--rate-limit", fmt.Sprintf("%s=800kbit", paths[0].Interfaces[1])))
	if most := 100_000*(seconds+0.1) + 64<<10; float64(carried[paths[0].Fingerprint]) > most {
		t.Errorf("a path of 100 kB/s has carried %d bytes in %.1f s", carried[paths[0].Fingerprint], seconds)
	}
	if carried[paths[1].Fingerprint] < size/2 {
		t.Errorf("the path without a limit has carried %d bytes", carried[paths[1].Fingerprint])
	}

	for _, tt := range []struct {
		command func(flags ...string) *exec.Cmd
		flags   []string
		want    string
	}{
		{download, []string{"--acl", "-"}, `none of the 2 paths to 1-ff00:0:110 is allowed: 2 by acl (denied by the ACL "-")`},
		{download, []string{"--min-mtu", "60000"}, "2 by min-mtu (MTU of 1472 is below 60000)"},
		{list, []string{"--acl", fmt.Sprintf("- %s +", denied.Interfaces[0]), "--sequence", fmt.Sprintf("%s 0", denied.Interfaces[0])}, "1 by sequence"},
		{list, []string{"--json", "--sequence", "2+"}, "2 by sequence"},
	} {
		await.True(t, "no path is allowed: "+tt.want, func() bool {
			var said bytes.Buffer
			cmd := tt.command(tt.flags...)
			cmd.Stderr = &said
			err := cmd.Run()
			t.Logf("%v: %v: %s", cmd.Args[1:], err, &said)
			return cmd.ProcessState.ExitCode() == 1 && strings.Contains(said.String(), tt.want)
		})
	}

	// A tracker that the policy keeps braid from is not asked, and the download says why.
	ctx, cancel := context.WithDeadline(t.Context(), await.Deadline(t))
	defer cancel()
	asking := exec.CommandContext(ctx, braid, append([]string{"download", torrent, "-o", t.TempDir(), "--json", "--dht", "off",
		"--identity", filepath.Join(t.TempDir(), "identity.pem"), "--tracker", fmt.Sprintf("scion://%s,[127.0.0.1]:9/announce", from), "--acl", "-"}, where...)...)
	events, err := asking.StdoutPipe()
	if err == nil {
		err = asking.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := false
	for lines := bufio.NewScanner(events); !said && lines.Scan(); {
		said = strings.Contains(lines.Text(), "no-path-allowed") && strings.Contains(lines.Text(), "none of the 2 paths to 1-ff00:0:110 is allowed: 2 by acl")
	}
	if !said {
		t.Error("the download does not say that the policy keeps it from the tracker")
	}
	_ = asking.Process.Kill()
	_ = asking.Wait()

	cmd := download("--interactive")
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "no terminal") {
		t.Errorf("--interactive without a terminal: %s", out)
	}
	cmd = download("-i")
	answer(t, cmd, "2", "1")
	if carried := bytesByPath(t, cmd); carried[paths[0].Fingerprint] != 0 || carried[paths[1].Fingerprint] < size {
		t.Errorf("-i with the second path chosen: carried by path: %v", carried)
	}
}

// bytesByPath runs a download to its end.
func bytesByPath(t *testing.T, cmd *exec.Cmd) map[pathsel.Fingerprint]uint64 {
	t.Helper()
	carried, _ := downloaded(t, cmd)
	return carried
}

func downloaded(t *testing.T, cmd *exec.Cmd) (carried map[pathsel.Fingerprint]uint64, seconds float64) {
	t.Helper()
	var said bytes.Buffer
	if cmd.Stderr == nil {
		cmd.Stderr = &said
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args[1:], err, said.String())
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	var done struct {
		Event   string
		Seconds float64
		Paths   []struct {
			Fingerprint pathsel.Fingerprint
			BytesRead   uint64 `json:"bytes_read"`
		}
	}
	if err := json.Unmarshal(lines[len(lines)-1], &done); err != nil || done.Event != "done" {
		t.Fatalf("%v: last event %s, %v", cmd.Args[1:], lines[len(lines)-1], err)
	}
	carried = map[pathsel.Fingerprint]uint64{}
	for _, p := range done.Paths {
		carried[p.Fingerprint] += p.BytesRead
	}
	return carried, done.Seconds
}

// answer gives the command a terminal, at which the answers are typed when the question appears.
func answer(t *testing.T, cmd *exec.Cmd, answers ...string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	cmd.Stdin, cmd.Stderr = terminal, terminal
	go func() {
		r := bufio.NewReader(master)
		for _, a := range answers {
			for {
				s, err := r.ReadString(':') // the last of the question
				if err != nil {
					return
				}
				if strings.HasSuffix(s, "or all:") {
					break
				}
			}
			fmt.Fprintln(master, a)
		}
		for { // what is shown afterwards must go somewhere
			if _, err := r.Discard(1); err != nil {
				return
			}
		}
	}()
}
