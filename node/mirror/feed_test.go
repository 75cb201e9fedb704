package mirror

import (
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
)

const hash = "0123456789abcdef0123456789abcdef01234567"

const rssFeed = `<?xml version="1.0" encoding="ISO-8859-1"?>
<rss version="2.0" xmlns:torrent="http://xmlns.ezrss.it/0.1/"><channel><title>sets</title>
<item><title>one</title><link>https://example.org/one.html</link>
  <enclosure url="https://example.org/get?id=1" length="5" type="application/x-bittorrent"/>
  <torrent:infoHash>0123456789ABCDEF0123456789ABCDEF01234567</torrent:infoHash></item>
<item><title>zwei &auml;</title><link>files/two.torrent</link></item>
<item><title>three</title><link>https://example.org/3</link><torrent:magnetURI><![CDATA[magnet:?xt=urn:btih:` + hash + `&dn=three]]></torrent:magnetURI></item>
<item><title>four</title><torrent:infoHash>` + hash + `</torrent:infoHash></item>
<item><title>five</title><enclosure url="https://example.org/5.mp3" type="audio/mpeg"/></item>
<item><title>six</title><guid>magnet:?xt=urn:btih:` + hash + `</guid></item>
<item><title>seven</title><link>file:///etc/passwd.torrent</link></item>
<item><title>again</title><link>https://example.org/list/files/two.torrent#part</link></item>
</channel></rss>`

const atomFeed = `<feed xmlns="http://www.w3.org/2005/Atom"><title>sets</title>
<entry><title>one</title><link rel="alternate" href="https://example.org/one"/>
  <link rel="enclosure" type="application/x-bittorrent; v=1" href="../one"/></entry>
<entry><title>two</title><link href="two.TORRENT?key=1"/></entry>
<entry><title>three</title><link rel="enclosure" href="magnet:?xt=urn:btih:` + hash + `"/></entry>
</feed>`

func TestParseList(t *testing.T) {
	base, _ := url.Parse("https://example.org/list/all.xml")
	for name, c := range map[string]struct {
		text string
		page bool
		want string
	}{
		"RSS": {rssFeed, false, "one https://example.org/get?id=1 " + hash + "\nzwei ä https://example.org/list/files/two.torrent \n" +
			"three magnet:?xt=urn:btih:" + hash + "&dn=three \nfour magnet:?xt=urn:btih:" + hash + "&dn=four " + hash + "\nsix magnet:?xt=urn:btih:" + hash + " \n"},
		"Atom": {atomFeed, false, "one https://example.org/one \ntwo https://example.org/list/two.TORRENT?key=1 \nthree magnet:?xt=urn:btih:" + hash + " \n"},
		"page": {`<a href="/a%20b.torrent">x</a><A class=x HREF='magnet:?xt=urn:btih:` + hash + `&amp;dn=y+z'>y</a><a href="c.html">z</a><a href="ftp://h/d.torrent">`, true,
			"a b https://example.org/a%20b.torrent \ny z magnet:?xt=urn:btih:" + hash + "&dn=y+z \n"},
		"page with a base": {`<html><head><base href="/files/"/></head><a href="a.torrent"/><a href=" ` + "\n" + `magnet:?xt=urn:btih:` + hash + `">`, true,
			"a https://example.org/files/a.torrent \n magnet:?xt=urn:btih:" + hash + " \n"},
		"bad characters": {"<?xml version='1.0' encoding='UTF-8'?><rss><channel><item><title>caf\xe9 \x0bau\ufffe&#x0B;&#31;lait&#32;!</title><link>a.torrent</link></item></channel></rss>", false,
			"caf\ufffd  au   lait ! https://example.org/list/a.torrent \n"},
		"no encoding": {"<rss><channel><item><title>caf\xe9</title><link>a.torrent</link></item></channel></rss>", false,
			"caf\ufffd https://example.org/list/a.torrent \n"},
		"Windows": {"<?xml version=\"1.0\" encoding=\"windows-1252\"?><rss><channel><item><title>caf\xe9</title><link>a.torrent</link></item></channel></rss>", false,
			"café https://example.org/list/a.torrent \n"},
		"foreign elements": {"<rss xmlns:media='u'><channel><image><title>x</title><link>x.torrent</link></image><item><media:title>y</media:title>" +
			"<description><p>a<br>b<a href='z.torrent'><div><div><title>z</title></div></div></description><title>o<i>n</i>e</title>" +
			"<source><title>w</title></source><guid>w.torrent</guid><link>a.torrent</link></item></channel></rss>", false,
			"one https://example.org/list/a.torrent \n"},
		"prefixes": {"<atom:feed><atom:entry><atom:title>one</atom:title><atom:link rel='related' href='b.torrent'/><atom:link href='a.torrent'/>" +
			"<t><x:infoHash>" + hash + "</x:infoHash></t></atom:entry></atom:feed>", false,
			"one https://example.org/list/a.torrent " + hash + "\n"},
		"parameters": {"<rdf:RDF><item><title>one</title><link><![CDATA[a.torrent?a=1&copy=2&amp;lt;=3]]></link></item>" +
			"<item><title>two</title><link>b.torrent?a=1&copy=2&amp;lt=3</link></item></rdf:RDF>", false,
			"one https://example.org/list/a.torrent?a=1&copy=2&amp;lt;=3 \ntwo https://example.org/list/b.torrent?a=1&copy=2&lt=3 \n"},
		"feed as a page": {"\n" + rssFeed[:strings.Index(rssFeed, "<item><title>zwei")] + "</channel></rss>", true,
			"one https://example.org/get?id=1 " + hash + "\n"},
	} {
		offers, err := parseList([]byte(c.text), base, c.page)
		got := ""
		for _, o := range offers {
			got += o.Title + " " + o.Link + " " + o.Hash + "\n"
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, c.want)
		}
	}
}

// Documents that have no whole list, or would use up memory, are refused.
func TestParseListRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"attributes": "<rss><channel/>x<a" + strings.Repeat(" a", maxToken/2) + "/></rss>",
		"attributes in another encoding": "<?xml version='1.0' encoding='windows-1252'?><rss" +
			strings.Repeat(" a", maxToken/2) + "><channel></channel></rss>",
		"deep":     "<rss><channel><item>" + strings.Repeat("<a:b>", 1000) + strings.Repeat("</a:b>", 1000) + "</item></channel></rss>",
		"large":    "<rss>" + strings.Repeat(" ", maxList) + "</rss>",
		"encoding": "<?xml version='1.0' encoding='of mine'?><rss></rss>",
		"JSON":     `{"version":"https://jsonfeed.org/version/1","items":[]}`,
		"empty":    "",
		"HTML":     "<html></html>",
		"cut off":  "<rss><channel>",
		"no end":   "<rss><channel><item><link>a.torrent</link><item><link>b.torrent</link></item></channel></rss>",
	} {
		if offers, err := parseList([]byte(text), &url.URL{}, false); err == nil {
			t.Errorf("%s: accepted, with %d offers", name, len(offers))
		}
	}
	many := "<rss><channel>" + strings.Repeat("<item><link>magnet:?x"+"</link></item>", 3) + "</channel></rss>"
	if offers, err := parseList([]byte(many), &url.URL{}, false); err != nil || len(offers) != 1 {
		t.Errorf("%d offers, %v", len(offers), err)
	}
}

// Crafted documents take no more memory than others. Each of these cost the parser of a library
// gigabytes, or a time that grows with the square of the length.
func TestParseListCosts(t *testing.T) {
	spaces := &strings.Builder{}
	for i := range 1000 {
		spaces.WriteString(` xmlns:n` + strings.Repeat("x", i) + `="u"`)
	}
	for name, text := range map[string]string{
		"attributes": "<rss><channel/>x<a" + strings.Repeat(" a", 100_000) + "/></rss>",
		"items":      "<rss><channel>" + strings.Repeat("<item/>", 100_000) + "</channel></rss>",
		"parts": "<rss xmlns:x='u'><channel><item><x:a>" + strings.Repeat("a", maxToken/2) +
			strings.Repeat("<!---->a", 100_000) + "</x:a></item></channel></rss>",
		"long":       "<rss><channel>" + strings.Repeat("<a/>", 100_000) + "</channel></rss>",
		"namespaces": "<rss" + spaces.String() + ">" + strings.Repeat("<a/>", 100_000) + "</rss>",
		"open":       "<rss>" + strings.Repeat("<a/></b>", 100_000) + "</rss>",
		"titles":     "<rss><item><title>" + strings.Repeat("a<b/>&amp;", 100_000) + "</title></item></rss>",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := parseList([]byte(text), &url.URL{}, false)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; err != nil || used > 100*uint64(len(text)) {
			t.Errorf("%s: %v; %d bytes took %d of memory", name, err, len(text), used)
		}
	}
}

// A page with a tag that would take too much memory is refused. The torrents behind the tag would
// otherwise count as no longer offered, and a mirror with --delete would delete their data.
func TestParseListBoundsTagsOfPages(t *testing.T) {
	page := "<a href=a.torrent><a" + strings.Repeat(" a", maxToken/2) + "><a href=b.torrent>"
	offers, err := parseList([]byte(page), &url.URL{Scheme: "http", Host: "h"}, true)
	if err == nil || len(offers) != 0 {
		t.Errorf("%d offers, %v", len(offers), err)
	}
}

// The HTML in an entry is not parsed: each of its short tags can stand for hundreds of elements.
func TestParseListLeavesHTML(t *testing.T) {
	html := "&lt;p>"
	for i := range 100 {
		html += fmt.Sprintf("&lt;b a=%d>", i)
	}
	html += strings.Repeat("&lt;p>x", 5000)
	text := `<feed xmlns="http://www.w3.org/2005/Atom" xml:base = "https://example.org/">` +
		`<entry><content type="html" xml:base="https://example.org/">` + html +
		`</content><title>xml:base</title><link href="https://example.org/a.torrent"/></entry></feed>`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	offers, err := parseList([]byte(text), &url.URL{}, false)
	runtime.ReadMemStats(&after)
	if err != nil || len(offers) != 1 || offers[0].Title != "xml:base" {
		t.Errorf("%v, %v", offers, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 20<<20 {
		t.Errorf("%d bytes of text took %d MiB", len(text), used>>20)
	}
}

func FuzzParseList(f *testing.F) {
	f.Add([]byte(rssFeed), false)
	f.Add([]byte(atomFeed), false)
	f.Add([]byte(`<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><item><link>a.torrent</link></item></rdf:RDF>`), false)
	f.Add([]byte(`<a href="a.torrent">`), true)
	base, _ := url.Parse("https://example.org/list/all.xml")
	f.Fuzz(func(t *testing.T, b []byte, page bool) {
		offers, err := parseList(b, base, page)
		if err != nil && len(offers) > 0 || len(offers) > maxOffers {
			t.Fatalf("%d offers, %v", len(offers), err)
		}
		for _, o := range offers {
			u, err := url.Parse(o.Link)
			if !isMagnet(o.Link) && (err != nil || u.Scheme != "http" && u.Scheme != "https") || len(o.Link) > maxLink || len(o.Title) > maxTitle {
				t.Errorf("%+v", o)
			}
		}
	})
}
