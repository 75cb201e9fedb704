// Package wire is how trackers and peers talk: announces and scrapes, their answers, over HTTP (BEP
// 3, 7, 21, 23, 24, 31, 48) and UDP (BEP 15, 41), with peers on IP and on SCION. ../PROTOCOL.md
// describes it for other implementations.
//
// It turns bytes into values and back, and does nothing else. Both directions are here, so that the
// server reads what the announcer writes. All input comes from strangers: lengths are bounded, and
// a value that was returned without an error is valid.
package wire

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"

	"braid/pathsel"
	"braid/scionnet"
)

// InfoHash names a torrent.
type InfoHash [20]byte

// PeerID is the name that a peer chose for itself.
type PeerID [20]byte

// Addr is where a peer listens, on SCION or on IP.
type Addr = scionnet.Addr

// hostOf is the address without its port, as in the dictionary form of peers.
func hostOf(a Addr) string {
	if !a.IsSCION() {
		return a.Host.String()
	}
	return a.IA.String() + "," + a.Host.String()
}

// parseHost reads what hostOf writes.
func parseHost(s string) (Addr, error) {
	if strings.Contains(s, ",") {
		return scionnet.ParseHost(s)
	}
	host, err := netip.ParseAddr(s)
	return Addr{Host: host.Unmap()}, err
}

// parseCompact appends the peers of one family to a list. It leaves out impossible addresses, since
// trackers pass on what strangers say.
func parseCompact(to []Peer, b []byte, f scionnet.Family) ([]Peer, error) {
	if len(b)%f.Size() != 0 {
		return to, fmt.Errorf("compact peers of %d bytes: not a multiple of %d", len(b), f.Size())
	}
	for one := range slices.Chunk(b, f.Size()) {
		if a, ok := scionnet.ParseCompact(one); ok && len(to) < maxPeers {
			to = append(to, Peer{Addr: a})
		}
	}
	return to, nil
}

// Peer is one address of a peer. The ID is zero if it is unknown.
type Peer struct {
	ID   PeerID
	Addr Addr
}

// Event is why a peer announces.
type Event uint8

// The events, with the numbers of BEP 15. Paused is that of a partial seed (BEP 21).
const (
	Periodic Event = iota
	Completed
	Started
	Stopped
	Paused
)

var eventNames = [...]string{"", "completed", "started", "stopped", "paused"}

func (e Event) String() string { return eventNames[e] }

// read reads the name of an event, or another name of Periodic.
func (e *Event) read(name, periodic string) error {
	i := slices.Index(eventNames[:], name)
	if i < 0 && name != periodic {
		return refusef("event: want started, completed, stopped, paused or nothing")
	}
	*e = Event(max(i, 0))
	return nil
}

// NoCount stands for an unknown count: NumWant, or Left of a magnet link.
const NoCount = -1

// Announce is what a peer says to a tracker.
type Announce struct {
	InfoHash InfoHash
	PeerID   PeerID
	// Port accepts connections on the network that carries the announce. With 0 the peer accepts
	// none, and the tracker names it to nobody.
	Port                 uint16
	Uploaded, Downloaded int64
	// Left is the number of missing bytes, or NoCount while it is unknown.
	Left  int64
	Event Event
	// NumWant is the number of peers that the peer asks for, or NoCount.
	NumWant int
	// Key is a secret of the peer and its trackers. Announces with the same ID and key are one
	// peer, from whatever address.
	Key string
	// TrackerID repeats the one in the tracker's last answer.
	TrackerID string
	// Compact asks for peers without IDs in few bytes (BEP 23), NoPeerID for dictionaries without
	// IDs.
	Compact, NoPeerID bool
	// SCION says that the peer understands SCION addresses in the answer.
	SCION bool
	// Passkey identifies the user of a private tracker.
	Passkey string
	// Peers is how the tracker is to choose peers, Hints asks it for path hints. Both are for peers
	// on SCION.
	Peers Order
	Hints bool
	// Fellow says that the peer is a gateway, and that clients of it use the torrent. It asks for
	// the addresses of the gateway whose tracker this is.
	Fellow bool
}

// Identity hashes the ID and key of a peer. Two peers can have the same identity by chance, so use
// it only to keep a peer from being introduced to itself.
func (a *Announce) Identity() uint64 {
	h := fnv.New64a()
	h.Write(a.PeerID[:])
	h.Write([]byte(a.Key))
	return h.Sum64()
}

// Seed reports whether the peer has everything.
func (a *Announce) Seed() bool { return a.Left == 0 }

// Answer to an announce.
type Answer struct {
	// Interval is the usual time until the next announce, MinInterval the shortest. Both are whole
	// seconds on the wire.
	Interval, MinInterval time.Duration
	TrackerID             string
	Complete, Incomplete  int64
	// External is the host that the tracker saw (BEP 24), on SCION the one in its AS. Zero:
	// unknown.
	External netip.Addr
	Warning  string
	Peers    []Peer
	// Reports is how many path reports the tracker accepts with an announce; 0: none.
	Reports int
	// Hints are good paths to the peers' ASes, as others measured them; nil: none were asked for,
	// or known.
	Hints pathsel.Hints
	// Siblings are where the tracker listens on the other kind of network (IP or SCION), such as
	// scion://1-ff00:0:110,[10.0.0.1]:80. They come from a stranger, unchecked.
	Siblings []string
}

// Counts of a swarm in a scrape.
type Counts struct {
	InfoHash InfoHash
	// Complete peers are seeds, Incomplete all others. Downloaders are the incomplete peers that
	// want more (BEP 21). Downloaded counts the completions so far.
	Complete, Incomplete, Downloaded, Downloaders int64
}

// Failure is a refusal. The other side shows its words to the user.
type Failure struct {
	Reason string
	// RetryIn is when to try again (BEP 31); 0: unknown.
	RetryIn time.Duration
}

// Never as RetryIn says that trying again is useless.
const Never time.Duration = -1

func (f *Failure) Error() string { return f.Reason }

func refusef(format string, args ...any) *Failure {
	return &Failure{Reason: fmt.Sprintf(format, args...)}
}

// FailureOf is the part of an error that the other side may see.
func FailureOf(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	return &Failure{Reason: "the tracker has a problem; try again later"}
}

const (
	// maxQuery bounds a query in bytes: 74 info hashes of a scrape in percent-encoding, or an
	// announce with everything.
	maxQuery = 8 << 10
	// MaxScrape is the number of info hashes in a scrape, BEP 15's limit.
	MaxScrape = 74
	// maxPeers is how many peers of one answer are read. Nobody connects to more.
	maxPeers = 2000
	// MaxAnswer bounds an answer in bytes: 2000 peers as dictionaries with room to spare.
	MaxAnswer = 1 << 20
	// maxToken bounds the texts that every request makes us store or compare: key, tracker ID,
	// passkey.
	maxToken = 64
	// MaxSiblings is the number of siblings in an answer, and MaxSibling bounds each in bytes: a
	// DNS name with scheme and port.
	MaxSiblings, MaxSibling = 4, 300
)
