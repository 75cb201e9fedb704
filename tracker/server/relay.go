package server

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"braid/pathsel"
	"braid/tracker/wire"
)

// relay passes offers and answers between peers that are connected over WebSocket. Such a peer has
// no address that others could dial, so the store does not know it. A place in a swarm ends with
// the connection, or if the peer does not announce for the lifetime of a member.
type relay struct {
	mu       sync.Mutex
	swarms   map[wire.InfoHash]*relayed
	networks map[string]int // number of seats
	seats    int
}

type relayed struct {
	seats map[wire.PeerID]*seat
	hosts map[string]int
	seeds int
}

type seat struct {
	socket *socket
	seed   bool
	seen   time.Time
}

// maxSeats is the number of swarms that one connection takes part in.
const maxSeats = 1000

// Refusals of a place, with words for the user of the peer. They do not keep a peer from connecting
// to others in another way.
var (
	errManySeats = &wire.Failure{Reason: "too many torrents on one connection"}
	errHostSeats = &wire.Failure{Reason: "too many peers with your address in this swarm"}
	errNetSeats  = &wire.Failure{Reason: "too many peers of your network; try again later", RetryIn: time.Minute}
	errFullRelay = &wire.Failure{
		Reason:  "this tracker has no room for more peers; try again later",
		RetryIn: time.Minute,
	}
	errTakenID    = &wire.Failure{Reason: "another peer with this peer ID is connected"}
	errNoPeerID   = &wire.Failure{Reason: "peer_id is missing"}
	errNoSeat     = &wire.Failure{Reason: "announce the torrent before you answer offers"}
	errNotOffered = &wire.Failure{
		Reason: "an offer or answer comes with an announce to this tracker, not as a message of its own",
	}
)

func newRelay() *relay {
	return &relay{swarms: map[wire.InfoHash]*relayed{}, networks: map[string]int{}}
}

// enter gives the peer a place in the swarm, or renews it.
func (r *relay) enter(k *socket, s *wire.Signal, cfg *Config, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := k.seats[s.InfoHash]; ok && id != s.PeerID {
		r.leaveLocked(k, s.InfoHash)
	}
	sw := r.swarms[s.InfoHash]
	if sw == nil {
		sw = &relayed{seats: map[wire.PeerID]*seat{}, hosts: map[string]int{}}
	}
	old := sw.seats[s.PeerID]
	if old != nil && old.socket != k {
		// A peer that connects again may be here before its old connection is found to be dead.
		if old.socket.origin.Host != k.origin.Host {
			return errTakenID
		}
		r.leaveLocked(old.socket, s.InfoHash)
		old = nil
	}
	if old == nil {
		switch {
		case len(k.seats) >= maxSeats:
			return errManySeats
		case sw.hosts[k.origin.Host] >= cfg.MaxPerHost:
			return errHostSeats
		case r.networks[k.origin.Net] >= cmp.Or(cfg.MaxPerNet, max(1, cfg.MaxPeers/16)):
			return errNetSeats
		case r.seats >= cfg.MaxPeers:
			return errFullRelay
		}
		old = &seat{socket: k}
		r.swarms[s.InfoHash] = sw
		sw.seats[s.PeerID], k.seats[s.InfoHash] = old, s.PeerID
		sw.hosts[k.origin.Host]++
		r.networks[k.origin.Net]++
		r.seats++
	}
	if seed := s.Left == 0; seed != old.seed {
		old.seed = seed
		sw.seeds += map[bool]int{true: 1, false: -1}[seed]
	}
	old.seen = now
	return nil
}

// leave ends the connection's place in the swarm, if it has one.
func (r *relay) leave(k *socket, h wire.InfoHash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveLocked(k, h)
}

func (r *relay) leaveLocked(k *socket, h wire.InfoHash) {
	id, ok := k.seats[h]
	if !ok {
		return
	}
	delete(k.seats, h)
	sw := r.swarms[h]
	if sw.seats[id].seed {
		sw.seeds--
	}
	delete(sw.seats, id)
	less(sw.hosts, k.origin.Host)
	less(r.networks, k.origin.Net)
	r.seats--
	if len(sw.seats) == 0 {
		delete(r.swarms, h)
	}
}

func less(counts map[string]int, of string) {
	if counts[of]--; counts[of] == 0 {
		delete(counts, of)
	}
}

// leaveAll ends all places of a connection.
func (r *relay) leaveAll(k *socket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h := range k.seats {
		r.leaveLocked(k, h)
	}
}

// sweep ends places whose peers have not announced for the lifetime.
func (r *relay) sweep(now time.Time, lifetime time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h, sw := range r.swarms {
		for _, x := range sw.seats {
			if now.Sub(x.seen) > lifetime {
				r.leaveLocked(x.socket, h)
			}
		}
	}
}

// count adds the connected peers to the counts of a swarm.
func (r *relay) count(c *wire.Counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sw := r.swarms[c.InfoHash]; sw != nil {
		c.Complete += int64(sw.seeds)
		c.Incomplete += int64(len(sw.seats) - sw.seeds)
	}
}

// offer passes each offer of a peer that has a place to another peer, chosen by chance. Seeds have
// no use for each other.
func (r *relay) offer(k *socket, s *wire.Signal) {
	left := slices.DeleteFunc(slices.Clone(s.Offers), func(o wire.Offer) bool {
		return isTooLong(&wire.Signal{InfoHash: s.InfoHash, PeerID: s.PeerID, Offer: o})
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	sw := r.swarms[s.InfoHash]
	if sw == nil || sw.seats[s.PeerID] == nil || sw.seats[s.PeerID].socket != k {
		return
	}
	for id, x := range sw.seats { // in an order that changes each time
		if len(left) == 0 {
			return
		}
		if id == s.PeerID || x.seed && s.Left == 0 {
			continue
		}
		if x.socket.tell(&wire.Signal{InfoHash: s.InfoHash, PeerID: s.PeerID, Offer: left[0]}) {
			left = left[1:]
		}
	}
}

// answer passes an answer to the peer that it is for, if that is still here.
func (r *relay) answer(k *socket, s *wire.Signal) error {
	m := wire.Signal{InfoHash: s.InfoHash, PeerID: s.PeerID, Answer: s.Answer}
	tooLong := isTooLong(&m)
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := k.seats[s.InfoHash]; !ok || id != s.PeerID {
		return errNoSeat
	}
	if to := r.swarms[s.InfoHash].seats[s.ToPeer]; to != nil && !tooLong {
		to.socket.tell(&m)
	}
	return nil
}

// isTooLong reports whether a peer would end its connection because of a relayed message. Such a
// message can be longer than the one in which it came: JSON may write one character as six.
func isTooLong(s *wire.Signal) bool {
	const sixfold = wire.MaxSignal / 8 // six times as much fits, with the rest of the message
	return len(s.Offer.SDP)+len(s.Answer.SDP) > sixfold && len(s.Reply()) > wire.MaxSignal
}

// socket is a connection. Its fields belong to the relay, except the queue.
type socket struct {
	origin pathsel.Origin
	seats  map[wire.InfoHash]wire.PeerID
	out    chan []byte
	queued atomic.Int64 // bytes in the queue
}

// maxQueue is the number of messages that wait for a slow connection, and maxQueued the number of
// bytes from which on it gets no further messages of peers. Few of the longest and all of the usual
// ones fit. The others are lost: offers are made again with the next announce.
const maxQueue, maxQueued = 32, 2 * wire.MaxSignal

// answer queues the answer to a message of the connection itself. It waits for room, since a client
// may announce many torrents together, and waits for an answer to each. Meanwhile nothing is read
// from the connection.
func (k *socket) answer(ctx context.Context, s *wire.Signal) {
	b := s.Reply()
	k.queued.Add(int64(len(b)))
	select {
	case k.out <- b:
	case <-ctx.Done():
	}
}

// tell queues a message of another peer, and reports whether there was room. Without room it does
// not encode the message: an offer may meet thousands of full queues, while all other requests wait
// for the lock of the relay.
func (k *socket) tell(s *wire.Signal) bool {
	if len(k.out) == cap(k.out) || k.queued.Load() >= maxQueued {
		return false
	}
	b := s.Reply()
	k.queued.Add(int64(len(b)))
	select {
	case k.out <- b:
		return true
	default:
		k.queued.Add(-int64(len(b)))
		return false
	}
}
