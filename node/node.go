// Package node is the application: everything between a program's commands and the transfers.
//
//	Node          one session for all torrents, their peer sources and stores, and the order of closing
//	Torrent       one torrent: it can be paused, resumed, limited and removed while it runs
//	Source        finds peers for torrents: trackers today (trackers.go)
//	Knowledge     what trackers on SCION hear and say about paths (knowledge.go)
//	Goal          when a torrent has been served enough
//	Subscription  a reader of the events; the events are in package event
//	state.go      torrents that survive the process; the file that shows another process what happens
//
// All methods of a Node and a Torrent may be called from many goroutines.
//
// A node prints nothing, knows no flags, and never ends the process. It chooses neither paths
// (package pathsel) nor pieces (package client).
//
// Unsolved: a torrent's data cannot be moved or deleted through a node. Torrents are not queued;
// all that are not paused run at once.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"braid/client"
	"braid/scionnet"
)

// Config describes a node.
type Config struct {
	// Client configures the session. Its Host, Identity and Logger are filled in by Open.
	Client client.Config
	// SCION says whether and how the node gets onto SCION.
	SCION SCION
	// Identity is the file with the private key that identifies this node to peers. Open creates it
	// if it is missing. Empty: identity.pem in the user's configuration directory.
	Identity  string
	Knowledge Knowledge
	// Torrents are those that will be added. Only their peers and trackers matter here: they decide
	// whether SCION is needed.
	Torrents []Options
	// Sources find peers, in addition to trackers.
	Sources []Source
	// Adjustable lets limits change while the node runs, which costs each connection a little. Without
	// it, those of Client hold for ever, and torrents have none of their own.
	Adjustable bool
	// State is a directory that keeps the torrents for Restore; empty: they are forgotten.
	State  string
	Logger *slog.Logger // may be nil
}

// Node is a session with its torrents.
type Node struct {
	log     *slog.Logger
	session *client.Session
	host    *scionnet.Host // nil: not on SCION
	http    *scionnet.HTTP // to trackers on SCION; nil without a host
	sources []Source
	stores  stores
	stream  stream
	state   string
	limiter *client.Limiter // nil: limits do not change

	ctx  context.Context // ends with Close
	stop context.CancelFunc

	mu       sync.Mutex
	torrents []*Torrent // in the order in which they were added
	closed   bool
}

var (
	errClosed = errors.New("the node is closed")
	// ErrUnknown says that the node has no such torrent.
	ErrUnknown = errors.New("there is no such torrent")
)

// Open opens a node. The context bounds the opening only.
func Open(ctx context.Context, cfg Config) (_ *Node, err error) {
	n := &Node{log: cfg.Logger, state: cfg.State, stream: stream{all: map[*Subscription]struct{}{}}}
	n.ctx, n.stop = context.WithCancel(context.Background())
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if n.state != "" {
		if err := os.MkdirAll(n.state, 0o700); err != nil {
			return nil, fmt.Errorf("open the state directory: %w", err)
		}
	}
	cfg.Client.Logger = n.log
	defer func() {
		if err != nil {
			_ = n.Close()
		}
	}()
	if n.host, err = cfg.openHost(ctx, n.log); err != nil {
		return nil, err
	}
	if cfg.Client.Host = n.host; n.host != nil {
		if cfg.Client.Policy, err = cfg.fitPolicy(ctx, n.host, n.log); err != nil {
			return nil, err
		}
	} else if cfg.SCION.Choose != nil {
		return nil, ErrNothingToChoose
	}
	if n.host != nil || cfg.Client.IP == client.QUIC {
		if cfg.Client.Identity, err = loadIdentity(cfg.Identity, n.log); err != nil {
			return nil, err
		}
	}
	if cfg.Adjustable {
		n.limiter = client.NewLimiter()
		if err = n.SetLimits(cfg.Client.Limits); err != nil {
			return nil, err
		}
		cfg.Client.Limiter = n.limiter
	}
	if n.session, err = client.New(ctx, cfg.Client); err != nil {
		return nil, err
	}
	if n.host != nil {
		if n.http, err = n.host.OpenHTTP(ctx, 0); err != nil {
			return nil, fmt.Errorf("open a port for SCION trackers: %w", err)
		}
	}
	n.sources = append([]Source{trackers{n.http, cfg.Knowledge}}, cfg.Sources...)
	return n, nil
}

// loadIdentity reads the key or creates it. If there is no place for a file, the key is new each
// time and braid works as well.
func loadIdentity(name string, log *slog.Logger) (*scionnet.Identity, error) {
	if name != "" {
		return scionnet.LoadIdentity(name)
	}
	dir, err := os.UserConfigDir()
	if err == nil {
		dir = filepath.Join(dir, "braid")
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		log.Info("no place for a lasting identity", "error", err)
		return scionnet.NewIdentity()
	}
	return scionnet.LoadIdentity(filepath.Join(dir, "identity.pem"))
}

// Close ends the node in this order: peer sources say goodbye while the transfers still run; then
// the transfers and connections end; then data is brought to disk; the event stream ends last.
func (n *Node) Close() error {
	n.mu.Lock()
	again := n.closed
	n.closed = true
	all := slices.Clone(n.torrents)
	n.mu.Unlock()
	if again {
		return nil
	}
	n.stop() // starts that are under way
	var ending sync.WaitGroup
	for _, t := range all {
		ending.Go(t.shut)
	}
	ending.Wait()
	var errs []error
	if n.http != nil {
		errs = append(errs, n.http.Close())
	}
	if n.session != nil {
		errs = append(errs, n.session.Close())
	}
	if n.host != nil {
		errs = append(errs, n.host.Close())
	}
	for _, t := range all {
		t.save()
	}
	errs = append(errs, n.stores.close())
	n.stream.close()
	return errors.Join(errs...)
}

// Listening returns the addresses at which peers may connect.
func (n *Node) Listening() []client.Peer { return n.session.Listening() }

var errNotAdjustable = errors.New("the limits of this node cannot be changed")

// SetLimits changes the limits of all torrents together.
func (n *Node) SetLimits(l client.Limits) error { return setLimits(n.limiter, l) }

func setLimits(x *client.Limiter, l client.Limits) error {
	if x == nil {
		return errNotAdjustable
	}
	if err := l.Validate(); err != nil {
		return err
	}
	x.Set(l)
	return nil
}

// Add adds a torrent and, unless it is to be paused, starts it. Add first makes sure that the
// torrent may write to the files that are there already, which can take as long as hashing them.
// The torrent is in Torrents meanwhile. The context bounds Add only.
func (n *Node) Add(ctx context.Context, o Options) (*Torrent, error) {
	return n.add(ctx, newTorrent(n, o))
}

func (n *Node) add(ctx context.Context, t *Torrent) (*Torrent, error) {
	if l := t.options.Limits; l.Upload != 0 || l.Download != 0 || len(l.Paths) > 0 {
		if err := setLimits(t.limiter, l); err != nil {
			return nil, fmt.Errorf("add torrent %s: %w", t.options.title(), err)
		}
	}
	if err := n.register(t); err != nil {
		return nil, fmt.Errorf("add torrent %s: %w", t.options.title(), err)
	}
	if !t.options.Paused {
		t.op.Lock()
		err := t.start(ctx)
		t.op.Unlock()
		if err != nil {
			n.forget(t)
			return nil, err
		}
	}
	t.save()
	t.changed("added")
	return t, nil
}

func (n *Node) register(t *Torrent) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return errClosed
	case slices.ContainsFunc(n.torrents, func(o *Torrent) bool { return o.hash == t.hash }):
		return errors.New("it is there already")
	}
	n.torrents = append(n.torrents, t)
	return nil
}

func (n *Node) forget(t *Torrent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.torrents = slices.DeleteFunc(n.torrents, func(o *Torrent) bool { return o == t })
}

// Torrents returns all torrents in the order in which they were added.
func (n *Node) Torrents() []*Torrent {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.torrents)
}

// Torrent returns the torrent with that info hash (in hexadecimal digits), or ErrUnknown.
func (n *Node) Torrent(infoHash string) (*Torrent, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.torrents {
		if t.hash.HexString() == infoHash {
			return t, nil
		}
	}
	return nil, fmt.Errorf("torrent %s: %w", infoHash, ErrUnknown)
}

// Remove ends a torrent and forgets it. Its data stays on disk.
func (n *Node) Remove(infoHash string) error {
	t, err := n.Torrent(infoHash)
	if err != nil {
		return err
	}
	if !t.remove() {
		return fmt.Errorf("torrent %s: %w", infoHash, ErrUnknown)
	}
	n.forget(t)
	t.changed("removed")
	return nil
}

// Stats are the totals of a node since it was opened, and its current rates in bits per second.
type Stats struct {
	Torrents            map[State]int
	Fetched, Sent       int64 // payload in bytes
	ReadRate, WriteRate float64
	Peers               int // with a connection that carries data; a peer counts for each torrent
}

// Stats sums over the torrents.
func (n *Node) Stats() Stats {
	s := Stats{Torrents: map[State]int{}}
	for _, t := range n.Torrents() {
		p := t.Progress()
		s.Torrents[t.State()]++
		s.Fetched, s.Sent = s.Fetched+p.Fetched, s.Sent+p.Sent
		s.ReadRate, s.WriteRate = s.ReadRate+p.ReadRate, s.WriteRate+p.WriteRate
		s.Peers += ConnectedPeers(p)
	}
	return s
}
