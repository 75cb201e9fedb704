package transmission

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"braid/node/web/webtest"
)

// browser is a tab of a real browser.
type browser struct {
	*testing.T
	ctx context.Context
}

func browse(t *testing.T, url string) browser {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes its time")
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatalf("%v; run ./scripts/install-deps", err)
	}
	alone, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(time.Minute))...)
	ctx, end := chromedp.NewContext(alone)
	t.Cleanup(func() { end(); cancel() })
	b := browser{t, ctx}
	b.do(chromedp.EmulateViewport(1280, 800), chromedp.Navigate(url))
	return b
}

func (b browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

func evaluate[T any](b browser, script string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.Fatalf("%s: %v", script, err)
	}
	return v
}

func (b browser) until(condition string) {
	b.Helper()
	for end := time.Now().Add(time.Minute); !evaluate[bool](b, "Boolean("+condition+")"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("never true: %s; the page shows:\n%.1500s", condition, evaluate[string](b, "document.body.innerText"))
		}
	}
}

// click does what jQuery's handlers take for a click.
func (b browser) click(selector string) {
	b.Helper()
	b.until(`$('` + selector + `').length`)
	evaluate[bool](b, `($('`+selector+`').first().mousedown().mouseup().click(), true)`)
}

// TestStockPage uses Transmission's own web page, as Debian's transmission-common has it.
func TestStockPage(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/share/transmission/web/index.html"); err != nil {
		t.Fatalf("%v; run ./scripts/install-deps", err)
	}
	s := serve(t)
	c, data, file := s.torrent("album")
	b := browse(t, s.url+"/transmission/web/")
	b.until(`window.transmission && transmission.sessionId !== null && $('#download-dir').val() === ` + quote(s.downloads))

	// Add a file, without starting it.
	b.click("#toolbar-open")
	b.until(`$('#upload_container').is(':visible')`)
	b.do(chromedp.SetUploadFiles("#torrent_upload_file", []string{file}))
	evaluate[bool](b, `($('#torrent_auto_start').prop('checked', false), true)`)
	b.click("#upload_confirm_button")
	b.until(`$('#torrent_list .torrent_name').text() === 'album'`)
	b.until(`$('#torrent_list').text().indexOf('Paused') >= 0`)

	// Start it; it downloads and then seeds.
	b.click("#torrent_list li.torrent")
	b.until(`$('#torrent_list li.torrent.selected').length`)
	b.click("#toolbar-start")
	b.until(`$('#torrent_list').text().indexOf('Downloading') >= 0`)
	x, err := s.node.Torrent(c.Source.InfoHash.HexString())
	if err != nil {
		t.Fatal(err)
	}
	x.AddPeers(webtest.Seed(t, c.Source, data)...)
	b.until(`$('#torrent_list').text().indexOf('Seeding') >= 0`)

	// Details.
	b.click("#toolbar-inspector")
	b.until(`$('#inspector-info-hash').text() === ` + quote(c.Source.InfoHash.HexString()))
	b.until(`$('#inspector-info-location').text() === ` + quote(s.downloads) + ` && $('#inspector-info-have').text().indexOf('100%') >= 0`)
	b.click("#inspector-tab-files")
	b.until(`$('#inspector_file_list').text().indexOf('c.mkv') >= 0`)
	b.click("#inspector-tab-peers")
	b.click("#inspector-tab-trackers")

	// Settings that are changed in the page reach the node.
	evaluate[bool](b, `(transmission.remote.savePrefs({'speed-limit-down': 123, 'speed-limit-down-enabled': true}), true)`)
	webtest.Eventually(t, "the limit", func() bool { return s.node.Settings().Rates.Download == 123*kB })

	b.click("#toolbar-pause")
	b.until(`$('#torrent_list').text().indexOf('Paused') >= 0 || $('#torrent_list').text().indexOf('complete') >= 0`)
	b.click("#toolbar-start")
	b.until(`$('#torrent_list').text().indexOf('Seeding') >= 0`)
	b.click("#toolbar-remove")
	b.until(`$('#dialog_container').is(':visible')`)
	b.click("#dialog_confirm_button")
	b.until(`$('#torrent_list li.torrent').length === 0`)
	if n := len(s.node.Torrents()); n != 0 {
		t.Errorf("%d torrents are left", n)
	}
	if _, err := os.Stat(filepath.Join(s.downloads, "album/a.txt")); err != nil {
		t.Error(err)
	}
}

func quote(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }
