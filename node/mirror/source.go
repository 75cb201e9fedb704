package mirror

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"braid/client"
	"braid/node"
	"braid/scionnet"
	"braid/units/lists"
)

// source is where offers come from.
type source struct {
	name  string         // as the user has named it
	scion *scionnet.HTTP // nil: this host is not on SCION
	asked answer         // of the last list that was read; it is saved
}

// answer is a list that a source has sent.
type answer struct {
	ETag     string         `json:"etag,omitempty"`
	Modified string         `json:"modified,omitempty"`
	Host     string         `json:"host"`  // where it was, after redirects
	Scope    scionnet.Scope `json:"scope"` // of that host
	Offers   []Offer        `json:"offers"`
	Cut      bool           `json:"cut,omitempty"` // it is too long, so offers may be missing here
}

// isURL tells whether a source is on a server.
func isURL(name string) bool {
	scheme, _, ok := strings.Cut(name, "://")
	return ok && slices.Contains([]string{"http", "https", "scion"}, strings.ToLower(scheme))
}

// IsLocal tells whether a source is a file or a directory.
func IsLocal(name string) bool { return !isURL(name) }

// look reads the list. unchanged is true if the server says that the list has not changed.
func (s *source) look(ctx context.Context) (unchanged bool, err error) {
	if !isURL(s.name) {
		s.asked, err = local(s.name)
		return false, err
	}
	got, err := client.Fetch{
		URL:      s.name,
		SCION:    s.scion,
		ETag:     s.asked.ETag,
		Modified: s.asked.Modified,
	}.Do(ctx)
	if err != nil {
		return false, fmt.Errorf("look at the list at %w", err)
	}
	if got.Unchanged {
		return true, nil
	}
	a := answer{ETag: got.ETag, Modified: got.Modified, Host: got.At.Host, Scope: got.Scope}
	if bytes.HasPrefix(got.Body, []byte("d")) { // no list, but the torrent itself
		src, err := got.Source()
		if err != nil {
			return false, err
		}
		a.Offers = []Offer{{cutText(src.Name), got.At.String(), src.InfoHash.HexString()}}
	} else if a.Offers, err = parseList(got.Body, got.At, got.IsPage()); err != nil {
		return false, fmt.Errorf("list at %s: %w", got.At.Host, err)
	}
	a.Cut = len(a.Offers) >= maxOffers
	s.asked = a
	return false, nil
}

// local reads a directory of .torrent files, the file of a feed, or one .torrent file.
func local(name string) (a answer, err error) {
	st, err := os.Stat(name)
	if err != nil {
		return a, err
	}
	if st.IsDir() {
		return directory(name)
	}
	if strings.EqualFold(filepath.Ext(name), ".torrent") {
		a.Offers = []Offer{offerOf(name, st)}
		return a, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return a, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxList+1))
	if err != nil {
		return a, err
	}
	// Relative links have no meaning in a file.
	a.Offers, err = parseList(b, &url.URL{}, strings.HasPrefix(strings.ToLower(filepath.Ext(name)), ".htm"))
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	a.Cut = len(a.Offers) >= maxOffers
	return a, err
}

// directory returns the .torrent files in a directory, by name.
func directory(name string) (a answer, err error) {
	all, whole, err := node.TorrentFiles(name, maxOffers)
	slices.SortFunc(all, func(a, b node.TorrentFile) int {
		return strings.Compare(a.Name(), b.Name())
	})
	a.Offers = lists.Map(all, func(f node.TorrentFile) Offer { return offerOf(f.Path, f) })
	a.Cut = !whole
	return a, err
}

// offerOf returns the offer of a file. If the file changes, it is another offer.
func offerOf(name string, st os.FileInfo) Offer {
	title := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	return Offer{
		Title: title,
		Link:  fmt.Sprintf("%s?%d.%d", name, st.Size(), st.ModTime().UnixNano()),
	}
}

// torrent reads the torrent of an offer. For a magnet link, only peers know the rest.
func (s *source) torrent(ctx context.Context, o Offer) (src client.Source, err error) {
	switch {
	case isMagnet(o.Link):
		if src, err = client.ParseMagnet(o.Link); err == nil && isURL(s.name) {
			src.Peers = slices.DeleteFunc(src.Peers, func(p client.Peer) bool {
				return !isFar(p, s.asked.Scope)
			})
		}
	case !isURL(s.name) && !isURL(o.Link):
		src, err = client.OpenSource(ctx, o.Link[:strings.LastIndex(o.Link, "?")])
	default:
		src, err = s.fetch(o.Link).Source(ctx)
	}
	if err == nil && o.Hash != "" && o.Hash != src.InfoHash.HexString() {
		err = fmt.Errorf("the list says that its info hash is %s, but it is %s",
			o.Hash, src.InfoHash)
	}
	return src, err
}

// fetch returns the request for a link in the list. On SCION, it asks only the server of the list.
func (s *source) fetch(link string) client.Fetch {
	f := client.Fetch{URL: link, From: s.asked.Scope}
	_, onSCION, _ := scionnet.ParseServerURL(s.name)
	if u, err := url.Parse(link); onSCION && err == nil && u.Host == s.asked.Host {
		scheme, rest, _ := strings.Cut(s.name, "://")
		server, _, _ := strings.Cut(rest, "/")
		f.URL, f.SCION = scheme+"://"+server+u.RequestURI(), s.scion
	}
	return f
}

// isFar tells whether a peer is at least as far away as the list that names it.
func isFar(p client.Peer, from scionnet.Scope) bool {
	a := p.Addr()
	return a.IsSCION() || from == scionnet.ScopeLoopback ||
		a.Host.IsValid() && scionnet.ScopeOf(a.Host) >= from
}
