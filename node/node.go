// Package node is the application: everything between a program's commands and the transfers.
//
//	Node          a session with its torrents, their peer sources and stores
//	Torrent       one torrent; Status is what users see of it
//	run           the time between a start and a stop of a torrent (run.go, search.go)
//	beat          the regular work for all torrents: one look a second (beat.go)
//	Queue         a function that decides which torrents of a service run (queue.go)
//	Settings      the settings for all torrents (settings.go); Rates and Alternative: the limits,
//	              and when they hold (rates.go)
//	Source        finds peers for torrents: trackers (trackers.go), DHTs (dht.go), the local
//	              network (lsdsource.go)
//	Knowledge     path knowledge that is exchanged with trackers on SCION (knowledge.go)
//	Goal          when to stop serving a torrent (goal.go)
//	Subscription  a reader of the events, whose types are in package event (stream.go)
//	Move          moves a torrent's data to another directory (move.go)
//	Rename        renames the files of a torrent, even while it runs (rename.go)
//	history       the rates of each path, and the selector's decisions (history.go)
//	torrentLog    the log of a torrent (log.go)
//	state.go      the state on disk, from which a killed process resumes; counters.go: its counters
//
// All methods of a Node and a Torrent may be called from many goroutines.
//
// A node prints nothing, knows no flags, and never ends the process. It chooses neither paths
// (package pathsel) nor pieces (package client).
package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anacrolix/torrent/metainfo"

	"braid/client"
	"braid/pathsel"
	"braid/scionnet"
	"braid/storage"
)

// Config describes a node.
type Config struct {
	// Client configures the session. Its Host, Identity and Logger are filled in by Open.
	Client client.Config
	// SCION says whether and how the node gets onto SCION.
	SCION SCION
	// Identity is the file with the private key that identifies this node to peers. Open creates it
	// if it is missing.
	Identity string
	// ConfigDir keeps the key, in braid/identity.pem, if Identity is "". If both are "", the key
	// lasts as long as the node.
	ConfigDir string
	// Group, if not nil, makes a private node: only members of the group can connect, and the node
	// has no peer sources and no peer exchange, so that nobody else hears of its torrents.
	Group     *scionnet.Group
	Knowledge Knowledge
	// Torrents are the torrents that will be added. Their peers and trackers decide whether Open
	// needs SCION.
	Torrents []Options
	// DHT configures the node's part in DHTs; nil: it takes part in none.
	DHT *DHTConfig
	// Sources find peers, in addition to trackers and DHTs.
	Sources []Source
	// State is a directory for the torrents (see Restore), the settings and the totals. Empty: they
	// are not kept.
	State string
	// Service makes the node a service. Its torrents start in the background, as the queue allows:
	// Add checks a torrent, saves it, and returns. If a start fails, the torrent becomes Failed.
	// Limits can change, at a small cost for each connection, and SCION is used if it is Likely.
	// Without Service, the limits of Client hold until Close, and torrents have none of their own.
	Service bool
	// Settings hold until there are others in State. If they have no limits or no policy, those of
	// Client hold.
	Settings Settings
	Logger   *slog.Logger // may be nil
}

// Node is a session with its torrents.
type Node struct {
	log      *slog.Logger
	session  *client.Session
	host     *scionnet.Host // nil: not on SCION
	http     *scionnet.HTTP // to trackers on SCION; nil without a host
	dht      *DHT           // nil: none
	nearby   *neighbours    // nil: without IP there is no local discovery
	sources  []Source
	stores   stores
	stream   stream
	state    string
	service  bool
	limiter  *client.Limiter                      // nil: limits do not change
	chosen   map[pathsel.IA][]pathsel.Fingerprint // paths that the user has chosen
	wake     chan struct{}                        // see poke
	room     chan struct{}                        // a start or stop of the queue has ended
	starts   chan struct{}                        // a semaphore: see startsAtOnce
	checks   chan struct{}                        // one for checks of torrents that do not run
	workers  sync.WaitGroup
	opened   time.Time
	before   Totals        // of earlier processes, with the bytes of their torrents
	logged   atomic.Int64  // the number of the last log entry
	listened []client.Peer // the addresses that were announced last; only for beat
	count    atomic.Int64  // of the torrents, for logs, which must not wait for mu

	ctx  context.Context // ends with Close
	stop context.CancelFunc

	setting  sync.Mutex // held while settings change
	ordering sync.Mutex // held while the order of the torrents changes

	mu       sync.Mutex
	torrents []*Torrent // in the order of the queue; new ones are added at its end
	byHash   map[metainfo.Hash]*Torrent
	numbered int // the last number that a torrent got
	settings Settings
	applied  client.Limits // the current limits
	totals   Totals        // of earlier processes and of torrents that were removed
	closed   bool
	// unrestored are the counters of saved torrents that are not restored yet, or cannot be
	// restored now. They must not be lost.
	unrestored map[string]counters
}

var (
	errClosed = errors.New("the node is closed")
	// ErrUnknown: the node has no such torrent.
	ErrUnknown = errors.New("there is no such torrent")
	// ErrExists: the node has the torrent already.
	ErrExists = errors.New("it is there already")
)

// Open opens a node. The context bounds the opening only.
func Open(ctx context.Context, cfg Config) (_ *Node, err error) {
	n := &Node{
		log:     cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		state:   cfg.State,
		service: cfg.Service,
		stream:  stream{all: map[*Subscription]struct{}{}},
		byHash:  map[metainfo.Hash]*Torrent{},
		wake:    make(chan struct{}, 1),
		room:    make(chan struct{}, 1),
		starts:  make(chan struct{}, startsAtOnce),
		checks:  make(chan struct{}, startsAtOnce),
		opened:  time.Now(),
	}
	n.ctx, n.stop = context.WithCancel(context.Background())
	if n.state != "" {
		if err := os.MkdirAll(n.state, 0o700); err != nil {
			return nil, fmt.Errorf("open the state directory: %w", err)
		}
		n.loadCounters()
	}
	if cfg.Group != nil {
		if err := cfg.checkGroup(); err != nil {
			return nil, err
		}
		cfg.Settings.NoPEX, cfg.Settings.LSD = true, false
	}
	if err := n.firstSettings(&cfg); err != nil {
		return nil, err
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
	if n.host != nil || cfg.Client.IP == client.QUIC || cfg.Group != nil {
		if cfg.Client.Identity, err = cfg.identity(n.log); err != nil {
			return nil, err
		}
	}
	n.chosen = cfg.Client.Policy.Chosen
	if n.service {
		n.limiter = &client.Limiter{}
		n.applyRates(time.Now())
		cfg.Client.Limiter = n.limiter
	}
	if n.session, err = client.New(ctx, cfg.Client); err != nil {
		return nil, err
	}
	if cfg.Group == nil {
		if err := n.openSources(ctx, cfg); err != nil {
			return nil, err
		}
	}
	n.workers.Go(n.beat)
	return n, nil
}

// checkGroup returns an error if others could hear of a group's torrents.
func (c Config) checkGroup() error {
	switch {
	case c.DHT != nil, len(c.Sources) > 0:
		return errors.New("open a node: a group has no peer sources")
	case c.Client.WebRTC != nil:
		return errors.New("open a node: a group has no WebRTC, which cannot check its members")
	}
	return nil
}

// openSources opens the peer sources.
func (n *Node) openSources(ctx context.Context, cfg Config) (err error) {
	if n.host != nil {
		if n.http, err = n.host.OpenHTTP(ctx, 0); err != nil {
			return fmt.Errorf("open a port for SCION trackers: %w", err)
		}
		n.http.SetPolicy(cfg.Client.Policy)
	}
	if n.dht, err = cfg.openDHT(ctx, n.host, n.Listening()); err != nil {
		return err
	}
	n.sources = append([]Source{trackers{n.http, n.session.WebRTC(), cfg.Knowledge}}, cfg.Sources...)
	if n.dht != nil {
		n.sources = append(n.sources, n.dht)
		n.session.SetDHT(n.dht.ports())
	}
	if n.nearby = cfg.openNeighbours(n); n.nearby != nil {
		n.sources = append(n.sources, n.nearby)
	}
	return nil
}

// identity returns the identity of the node, in its group if it has one.
func (c Config) identity(log *slog.Logger) (*scionnet.Identity, error) {
	id, err := loadIdentity(c.Identity, c.ConfigDir, log)
	if err != nil || c.Group == nil {
		return id, err
	}
	return id.In(c.Group)
}

// loadIdentity reads the key, or creates it. If there is no place for a file, each node has a new
// key.
func loadIdentity(name, configDir string, log *slog.Logger) (*scionnet.Identity, error) {
	if name != "" {
		return scionnet.LoadIdentity(name)
	}
	dir := filepath.Join(configDir, "braid")
	err := errors.New("no directory for settings")
	if configDir != "" {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		log.Info("no place for a lasting identity", "error", err)
		return scionnet.NewIdentity()
	}
	return scionnet.LoadIdentity(filepath.Join(dir, "identity.pem"))
}

// Close ends the node in this order: the searches of peer sources, while the transfers still run;
// the transfers and connections; the stores, whose data is then on disk; at last the event stream.
func (n *Node) Close() error {
	n.mu.Lock()
	again := n.closed
	n.closed = true
	all := slices.Clone(n.torrents)
	n.mu.Unlock()
	if again {
		return nil
	}
	n.stop() // cancels starts
	n.workers.Wait()
	var ending sync.WaitGroup
	for _, t := range all {
		ending.Go(t.shut)
	}
	ending.Wait()
	var errs []error
	if n.http != nil {
		errs = append(errs, n.http.Close())
	}
	if n.dht != nil {
		errs = append(errs, n.dht.Close())
	}
	if n.nearby != nil {
		n.nearby.server.Close()
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
	if n.session != nil {
		errs = append(errs, n.saveCounters())
	}
	errs = append(errs, n.stores.close())
	n.stream.close()
	return errors.Join(errs...)
}

// Listening returns the addresses at which peers may connect.
func (n *Node) Listening() []client.Peer { return n.session.Listening() }

// DHT is the node's part in DHTs; nil if it takes part in none.
func (n *Node) DHT() *DHT { return n.dht }

// HTTP returns the client for HTTP/3 on SCION; nil if the node is not on SCION.
func (n *Node) HTTP() *scionnet.HTTP { return n.http }

// PeerID returns the peer ID, by which peers and trackers know the node.
func (n *Node) PeerID() [20]byte { return n.session.PeerID() }

var errNotAdjustable = errors.New("the limits of this node cannot be changed")

// Add adds a torrent and starts it, unless Options.Paused is set. The start checks whether existing
// files belong to the torrent, which can take as long as hashing them; Torrents contains the
// torrent meanwhile. In a service, Add does not wait for the start. The existing files of a paused
// torrent are verified in the background. The context bounds Add only. If the node has the torrent
// already, the error is ErrExists.
func (n *Node) Add(ctx context.Context, o Options) (*Torrent, error) {
	if n.service {
		o = n.withDefaults(o)
	}
	t := newTorrent(n, o)
	unknown := o.Paused && !t.lookAtRecord()
	t, err := n.add(ctx, t)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.totals.Added++
	n.mu.Unlock()
	if unknown {
		err = t.Verify()
	}
	return t, err
}

// withDefaults fills in the settings for new torrents.
func (n *Node) withDefaults(o Options) Options {
	s := n.Settings()
	o.Storage.Kind = cmp.Or(o.Storage.Kind, storage.KindFile)
	o.Storage.Dir = cmp.Or(o.Storage.Dir, s.Dir)
	o.Source = o.Source.WithKept(o.Storage.Dir)
	o.Paused = o.Paused || s.AddPaused
	if len(o.Trackers) == 0 && !o.Source.IsPrivate() {
		o.Trackers, _ = parseTiers(s.Trackers) // Validate has checked them
	}
	return o
}

func (n *Node) add(ctx context.Context, t *Torrent) (*Torrent, error) {
	failed := func(err error) error {
		return fmt.Errorf("add torrent %s: %w", t.Options().title(), err)
	}
	if err := t.options.check(); err != nil {
		return nil, failed(err)
	}
	if t.limiter != nil {
		l, _ := t.options.Rates.Limits() // they are valid
		t.limiter.Set(l)
		t.limiter.SetAlone(t.options.IgnoreGlobal)
	} else if !t.options.Rates.isZero() {
		return nil, failed(errNotAdjustable)
	}
	if n.service && t.options.Storage.Dir == "" {
		return nil, failed(errors.New("neither it nor the settings name a directory"))
	}
	restored := t.onDisk != [sha256.Size]byte{}
	if err := n.register(t); err != nil {
		return nil, failed(err)
	}
	if !n.service && t.State() == Starting {
		t.op.Lock()
		err := t.start(ctx)
		t.op.Unlock()
		if err != nil {
			n.forget(t)
			return nil, err
		}
	}
	if err := t.keep(); err != nil {
		if n.service && !restored {
			t.remove() // the queue may have started it
			n.forget(t)
			return nil, failed(err)
		}
		n.log.Warn("the state of a torrent cannot be saved",
			"torrent", t.Options().title(), "error", err)
	}
	t.changed("added")
	n.poke()
	return t, nil
}

func (n *Node) register(t *Torrent) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return errClosed
	case n.byHash[t.hash] != nil:
		return ErrExists
	}
	n.numbered++
	t.number = n.numbered
	n.torrents, n.byHash[t.hash] = append(n.torrents, t), t
	n.count.Store(int64(len(n.torrents)))
	if c, ok := n.unrestored[t.InfoHash()]; ok { // its bytes stay in the totals if it is added anew
		n.totals.add(c.Fetched-t.past.Fetched, c.Sent-t.past.Sent)
		delete(n.unrestored, t.InfoHash())
	}
	return nil
}

func (n *Node) forget(t *Torrent) {
	p := t.Progress()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.totals.add(p.Fetched, p.Sent)
	n.torrents = slices.DeleteFunc(n.torrents, func(o *Torrent) bool { return o == t })
	delete(n.byHash, t.hash)
	n.count.Store(int64(len(n.torrents)))
}

// Torrents returns all torrents in the order of the queue.
func (n *Node) Torrents() []*Torrent {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.torrents)
}

// Torrent returns the torrent with that info hash (in hexadecimal digits), or ErrUnknown.
func (n *Node) Torrent(infoHash string) (*Torrent, error) {
	var hash metainfo.Hash
	err := hash.FromHexString(infoHash)
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.byHash[hash]; t != nil && err == nil {
		return t, nil
	}
	return nil, fmt.Errorf("torrent %s: %w", infoHash, ErrUnknown)
}

// Remove ends a torrent and forgets it. If data is true, it also deletes the torrent's data, but no
// other files, no files that another torrent holds, too, and no directories with other files.
func (n *Node) Remove(infoHash string, data bool) error {
	t, err := n.Torrent(infoHash)
	if err != nil {
		return err
	}
	if data { // saved first: if this process is killed, the next one deletes the data
		t.setRemoving(true)
		if err := t.keep(); err != nil {
			t.setRemoving(false)
			t.save() // the file may say by now that the data must be deleted
			return fmt.Errorf("remove torrent %s: %w", infoHash, err)
		}
	}
	if !t.remove() {
		return fmt.Errorf("torrent %s: %w", infoHash, ErrUnknown)
	}
	if data {
		if err = t.deleteData(n.ctx); err != nil && n.ctx.Err() != nil {
			return err // the next process deletes the data
		}
	}
	t.unsave() // before forget, after which the torrent may be added again and save its state
	n.forget(t)
	t.changed("removed")
	n.poke()
	return err
}

func (t *Torrent) setRemoving(is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removing = is
}

func (t *Torrent) isRemoving() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removing
}

// Stats are the sums of a node.
type Stats struct {
	Ever                Totals // including those of earlier processes
	Torrents            map[State]int
	Fetched, Sent       int64   // payload bytes since the node was opened, with those of removed torrents
	ReadRate, WriteRate float64 // bits per second
	Peers               int     // with a connection that carries data, counted for each torrent
}

// Stats sums over the torrents.
func (n *Node) Stats() Stats {
	all, ever := n.Overview()
	s := Stats{
		Ever:     ever,
		Torrents: map[State]int{},
		Fetched:  ever.Fetched - n.before.Fetched,
		Sent:     ever.Sent - n.before.Sent,
	}
	for _, x := range all {
		s.Torrents[x.State]++
		s.ReadRate, s.WriteRate = s.ReadRate+x.ReadRate, s.WriteRate+x.WriteRate
		s.Peers += x.Peers
	}
	return s
}
