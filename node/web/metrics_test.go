package web

import (
	"fmt"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"braid/client"
	"braid/node"
	"braid/pathsel"
)

// Series are bounded, each has labels of its own, and the fastest paths are among them.
func TestPathsOf(t *testing.T) {
	var all []shown
	for i := range 3 {
		s := shown{hash: fmt.Sprint("torrent ", i)}
		for j := range maxPathSeries {
			path := pathsel.Path{Src: 1, Fingerprint: pathsel.Fingerprint(fmt.Sprintf("%08d", j))}
			x := client.PathProgress{Peer: "peer", Path: path, Transport: "scion", State: pathsel.Active, BytesRead: 1, ReadRate: float64(j)}
			y := x
			y.State = pathsel.Probing
			z := x
			z.Path.Fingerprint, z.State = "parked", pathsel.Parked
			s.progress.Paths = append(s.progress.Paths, x, y, z)
		}
		all = append(all, s)
	}
	paths, open := pathsOf(all)
	seen := map[[3]string]bool{}
	for _, p := range paths {
		if seen[p.labels] || p.read != 2 || p.labels[2] == "parked" {
			t.Errorf("%+v", p)
		}
		seen[p.labels] = true
	}
	if len(paths) != maxPathSeries || !seen[[3]string{"torrent 2", "peer", fmt.Sprintf("%08d", maxPathSeries-1)}] || open["scion"] != 6*maxPathSeries {
		t.Errorf("%d series, %v", len(paths), open)
	}
}

// A round-trip time that was not measured, such as that of a web seed, is no time of 0.
func TestUnknownRTT(t *testing.T) {
	for rtt, want := range map[float64]int{0: 0, 0.05: 1} {
		reported := 0
		report := func(name, _ string, _ float64, _ ...string) {
			if name == "path_rtt_seconds" {
				reported++
			}
		}
		(&pathFigures{rtt: rtt}).collect(report, report)
		if reported != want {
			t.Errorf("the round-trip time %v is reported %d times", rtt, reported)
		}
	}
}

func TestLabel(t *testing.T) {
	for _, s := range []string{"", "name", "a\xff\"\n", strings.Repeat("é", maxNameLabel)} {
		if l := label(s); len(l) > maxNameLabel+3 || !utf8.ValidString(l) {
			t.Errorf("%q becomes %q", s, l)
		}
	}
}

// Prometheus' own tool accepts the figures.
func TestMetrics(t *testing.T) {
	n, err := node.Open(t.Context(), node.Config{Service: true, State: t.TempDir(), Settings: node.Settings{Dir: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	src, err := client.ParseMagnet("magnet:?xt=urn:btih:" + strings.Repeat("ab", 20) + "&dn=a%22%0Ab")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Add(t.Context(), node.Options{Source: src, Paused: true}); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	metrics(n).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.String()
	lines := strings.Split(text, "\n")
	if w.Code != 200 || !slices.Contains(lines, `braid_torrents{state="paused"} 1`) || !slices.Contains(lines, `braid_torrents{state="failed"} 0`) || !strings.Contains(text, `name="a\"\nb"`) {
		t.Errorf("%d %s", w.Code, text)
	}
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Log("promtool is not installed: it does not check the figures")
	} else if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v: %s", err, out)
	}
}
