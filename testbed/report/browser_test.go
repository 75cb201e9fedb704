package report

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// In a real browser, without a network: the page opens without complaint, shows each section and
// figure, and on a phone no text has to be scrolled sideways. Needs Debian's chromium.
func TestBrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v; run ./scripts/install-deps", err)
	}
	m, err := Make(open(t, made{leechers: 3, runs: 2, about: hostile, bound: true, commit: strings.Repeat("c", 200)}), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	dom := visit(t, browser, m.HTML)
	for _, want := range []string{"<h2>made</h2>", "Rate of each path over time", "Selection of paths over time", `id="r-made-slow-1"`, "</footer>"} {
		if !strings.Contains(dom, want) {
			t.Errorf("no %q in what the browser has", want)
		}
	}
	// The page itself allows no script; a copy of it that does measures itself in a frame as wide
	// as a phone.
	page := read(t, m.HTML)
	_, rest, ok := strings.Cut(page, `<meta http-equiv="Content-Security-Policy"`)
	if !ok {
		t.Fatal("the page does not forbid itself the network")
	}
	_, rest, _ = strings.Cut(rest, ">")
	page = page[:strings.Index(page, "<meta http-equiv")] + rest
	script := `<script>addEventListener("load",()=>{const d=document.documentElement
let small=[...document.querySelectorAll("svg.fig")].filter(s=>s.getBoundingClientRect().width<300).length
parent.postMessage(["wide",d.scrollWidth,"figures",document.querySelectorAll("svg.fig").length,"small",small].join(" "),"*")})</script>`
	frame := strings.NewReplacer("&", "&amp;", `"`, "&quot;").Replace(page + script)
	outer := filepath.Join(filepath.Dir(m.HTML), "phone.html")
	html := `<body><p id="said"></p><script>addEventListener("message",e=>said.textContent=e.data)</script><iframe width="360" height="740" style="border:0" srcdoc="` + frame + `"></iframe>`
	if err := os.WriteFile(outer, []byte(html), 0o644); err != nil {
		t.Fatal(err)
	}
	var wide, figures, small int
	_, said, _ := strings.Cut(visit(t, browser, outer), `<p id="said">`)
	if n, err := fmt.Sscanf(said, "wide %d figures %d small %d", &wide, &figures, &small); n != 3 {
		t.Fatalf("the page did not measure itself: %v in %.200q", err, said)
	}
	if wide > 360 || figures != len(m.Figures) || small > 0 {
		t.Errorf("on a phone: %d pixels wide, %d of %d figures, %d too small to read", wide, figures, len(m.Figures), small)
	}
}

// visit is the document after it was loaded. Complaints of the page are errors.
func visit(t *testing.T, browser, file string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--proxy-server=127.0.0.1:9", "--user-data-dir="+t.TempDir(),
		"--enable-logging=stderr", "--virtual-time-budget=10000", "--dump-dom", "file://"+file)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("open %s: %v: %s", file, err, complaints.String())
	}
	for line := range strings.Lines(complaints.String()) {
		if strings.Contains(line, "CONSOLE") {
			t.Errorf("the browser says: %s", line)
		}
	}
	return string(out)
}
