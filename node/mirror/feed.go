package mirror

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/anacrolix/torrent/metainfo"
	"github.com/mmcdole/gofeed"
	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"
)

// Offer is an entry of a source's list: one torrent.
type Offer struct {
	Title string `json:"title"`
	// Link leads to the torrent: a URL, a magnet link, or a file. It identifies the offer.
	Link string `json:"link"`
	Hash string `json:"hash,omitempty"` // the info hash, if the source says it
}

// Bounds of a list of offers.
const (
	maxList   = 16 << 20 // bytes
	maxOffers = 10_000
	maxTitle  = 512 // bytes; longer ones are cut
	maxLink   = 4096
	// A feed's elements are read by recursion, and its namespaces are copied for each element.
	maxDepth      = 64
	maxElements   = 500_000
	maxNamespaces = 64
)

// parseList reads a feed (RSS or Atom) or, if isPage is true, perhaps a web page. base is its URL.
// The offers are in the order of the list. Links that braid cannot follow are left out.
func parseList(b []byte, base *url.URL, isPage bool) (offers []Offer, err error) {
	if len(b) > maxList {
		return nil, fmt.Errorf("the list has %d bytes, want at most %d", len(b), maxList)
	}
	l := list{base: base, seen: map[string]bool{}}
	// Some servers call their feeds web pages.
	if isPage && gofeed.DetectFeedType(bytes.NewReader(b)) == gofeed.FeedTypeUnknown {
		l.page(b)
		return l.offers, nil
	}
	b = clean(b)
	if err := checkXML(b); err != nil {
		return nil, fmt.Errorf("read the feed: %w", err)
	}
	feed, err := gofeed.NewParser().Parse(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("read the feed: %w", err)
	}
	for _, item := range feed.Items {
		l.item(item)
	}
	return l.offers, nil
}

// encodingOf finds the encoding that an XML document declares.
var encodingOf = regexp.MustCompile(`^\s*<\?xml[^>]*encoding=["']([^"']+)`).FindSubmatch

// badReference finds references to characters that XML does not allow, such as &#x0B; and &#31;.
var badReference = regexp.MustCompile(
	`(?i)&#(x0*([0-8bcef]|1[0-9a-f]|fff[ef])|0*([0-8]|1[124-9]|2\d|3[01]|6553[45]));`)

// clean replaces characters in UTF-8 that XML does not allow, and references to them. Titles have
// them where somebody has cut or pasted them, and the parser would refuse the whole feed.
func clean(b []byte) []byte {
	b = badReference.ReplaceAll(b, []byte(" "))
	if m := encodingOf(b); m != nil && !bytes.EqualFold(m[1], []byte("utf-8")) {
		return b
	}
	return bytes.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return ' '
		}
		return r
	}, b)
}

// checkXML refuses documents that would take the feed parser too much time or stack.
func checkXML(b []byte) error {
	if t := bytes.TrimLeft(b, "\x00\xfe\xff\xef\xbb\xbf \t\r\n"); len(t) == 0 || t[0] != '<' {
		return errors.New("it is neither RSS nor Atom")
	}
	d := xml.NewDecoder(bytes.NewReader(b))
	d.Strict, d.CharsetReader = false, charset.NewReaderLabel
	elements := 0
	var spaces []int // for each open element: the namespaces that it and those around it declare
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.StartElement:
			declared := 0
			if len(spaces) > 0 {
				declared = spaces[len(spaces)-1]
			}
			for _, a := range t.Attr {
				if a.Name.Space == "xmlns" || a.Name.Local == "xmlns" {
					declared++
				}
			}
			spaces = append(spaces, declared)
			if elements++; len(spaces) > maxDepth || elements > maxElements || declared > maxNamespaces {
				return errors.New("it has too many elements, levels or namespaces")
			}
		case xml.EndElement:
			spaces = spaces[:max(0, len(spaces)-1)]
		}
	}
}

// list collects offers.
type list struct {
	base   *url.URL
	offers []Offer
	seen   map[string]bool // links
}

// item adds the torrents of an item of a feed: its enclosures or, without any, its links.
func (l *list) item(item *gofeed.Item) {
	title := strings.TrimSpace(item.Title)
	found := extensions(item)
	before := len(l.offers)
	for _, e := range item.Enclosures {
		kind, _, _ := strings.Cut(e.Type, ";")
		named := strings.EqualFold(strings.TrimSpace(kind), "application/x-bittorrent")
		if named || isTorrent(e.URL) {
			l.add(title, e.URL, "")
		}
	}
	if n := len(l.offers) - before; n > 0 {
		if n == 1 {
			l.offers[before].Hash = found.hash
		}
		return
	}
	for _, link := range append(append([]string{found.magnet}, item.Links...), item.Link, item.GUID) {
		if isTorrent(link) && l.add(title, link, found.hash) {
			return
		}
	}
	if found.hash != "" {
		l.add(title, "magnet:?xt=urn:btih:"+found.hash+"&dn="+url.QueryEscape(cutText(title)), found.hash)
	}
}

// extension has the values of <torrent:...> elements, whatever their prefix is.
type extension struct{ hash, magnet string }

var isHash = regexp.MustCompile(`^[0-9a-fA-F]{40}$`).MatchString

func extensions(item *gofeed.Item) (e extension) {
	for _, names := range item.Extensions {
		for name, all := range names {
			for _, x := range all {
				value := strings.TrimSpace(x.Value)
				switch {
				case strings.EqualFold(name, "infohash") && isHash(value):
					e.hash = strings.ToLower(value)
				case strings.EqualFold(name, "magneturi"):
					e.magnet = value
				}
				for _, c := range x.Children["infoHash"] { // of an element <torrent>
					if isHash(strings.TrimSpace(c.Value)) {
						e.hash = strings.ToLower(strings.TrimSpace(c.Value))
					}
				}
			}
		}
	}
	return e
}

// isTorrent tells whether a link looks like one to a torrent.
func isTorrent(link string) bool {
	if isMagnet(link) {
		return true
	}
	u, err := url.Parse(strings.TrimSpace(link))
	return err == nil && strings.EqualFold(path.Ext(u.Path), ".torrent")
}

func isMagnet(link string) bool {
	return len(link) > 7 && strings.EqualFold(link[:7], "magnet:")
}

// page adds the links of a web page to torrents.
func (l *list) page(b []byte) {
	for z := html.NewTokenizer(bytes.NewReader(b)); ; {
		switch z.Next() {
		case html.ErrorToken:
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			name, more := z.TagName()
			for more {
				var key, value []byte
				key, value, more = z.TagAttr()
				href := strings.TrimSpace(string(value))
				switch {
				case string(key) != "href":
				case string(name) == "a" && isTorrent(href):
					l.add("", href, "")
				case string(name) == "base":
					if u, err := l.base.Parse(href); err == nil {
						l.base = u
					}
				}
			}
		}
	}
}

// add adds an offer. It returns false if the link cannot be used.
func (l *list) add(title, link, hash string) bool {
	link = strings.TrimSpace(link)
	if isMagnet(link) {
		if m, err := metainfo.ParseMagnetUri(link); err == nil && title == "" {
			title = m.DisplayName
		}
	} else {
		u, err := l.base.Parse(link)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return false
		}
		u.Fragment = ""
		link = u.String()
		if title == "" {
			title = strings.TrimSuffix(path.Base(u.Path), ".torrent")
		}
	}
	if len(link) > maxLink || l.seen[link] || len(l.offers) >= maxOffers {
		return false
	}
	l.seen[link] = true
	l.offers = append(l.offers, Offer{cutText(title), link, hash})
	return true
}

// cutText returns the beginning of a text, with bounded length and in UTF-8.
func cutText(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxTitle)], "") }
