// Package swarm remembers which peers are in which swarm, and chooses the peers of an answer.
//
//	Store    the interface of a tracker's memory
//	Memory   in RAM, in shards                     memory.go
//	Durable  Memory with a journal on disk         journal.go
//	Shared   in a Valkey or Redis server, for several trackers
//	         shared.go, shareddraw.go, sharednote.go, lua/
//	table    the peers of one torrent              table.go, choose.go
//	shares   of networks and ASes in the memory    share.go
//
// A member of a swarm is one address of a peer. It stays until it announces that it stops, is
// silent for the lifetime, or has to make room for others. The share of one host, one network and
// one AS is bounded, in memory and in answers: whoever controls an AS, and so any number of
// addresses in it, must not crowd out other peers.
//
// Not solved: an attacker with many ASes or networks has many shares.
package swarm

import (
	"cmp"
	"context"
	"errors"
	"time"

	"braid/tracker/wire"
)

// Store is the memory of a tracker. Its methods may be called concurrently.
type Store interface {
	// Announce adds, renews or removes the peer, and chooses peers for it. A peer without a place
	// still gets an answer, and View.Refused says why it has none.
	Announce(context.Context, Visit) (View, error)
	// Scrape counts the peers of each torrent, in the order of the hashes.
	Scrape(context.Context, []wire.InfoHash) ([]wire.Counts, error)
	// Sweep removes members that were silent for the lifetime. The owner calls it regularly.
	Sweep(context.Context) error
	// Totals are over all swarms.
	Totals(context.Context) (Totals, error)
	// Close writes unsaved changes.
	Close() error
}

// Keeper is a Store that also keeps a note of each tracker, for the time after a restart and for
// other trackers on the same store.
type Keeper interface {
	Store
	// Keep replaces this tracker's note. It expires after life. An empty note is removed.
	Keep(ctx context.Context, note []byte, life time.Duration) error
	// Kept returns new notes: this tracker's own from before its start, and those that others
	// changed since the last call.
	Kept(context.Context) ([][]byte, error)
}

// Waiter is a Store that may wait before it answers. Others answer from memory at once.
type Waiter interface {
	Store
	Waits()
}

// MaxNote bounds a note in bytes.
const MaxNote = 64 << 20

// Visit is the part of an announce that concerns the store.
type Visit struct {
	InfoHash wire.InfoHash
	ID       wire.PeerID
	Identity uint64    // see wire.Announce
	Addr     wire.Addr // with port 0 it is not added
	Event    wire.Event
	Seed     bool // the peer has everything, and needs no other seeds
	Fellow   bool // see wire.Announce
	// Want is the number of peers to choose. Reaches are the networks to choose from.
	Want    int
	Reaches Networks
	// Room is memory for the peers of the View, so that the store allocates none.
	Room []wire.Peer
}

// Networks is a set of kinds of address.
type Networks uint8

const (
	IPv4 Networks = 1 << iota
	IPv6
	SCION
)

const kinds = 3

// kindOf returns the number of an address's network, which is its bit in Networks. IPv4 and IPv6
// hosts on SCION are in the same network.
func kindOf(a wire.Addr) int { return min(int(a.Family()), kinds-1) }

// NetworkOf is the network of an address.
func NetworkOf(a wire.Addr) Networks { return 1 << kindOf(a) }

// View is the answer to a Visit.
type View struct {
	Counts  wire.Counts
	Peers   []wire.Peer
	Refused error // why the visitor has no place in the swarm; nil if it has one
}

// Totals count members. A peer with several addresses is several members.
type Totals struct {
	Swarms  int `json:"swarms"`
	IPv4    int `json:"ipv4"`
	IPv6    int `json:"ipv6"`
	SCION   int `json:"scion"`
	Seeds   int `json:"seeds"`
	Members int `json:"members"`
}

// Limits bound a store. Zero values are replaced by the defaults.
type Limits struct {
	// Lifetime of a member after its last announce; longer than the announce interval.
	Lifetime time.Duration
	// Members in all. One takes at most 200 bytes, or 300 if it is alone in its swarm.
	Members int
	// PerHost and PerAS bound the members of one swarm at one host and in one AS of SCION. Peers
	// behind one address translator look like one host, and so do those in one /64 of IPv6.
	PerHost, PerAS int
	// PerNetwork bounds the members of all swarms in one /24 of IPv4 or /48 of IPv6, on SCION
	// within one AS. The default is a sixteenth of Members.
	PerNetwork int
}

// perASInAll is how many members an AS may have in all swarms. The other half of the memory is for
// others.
func (l Limits) perASInAll() int { return max(1, l.Members/2) }

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
	l.Members = cmp.Or(max(l.Members, 0), DefaultMembers)
	l.PerHost = cmp.Or(max(l.PerHost, 0), DefaultPerHost)
	l.PerAS = cmp.Or(max(l.PerAS, 0), DefaultPerAS)
	l.PerNetwork = cmp.Or(max(l.PerNetwork, 0), max(1, l.Members/16))
	return l
}

// Reasons why a peer has no place in a swarm. The words are for its user.
var (
	ErrFull    = errors.New("the tracker has no room for more peers, so others do not learn of this one")
	ErrPerHost = errors.New("too many peers at this address in the swarm, so others do not learn of this one")
	ErrPerAS   = errors.New("too many peers of this AS in the swarm, so others do not learn of this one")
	ErrASShare = errors.New("peers of this AS fill half of the tracker, so others do not learn of this one")
	// ErrNetworkShare concerns a /24 or /48.
	ErrNetworkShare = errors.New("peers of this network fill their share of the tracker, " +
		"so others do not learn of this one")
)
