package scenario

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/anacrolix/torrent/metainfo"

	"braid/client"
	"braid/pathsel"
	"braid/scionnet"
	"braid/testbed"
	"braid/testbed/linkemu"
)

// fixtures are kept from one run to the next, since they take time to make: data, and a network for
// as long as runs can share it.
type fixtures struct {
	scratch  string
	held     *os.File // the scratch directory's lock
	launcher *testbed.Launcher
	datasets map[dataKey]*dataset

	key     string // of the network; "" if there is none
	network *testbed.Network
	// hosts are the runner's own, one in each AS that it needs. They end with a run that has
	// competing flows: a host remembers what its paths carried, so the flows of the next run would
	// start faster.
	hosts map[pathsel.IA]*scionnet.Host
	log   *os.File
}

func newFixtures() (*fixtures, error) {
	scratch, held, err := newScratch(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("make a directory for temporary files: %w", err)
	}
	return &fixtures{
		scratch: scratch, held: held, launcher: testbed.NewLauncher(), datasets: map[dataKey]*dataset{},
		hosts: map[pathsel.IA]*scionnet.Host{},
	}, nil
}

// networkFor returns the options of the scenario's network, except the router. Scenarios with the
// same key can share a network. Of the properties of links, only rates and delays are in the key:
// beacons announce them, and peers act on the announcement. Each run sets the others.
func networkFor(s Scenario) (opts testbed.Options, key string, err error) {
	if opts, err = s.options(); err != nil {
		return opts, "", err
	}
	opts.LinksOnly = s.onlyIP()
	same := opts
	same.Topology.Links = slices.Clone(opts.Topology.Links)
	for i := range same.Topology.Links {
		c := &same.Topology.Links[i].Config
		*c = linkemu.Config{Rate: c.Rate, Delay: c.Delay}
	}
	return opts, fmt.Sprintf("%v %+v", s.Router == "fast", same), nil
}

// open starts the scenario's network, unless it is up already.
func (h *fixtures) open(ctx context.Context, t turn, o Options) (err error) {
	if t.key == h.key {
		return nil
	}
	if err := h.closeNetwork(); err != nil {
		return err
	}
	h.key = t.key
	opts, logDir := t.network, filepath.Join(o.Dir, t.Name)
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return err
	}
	// A scenario may use several networks in turn.
	name := filepath.Join(logDir, "network.log")
	if h.log, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return err
	}
	switch {
	case len(o.RouterCommand) > 0:
		opts.RouterCommand = o.RouterCommand
	case t.Router == "fast":
		opts.RouterCommand = []string{o.Lab, "router"}
	}
	opts.Progress = o.Network
	opts.Dir, opts.SCIONBin = filepath.Join(h.scratch, "network"), o.SCIONBin
	opts.Log = slog.New(slog.NewTextHandler(h.log, nil))
	began := time.Now()
	if h.network, err = testbed.Start(ctx, opts); err != nil {
		// Keep the logs of its processes: the directory for temporary files goes.
		kept := filepath.Join(logDir, "network-logs")
		if os.RemoveAll(kept) == nil && os.CopyFS(kept, os.DirFS(filepath.Join(opts.Dir, "logs"))) == nil {
			err = fmt.Errorf("%w, copied to %s", err, kept)
		}
		return err
	}
	o.Say(fmt.Sprintf("%s: network of %d ASes and %d links is up after %.1f s",
		t.Name, len(t.topology.ASes), len(t.topology.Links), time.Since(began).Seconds()))
	return nil
}

// closeHosts closes the runner's own hosts.
func (h *fixtures) closeHosts() {
	for _, host := range h.hosts {
		host.Close()
	}
	clear(h.hosts)
}

func (h *fixtures) closeNetwork() (err error) {
	h.closeHosts()
	if h.network != nil {
		h.network.Close()
	}
	if h.log != nil {
		err = h.log.Close()
	}
	h.key, h.network, h.log = "", nil, nil
	return err
}

func (h *fixtures) close() error {
	err := h.closeNetwork()
	h.launcher.Close()
	return errors.Join(err, os.RemoveAll(h.scratch), h.held.Close())
}

// dataKey has all that a data set depends on.
type dataKey struct {
	seed     uint64
	size     Bytes
	pieces   Bytes
	torrents int
	tracked  bool
	path     string
}

// dataset is the data of a transfer: files of one size, each with a torrent of its own, or one
// folder.
type dataset struct {
	dir      string // that seeds serve
	torrents []string
	files    []string      // names in dir, of files or folders
	infoHash metainfo.Hash // of the first torrent
}

// wanted returns what a peer serves or downloads.
func (d *dataset) wanted(p Peer) (torrents, files []string) {
	if p.torrent > 0 {
		return d.torrents[p.torrent-1 : p.torrent], d.files[p.torrent-1 : p.torrent]
	}
	return d.torrents, d.files
}

// torrentsOf returns how many torrents a peer serves or downloads.
func (s Scenario) torrentsOf(p Peer) int {
	if p.torrent > 0 {
		return 1
	}
	return s.Torrents
}

// dataset makes the data of a scenario. Its bytes depend on the seed only, unless it has data of
// its own.
func (h *fixtures) dataset(ctx context.Context, s Scenario) (*dataset, error) {
	key := dataKey{s.Seed, s.Size, s.Pieces, s.Torrents, s.foreign(), s.data}
	if d, ok := h.datasets[key]; ok {
		return d, nil
	}
	dir, err := os.MkdirTemp(h.scratch, "seed-")
	if err != nil {
		return nil, err
	}
	var paths []string
	if s.data != "" {
		dir, paths = filepath.Dir(s.data), []string{s.data}
	} else {
		for i := range s.Torrents {
			name := dataName
			if i > 0 {
				name = fmt.Sprintf("%s-%d", dataName, i+1)
			}
			paths = append(paths, filepath.Join(dir, name))
			if err := testbed.RandomFile(paths[i], dataSeed(s.Seed, i), int64(s.Size)); err != nil {
				return nil, err
			}
		}
	}
	d := &dataset{dir: dir}
	for _, path := range paths {
		o := client.CreateOptions{PieceLength: int64(s.Pieces), ShortPieces: true}
		if key.tracked {
			o.Trackers = [][]string{{trackerURL}}
		}
		c, err := client.Create(ctx, path, o)
		if err != nil {
			return nil, err
		}
		if len(d.torrents) == 0 {
			d.infoHash = c.Source.InfoHash
		}
		torrent := path + ".torrent"
		if err := os.WriteFile(torrent, c.Torrent, 0o644); err != nil {
			return nil, err
		}
		d.torrents, d.files = append(d.torrents, torrent), append(d.files, filepath.Base(path))
	}
	h.datasets[key] = d
	return d, nil
}

// dataSeed returns the seed of a file's bytes.
func dataSeed(seed uint64, number int) (key [32]byte) {
	binary.LittleEndian.PutUint64(key[:], seed)
	key[8] = byte(number)
	return key
}
