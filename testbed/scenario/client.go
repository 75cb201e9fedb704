package scenario

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"braid/node/event"
	"braid/testbed"
)

// Braid is the client that a peer runs unless it says otherwise.
const Braid = "braid"

// clientRun says what another client serves or downloads, and where.
type clientRun struct {
	seed      bool
	torrents  []string // .torrent files, with the tracker in them
	dir, home string
}

// clientCommand runs a client.
type clientCommand struct {
	program string
	args    []string
}

// clients are the other clients. They keep their default settings, except for the place of the data, the accepted
// licence, and that they go on serving. Their traffic to the Internet ends at their namespace. All of them speak
// TCP; libtorrent, qBittorrent and transmission also speak µTP, and choose.
var clients = map[string]func(clientRun) (clientCommand, error){
	"aria2":        aria2,
	"libtorrent":   libtorrent,
	"qbittorrent":  qbittorrent,
	"transmission": transmission,
}

func clientNames() []string { return slices.Sorted(maps.Keys(clients)) }

func aria2(r clientRun) (clientCommand, error) {
	args := []string{"--no-conf", "--dir=" + r.dir, "--seed-ratio=0.0", "--summary-interval=0", "--max-concurrent-downloads=64"}
	if r.seed {
		args = append(args, "--check-integrity=true")
	}
	return clientCommand{"aria2c", append(args, r.torrents...)}, nil
}

//go:embed libtorrent.py
var libtorrentScript string

func libtorrent(r clientRun) (clientCommand, error) {
	role := "leech"
	if r.seed {
		role = "seed"
	}
	// The system's Python: libtorrent comes from its package.
	return clientCommand{"/usr/bin/python3", append([]string{"-c", libtorrentScript, role, r.dir}, r.torrents...)}, nil
}

func qbittorrent(r clientRun) (clientCommand, error) {
	conf := filepath.Join(r.home, "qBittorrent", "config")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return clientCommand{}, err
	}
	text := "[LegalNotice]\nAccepted=true\n[BitTorrent]\nSession\\DefaultSavePath=" + r.dir + "\n"
	if err := os.WriteFile(filepath.Join(conf, "qBittorrent.conf"), []byte(text), 0o600); err != nil {
		return clientCommand{}, err
	}
	args := []string{"--profile=" + r.home, "--save-path=" + r.dir, "--skip-dialog=true"}
	if r.seed {
		args = append(args, "--skip-hash-check")
	}
	return clientCommand{"qbittorrent-nox", append(args, r.torrents...)}, nil
}

func transmission(r clientRun) (clientCommand, error) {
	watch := filepath.Join(r.home, "watch")
	if err := os.MkdirAll(watch, 0o755); err != nil {
		return clientCommand{}, err
	}
	for _, t := range r.torrents {
		b, err := os.ReadFile(t)
		if err != nil {
			return clientCommand{}, err
		}
		if err := os.WriteFile(filepath.Join(watch, filepath.Base(t)), b, 0o644); err != nil {
			return clientCommand{}, err
		}
	}
	return clientCommand{"transmission-daemon", []string{
		"--foreground", "--config-dir", filepath.Join(r.home, "config"), "--download-dir", r.dir, "--watch-dir", watch, "--no-incomplete-dir",
	}}, nil
}

// missing returns a client of the scenario that is not installed; "" if there is none.
func (s Scenario) missing() string {
	for _, p := range s.Peers {
		probe := map[string][]string{
			"aria2": {"aria2c", "--version"}, "libtorrent": {"/usr/bin/python3", "-c", "import libtorrent"},
			"qbittorrent": {"qbittorrent-nox", "--version"}, "transmission": {"transmission-daemon", "--version"},
		}[p.Client]
		if len(probe) > 0 && exec.Command(probe[0], probe[1:]...).Run() != nil {
			return p.Client
		}
	}
	return ""
}

// observer measures the progress of another client from outside: by the bytes that its host's device receives,
// and by comparing its files. It sends the progress as events of the client.
type observer struct {
	process *process
	host    *testbed.IPHost
	share   float64 // payload's part of the received bytes
	every   time.Duration
	total   int64
	same    func() bool // all files are there, and right
	send    func(message)
	stop    chan struct{}
	working sync.WaitGroup
}

// nearlyAll is the part of the data after which the files are compared.
const nearlyAll = 0.97

func (o *observer) watch() {
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	var began time.Time
	for {
		select {
		case <-o.stop:
			return
		case <-tick.C:
		}
		in, out := o.host.Traffic()
		if out == 0 {
			continue // it is still starting
		}
		now := time.Now()
		if began.IsZero() {
			began = now
		}
		payload := int64(float64(in) * o.share)
		fetched := min(payload, o.total-1)
		done := float64(payload) >= nearlyAll*float64(o.total) && o.same()
		paths := []event.Path{{BytesRead: in}}
		m := message{said: &event.Progress{Event: "progress", T: seconds(now.Sub(began)), Total: o.total, Fetched: fetched, Paths: paths}}
		if done {
			m.said = &event.Done{Event: "done", Seconds: seconds(time.Since(began)), Bytes: o.total, Fetched: o.total, Paths: paths}
		}
		var err error
		if m.line, err = json.Marshal(m.said); err != nil {
			panic(err) // an event of ours
		}
		o.send(m)
		if done {
			return
		}
	}
}

func (o *observer) end() {
	close(o.stop)
	o.working.Wait()
}

// onIP tells whether the peer is a host on IP, in a namespace of its own.
func (p Peer) onIP() bool { return p.Transport == TCP || p.Transport == QUIC || p.Transport == WebRTC }

// foreign tells whether some peer is another client. Then a tracker tells peers of each other.
func (s Scenario) foreign() bool {
	return slices.ContainsFunc(s.Peers, func(p Peer) bool { return p.Client != Braid })
}

// webRTC tells whether some peer uses WebRTC. Then a tracker over WebSocket tells these peers of each other.
func (s Scenario) webRTC() bool {
	return slices.ContainsFunc(s.Peers, func(p Peer) bool { return p.Transport == WebRTC })
}

// onIP tells whether some peer is a host on IP; onlyIP whether nothing needs SCION.
func (s Scenario) onIP() bool { return slices.ContainsFunc(s.Peers, Peer.onIP) }

func (s Scenario) onlyIP() bool {
	return len(s.Peers) > 0 && len(s.Traffic) == 0 && !slices.ContainsFunc(s.Peers, func(p Peer) bool { return !p.onIP() })
}

// OnlyIP tells whether no variant needs SCION.
func (s Scenario) OnlyIP() bool {
	for _, v := range s.Variants {
		if x, err := s.in(v); err != nil || !x.onlyIP() {
			return false
		}
	}
	return true
}

// startForeign starts another client.
func (a *attempt) startForeign(p Peer) error {
	home, err := os.MkdirTemp(a.scratch, "home-")
	if err != nil {
		return err
	}
	torrents, files := a.data.wanted(p)
	r := clientRun{seed: p.Role == Seed, torrents: torrents, dir: a.data.dir, home: home}
	out := ""
	if !r.seed {
		out = filepath.Join(a.scratch, p.Name)
		if err := os.MkdirAll(out, 0o755); err != nil {
			return err
		}
		r.dir = out
	}
	c, err := clients[p.Client](r)
	if err != nil {
		return fmt.Errorf("prepare %s: %w", p.Client, err)
	}
	cmd, host, err := a.onHost(p.AS, c.program, c.args...)
	if err != nil {
		return err
	}
	cmd.Env = append(os.Environ(), "HOME="+home)
	ps, err := a.startProcess(cmd, host, p, out)
	if err != nil || r.seed {
		return err
	}
	stop := make(chan struct{})
	o := &observer{
		process: ps, host: host, share: testbed.TCPShare(a.ip.MTU()), every: max(a.Sample.D(), 20*time.Millisecond),
		total: int64(len(files)) * int64(a.Size), stop: stop,
		same: func() bool {
			return !slices.ContainsFunc(files, func(f string) bool {
				return testbed.SameFile(filepath.Join(a.data.dir, f), filepath.Join(out, f)) != nil
			})
		},
		send: func(m message) {
			m.from, m.at = ps, time.Now()
			select {
			case a.messages <- m:
			case <-stop:
			}
		},
	}
	a.observers = append(a.observers, o)
	o.working.Go(o.watch)
	return nil
}
