// Package wire is how trackers and peers talk: announces and scrapes, their answers, over HTTP (BEP 3, 7, 21, 23, 24, 31,
// 48) and UDP (BEP 15, 41), with peers on IP and on SCION. ../PROTOCOL.md describes it for other implementations.
//
// It turns bytes into values and back, and does nothing else. Both directions are here, so that the server reads
// what the announcer writes. Whatever it reads comes from strangers: lengths are bounded, and a value that was
// returned without an error is valid.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"braid/pathsel"
)

// InfoHash names a torrent.
type InfoHash [20]byte

// PeerID is what a peer calls itself.
type PeerID [20]byte

// Addr is where a peer listens: on SCION, or with a zero IA on IP. Its fields are those of scionnet.Addr. It is comparable.
type Addr struct {
	IA   pathsel.IA
	Host netip.Addr
	Port uint16
}

// IP is the address on IP.
func IP(a netip.AddrPort) Addr { return Addr{Host: a.Addr().Unmap(), Port: a.Port()} }

// IsSCION tells whether the peer is reached over SCION.
func (a Addr) IsSCION() bool { return a.IA != 0 }

// String is 1-ff00:0:110,[10.0.0.1]:31000, or what netip writes.
func (a Addr) String() string {
	if !a.IsSCION() {
		return netip.AddrPortFrom(a.Host, a.Port).String()
	}
	return a.IA.String() + ",[" + a.Host.String() + "]:" + strconv.Itoa(int(a.Port))
}

// host is the form without the port that the dictionary form of peers has.
func (a Addr) host() string {
	if !a.IsSCION() {
		return a.Host.String()
	}
	return a.IA.String() + "," + a.Host.String()
}

// parseHost reads what host writes.
func parseHost(s string) (Addr, error) {
	var a Addr
	var err error
	if ia, host, ok := strings.Cut(s, ","); ok {
		if a.IA, err = pathsel.ParseIA(ia); err != nil {
			return Addr{}, err
		}
		if a.IA.ISD() == 0 || a.IA.AS() == 0 {
			return Addr{}, fmt.Errorf("%s is a wildcard", a.IA)
		}
		s = host
	}
	if a.Host, err = netip.ParseAddr(s); err != nil {
		return Addr{}, err
	}
	a.Host = a.Host.Unmap()
	return a, a.check()
}

// check refuses addresses that nobody can be reached at.
func (a Addr) check() error {
	if !a.Host.IsValid() || a.Host.IsUnspecified() || a.Host.IsMulticast() || a.Host.Zone() != "" {
		return fmt.Errorf("%s is not the address of a host", a.Host)
	}
	return nil
}

// Dialable tells whether a peer can be at the address: a host's, in an AS or on IP, with a port.
func (a Addr) Dialable() bool {
	return a.check() == nil && a.Port != 0 && (a.IA == 0 || a.IA.ISD() != 0 && a.IA.AS() != 0)
}

// appendCompact writes the host and port as BEP 23 and BEP 7 have them, with the AS before it on SCION.
func (a Addr) appendCompact(b []byte) []byte {
	if a.IsSCION() {
		b = binary.BigEndian.AppendUint64(b, uint64(a.IA))
	}
	return binary.BigEndian.AppendUint16(appendHost(b, a.Host), a.Port)
}

// appendHost writes the 4 or 16 bytes of a host.
func appendHost(b []byte, host netip.Addr) []byte {
	if host.Is4() {
		v := host.As4()
		return append(b, v[:]...)
	}
	v := host.As16()
	return append(b, v[:]...)
}

// parseCompact reads addresses of one kind. Those that cannot be are left out: a tracker passes on what strangers say.
func parseCompact(to []Peer, b []byte, scion bool, hostLen int) ([]Peer, error) {
	size := hostLen + 2
	if scion {
		size += 8
	}
	if len(b)%size != 0 {
		return to, fmt.Errorf("compact peers of %d bytes: not a multiple of %d", len(b), size)
	}
	for ; len(b) > 0 && len(to) < maxPeers; b = b[size:] {
		p := b[:size]
		var a Addr
		if scion {
			a.IA, p = pathsel.IA(binary.BigEndian.Uint64(p)), p[8:]
		}
		host, _ := netip.AddrFromSlice(p[:hostLen])
		a.Host, a.Port = host.Unmap(), binary.BigEndian.Uint16(p[hostLen:])
		if !a.Dialable() || a.IsSCION() != scion {
			continue
		}
		to = append(to, Peer{Addr: a})
	}
	return to, nil
}

// Peer is one address of a peer. The ID is zero where it was not told.
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

// NoCount stands for a count that was not told: NumWant, or Left of a magnet link.
const NoCount = -1

// Announce is what a peer tells a tracker.
type Announce struct {
	InfoHash InfoHash
	PeerID   PeerID
	// Port that the peer accepts connections on, on the network on which it announces; 0: it accepts none, and
	// is not told to others.
	Port                 uint16
	Uploaded, Downloaded int64
	// Left is the number of bytes that are missing. NoCount: not known yet.
	Left  int64
	Event Event
	// NumWant is the number of peers asked for, or NoCount.
	NumWant int
	// Key is known to this peer and its trackers only. Announces with the same ID and key, from whatever address, are
	// one peer.
	Key string
	// TrackerID is what the tracker had in its last answer.
	TrackerID string
	// Compact asks for peers without IDs in few bytes (BEP 23), NoPeerID for dictionaries without IDs.
	Compact, NoPeerID bool
	// SCION says that the peer understands SCION addresses in the answer.
	SCION bool
	// Passkey is what a private tracker knows its user by.
	Passkey string
	// Peers is how the tracker is to choose peers, Hints asks it for path hints. Both are for peers on SCION.
	Peers Order
	Hints bool
}

// Identity is one number for the ID and key of a peer. Two peers may fall on one number by chance: nothing
// but their being introduced to each other may depend on it.
func (a *Announce) Identity() uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for _, c := range a.PeerID {
		h = (h ^ uint64(c)) * prime
	}
	for i := range len(a.Key) {
		h = (h ^ uint64(a.Key[i])) * prime
	}
	return h
}

// Seed tells whether the peer has everything.
func (a *Announce) Seed() bool { return a.Left == 0 }

// Answer to an announce.
type Answer struct {
	// Interval after which to announce again, MinInterval before which not to. In whole seconds on the wire.
	Interval, MinInterval time.Duration
	TrackerID             string
	Complete, Incomplete  int64
	// External is the address that the tracker saw the peer at (BEP 24); zero: not told. On SCION it is the host in its AS.
	External netip.Addr
	Warning  string
	Peers    []Peer
	// Reports is how many path reports the tracker takes with an announce; 0: none.
	Reports int
	// Hints are paths to the peers' ASes that others have found to be good; nil: none were asked for, or known.
	Hints pathsel.Hints
	// Siblings are where the tracker is reached on the other kind of network (IP or SCION), such as scion://1-ff00:0:110,[10.0.0.1]:80.
	// They are a stranger's words, unchecked.
	Siblings []string
}

// Counts of a swarm in a scrape.
type Counts struct {
	InfoHash InfoHash
	// Complete peers are seeds, Incomplete all others; Downloaders are those of them that want more (BEP 21).
	// Downloaded counts the completions so far.
	Complete, Incomplete, Downloaded, Downloaders int64
}

// Failure is a refusal in words for the other side, which are shown to its user.
type Failure struct {
	Reason string
	// RetryIn is when to try again (BEP 31): 0 says nothing, Never that there is no use.
	RetryIn time.Duration
}

// Never is a RetryIn without end.
const Never time.Duration = -1

func (f *Failure) Error() string { return f.Reason }

func refusef(format string, args ...any) *Failure {
	return &Failure{Reason: fmt.Sprintf(format, args...)}
}

// FailureOf is what the other side may be told of the error.
func FailureOf(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	return &Failure{Reason: "the tracker has a problem; try again later"}
}

const (
	// maxQuery bounds a query in bytes: 74 info hashes of a scrape in percent-encoding, or an announce with everything.
	maxQuery = 8 << 10
	// MaxScrape is the number of info hashes in a scrape, BEP 15's limit.
	MaxScrape = 74
	// maxPeers is the number of peers taken from one answer. More cannot be connected to anyhow.
	maxPeers = 2000
	// MaxAnswer bounds an answer in bytes: 2000 peers as dictionaries with room to spare.
	MaxAnswer = 1 << 20
	// maxToken bounds what is stored or compared in each request: key, tracker ID, passkey.
	maxToken = 64
	// MaxSiblings is the number of siblings in an answer, and MaxSibling bounds each in bytes: a name of DNS with scheme and port.
	MaxSiblings, MaxSibling = 4, 300
)
