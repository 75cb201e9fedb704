package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"
)

// item is what an item of RSS, or an entry of Atom, says about torrents.
type item struct {
	title        string
	enclosures   []string // URLs of torrents
	links        []string // URLs of anything
	id           string   // which may be a URL, too
	magnet, hash string
}

// Elements about torrents, as in <torrent:infoHash>. They have many prefixes.
const infoHash, magnetURI = "infohash", "magneturi"

var errNoFeed = errors.New("it is neither RSS nor Atom")

// feed adds the torrents of a feed. Feeds of many sites are not well-formed, and a feed may be
// crafted. So a tokenizer for HTML reads it, which accepts everything and keeps one token in
// memory.
func (l *list) feed(b []byte) error {
	in, err := decoded(b)
	if err != nil {
		return err
	}
	z := html.NewTokenizer(in)
	z.SetMaxBuf(maxToken)
	z.AllowCDATA(true)
	for r := (feedReader{list: l}); err == nil; {
		switch kind := z.Next(); kind {
		case html.ErrorToken:
			return r.end(z.Err())
		case html.StartTagToken, html.SelfClosingTagToken:
			z.NextIsNotRawText() // in HTML, a title has no elements
			err = r.open(nameOf(z), z)
			if kind == html.SelfClosingTagToken && err == nil {
				r.around = r.around[:len(r.around)-1]
			}
		case html.EndTagToken:
			r.close(nameOf(z))
		case html.TextToken:
			if len(r.text) < maxLink {
				r.text = append(r.text, textOf(z.Raw())...)
			}
		}
	}
	return err
}

// feedReader is a place in a feed.
type feedReader struct {
	list   *list
	around []string // the elements around it, the outermost first; nil before the first one
	item   item     // around it, or the last one
	text   []byte   // of the element of the item that is around it
}

// open goes into an element. z has its attributes.
func (r *feedReader) open(name string, z *html.Tokenizer) error {
	switch {
	case r.around == nil && !isRoot(name):
		return errNoFeed
	case len(r.around) == maxDepth:
		return fmt.Errorf("an element is inside of %d others", maxDepth)
	case isItem(name) && slices.ContainsFunc(r.around, isItem):
		return errors.New("an item has no end")
	case isItem(name):
		r.item = item{}
	case r.isNoted(name):
		r.item.addAttributes(name, z)
		r.text = r.text[:0]
	}
	r.around = append(r.around, name)
	return nil
}

// close leaves an element, and those in it that have no end. An end without a beginning is nothing.
func (r *feedReader) close(name string) {
	for i := len(r.around) - 1; i >= 0; i-- {
		if r.around[i] != name {
			continue
		}
		if slices.ContainsFunc(r.around[i:], isItem) {
			r.list.item(r.item)
		}
		r.around = r.around[:i]
		if r.isNoted(name) {
			r.item.addText(name, strings.TrimSpace(string(r.text)))
		}
		return
	}
}

// isNoted tells whether an element, at this place, says something about a torrent.
func (r *feedReader) isNoted(name string) bool {
	n := len(r.around)
	return n > 0 && isItem(r.around[n-1]) || name == infoHash || name == magnetURI
}

// end returns what is wrong if the feed ends here, for a reason.
func (r *feedReader) end(why error) error {
	err := cutOff(why)
	switch {
	case err != nil:
		return err
	case r.around == nil:
		return errNoFeed
	case len(r.around) > 0:
		return fmt.Errorf("its end is missing: no </%s>", r.around[0])
	}
	return nil
}

// cutOff returns an error if a tokenizer has stopped before the end of a document.
func cutOff(why error) error {
	switch {
	case errors.Is(why, html.ErrBufferExceeded):
		return fmt.Errorf("a tag or a text is longer than %d bytes", maxToken)
	case !errors.Is(why, io.EOF):
		return why
	}
	return nil
}

// nameOf is the name of a tag in lower case, without the prefixes of RSS, Atom and torrents.
func nameOf(z *html.Tokenizer) string {
	b, _ := z.TagName()
	name := string(b)
	prefix, local, ok := strings.Cut(name, ":")
	if ok && (prefix == "rss" || prefix == "atom" || local == infoHash || local == magnetURI) {
		return local
	}
	return name
}

func isRoot(name string) bool { return name == "rss" || name == "feed" || name == "rdf:rdf" }

func isItem(name string) bool { return name == "item" || name == "entry" }

// addAttributes notes the URL in the attributes of an element.
func (x *item) addAttributes(name string, z *html.Tokenizer) {
	if name != "link" && name != "enclosure" {
		return
	}
	var to, relation, kind string
	for more := true; more; {
		var key, value []byte
		key, value, more = z.TagAttr()
		switch string(key) {
		case "url", "href":
			to = string(value)
		case "rel":
			relation = string(value)
		case "type":
			kind, _, _ = strings.Cut(string(value), ";")
		}
	}
	if name == "enclosure" {
		relation = name
	}
	switch relation {
	case "enclosure":
		if isTorrent(to) || strings.EqualFold(strings.TrimSpace(kind), "application/x-bittorrent") {
			x.enclosures = append(x.enclosures, to)
		}
	case "", "alternate", "self":
		x.links = append(x.links, to)
	}
}

// addText notes the text of an element.
func (x *item) addText(name, text string) {
	switch {
	case name == "title":
		x.title = cutText(strings.Map(printable, text))
	case name == "link":
		x.links = append(x.links, text)
	case name == "guid" || name == "id":
		x.id = text
	case name == magnetURI:
		x.magnet = text
	case name == infoHash && isHash(text):
		x.hash = strings.ToLower(text)
	}
}

var isHash = regexp.MustCompile(`^[0-9a-fA-F]{40}$`).MatchString

// printable replaces characters that XML does not allow. Titles have them where somebody has cut or
// pasted them.
func printable(r rune) rune {
	if r < ' ' || r == 0xFFFE || r == 0xFFFF {
		return ' '
	}
	return r
}

// entity finds references to characters. Those of HTML need no semicolon in a text, but a URL may
// have parameters such as &copy=1.
var entity = regexp.MustCompile(`&#?\w+;`)

// textOf is what a token of text stands for.
func textOf(raw []byte) []byte {
	if own, ok := bytes.CutPrefix(raw, []byte("<![CDATA[")); ok {
		return bytes.TrimSuffix(own, []byte("]]>"))
	}
	return entity.ReplaceAllFunc(raw, func(b []byte) []byte {
		return []byte(html.UnescapeString(string(b)))
	})
}

// encodingOf finds the encoding that an XML document declares.
var encodingOf = regexp.MustCompile(`^\s*<\?xml[^>]*encoding=["']([^"']+)`).FindSubmatch

// decoded reads an XML document in UTF-8, from the encoding that it declares.
func decoded(b []byte) (io.Reader, error) {
	in := bytes.NewReader(b)
	if m := encodingOf(b); m != nil {
		return charset.NewReaderLabel(string(m[1]), in)
	}
	return in, nil
}
