package page

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"braid/node/web/page/chromium"
	v1 "braid/node/web/v1"
)

const firstTorrent = "#/torrent/0000000000000000000000000000000000000001"

// unnamed lists what a screen reader could not name: controls without text or label.
const unnamed = `[...document.querySelectorAll("button, a, input, select, textarea, [role=button], [role=grid], canvas[role=img]")]
	.filter(e => e.checkVisibility() && !(e.labels?.length || e.ariaLabel || e.textContent.trim() || e.title)).map(e => e.outerHTML.slice(0, 80)).join("\n")`

// Each view with a thousand torrents and two hundred paths: its parts, its size on a phone, its
// names for screen readers, and that only rows exist which can be seen.
func TestViews(t *testing.T) {
	b := chromium.Open(t, false, "")
	url := newWorld(1000, 10, 20).serve(t)
	for _, v := range []struct {
		name, address, ready, grid string
		rows                       int
	}{
		{"torrents", "#/", `document.querySelectorAll(".torrents .row").length > 5`, ".torrents .list", 1001},
		{"paths", firstTorrent, `document.querySelectorAll(".path").length > 2`, ".paths .list", 200},
		{"overview", firstTorrent + "/overview", `document.querySelector(".facts dd") && document.querySelector(".pieces").ariaLabel`, "", 0},
		{"files", firstTorrent + "/files", `document.querySelectorAll(".files-grid.row").length > 5`, ".tab .list", 3001},
		{"map", "#/map", `document.querySelectorAll(".link").length > 12`, "", 0},
		{"settings", "#/settings", `document.querySelector(".days")`, "", 0},
	} {
		b.Show(url + "/" + v.address)
		for _, look := range []struct {
			name          string
			dark          bool
			width, height int64
		}{{"", false, 1280, 800}, {"-dark", true, 1280, 800}, {"-phone", true, 360, 740}} {
			b.Dark(look.dark)
			b.Size(look.width, look.height)
			b.Until(v.ready)
			b.Run(`Promise.all(document.getAnimations().map(a => a.finished.catch(() => {})))`)
			b.Shot(v.name + look.name)
			if wide := chromium.Get[int64](b, `document.documentElement.scrollWidth`); wide > look.width {
				t.Errorf("%s%s is %d pixels wide", v.name, look.name, wide)
			}
			if missing := chromium.Get[string](b, unnamed); missing != "" {
				t.Errorf("%s%s: without a name: %s", v.name, look.name, missing)
			}
			// The colours really are those of light or dark.
			if light := chromium.Get[bool](b, `/rgb\(2\d\d, /.test(getComputedStyle(document.body).backgroundColor)`); light == look.dark {
				t.Errorf("%s%s: light %v", v.name, look.name, light)
			}
			if v.grid == "" {
				continue
			}
			made := chromium.Get[int](b, fmt.Sprintf(`document.querySelectorAll("%s .row").length`, v.grid))
			said := chromium.Get[string](b, fmt.Sprintf(`document.querySelector("%s").ariaRowCount`, v.grid))
			if made > 60 || said != fmt.Sprint(v.rows) {
				t.Errorf("%s%s: %d rows are made, and %s are announced", v.name, look.name, made, said)
			}
		}
		if landmarks := chromium.Get[string](b, `["body > header", "header nav[aria-label]", "main", "main > section[aria-label]", "h1"].filter(s => document.querySelectorAll(s).length !== 1).join()`); landmarks != "" {
			t.Errorf("%s: not once there: %s", v.name, landmarks)
		}
	}
}

// All torrents, by keyboard and by form: sort, filter, select, open, remove, add.
func TestTorrents(t *testing.T) {
	b := chromium.Open(t, false, "")
	w := newWorld(300, 3, 4)
	b.Show(w.serve(t))
	b.Until(`document.querySelectorAll(".torrents .row").length > 5`)
	first := `[...document.querySelectorAll(".torrents .row:not([hidden])")].find(r => r.ariaRowIndex === "2").querySelector("a").textContent`

	b.Click(`[data-column=name] button`)
	b.Until(first + `.startsWith("climate") && document.querySelector("[data-column=name]").ariaSort === "ascending"`)
	b.Click(`[data-column=name] button`)
	b.Until(first + `.startsWith("web-crawl")`)

	b.Click(`input[type=search]`)
	b.Type("SKY 2023")
	b.Until(`document.querySelector(".torrents .count").textContent.endsWith("of 300") && ` + first + `.startsWith("sky-survey-2023")`)
	b.Run(`document.querySelector(".torrents .list").focus()`)
	b.Type(kb.ArrowDown + kb.ArrowDown)
	b.Until(`document.querySelector(".row.current")?.ariaSelected === "true" && document.querySelector(".actions .count").textContent === "1 selected"`)
	b.Type(kb.End)
	b.Until(`document.querySelector(".row.current")?.ariaRowIndex === document.querySelector(".list").ariaRowCount`)
	b.Type(kb.Escape)
	b.Until(`document.querySelector(".actions").hidden`)

	// Select two with a box each, and remove them.
	b.Run(`[...document.querySelectorAll(".row input")].slice(0, 2).forEach(i => i.click())`)
	b.Until(`document.querySelector(".actions .count").textContent === "2 selected"`)
	b.Run(`document.querySelector(".list").focus()`)
	b.Type(kb.Delete)
	b.Until(`document.querySelector("dialog[open] input")`)
	b.Click(`dialog input[type=checkbox]`)
	b.Click(`dialog button.bad`)
	b.Until(`document.querySelector(".message")?.textContent.startsWith("2 torrents removed with their data")`)
	if asked := w.requests("DELETE"); len(asked) != 2 || !strings.HasSuffix(asked[0], "?data=true") {
		t.Errorf("the server was asked for %q", asked)
	}

	b.Run(`document.querySelector(".list").focus()`)
	b.Type(kb.Home + kb.Enter)
	b.Until(`location.hash.startsWith("#/torrent/") && document.querySelector(".torrent h1").textContent.startsWith("sky")`)
	b.Run(`history.back()`)
	b.Until(`document.querySelector(".torrents input[type=search]")?.value === "SKY 2023"`)

	// Add one from a file and one from a magnet link.
	file := filepath.Join(t.TempDir(), "x.torrent")
	if err := os.WriteFile(file, []byte("d4:infode"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Click(`.torrents .bar button.main`)
	b.Until(`document.querySelector("dialog[open] textarea")`)
	b.Upload(`dialog input[type=file]`, file)
	b.Click(`dialog textarea`)
	b.Type("magnet:?xt=urn:btih:0123456789012345678901234567890123456789")
	b.Click(`dialog button.main`)
	b.Until(`document.querySelector(".messages").textContent.includes("2 torrents were added")`)

	// What is dropped is shown first, and added only if the user agrees.
	b.Run(`(() => { const d = new DataTransfer(); d.setData("text/plain", "magnet:?xt=urn:btih:1"); dispatchEvent(new DragEvent("drop", {dataTransfer: d, cancelable: true})) })()`)
	b.Until(`document.querySelector("dialog[open] textarea")?.value === "magnet:?xt=urn:btih:1"`)
	b.Type(kb.Escape)
	b.Until(`!document.querySelector("dialog")`)
	if n := len(w.requests("POST /api/v1/torrents")); n != 2 {
		t.Errorf("%d torrents were added", n)
	}
}

// The selection is what the user sees, also after the list was sorted, and while a dialog is open.
func TestSelection(t *testing.T) {
	b := chromium.Open(t, false, "")
	w := newWorld(40, 1, 1)
	b.Show(w.serve(t))
	b.Until(`document.querySelectorAll(".torrents .row").length > 5`)
	row := `(name => [...document.querySelectorAll(".torrents .row:not([hidden])")].find(r => r.link.textContent === "genome-archive-" + name))`
	selected := func(n int) string {
		return fmt.Sprintf(`document.querySelector(".actions .count").textContent === "%d selected"`, n)
	}

	b.Run(`document.querySelector(".torrents .list").focus()`)
	b.Type(kb.End)
	b.Until(`document.querySelector(".row.current")?.ariaRowIndex === "41"`)

	// Shift extends from the row that was clicked first, wherever it is now.
	b.Type(kb.Home)
	b.Until(row + `("2022.2")`)
	b.Run(row + `("2022.2").click()`)
	b.Until(selected(1))
	b.Click(`[data-column=name] button`)
	b.Until(row + `("2022.2").ariaRowIndex === "11"`)
	b.Run(row + `("2024.18").dispatchEvent(new MouseEvent("click", {bubbles: true, shiftKey: true}))`)
	b.Until(`document.querySelector(".actions .count").textContent !== "1 selected"`)
	if !chromium.Get[bool](b, row+`("2022.2").ariaSelected === "true" && `+selected(3)) {
		t.Errorf("%s after a click with Shift two rows below", chromium.Get[string](b, `document.querySelector(".actions .count").textContent`))
	}

	// After a click on a box the keys work on the list.
	b.Type(kb.Escape)
	b.Click(`.torrents .head input`)
	b.Until(selected(40))
	b.Type(kb.Delete)
	b.Until(`document.querySelector("dialog[open] input")`)
	b.Type(kb.Escape)
	b.Until(`!document.querySelector("dialog")`)
	b.Run(`document.querySelector(".torrents .list").focus()`)
	b.Type(kb.Escape)
	b.Click(`.torrents .row[aria-rowindex="2"] input`) // the titles are the first row
	b.Until(selected(1))
	b.Type(kb.Delete)
	b.Until(`document.querySelector("dialog[open] input")`)

	// What was confirmed is removed, also if the filter hides it meanwhile.
	filter := `(text => { const f = document.querySelector("input[type=search]"); f.value = text; f.dispatchEvent(new Event("input")) })`
	b.Run(filter + `("nothing")`)
	b.Until(`!document.querySelector(".empty").hidden`)
	b.Click(`dialog button.bad`)
	b.Until(`document.querySelector(".message")?.textContent.startsWith("1 torrent removed")`)

	// An action goes on after an error.
	b.Run(filter + `("")`)
	b.Until(`document.querySelector(".empty").hidden`)
	b.Run(`document.querySelector(".torrents .list").focus()`)
	b.Run(`document.querySelector(".list").dispatchEvent(new KeyboardEvent("keydown", {key: "a", ctrlKey: true, bubbles: true}))`)
	b.Until(selected(40))
	b.Click(`.actions button`)
	b.Until(`/^it is [a-z]+\b/.test(document.querySelector(".message.bad")?.textContent)`)
	started := 0
	for _, x := range w.torrents {
		if x.State != "queued" { // these keep their turn
			started++
		}
	}
	if n := len(w.requests("POST")); n != started || n == 40 {
		t.Errorf("%d of %d torrents were resumed", n, started)
	}

	// Two quick clicks on a box select nothing and open nothing.
	b.Type(kb.Escape)
	b.Run(`(() => { const box = document.querySelector(".torrents .row:not([hidden]) input"); box.click(); box.click(); box.dispatchEvent(new MouseEvent("dblclick", {bubbles: true})) })()`)
	if hash := chromium.Get[string](b, `location.hash`); hash != "#/" && hash != "" {
		t.Errorf("a double click on a box opens %s", hash)
		b.Run(`history.back()`)
	}

	// The arrow keys go on from the place of a torrent that was removed.
	b.Until(`document.querySelectorAll(".torrents .row").length > 5`)
	b.Run(`document.querySelector(".list").focus()`)
	b.Type(kb.Home + kb.ArrowDown)
	b.Until(`document.querySelector(".row.current")?.ariaRowIndex === "3"`)
	b.Run(`import("/page/live.js").then(({ live }) => {
		const row = document.querySelector(".row.current")
		window.next = [...document.querySelectorAll(".row:not([hidden])")].find(r => r.number === row.number + 1).link.hash
		live.torrents.delete(row.link.hash.slice(10))
		live.dispatchEvent(new CustomEvent("torrents"))
	})`)
	b.Until(`document.querySelector(".list").ariaRowCount === "40"`)
	b.Type(kb.ArrowDown)
	b.Run(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))`)
	if !chromium.Get[bool](b, `document.querySelector(".row.current").link.hash === next`) {
		t.Errorf("the arrow goes to row %s", chromium.Get[string](b, `document.querySelector(".row.current").ariaRowIndex`))
	}

	// A window does not cover the form for the password.
	b.Click(`.torrents .bar button.main`)
	b.Until(`document.querySelector("dialog[open] textarea")`)
	b.Run(`import("/page/api.js").then(({ access }) => access.dispatchEvent(new Event("refused")))`)
	b.Until(`document.querySelector(".login")`)
	if !chromium.Get[bool](b, `document.activeElement.type === "password"`) {
		t.Error("the form for the password does not have the focus")
	}
}

// Long words wrap, so that no window is wider than what can be seen, and its buttons are in view.
func TestLongNames(t *testing.T) {
	b := chromium.Open(t, false, "")
	w := newWorld(1, 1, 1)
	w.torrents[0].Name, w.torrents[0].Error = strings.Repeat("long", 60), strings.Repeat("/long", 60)
	url := w.serve(t)
	wide := `[...document.querySelectorAll(".trouble, dialog, dialog button")].filter(e => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML.slice(0, 80)).join("\n")`
	for _, width := range []int64{1280, 360} {
		b.Size(width, 740)
		b.Show(url + "/" + firstTorrent + "/log")
		b.Until(`document.querySelector(".trouble")?.textContent`)
		b.Run(`import("/page/live.js").then(({ live }) => live.dispatchEvent(new CustomEvent("log", {detail: {
			time: "2100-01-01T00:00:00Z", level: "warning", info_hash: "` + w.torrents[0].InfoHash + `",
			text: "the tracker https://tracker.example.org/announce does not answer: connection refused; asked again in 30 minutes",
		}})))`)
		line := `[...document.querySelectorAll(".log-grid.row > .wide")].find(e => e.textContent.startsWith("the tracker"))`
		b.Until(line)
		if cut := chromium.Get[bool](b, `(e => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX !== "auto")(`+line+`)`); cut {
			t.Errorf("at %d pixels a line of the log cannot be read", width)
		}
		b.Run(`[...document.querySelectorAll(".torrent-head button")].find(e => e.textContent === "Remove").click()`)
		b.Until(`document.querySelector("dialog[open]")`)
		if found := chromium.Get[string](b, wide); found != "" {
			t.Errorf("at %d pixels these are too wide:\n%s", width, found)
		}
	}
}

// Every cell of a list is inside its row, on a phone, a tablet, and half a screen. On a phone,
// where the lists have no titles, figures have names.
func TestNarrow(t *testing.T) {
	b := chromium.Open(t, false, "")
	w := newWorld(100, 1, 1)
	w.torrents[0].Name = strings.Repeat("long", 60)
	url := w.serve(t)
	for address, grid := range map[string]string{
		"#/": ".torrents .row-grid", firstTorrent + "/files": ".files-grid",
		firstTorrent + "/peers": ".peers-grid", firstTorrent + "/trackers": ".trackers-grid", firstTorrent + "/log": ".log-grid",
	} {
		b.Size(360, 900)
		b.Show(url + "/" + address)
		for _, width := range []int64{360, 761, 820, 960} {
			b.Size(width, 900)
			b.Until(`document.querySelector("` + grid + `.row")`)
			b.Run(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))`)
			b.Shot(fmt.Sprintf("narrow%s-%d", grid, width))
			outside := chromium.Get[string](b, `[...document.querySelectorAll("`+grid+`:not([hidden]) > *")].filter(e => e.checkVisibility()).filter(e => {
				const [cell, row] = [e, e.parentElement].map(x => x.getBoundingClientRect())
				return cell.right > row.right + 1 || cell.top < row.top - 1 || cell.bottom > row.bottom + 1
			}).map(e => e.outerHTML.slice(0, 90)).slice(0, 3).join("\n")`)
			if outside != "" {
				t.Errorf("%s at %d pixels, outside its row: %s", address, width, outside)
			}
			if !chromium.Get[bool](b, `!(document.querySelector(".tabs [aria-current]")?.getBoundingClientRect().right > innerWidth)`) {
				t.Errorf("%s at %d pixels: the current tab cannot be seen", address, width)
			}
		}
	}
	b.Size(360, 740)
	b.Show(url + "/" + firstTorrent + "/peers")
	b.Until(`document.querySelector(".peers-grid.row")`)
	if name := chromium.Get[string](b, `getComputedStyle(document.querySelector(".peers-grid.row > .num"), "::before").content`); name != `"Has"` {
		t.Errorf("the first figure of a peer has the name %s", name)
	}
	if high := chromium.Get[float64](b, `document.querySelector(".torrent h1").offsetHeight`); high > 250 {
		t.Errorf("a long name takes %v pixels", high)
	}
}

// The parts of a torrent's page stay true while it is open.
func TestTorrent(t *testing.T) {
	b := chromium.Open(t, false, "")
	w := newWorld(40, 1, 1)
	url := w.serve(t)
	b.Show(url + "/" + firstTorrent + "/files")
	b.Until(`document.querySelectorAll(".files-grid.row").length > 5`)
	if title := chromium.Get[string](b, `document.title`); title != "genome-archive-2026.1 – braid" {
		t.Errorf("the title is %q", title)
	}

	// A menu with the focus shows the priority of the file whose row it is now in.
	b.Run(`document.querySelector(".files-grid select").focus()`)
	b.Run(`document.querySelector(".tab .list").scrollTop = 40 * 100`)
	b.Until(`[...document.querySelectorAll(".files-grid.row:not([hidden])")].every(r => r.ariaRowIndex > 50)`)
	if wrong := chromium.Get[int](b, `[...document.querySelectorAll(".files-grid.row:not([hidden]) select")].filter(s => s.value !== "normal").length`); wrong > 0 {
		t.Errorf("%d menus show the priority of another file", wrong)
	}

	// The Tab key and screen readers find the rows in their order, however the list was scrolled.
	for _, top := range []int{4000, 4400, 4200, 3000, 3040} {
		order := chromium.Get[[]int](b, fmt.Sprintf(`new Promise(done => {
			document.querySelector(".tab .list").scrollTop = %d
			requestAnimationFrame(() => requestAnimationFrame(() => done([...document.querySelectorAll(".files-grid.row:not([hidden])")].map(r => r.number))))
		})`, top))
		if !slices.IsSorted(order) || len(order) < 5 || order[0] > top/40 {
			t.Errorf("scrolled to %d, the rows are in the order %v", top, order)
		}
	}

	// Each entry of the log is there once, in whichever order answers and events come.
	b.Run(`location.hash = "` + firstTorrent + `/log"`)
	b.Until(`document.querySelectorAll(".log-grid.row").length === 1`)
	b.Run(`Promise.all([import("/page/live.js"), fetch("api/v1/torrents/` + w.torrents[0].InfoHash + `/log").then(r => r.json())]).then(([{ live }, [entry]]) => {
		live.dispatchEvent(new CustomEvent("log", {detail: entry}))
		live.dispatchEvent(new CustomEvent("log", {detail: {...entry, time: "2100-01-01T00:00:00Z", text: "later"}}))
		live.dispatchEvent(new CustomEvent("snapshot"))
	})`)
	for len(w.requests("GET /api/v1/torrents/"+w.torrents[0].InfoHash+"/log")) < 3 {
		b.Run(`new Promise(r => setTimeout(r, 100))`)
	}
	b.Run(`new Promise(r => setTimeout(r, 500))`)
	lines := `[...document.querySelectorAll(".log-grid.row:not([hidden])")].sort((a, b) => a.number - b.number).map(r => r.lastChild.textContent).join()`
	if got := chromium.Get[string](b, lines); got != "later,begun" {
		t.Errorf("the log is %q", got)
	}

	// The button of a torrent in the queue starts it.
	queued := slices.IndexFunc(w.torrents, func(t v1.Torrent) bool { return t.State == "queued" })
	b.Run(`location.hash = "#/torrent/` + w.torrents[queued].InfoHash + `/overview"`)
	b.Until(`document.querySelector(".badge").textContent === "queued"`)
	b.Click(`.torrent-head .bar button`)
	b.Until(`document.querySelector(".message")`)
	if said := chromium.Get[string](b, `document.querySelector(".message").textContent`); !strings.HasPrefix(said, "1 torrent resumed") {
		t.Errorf("Resume in the queue: %s", said)
	}

	// The pieces of a torrent that does not run are not shown, but known.
	b.Until(`document.querySelector(".overview > .hint").textContent`)
	if said := chromium.Get[string](b, `document.querySelector(".overview > .hint").textContent`); !strings.Contains(said, "while the torrent runs") {
		t.Errorf("of the pieces of a queued torrent the page says: %s", said)
	}

	// The overview follows the torrent, and its form keeps the focus.
	wrong := `[...document.querySelectorAll(".facts dt")].find(e => e.textContent === "Wrong pieces").nextSibling.textContent`
	b.Until(`document.querySelector(".facts dd")`)
	before := chromium.Get[string](b, wrong)
	b.Run(`document.querySelector("form.fields button.main").focus()`)
	b.Type(kb.Enter)
	b.Until(`document.querySelector(".messages").textContent.includes("were saved")`)
	b.Until(wrong + ` !== "` + before + `"`)
	if focus := chromium.Get[string](b, `document.activeElement.textContent`); focus != "Save" {
		t.Errorf("after Save the focus is on %.20q", focus)
	}
}

// A form that is open while somebody else changes the same settings shows the newer ones, and sends
// only what the user has changed.
func TestOpenForms(t *testing.T) {
	b := chromium.Open(t, false, "")
	w := newWorld(1, 1, 1)
	url := w.serve(t)
	field := func(label string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("form.fields label")].find(l => l.textContent.startsWith("%s")).control`, label)
	}
	submit := func(form int) {
		t.Helper()
		b.Run(fmt.Sprintf(`(f => f.requestSubmit(f.querySelector("button.main")))(document.querySelectorAll("form.fields")[%d])`, form))
	}
	saved := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; b.Run(`new Promise(r => setTimeout(r, 50))`) {
			w.mu.Lock()
			ok := is()
			w.mu.Unlock()
			if ok {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %+v, %+v, %+v", what, w.settings, w.policy, w.own)
			}
		}
	}
	others := func(change func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		change()
	}

	b.Show(url + "/#/settings")
	b.Until(`document.querySelector(".days")`)
	b.Run(field("Download") + `.value = "5"`)
	others(func() { w.settings.Limits.UploadMbitS, w.settings.ActiveSeeds = 7, 3 })
	submit(0)
	saved("the rates", func() bool { return w.settings.Limits.DownloadMbitS == 5 && w.settings.Limits.UploadMbitS == 7 })
	b.Until(field("Upload") + `.value === "7" && ` + field("Active seeds") + `.value === ""`)
	b.Run(field("Watched directory") + `.value = "/new"`)
	b.Run(`Promise.all([import("/page/live.js"), fetch("api/v1/settings").then(r => r.json())]).then(([{ live }, detail]) =>
		live.dispatchEvent(new CustomEvent("settings", {detail: {...detail, watch_directory: "/other"}})))`)
	b.Until(field("Active seeds") + `.value === "3"`)
	submit(1)
	saved("the directories", func() bool { return w.settings.WatchDir == "/new" && w.settings.ActiveSeeds == 3 })

	b.Run(field("Smallest MTU") + `.value = "1300"`)
	others(func() { w.policy.ACL = "- 1-ff00:0:112, +" })
	submit(2)
	saved("the policy", func() bool { return w.policy.MinMTUBytes == 1300 && w.policy.ACL != "" })

	b.Show(url + "/" + firstTorrent + "/overview")
	b.Until(`document.querySelector("form.fields")`)
	b.Until(field("Labels") + `.value === "data"`)
	b.Run(field("Fetch pieces in order") + `.checked = true`)
	others(func() { w.torrents[0].Labels = []string{"newer"} })
	submit(0)
	saved("the torrent", func() bool { return w.own.Sequential && slices.Equal(w.torrents[0].Labels, []string{"newer"}) })

	// What is saved follows others again, also if the server writes it in another way.
	b.Run(field("Labels") + `.value = "a,b"`)
	submit(0)
	saved("the labels", func() bool { return slices.Equal(w.torrents[0].Labels, []string{"a", "b"}) })
	b.Until(field("Labels") + `.value === "a, b"`)
	others(func() { w.torrents[0].Labels = []string{"newest"} })
	b.Until(field("Labels") + `.value === "newest"`)
}

// Before the first list of torrents, as after each login, nothing is said of what is there.
func TestLoading(t *testing.T) {
	b := chromium.Open(t, false, "")
	url := newWorld(1, 1, 1).serve(t)
	for address, place := range map[string]string{"#/": ".torrents .empty", firstTorrent: ".torrent h1"} {
		b.Show(url + "/" + address)
		b.Until(`document.querySelectorAll(".torrents .row").length === 1 || document.querySelector(".torrent h1")?.textContent.startsWith("genome")`)
		b.Run(`import("/page/live.js").then(({ live }) => {
			live.end()
			live.dispatchEvent(new CustomEvent("torrents"))
		})`)
		b.Run(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))`)
		if said := chromium.Get[string](b, `document.querySelector("`+place+`").textContent`); said != "Loading …" {
			t.Errorf("%s says %q", address, said)
		}
	}
}

// A line that is no link is not lost without a word, and a file that is dropped on the form is not
// opened instead of the page.
func TestAdd(t *testing.T) {
	b := chromium.Open(t, false, "")
	w := newWorld(1, 1, 1)
	b.Show(w.serve(t))
	b.Until(`document.querySelectorAll(".torrents .row").length === 1`)
	b.Click(`.torrents .bar button.main`)
	b.Until(`document.querySelector("dialog[open] textarea")`)
	if chromium.Get[bool](b, `(() => { const d = new DataTransfer(); d.items.add(new File(["d4:infode"], "x.torrent"));
		return document.querySelector("dialog h2").dispatchEvent(new DragEvent("drop", {dataTransfer: d, cancelable: true, bubbles: true})) })()`) {
		t.Error("the browser opens the file")
	}
	if n := chromium.Get[int](b, `document.querySelector("dialog input[type=file]").files.length`); n != 1 {
		t.Errorf("the form has %d files", n)
	}
	b.Run(`document.querySelector("dialog input[type=file]").value = ""`)
	b.Click(`dialog textarea`)
	b.Type("magnet:?xt=urn:btih:0123456789012345678901234567890123456789\rtorrent.example/x")
	b.Click(`dialog button.main`)
	b.Until(`document.querySelector(".messages").textContent.includes("torrent.example/x")`)
}

// The map stays where it is while rates and rules change. An interface is forbidden only once the
// user has seen which paths remain.
func TestMap(t *testing.T) {
	b := chromium.Open(t, false, "")
	w := newWorld(1, 6, 6)
	b.Show(w.serve(t) + "/#/map")
	b.Until(`document.querySelectorAll(".link-rate").length > 5 && [...document.querySelectorAll(".link-rate")].some(e => e.textContent)`)
	places := `JSON.stringify([[...document.querySelectorAll(".map path, .map rect")].map(e => [e.getAttribute("d"), e.getAttribute("x"), e.getAttribute("y")])])`
	before := chromium.Get[string](b, places)
	port := chromium.Get[string](b, `document.querySelector(".port").dataset.target`)
	if port != local+"#"+strings.TrimPrefix(port, local+"#") {
		t.Fatalf("the first interface is %s", port)
	}
	b.Run(`document.querySelector(".port").focus()`)
	b.Type(kb.Enter)
	b.Until(`document.querySelector("dialog[open] h2")?.textContent === "` + port + `"`)
	b.Until(`document.querySelectorAll(".preview .stays").length > 0 && document.querySelectorAll(".preview .goes").length === 0`)
	b.Repeat(kb.Enter)
	if !chromium.Get[bool](b, `Boolean(document.querySelector("dialog[open]"))`) {
		t.Fatal("the key that opened the dialog has closed it, because it was held")
	}
	b.Click(`dialog input[value=forbid]`)
	b.Until(`document.querySelectorAll(".preview .goes").length > 0`)
	b.Shot("policy")
	if w.acl() != "" {
		t.Fatalf("the policy is %q before anybody has agreed", w.acl())
	}
	b.Click(`dialog button.main`)
	b.Until(`document.querySelector("[data-target='` + port + `']").classList.contains("forbidden")`)
	if want := "- " + port + ", +"; w.acl() != want {
		t.Errorf("the policy is %q, want %q", w.acl(), want)
	}
	b.Until(`document.querySelector(".map .link.forbidden")`)
	if chromium.Get[string](b, places) != before {
		t.Error("something on the map has moved")
	}
	b.Shot("map-forbidden")
	b.Click(`[data-target="` + port + `"] .hit`)
	b.Until(`document.querySelector("dialog input[value=forbid]")?.checked`)
	b.Click(`dialog input[value=allow]`)
	b.Until(`!document.querySelector("dialog button.main").disabled`)
	b.Click(`dialog button.main`)
	b.Until(`!document.querySelector(".map .link.forbidden")`)
	if w.acl() != "" {
		t.Errorf("the policy is %q after all is allowed again", w.acl())
	}
	b.Click(`[data-target="` + port + `"] .hit`)
	b.Until(`document.querySelector("dialog input[value=limit]")`)
	b.Run(`(most => { most.value = ""; most.dispatchEvent(new Event("input", {bubbles: true})) })(document.querySelector("dialog input[type=number]"))`)
	b.Until(`!document.querySelector("dialog button.main").disabled`)
	b.Click(`dialog button.main`)
	if !chromium.Get[bool](b, `Boolean(document.querySelector("dialog[open]"))`) {
		t.Error("a limit without a rate was taken for no limit")
	}
}

// A stream of events that breaks is opened again by itself.
func TestReconnect(t *testing.T) {
	b := chromium.Open(t, false, "")
	w := newWorld(20, 1, 1)
	b.Show(w.serve(t))
	b.Until(`document.querySelectorAll(".torrents .row").length > 5`)
	streams := len(w.requests("GET /api/v1/events"))
	w.breakStreams()
	for len(w.requests("GET /api/v1/events")) == streams {
		b.Run(`new Promise(r => setTimeout(r, 100))`)
	}
	b.Until(`!document.body.classList.contains("lost") && document.querySelectorAll(".torrents .row").length > 5`)

	// Several views that get no answer say so once.
	b.Run(`import("/page/messages.js").then(({ say }) => ["no answer", "another", "no answer"].forEach(t => say(t)))`)
	if said := chromium.Get[string](b, `[...document.querySelectorAll(".message span")].map(e => e.textContent).join()`); said != "another,no answer" {
		t.Errorf("the messages are %q", said)
	}
}

// A tab that is opened in the background gives its connection back, too. A browser has six to one
// server.
func TestBackgroundTab(t *testing.T) {
	b := chromium.Open(t, false, "")
	b.Show(newWorld(1, 1, 1).serve(t))
	b.Until(`document.querySelectorAll(".torrents .row").length === 1`)
	if state := chromium.Get[int](b, `import("/page/live.js").then(({ live }) => {
		let stream
		window.EventSource = class extends EventSource { constructor(url) { stream = super(url) } }
		Object.defineProperty(document, "hidden", {value: true})
		window.setTimeout = (run, ms) => ms === 30000 && run()
		live.start()
		return stream.readyState
	})`); state != 2 {
		t.Errorf("the stream is in state %d, want 2: closed", state)
	}
}

// Scrolling through a thousand torrents and two hundred paths: the log says how long frames take,
// and how much processor time of the page's thread; for 60 frames a second there are 16.7 ms. The
// figures depend on the machine, so the test judges only that few rows exist at any moment.
func TestScrolling(t *testing.T) {
	b := chromium.Open(t, false, "")
	url := newWorld(1000, 10, 20).serve(t)
	for _, v := range []struct{ name, address, list string }{{"1000 torrents", "#/", ".torrents .list"}, {"200 paths", firstTorrent, ".paths .list"}} {
		b.Show(url + "/" + v.address)
		b.Until(`document.querySelectorAll("` + v.list + ` .row").length > 2`)
		before := b.Busy()
		got := chromium.Get[struct {
			Frames, Late, Rows   int
			Median, P95, Longest float64
		}](b, `new Promise(done => {
			const list = document.querySelector("`+v.list+`"), times = []
			let rows = 0, last = 0, step = 37
			const frame = now => {
				if (last) times.push(now - last)
				last = now
				if (list.scrollTop + list.clientHeight >= list.scrollHeight - 1) step = -37
				if (list.scrollTop === 0) step = 37
				list.scrollTop += step
				rows = Math.max(rows, list.querySelectorAll(".row").length)
				if (times.length < 100) return requestAnimationFrame(frame)
				times.sort((a, b) => a - b)
				done({frames: times.length, late: times.filter(t => t > 25).length, rows, median: times[50], p95: times[95], longest: times[99]})
			}
			requestAnimationFrame(frame)
		})`)
		each := (b.Busy() - before) / time.Duration(got.Frames)
		t.Logf("%s: %v of processor time for a frame; %d frames, median %.1f ms, 95th percentile %.1f ms, longest %.1f ms, %d above 25 ms, at most %d rows",
			v.name, each.Round(10*time.Microsecond), got.Frames, got.Median, got.P95, got.Longest, got.Late, got.Rows)
		if got.Rows > 60 {
			t.Errorf("%s: %d rows exist", v.name, got.Rows)
		}
	}
}
