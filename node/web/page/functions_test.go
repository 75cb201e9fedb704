package page

import (
	"net/http/httptest"
	"testing"

	"braid/node/web/page/chromium"
)

// The functions that decide what is drawn are tested where they run: in the browser, from values to
// values.
func TestFunctions(t *testing.T) {
	b := chromium.Open(t, false, "")
	server := httptest.NewServer(Handler())
	t.Cleanup(server.Close)
	b.Show(server.URL + "/page/logo.svg") // a document of the page's own origin, without its scripts
	for _, c := range []struct{ name, module, expression string }{
		{"three digits and a unit", "format", `[m.rate(0), m.rate(0.0123), m.rate(1), m.rate(12.345), m.rate(123.4), m.rate(2500)].join() === "–,12 kbit/s,1.00 Mbit/s,12.3 Mbit/s,123 Mbit/s,2.50 Gbit/s"`},
		{"sizes", "format", `[m.size(0), m.size(1023), m.size(1536), m.size(-1), m.size(5e12)].join() === "0 B,1.00 KiB,1.50 KiB,–,4.55 TiB"`},
		{"times", "format", `[m.span(5), m.span(65), m.span(7260), m.span(90000), m.span(NaN)].join() === "5 s,1 min 05 s,2 h 01 min,1 d 1 h,–"`},
		{"only all of it is 100 %", "format", `m.percent(99999, 100000) === "99.9 %" && m.percent(5, 5) === "100 %" && m.percent(1, 5000) === "< 0.1 %"`},
		{"29 of 100 are 29 %", "format", `Array.from({length: 101}, (_, n) => n).every(n => m.percent(n / 100, 1) === n + " %")`},

		{"a time of another day has its date", "format", `(now => m.stamp(now) === m.clock(now) && m.stamp(now - 86400000) !== m.clock(now) && m.stamp(now - 86400000).endsWith(m.clock(now - 86400000)))(Date.now())`},

		{"characters that hide or reorder a text are shown", "dom", `m.el("p", {text: "invoice\u202efdp.exe\u0007"}).textContent === "invoice\\u202efdp.exe\\u0007" && m.el("p", {text: "\u05d0\n\u200d"}).textContent === "\u05d0\n\u200d"`},

		{"also in hints, and in the title of the window", "dom", `(e => { m.setAttr(e, "title", "fdp\u202e"); return e.getAttribute("title") === "fdp\\u202e" && m.visible("fdp\u202e") === "fdp\\u202e" })(m.el("p"))`},

		{"a filter wants all words", "torrents", `m.arrange([{name: "a b", labels: ["x"], info_hash: "1", state: "paused"}, {name: "a", labels: [], info_hash: "2", state: "paused"}], {text: "A x", state: "", column: "name"}).length === 1`},
		{"numbers in names sort as numbers", "torrents", `m.arrange(["v10", "v9"].map((name, i) => ({name, labels: [], info_hash: String(i), state: "paused"})), {text: "", state: "", column: "name"})[0].name === "v9"`},
		{"moments sort by time, not as texts", "torrents", `m.arrange(["2026-10-25T02:10:00+01:00", "2026-10-25T02:50:00.5+02:00", "2026-10-25T02:50:00.123456789+02:00"].map((added, i) => ({added, name: String(i), labels: [], info_hash: String(i), state: "paused"})), {text: "", state: "", column: "added"}).map(t => t.name).join("") === "210"`},
		{"unknown times come last", "torrents", `m.arrange([{left_s: undefined}, {left_s: 5}].map((t, i) => ({...t, name: String(i), labels: [], info_hash: String(i), state: "paused"})), {text: "", state: "", column: "left"})[0].left_s === 5`},

		{"an info hash is a magnet link", "add", "m.sourcesIn(` 0123456789abcdef0123456789ABCDEF01234567\n0123`).join('|') === 'magnet:?xt=urn:btih:0123456789abcdef0123456789ABCDEF01234567'"},
		{"links and magnets only", "add", "m.sourcesIn(`magnet:?xt=1\n javascript:alert(1)\nfile:///etc\n\nhttps://x/y.torrent `).join('|') === 'magnet:?xt=1|https://x/y.torrent'"},

		{"pieces fit", "pieces", `[1, 100, 4000, 100000, 1e6].every(n => { const g = m.gridFor(n, 300); return g.cells * g.each >= n && Math.ceil(g.cells / g.across) * g.cell <= 224 })`},
		{"pieces are counted", "pieces", `(c => c.done === 2 && c.rare === 1)(m.countPieces(new Uint8Array([0b10100000]), new Uint8Array([0, 0, 0, 3]), 4))`},

		{"a step of the scale", "lane", `[0, 0.3, 1, 1.1, 49, 51, 1000].map(m.niceMaximum).join() === "1,0.5,1,2,50,100,1000"`},
		{"the history forgets", "history", `(h => { for (let t = 0; t < 700; t++) h.add(t, Array.from({length: 3}, (_, i) => ({id: String(i), hops: [], down_mbit_s: t, up_mbit_s: 0})));
			for (let i = 0; i < 600; i++) h.decide({path_id: "0", time: "2026-01-01T00:00:00Z", event: "path-opened", reason: String(i), peer: ""});
			for (let i = 0; i < 500; i++) h.add(1000 + i, [{id: "p" + i, hops: [], down_mbit_s: 0, up_mbit_s: 0}]);
			return h.samples("0").length <= 600 && h.decisions.length === 500 && h.samples("p499").length === 1 && h.samples("0").length === 0 })(new m.History())`},
		{"each decision once, in its order, whether it comes in an answer or as an event", "history", `(h => {
			const d = (n) => ({path_id: "0", time: "2026-01-01T00:00:0" + n + "Z", event: "path-opened", reason: String(n), peer: ""});
			h.decide(d(2)); h.decide(d(3)); // before the answer, which was made between them
			h.fill({end: "2026-01-01T00:00:02Z", step_s: 1, paths: [], decisions: [d(1), d(2)]});
			h.decide(d(2)); h.decide(d(4));
			return h.decisions.map(x => x.reason).join() === "4,3,2,1" && h.marks("0").length === 4 })(new m.History())`},
		{"times are those of the server's clock", "history", `(h => { h.fill({end: "2001-01-01T00:00:00Z", step_s: 1, paths: []});
			return Math.abs(h.now() - Date.parse("2001-01-01T00:00:00Z")) < 3600000 })(new m.History())`},

		{"an interface is allowed again", "policy", `m.without({acl: "- 1-ff00:0:110#2, - 2, +", limits: [{pattern: "1-ff00:0:110#2", mbit_s: 3}]}, "1-ff00:0:110#2").acl === "- 2, +"`},
		{"an AS is allowed again, as the server writes it", "policy", `m.without({acl: "- 1-ff00:0:110#0, +", limits: []}, "1-ff00:0:110").acl === "" && m.rulesFor({acl: "- 1-ff00:0:110#0, +", limits: []}, "1-ff00:0:110").forbidden && m.rulesFor({acl: "", limits: [{pattern: "1-ff00:0:110#0", mbit_s: 3}]}, "1-ff00:0:110").limit === 3`},
		{"its limit goes, too", "policy", `m.without({acl: "", limits: [{pattern: "a", mbit_s: 3}, {pattern: "b", mbit_s: 3}]}, "a").limits.length === 1`},
		{"no rule is left", "policy", `m.without({acl: "- 1-ff00:0:110#2 +", limits: []}, "1-ff00:0:110#2").acl === ""`},
		{"limits in lines", "policy", `JSON.stringify(m.limitsIn(" 1-ff00:0:110#2  10\n\n2-ff00:0:210 0.5 Mbit/s")) === '[{"pattern":"1-ff00:0:110#2","mbit_s":10},{"pattern":"2-ff00:0:210","mbit_s":0.5}]'`},
		{"a limit that is no number is not dropped", "policy", `["1-1#2", "1-1#2 10M", "1-1#2 10,5", "1-1#2 -1"].every(l => { try { m.limitsIn(l); return false } catch (e) { return e.message.includes(l) } })`},
		{"pairs of interfaces stay", "policy", `m.without({acl: "- 1-ff00:0:110#2,3 - 7 +", limits: []}, "7").acl === "- 1-ff00:0:110#2,3, +"`},
		{"what holds for an interface", "policy", `(r => r.forbidden && r.limit === 0)(m.rulesFor({acl: "-  1-ff00:0:110#2 , +", limits: []}, "1-ff00:0:110#2")) && !m.rulesFor({acl: "- 1-ff00:0:110#21, +", limits: []}, "1-ff00:0:110#2").forbidden`},
		{"what holds for an interface, in an ACL without commas", "policy", `!["- 7 +", "+"].some(acl => m.rulesFor({acl, limits: []}, "1-ff00:0:110#2").forbidden)`},

		{"the layout depends on the links alone", "layout", network + `JSON.stringify(m.layout(links, [own])) === JSON.stringify(m.layout([...links].reverse().map(({a, b}) => ({a: b, b: a})), [own]))`},
		{"no boxes overlap", "layout", network + `(p => p.boxes.length === 30 && p.boxes.every((b, i) => p.boxes.every((c, j) => i === j || b.x + b.w <= c.x || c.x + c.w <= b.x || b.y + b.h <= c.y || c.y + c.h <= b.y)))(m.layout(links, [own]))`},
		{"each link has two ports, each at its own place", "layout", network + `(p => p.links.length === links.length && new Set(p.boxes.flatMap(b => b.ports.map(q => q.x + " " + q.y))).size === 2 * links.length)(m.layout(links, [own]))`},
		{"all is inside the drawing", "layout", network + `(p => p.boxes.every(b => b.x >= 0 && b.y >= 0 && b.x + b.w <= p.width && b.y + b.h <= p.height))(m.layout(links, [own]))`},
		{"an unconnected AS has a place, and a link to itself, too", "layout", `(p => p.boxes.length === 3 && Number.isFinite(p.width + p.height))(m.layout([{a: {isd_as: "1-2", id: 1}, b: {isd_as: "1-3", id: 1}}], ["1-1"]))`},
		{"rates of links within a column stand beside those of links to the next one", "layout", `(p => { const at = (name) => p.links.find(l => l.name === name).label.x, wide = 72;
			return at("1-2#2 1-3#2") + wide <= at("1-3#3 1-4#1") - wide })(m.layout([["1-1#1", "1-2#1"], ["1-1#2", "1-3#1"], ["1-2#2", "1-3#2"], ["1-3#3", "1-4#1"]].map(l => l.map(n => n.split("#")).map(([isd_as, id]) => ({isd_as, id}))).map(([a, b]) => ({a, b})), ["1-1"]))`},
		{"no links", "layout", `(p => p.boxes.length === 0 && Number.isFinite(p.width + p.height))(m.layout([], []))`},
		{"ASes in the order of their numbers", "layout", `["2-1", "1-ff00:0:1a", "1-ff00:0:9", "1-64512"].sort(m.compareIA).join() === "1-64512,1-ff00:0:9,1-ff00:0:1a,2-1"`},
	} {
		body := "return Boolean(" + c.expression + ")"
		if c.module == "layout" && len(c.expression) > len(network) && c.expression[:len(network)] == network {
			body = network + "return Boolean(" + c.expression[len(network):] + ")"
		}
		if !chromium.Get[bool](b, "import('/page/"+c.module+".js').then(m => {"+body+"})") {
			t.Errorf("%s: %s", c.module, c.name)
		}
	}
}

// network is code that makes thirty ASes: a tree with cross links and parallel links.
const network = `const own = "1-ff00:0:100"; const links = []; const as = (n) => "1-ff00:0:" + (256 + n).toString(16); const ids = {};
	const end = (a) => ({ isd_as: a, id: (ids[a] = (ids[a] ?? 0) + 1) });
	for (let n = 1; n < 30; n++) { links.push({ a: end(as(n)), b: end(as(n >> 1)) }); if (n % 3 === 0) links.push({ a: end(as(n)), b: end(as(n >> 1)) }); if (n % 5 === 0) links.push({ a: end(as(n)), b: end(as(n - 1)) }) }
	`
