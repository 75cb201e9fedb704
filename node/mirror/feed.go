package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/anacrolix/torrent/metainfo"
	"golang.org/x/net/html"
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
	// maxToken bounds a tag, a comment or a text between them, in bytes.
	maxToken = 4 << 20
	maxDepth = 64 // of elements in a feed
)

// parseList reads a feed (RSS or Atom) or, if isPage is true, perhaps a web page. base is its URL.
// The offers are in the order of the list. Links that braid cannot follow are left out.
func parseList(b []byte, base *url.URL, isPage bool) (offers []Offer, err error) {
	if len(b) > maxList {
		return nil, fmt.Errorf("the list has %d bytes, want at most %d", len(b), maxList)
	}
	l := list{base: base, seen: map[string]bool{}}
	what := "feed"
	err = l.feed(b)
	if isPage && errors.Is(err, errNoFeed) { // some servers call their feeds web pages
		what, err = "page", l.page(b)
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", what, err)
	}
	return l.offers, nil
}

// list collects offers.
type list struct {
	base   *url.URL
	offers []Offer
	seen   map[string]bool // links
}

// item adds the torrents of an item of a feed: its enclosures or, without any, its links.
func (l *list) item(x item) {
	before := len(l.offers)
	for _, e := range x.enclosures {
		l.add(x.title, e, "")
	}
	if n := len(l.offers) - before; n > 0 {
		if n == 1 {
			l.offers[before].Hash = x.hash
		}
		return
	}
	for _, link := range slices.Concat([]string{x.magnet}, x.links, []string{x.id}) {
		if isTorrent(link) && l.add(x.title, link, x.hash) {
			return
		}
	}
	if x.hash != "" {
		l.add(x.title, "magnet:?xt=urn:btih:"+x.hash+"&dn="+url.QueryEscape(x.title), x.hash)
	}
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
func (l *list) page(b []byte) error {
	z := html.NewTokenizer(bytes.NewReader(b))
	z.SetMaxBuf(maxToken)
	for {
		switch z.Next() {
		case html.ErrorToken:
			return cutOff(z.Err())
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
