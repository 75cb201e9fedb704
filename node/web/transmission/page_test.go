package transmission

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/node/web/page/chromium"
	"braid/node/web/webtest"
	"braid/units/await"
)

// click does what jQuery's handlers take for a click.
func click(tab *chromium.Tab, selector string) {
	tab.Until(`$('` + selector + `').length`)
	tab.Run(`$('` + selector + `').first().mousedown().mouseup().click()`)
}

// TestStockPage uses Transmission's own web page, as Debian's transmission-common has it.
func TestStockPage(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/share/transmission/web/index.html"); err != nil {
		t.Fatalf("%v; run ./scripts/install-deps", err)
	}
	s := serve(t)
	c, data, file := s.torrent("album")
	tab := chromium.Open(t, true, "")
	tab.Show(s.url + "/transmission/web/")
	tab.Until(`window.transmission && transmission.sessionId !== null && $('#download-dir').val() === ` + quote(s.downloads))

	// Add a file, without starting it.
	click(tab, "#toolbar-open")
	tab.Until(`$('#upload_container').is(':visible')`)
	tab.Upload("#torrent_upload_file", file)
	tab.Run(`$('#torrent_auto_start').prop('checked', false)`)
	click(tab, "#upload_confirm_button")
	tab.Until(`$('#torrent_list .torrent_name').text() === 'album'`)
	tab.Until(`$('#torrent_list').text().indexOf('Paused') >= 0`)

	// Start it; it downloads and then seeds.
	click(tab, "#torrent_list li.torrent")
	tab.Until(`$('#torrent_list li.torrent.selected').length`)
	click(tab, "#toolbar-start")
	tab.Until(`$('#torrent_list').text().indexOf('Downloading') >= 0`)
	x, err := s.node.Torrent(c.Source.InfoHash.HexString())
	if err != nil {
		t.Fatal(err)
	}
	x.AddPeers(webtest.Seed(t, c.Source, data)...)
	tab.Until(`$('#torrent_list').text().indexOf('Seeding') >= 0`)

	// Details.
	click(tab, "#toolbar-inspector")
	tab.Until(`$('#inspector-info-hash').text() === ` + quote(c.Source.InfoHash.HexString()))
	tab.Until(`$('#inspector-info-location').text() === ` + quote(s.downloads) + ` && $('#inspector-info-have').text().indexOf('100%') >= 0`)
	click(tab, "#inspector-tab-files")
	tab.Until(`$('#inspector_file_list').text().indexOf('c.mkv') >= 0`)
	click(tab, "#inspector-tab-peers")
	click(tab, "#inspector-tab-trackers")

	// Settings that are changed in the page reach the node.
	tab.Run(`transmission.remote.savePrefs({'speed-limit-down': 123, 'speed-limit-down-enabled': true})`)
	await.True(t, "the limit", func() bool { return s.node.Settings().Rates.Download == 123*kB })

	click(tab, "#toolbar-pause")
	tab.Until(`$('#torrent_list').text().indexOf('Paused') >= 0 || $('#torrent_list').text().indexOf('complete') >= 0`)
	click(tab, "#toolbar-start")
	tab.Until(`$('#torrent_list').text().indexOf('Seeding') >= 0`)
	click(tab, "#toolbar-remove")
	tab.Until(`$('#dialog_container').is(':visible')`)
	click(tab, "#dialog_confirm_button")
	tab.Until(`$('#torrent_list li.torrent').length === 0`)
	if n := len(s.node.Torrents()); n != 0 {
		t.Errorf("%d torrents are left", n)
	}
	if _, err := os.Stat(filepath.Join(s.downloads, "album/a.txt")); err != nil {
		t.Error(err)
	}
}

func quote(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }
