package client

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/anacrolix/torrent/bencode"
	"github.com/anacrolix/torrent/metainfo"

	"braid/storage"
)

// Bounds of a torrent's description. A .torrent of 64 MiB describes three million pieces; a magnet link longer
// than a page of text is not one.
const (
	MaxTorrentFile = 64 << 20
	maxMagnet      = 16 << 10
	maxTrackers    = 256
)

// Source is a checked description of a torrent: a .torrent file, or a magnet link, of which only the hash is known
// until a peer sends the rest.
type Source struct {
	InfoHash metainfo.Hash
	Name     string     // as far as it is known
	Trackers [][]string // tiers of announce URLs, unchecked
	Peers    []Peer     // of a magnet link (x.pe)
	Comment  string
	// Info and Layout are nil and zero for a magnet link.
	Info   *metainfo.Info
	Layout storage.Layout

	infoBytes []byte
}

// IsMagnet tells whether the files are not known yet.
func (s Source) IsMagnet() bool { return s.Info == nil }

// OpenSource reads the .torrent file or magnet link that a user names.
func OpenSource(name string) (Source, error) {
	if strings.HasPrefix(strings.ToLower(name), "magnet:") {
		return ParseMagnet(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return Source{}, fmt.Errorf("open torrent: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxTorrentFile+1))
	if err != nil {
		return Source{}, fmt.Errorf("read torrent %s: %w", name, err)
	}
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
	var mi metainfo.MetaInfo
	if err := bencode.Unmarshal(b, &mi); err != nil {
		return Source{}, fmt.Errorf("not a torrent file: %w", err)
	}
	if len(mi.InfoBytes) == 0 {
		return Source{}, errors.New("not a torrent file: it has no info dictionary")
	}
	info, err := mi.UnmarshalInfo()
	if err != nil {
		return Source{}, fmt.Errorf("malformed info dictionary: %w", err)
	}
	layout, err := storage.NewLayout(&info)
	if err != nil {
		return Source{}, err
	}
	tiers := mi.UpvertedAnnounceList()
	if n := countURLs(tiers); n > maxTrackers {
		return Source{}, fmt.Errorf("%d trackers, more than the %d that are accepted", n, maxTrackers)
	}
	return Source{
		InfoHash: mi.HashInfoBytes(), Name: layout.Name, Trackers: tiers, Comment: mi.Comment,
		Info: &info, Layout: layout, infoBytes: mi.InfoBytes,
	}, nil
}

func countURLs(tiers [][]string) int {
	n := 0
	for _, t := range tiers {
		n += len(t)
	}
	return n
}

// ParseMagnet reads a magnet link (BEP 9). Peers in it (x.pe) may be SCION addresses.
func ParseMagnet(uri string) (Source, error) {
	if len(uri) > maxMagnet {
		return Source{}, fmt.Errorf("magnet link: longer than the %d bytes that are accepted", maxMagnet)
	}
	m, err := metainfo.ParseMagnetUri(uri)
	if err != nil {
		return Source{}, fmt.Errorf("magnet link: %w; want magnet:?xt=urn:btih:HASH", err)
	}
	if len(m.Trackers) > maxTrackers || len(m.Params["x.pe"]) > maxPeers {
		return Source{}, fmt.Errorf("magnet link: more than %d trackers or %d peers", maxTrackers, maxPeers)
	}
	s := Source{InfoHash: m.InfoHash, Name: m.DisplayName}
	for _, u := range m.Trackers {
		s.Trackers = append(s.Trackers, []string{u}) // every URL of a magnet link is a tier of its own
	}
	for _, p := range m.Params["x.pe"] {
		peer, err := ParsePeer(p)
		if err != nil {
			return Source{}, fmt.Errorf("magnet link: %w", err)
		}
		s.Peers = append(s.Peers, peer)
	}
	return s, nil
}

// Magnet is the magnet link of the torrent, with the peers.
func (s Source) Magnet(peers ...Peer) string {
	m := metainfo.Magnet{InfoHash: s.InfoHash, DisplayName: s.Name, Params: map[string][]string{}}
	for _, tier := range s.Trackers {
		m.Trackers = append(m.Trackers, tier...)
	}
	for _, p := range peers {
		m.Params.Add("x.pe", p.String())
	}
	return m.String()
}

// title is a name for people, also before the name is known.
func (s Source) title() string {
	if s.Name != "" {
		return s.Name
	}
	return hex.EncodeToString(s.InfoHash[:4])
}
