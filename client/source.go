package client

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/anacrolix/torrent/bencode"
	"github.com/anacrolix/torrent/metainfo"

	"braid/storage"
	"braid/units/bencoding"
)

// Bounds of a torrent's description. A .torrent file of 64 MiB describes three million pieces. No
// magnet link is longer than a few pages of text.
const (
	MaxTorrentFile = 64 << 20
	maxMagnet      = 16 << 10
	maxTrackers    = 256
	maxWebSeeds    = 256
	maxMagnetPeers = 256
	maxNodes       = 64
	// The comment and the creator of a .torrent file are cut to this number of bytes.
	maxComment = 16 << 10
	maxCreator = 256
	// maxCreated is the end of the year 9999 in Unix time. Later times cannot be written as JSON.
	maxCreated = 253402300799
)

// cut shortens a text to valid UTF-8 of at most that number of bytes.
func cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// Source is a checked description of a torrent: a .torrent file or a magnet link. Of a magnet link
// only the hash is known until a peer sends the rest.
type Source struct {
	InfoHash metainfo.Hash
	Name     string     // as far as it is known
	Trackers [][]string // tiers of announce URLs, unchecked
	Peers    []Peer     // of a magnet link (x.pe)
	// WebSeeds are URLs of servers that have the data too (BEP 17, 19), unchecked. HTTPSeeds are
	// those of BEP 17, which braid does not use.
	WebSeeds, HTTPSeeds []string
	// Nodes are addresses of DHT nodes, host:port or on SCION (BEP 5), unchecked.
	Nodes   []string
	Comment string
	Creator string    // the program that has made the .torrent file
	Created time.Time // when it was made; zero: unknown
	// HashV2 is the info hash of the v2 half of a hybrid (BEP 52), in hexadecimal digits. braid
	// does not use it.
	HashV2 string
	// Info and Layout are nil and zero for a magnet link.
	Info   *metainfo.Info
	Layout storage.Layout

	infoBytes []byte
}

// WebSeedErrors returns, for each web seed that braid cannot use, the reason. usable tells whether
// braid can use another one.
func (s Source) WebSeedErrors() (errs []error, usable bool) {
	for _, u := range s.WebSeeds {
		if _, _, err := (WebSeed{URL: u}).of(s); err != nil {
			errs = append(errs, err)
		}
	}
	return errs, len(s.WebSeeds) > len(errs)
}

// IsPrivate tells whether peers may be found only by the torrent's trackers (BEP 27).
func (s Source) IsPrivate() bool {
	return s.Info != nil && s.Info.Private != nil && *s.Info.Private
}

// IsMagnet tells whether the source is a magnet link, so that its files are not known yet.
func (s Source) IsMagnet() bool { return s.Info == nil }

func parseNamed(b []byte, name string) (Source, error) {
	s, err := ParseTorrent(b)
	if err != nil {
		return Source{}, fmt.Errorf("torrent %s: %w", name, err)
	}
	return s, nil
}

// ParseTorrent reads the content of a .torrent file (BEP 3, BEP 12).
func ParseTorrent(b []byte) (Source, error) {
	if len(b) > MaxTorrentFile {
		return Source{}, fmt.Errorf("larger than the %d MiB that are accepted", MaxTorrentFile>>20)
	}
	s := Source{}
	var announce string
	file := newReader(b)
	err := file.Dict(func(key []byte) (err error) {
		from := file.At()
		switch kind := file.Kind(); {
		case string(key) == "info":
			if s.infoBytes != nil {
				return errors.New("it has two info dictionaries")
			}
			err = scanInfo(file)
			s.infoBytes = b[from:file.At():file.At()]
		case string(key) == "announce" && kind == '0':
			announce, err = file.Text()
		case string(key) == "announce-list" && kind == 'l':
			s.Trackers, err = scanTiers(file)
		case string(key) == "url-list":
			err = s.scanWebSeeds(file)
		case string(key) == "httpseeds":
			before := len(s.WebSeeds)
			err = s.scanWebSeeds(file)
			s.HTTPSeeds = slices.Clone(s.WebSeeds[before:])
		case string(key) == "nodes" && kind == 'l':
			s.Nodes, err = scanNodes(file)
		case string(key) == "comment" && kind == '0':
			s.Comment, err = file.Text()
			s.Comment = cut(s.Comment, maxComment)
		case string(key) == "created by" && kind == '0':
			s.Creator, err = file.Text()
			s.Creator = cut(s.Creator, maxCreator)
		case string(key) == "creation date" && kind == 'i':
			var at int64
			if at, err = file.Number(); at > 0 && at < maxCreated {
				s.Created = time.Unix(at, 0)
			}
		default:
			err = file.Skip()
		}
		return err
	})
	switch {
	// Editors and shells add line ends.
	case err == nil && len(bytes.TrimRight(file.Rest(), "\r\n")) > 0:
		err = fmt.Errorf("something follows behind its end, at byte %d", file.At())
	case err == nil && s.infoBytes == nil:
		err = errors.New("it has no info dictionary")
	}
	if err != nil {
		err = fmt.Errorf("it is not a torrent file, or not one that is accepted: %w", err)
		return Source{}, err
	}
	hasURL := func(tier []string) bool {
		return slices.ContainsFunc(tier, func(url string) bool { return url != "" })
	}
	if announce != "" && !slices.ContainsFunc(s.Trackers, hasURL) {
		s.Trackers = [][]string{{announce}} // BEP 12: only without a list
	}
	return s.withInfo(s.infoBytes)
}

// withInfo is the source with the torrent's info dictionary, and what is in it.
func (s Source) withInfo(b []byte) (Source, error) {
	info, layout, hybrid, err := parseInfo(b)
	if err != nil {
		return Source{}, err
	}
	if s.HashV2 = ""; hybrid {
		s.HashV2 = fmt.Sprintf("%x", sha256.Sum256(b))
	}
	s.InfoHash, s.infoBytes = metainfo.HashBytes(b), b
	s.Name, s.Info, s.Layout = layout.Name, &info, layout
	return s, nil
}

// scanTiers reads a list of lists of announce URLs (BEP 12). It ignores other values in it, as all
// clients do.
func scanTiers(b *bencoding.Reader) (tiers [][]string, err error) {
	urls := 0
	err = b.List(func() error {
		if b.Kind() != 'l' {
			return b.Skip()
		}
		var tier []string
		err := b.List(func() error {
			if b.Kind() != '0' {
				return b.Skip()
			}
			if urls++; urls > maxTrackers {
				return fmt.Errorf("more than the %d trackers that are accepted", maxTrackers)
			}
			url, err := b.Text()
			tier = append(tier, url)
			return err
		})
		tiers = append(tiers, tier)
		return err
	})
	return tiers, err
}

// scanWebSeeds reads a URL or a list of URLs. It ignores other values there, which some torrents
// have.
func (s *Source) scanWebSeeds(b *bencoding.Reader) error {
	one := func() error {
		if b.Kind() != '0' {
			return b.Skip()
		}
		url, err := b.Text()
		if err != nil || url == "" {
			return err
		}
		if len(s.WebSeeds) == maxWebSeeds {
			return fmt.Errorf("more than the %d web seeds that are accepted", maxWebSeeds)
		}
		s.WebSeeds = append(s.WebSeeds, url)
		return nil
	}
	if b.Kind() == 'l' {
		return b.List(one)
	}
	return one()
}

// scanNodes reads a list of pairs of host and port (BEP 5). It ignores other values in it, and
// those beyond the limit.
func scanNodes(b *bencoding.Reader) (nodes []string, err error) {
	err = b.List(func() error {
		if b.Kind() != 'l' {
			return b.Skip()
		}
		host, port, n := "", int64(0), 0
		err := b.List(func() (err error) {
			switch n++; {
			case n == 1 && b.Kind() == '0':
				host, err = b.Text()
			case n == 2 && b.Kind() == 'i':
				port, err = b.Number()
			default:
				err = b.Skip()
			}
			return err
		})
		if host != "" && len(host) <= maxHostName && port > 0 && len(nodes) < maxNodes {
			if ia, in, ok := strings.Cut(host, ","); ok { // 1-ff00:0:110,10.0.0.1
				host = ia + ",[" + strings.Trim(in, "[]") + "]"
			} else if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
			nodes = append(nodes, fmt.Sprintf("%s:%d", host, port))
		}
		return err
	})
	return nodes, err
}

// v2Prefix precedes a v2 hash in a magnet link. It ends with the begin of a multihash: SHA-256, of
// 32 bytes.
const v2Prefix = "urn:btmh:1220"

// ParseMagnet reads a magnet link (BEP 9). Peers in it (x.pe) may be SCION addresses.
func ParseMagnet(uri string) (Source, error) {
	if len(uri) > maxMagnet {
		return Source{}, fmt.Errorf("magnet link: longer than the %d bytes that are accepted",
			maxMagnet)
	}
	return ParseOwnMagnet(uri)
}

// ParseOwnMagnet is ParseMagnet for a link of Source.Magnet. It has no limit of length: a .torrent
// file may name more and longer URLs than fit into a link of others.
func ParseOwnMagnet(uri string) (Source, error) {
	if strings.Contains(uri, "urn:btmh:") && !strings.Contains(uri, "urn:btih:") {
		return Source{}, errors.New("magnet link: it is for BitTorrent v2 only, " +
			"which braid does not support; want magnet:?xt=urn:btih:HASH")
	}
	m, err := metainfo.ParseMagnetUri(plainMagnet(uri))
	if err != nil {
		return Source{}, fmt.Errorf("magnet link: %w; want magnet:?xt=urn:btih:HASH", err)
	}
	seeds, peers := m.Params["ws"], m.Params["x.pe"]
	if len(m.Trackers) > maxTrackers || len(seeds) > maxWebSeeds || len(peers) > maxMagnetPeers {
		return Source{}, fmt.Errorf("magnet link: more than %d trackers, %d web seeds or %d peers",
			maxTrackers, maxWebSeeds, maxMagnetPeers)
	}
	s := Source{InfoHash: m.InfoHash, Name: m.DisplayName, WebSeeds: seeds}
	for _, xt := range m.Params["xt"] {
		if hash, ok := strings.CutPrefix(xt, v2Prefix); ok && s.HashV2 == "" {
			if b, err := hex.DecodeString(hash); err == nil && len(b) == sha256.Size {
				s.HashV2 = strings.ToLower(hash)
			}
		}
	}
	for _, u := range m.Trackers { // each is a tier of its own
		s.Trackers = append(s.Trackers, []string{u})
	}
	for _, p := range peers {
		peer, err := ParsePeer(p)
		if err != nil {
			return Source{}, fmt.Errorf("magnet link: %w", err)
		}
		s.Peers = append(s.Peers, peer)
	}
	return s, nil
}

// numberedParameter matches the name of a parameter with a number, such as xt.1 or tr.2.
var numberedParameter = regexp.MustCompile(`^(xt|tr|ws)\.[0-9]+$`)

// base32Hash matches an info hash in base32.
var base32Hash = regexp.MustCompile(`(?i)^urn:btih:([a-z2-7]{32})$`)

// plainMagnet rewrites what the engine's parser does not know, and some programs write: numbers in
// the names of parameters that a link has several times, and a hash of small letters in base32.
func plainMagnet(uri string) string {
	at, query, _ := strings.Cut(uri, "?")
	parts := strings.Split(query, "&")
	for i, p := range parts {
		name, value, _ := strings.Cut(p, "=")
		if m := numberedParameter.FindStringSubmatch(name); m != nil {
			name = m[1]
		}
		if m := base32Hash.FindStringSubmatch(value); name == "xt" && m != nil {
			value = "urn:btih:" + strings.ToUpper(m[1])
		}
		parts[i] = name + "=" + value
	}
	return at + "?" + strings.Join(parts, "&")
}

// WithKept is the source of a magnet link with the description that an earlier download into the
// directory has stored there. If there is none, the source is unchanged.
func (s Source) WithKept(dir string) Source {
	if !s.IsMagnet() {
		return s
	}
	b, err := readTorrentFile(storage.KeptTorrent(dir, s.InfoHash))
	if err != nil {
		return s
	}
	known, err := ParseTorrent(b)
	if err != nil || known.InfoHash != s.InfoHash {
		return s // it is damaged, and peers send it again
	}
	known.Trackers, known.WebSeeds, known.Peers = s.Trackers, s.WebSeeds, s.Peers
	return known
}

// readTorrentFile reads a .torrent file. Of one that is too large it reads enough for ParseTorrent
// to see that.
func readTorrentFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxTorrentFile+1))
}

// Magnet is the magnet link of the torrent, with the peers.
func (s Source) Magnet(peers ...Peer) string {
	m := metainfo.Magnet{InfoHash: s.InfoHash, DisplayName: s.Name, Params: map[string][]string{}}
	for _, tier := range s.Trackers {
		m.Trackers = append(m.Trackers, tier...)
	}
	for _, url := range s.WebSeeds {
		if !slices.Contains(s.HTTPSeeds, url) { // a link can only name servers of BEP 19
			m.Params.Add("ws", url)
		}
	}
	for _, p := range peers {
		m.Params.Add("x.pe", p.String())
	}
	if s.HashV2 != "" {
		return m.String() + "&xt=" + v2Prefix + s.HashV2
	}
	return m.String()
}

// title names the torrent for users: its name or, while that is unknown, the begin of its hash.
func (s Source) title() string {
	return cmp.Or(s.Name, hex.EncodeToString(s.InfoHash[:4]))
}

// File is a .torrent file of the source with these tiers of announce URLs. The source is no magnet
// link.
func (s Source) File(trackers [][]string) ([]byte, error) {
	mi := metainfo.MetaInfo{InfoBytes: s.infoBytes, CreatedBy: s.Creator, Comment: s.Comment}
	if !s.Created.IsZero() {
		mi.CreationDate = s.Created.Unix()
	}
	for _, url := range s.WebSeeds {
		if !slices.Contains(s.HTTPSeeds, url) {
			mi.UrlList = append(mi.UrlList, url)
		}
	}
	if all := slices.Concat(trackers...); len(all) > 0 {
		mi.Announce = all[0]
		if len(all) > 1 {
			mi.AnnounceList = trackers
		}
	}
	return bencode.Marshal(mi)
}

// Torrent is a .torrent file of the source without its trackers, peers and web seeds; nil for a
// magnet link.
func (s Source) Torrent() []byte {
	if s.IsMagnet() {
		return nil
	}
	return slices.Concat([]byte("d4:info"), s.infoBytes, []byte("e"))
}

// of is peer for a web seed of that torrent: it also refuses the kind httpseeds.
func (w WebSeed) of(s Source) (Peer, *url.URL, error) {
	if !w.ByUser && slices.Contains(s.HTTPSeeds, w.URL) {
		return Peer{}, nil, fmt.Errorf("web seed %.200q: it is of the kind httpseeds (BEP 17), "+
			"which braid does not use; want url-list (BEP 19)", w.URL)
	}
	return w.peer()
}
