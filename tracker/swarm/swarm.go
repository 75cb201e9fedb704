// Package swarm remembers which peers are in which swarm, and chooses whom to introduce to whom.
//
//	Store    what a tracker asks of a memory
//	Memory   in RAM, in shards                          memory.go
//	Durable  Memory with a journal on disk              journal.go
//	Shared   in a Valkey or Redis server, for several trackers   shared.go, shareddraw.go, sharednote.go, lua/
//	table    the peers of one torrent                   table.go, choose.go
//	shares   of networks and ASes in the memory         share.go
//
// A member of a swarm is one address of a peer. It is there until it says that it stops, has not been heard of for the
// lifetime, or has to make room for others. How much one host, one network and one AS may occupy is bounded, in the
// memory as in an answer: whoever controls an AS, and so any number of addresses in it, must not crowd out the peers of
// others.
//
// Not solved: somebody who controls many ASes or networks has many shares.
package swarm

import (
	"context"
	"errors"
	"time"

	"braid/tracker/wire"
)

// Store is the memory of a tracker. All methods may be called at once.
type Store interface {
	// Announce enters the peer, renews it or takes it out, and chooses peers for it. A peer that there is no room for
	// gets an answer all the same; View.Refused then says why others are not told of it.
	Announce(context.Context, Visit) (View, error)
	// Scrape counts the peers of each torrent, in the order of the hashes.
	Scrape(context.Context, []wire.InfoHash) ([]wire.Counts, error)
	// Sweep forgets who has not announced for the lifetime. The owner calls it now and then.
	Sweep(context.Context) error
	// Totals are over all swarms.
	Totals(context.Context) (Totals, error)
	// Close writes what is to be kept.
	Close() error
}

// Keeper is a Store that keeps a note of each tracker beside the swarms: over a restart, and for the other trackers that share
// the store.
type Keeper interface {
	Store
	// Keep replaces this tracker's note, which is of use for that long. An empty one is taken away.
	Keep(ctx context.Context, note []byte, life time.Duration) error
	// Kept are the notes that are news to the caller: what it has kept before it was started anew, and what others have
	// changed since the last call.
	Kept(context.Context) ([][]byte, error)
}

// MaxNote bounds a note in bytes.
const MaxNote = 64 << 20

// Visit is an announce as it concerns the store.
type Visit struct {
	InfoHash wire.InfoHash
	ID       wire.PeerID
	Identity uint64    // see wire.Announce
	Addr     wire.Addr // with port 0 it is not entered
	Event    wire.Event
	Seed     bool // has everything; is not introduced to other seeds
	// Want is the number of peers to be told, of the networks that the peer understands.
	Want    int
	Reaches Networks
	// Room is memory that the store may put the peers of the View in, so that none is allocated.
	Room []wire.Peer
}

// Networks is a set of kinds of address.
type Networks uint8

// The kinds of address.
const (
	IPv4 Networks = 1 << iota
	IPv6
	SCION
)

const kinds = 3

// kindOf numbers the network of an address: the bit in Networks.
func kindOf(a wire.Addr) int {
	switch {
	case a.IsSCION():
		return 2
	case a.Host.Is6():
		return 1
	}
	return 0
}

// View is a swarm as a visitor sees it.
type View struct {
	Counts  wire.Counts
	Peers   []wire.Peer
	Refused error // why the visitor is not told to others; nil if it is
}

// Totals count members, of which a peer with several addresses is several.
type Totals struct {
	Swarms  int `json:"swarms"`
	IPv4    int `json:"ipv4"`
	IPv6    int `json:"ipv6"`
	SCION   int `json:"scion"`
	Seeds   int `json:"seeds"`
	Members int `json:"members"`
}

// Limits bound what is remembered. Zero values are replaced by the defaults.
type Limits struct {
	// Lifetime of a member after its last announce; longer than the announce interval.
	Lifetime time.Duration
	// Members in all. One takes 200 bytes at most, and one that is alone in its swarm 300.
	Members int
	// PerHost and PerAS bound the members of one swarm: at one host, where peers behind one address
	// translation look like one host and those in one /64 of IPv6 too, and in one AS of SCION. Of all members an AS may have half.
	PerHost, PerAS int
	// PerNetwork bounds the members of all swarms in one /24 of IPv4 or /48 of IPv6, on SCION within one AS. The default is a
	// sixteenth of Members.
	PerNetwork int
}

// perASInAll is how many members an AS may have in all swarms: whatever it invents, half of the memory is for others.
func (l Limits) perASInAll() int { return max(1, l.Members/2) }

// The default limits.
const (
	DefaultLifetime = 45 * time.Minute
	DefaultMembers  = 2_000_000
	DefaultPerHost  = 32
	DefaultPerAS    = 1024
)

func (l Limits) withDefaults() Limits {
	if l.Lifetime <= 0 {
		l.Lifetime = DefaultLifetime
	}
	for _, x := range []struct {
		v *int
		d int
	}{{&l.Members, DefaultMembers}, {&l.PerHost, DefaultPerHost}, {&l.PerAS, DefaultPerAS}} {
		if *x.v <= 0 {
			*x.v = x.d
		}
	}
	if l.PerNetwork <= 0 {
		l.PerNetwork = max(1, l.Members/16)
	}
	return l
}

// Why a peer is not told to others. The words are for its user.
var (
	ErrFull    = errors.New("the tracker has no room for more peers; others are not told of this one")
	ErrPerHost = errors.New("too many peers at this address in the swarm; others are not told of this one")
	ErrPerAS   = errors.New("too many peers of this AS in the swarm; others are not told of this one")
	ErrASShare = errors.New("peers of this AS fill half of the tracker; others are not told of this one")
	// ErrNetworkShare is that of a /24 or /48.
	ErrNetworkShare = errors.New("peers of this network fill their share of the tracker; others are not told of this one")
)
