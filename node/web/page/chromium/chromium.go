// Package chromium lets tests look at pages in a real browser: Debian's chromium without a window,
// driven over its DevTools protocol. Only tests import it.
package chromium

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"braid/units/await"
)

// Tab is a page with an empty profile.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

// common is the browser that the tabs of a package share. Without Main, each tab has its own.
var common struct {
	mu     sync.Mutex
	shared bool
	ctx    context.Context // of the running browser; nil: none runs
	end    func()
}

// Main runs the tests of a package, whose tabs share one browser unless they have rules for names.
// The start of a browser costs more than most of these tests. Call it in TestMain.
func Main(m *testing.M) (code int) {
	common.shared = true
	defer func() {
		if common.ctx != nil {
			common.end()
		}
	}()
	return m.Run()
}

// sharedBrowser starts the common browser, unless it runs. It returns nil if none is shared.
func sharedBrowser(t testing.TB) context.Context {
	t.Helper()
	common.mu.Lock()
	defer common.mu.Unlock()
	if common.shared && common.ctx == nil {
		alone, stop := launcher(t, "")
		ctx, end := chromedp.NewContext(alone)
		common.end = func() { end(); stop() }
		if err := chromedp.Do(ctx); err != nil {
			common.end()
			t.Fatal(err)
		}
		common.ctx = ctx
	}
	return common.ctx
}

// Open opens a tab, for the time of the test. Unless quiet is set, the test fails if the page
// complains: errors of scripts, and what a content security policy has refused. Resolve are rules
// such as "MAP evil.example 127.0.0.1", which stand for a name server.
func Open(t testing.TB, quiet bool, resolve string) *Tab {
	t.Helper()
	b := &Tab{t: t}
	own := []chromedp.ContextOption{chromedp.WithListener(b.hear)}
	stop := func() {}
	browser := context.Context(nil)
	if resolve == "" {
		browser = sharedBrowser(t)
	}
	if browser != nil {
		own = append(own, chromedp.WithNewBrowserContext())
	} else {
		browser, stop = launcher(t, resolve)
	}
	ctx, end := chromedp.NewContext(browser, own...)
	b.ctx = ctx
	t.Cleanup(func() {
		end()
		stop()
		if !quiet {
			for _, c := range b.said() {
				t.Errorf("the browser says: %s", c)
			}
		}
	})
	b.Size(1280, 800)
	ticks := performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}
	if _, err := chromedp.Call(b.ctx, performance.Enable, ticks); err != nil {
		t.Fatal(err)
	}
	return b
}

// launcher returns a context in which a browser can start, and a function that ends the browser.
func launcher(t testing.TB, resolve string) (context.Context, func()) {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatalf("%v; run ./scripts/install-deps", err)
	}
	temp, err := os.MkdirTemp("", "chromium-") // in t.TempDir, the name of its socket could be too long
	if err != nil {
		t.Fatal(err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(time.Until(await.Deadline(t))), chromedp.Env("TMPDIR="+temp))
	if resolve != "" {
		options = append(options, chromedp.Flag("host-resolver-rules", resolve))
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	return ctx, func() {
		cancel()
		_ = os.RemoveAll(temp) // a helper of the browser may still write there
	}
}

// hear notes what the browser complains about. It runs while the browser's messages are read.
func (b *Tab) hear(event any) {
	said := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		said = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			said += " " + x.Description
		}
	case *log.EventEntryAdded:
		// An answer with an error status is not a fault of the page, which tells the user.
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

// said returns what the browser has complained about.
func (b *Tab) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.complaints)
}

func (b *Tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatalf("%v; the browser says %q", err, b.said())
	}
}

// Show loads a page anew, also if only the part of the address behind # differs.
func (b *Tab) Show(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(url))
}

// Size sets the size of what can be seen, in CSS pixels.
func (b *Tab) Size(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// Dark sets whether the user wants dark colours.
func (b *Tab) Dark(on bool) {
	b.t.Helper()
	value := map[bool]string{true: "dark", false: "light"}[on]
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Get evaluates an expression, which may be a promise.
func Get[T any](b *Tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v; the browser says %q", expression, err, b.said())
	}
	return value
}

// Run evaluates an expression for its effect.
func (b *Tab) Run(expression string) {
	b.t.Helper()
	Get[bool](b, "Promise.resolve("+expression+").then(() => true)")
}

// Until waits until an expression is true. A look at the page costs more than one at a variable, so
// it looks less often than await.True.
func (b *Tab) Until(condition string) {
	b.t.Helper()
	for end := await.Deadline(b.t); !Get[bool](b, "Boolean("+condition+")"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("never true: %s; the browser says %q; the page shows:\n%.1500s",
				condition, b.said(), Get[string](b, "document.body.innerText"))
		}
	}
}

// Busy returns the processor time that the page's main thread has used for tasks since the page was
// loaded. Unlike the time of a clock, it does not grow with what else the machine does.
func (b *Tab) Busy() time.Duration {
	b.t.Helper()
	got, err := chromedp.Call(b.ctx, performance.GetMetrics, cdp.Empty{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range got.Metrics {
		if m.Name == "TaskDuration" {
			return time.Duration(m.Value * float64(time.Second))
		}
	}
	b.t.Fatal("the browser does not measure its tasks")
	return 0
}

// Click clicks the middle of the element that a selector finds, once it can be seen.
func (b *Tab) Click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// Type presses the keys of a text, one after the other. Special keys are those of package
// chromedp/kb.
func (b *Tab) Type(text string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(text, asKeyboard))
}

// Repeat presses a key once more that was not released, as a keyboard does while a key is held.
func (b *Tab) Repeat(key string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(key, asKeyboard, func(k *input.DispatchKeyEventParams) { k.AutoRepeat = new(true) }))
}

// asKeyboard changes the event of a pressed key to the kind that a keyboard causes. If the page
// handles such an event, the browser drops the key's character. Otherwise the character could reach
// a dialog that the key has opened, and close it.
func asKeyboard(k *input.DispatchKeyEventParams) {
	if k.Type == input.DispatchKeyEventTypeKeyDown {
		k.Type = input.DispatchKeyEventTypeRawKeyDown
	}
}

// Upload gives files to a file input.
func (b *Tab) Upload(selector string, files ...string) {
	b.t.Helper()
	b.do(chromedp.SetUploadFiles(chromedp.CSS(selector), files))
}

// Shot writes what can be seen as DIR/NAME.png if BRAID_SHOTS=DIR is set: for the documents, and to
// be looked at.
func (b *Tab) Shot(name string) {
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
