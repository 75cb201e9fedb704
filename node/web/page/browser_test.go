package page

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a page in a real browser. What the browser complains about is in complaints.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

// newTab starts Debian's chromium without a window. It ends with the test, which fails if the page has
// complained: errors of scripts, and what the content security policy has refused.
func newTab(t *testing.T) *tab {
	t.Helper()
	b := quietTab(t)
	t.Cleanup(func() {
		for _, c := range b.said() {
			t.Errorf("the browser says: %s", c)
		}
	})
	return b
}

// quietTab is a tab whose complaints are for the test to judge.
func quietTab(t *testing.T, flags ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes its time")
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatalf("%v; run ./scripts/install-deps", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(time.Minute))
	alone, cancel := chromedp.NewExecAllocator(t.Context(), append(options, flags...)...)
	b := &tab{t: t}
	ctx, end := chromedp.NewContext(alone, chromedp.WithListener(b.hear))
	b.ctx = ctx
	t.Cleanup(func() { end(); cancel() })
	b.do(chromedp.EmulateViewport(1280, 800))
	return b
}

// hear notes what the browser complains about. It runs while the browser's messages are read.
func (b *tab) hear(event any) {
	said := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		said = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			said += " " + x.Description
		}
	case *log.EventEntryAdded:
		// An answer with an error status is not a fault of the page: the page tells the user.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			said = e.Entry.Text + " " + e.Entry.URL
		}
	}
	if said != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.complaints = append(b.complaints, said)
	}
}

func (b *tab) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.complaints...)
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("%v; the browser says %q", err, b.said())
	}
}

// open shows a page, in a tab that may show another one.
func (b *tab) open(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(url))
}

// size sets the size of the window in CSS pixels. Below 600 it is a phone with a touch screen.
func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// dark sets whether the user wants dark colours.
func (b *tab) dark(on bool) {
	b.t.Helper()
	value := map[bool]string{true: "dark", false: "light"}[on]
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// get evaluates an expression, which may be a promise.
func get[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v; the browser says %q", expression, err, b.said())
	}
	return value
}

// until waits until an expression is true.
func (b *tab) until(condition string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !get[bool](b, "Boolean("+condition+")"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("never true: %s; the browser says %q; the page shows:\n%.1500s", condition, b.said(), get[string](b, "document.body.innerText"))
		}
	}
}

// click clicks the element that a selector finds.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// shot writes what can be seen as DIR/NAME.png if BRAID_SHOTS=DIR is set: for the documents, and to be looked at.
func (b *tab) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("BRAID_SHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
