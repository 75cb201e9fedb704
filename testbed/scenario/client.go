package scenario

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"braid/node/event"
	"braid/testbed"
)

// Braid is the client that a peer runs unless it says otherwise. Iperf3 is no BitTorrent client:
// its leecher receives as many bytes as a torrent has over one connection of the kernel's TCP.
const (
	Braid  = "braid"
	Iperf3 = "iperf3"
)

// clientRun says what another client serves or downloads, and where.
type clientRun struct {
	seed      bool
	torrents  []string // .torrent files, with the tracker in them
	dir, home string

	// for iperf3
	from  netip.Addr // the seed
	bytes int64
	tcp   string // the kernel's congestion controller; "": its default
}

// otherClient is a client other than braid.
type otherClient struct {
	probe   []string                          // a command that fails if the client is not installed
	command func(clientRun) ([]string, error) // that runs it
}

// clients are the other clients. They keep their default settings, except for the place of the
// data, the accepted licence, and that they go on serving. Their traffic to the Internet ends at
// their namespace. All of them speak TCP; libtorrent, qBittorrent and transmission also speak µTP,
// and choose. Python is the system's, since libtorrent comes from its package.
var clients = map[string]otherClient{
	Iperf3:         {[]string{"iperf3", "--version"}, iperf3},
	"aria2":        {[]string{"aria2c", "--version"}, aria2},
	"libtorrent":   {[]string{"/usr/bin/python3", "-c", "import libtorrent"}, libtorrent},
	"qbittorrent":  {[]string{"qbittorrent-nox", "--version"}, qbittorrent},
	"transmission": {[]string{"transmission-daemon", "--version"}, transmission},
}

func iperf3(r clientRun) ([]string, error) {
	if r.seed {
		return []string{"iperf3", "--server", "--forceflush"}, nil
	}
	command := []string{"iperf3", "--client", r.from.String(), "--reverse", "--bytes", fmt.Sprint(r.bytes)}
	if r.tcp != "" {
		command = append(command, "-C", r.tcp)
	}
	return command, nil
}

func aria2(r clientRun) ([]string, error) {
	command := []string{
		"aria2c", "--no-conf", "--dir=" + r.dir, "--seed-ratio=0.0", "--summary-interval=0",
		"--max-concurrent-downloads=64",
	}
	if r.seed {
		command = append(command, "--check-integrity=true")
	}
	return append(command, r.torrents...), nil
}

//go:embed libtorrent.py
var libtorrentScript string

func libtorrent(r clientRun) ([]string, error) {
	role := "leech"
	if r.seed {
		role = "seed"
	}
	return append([]string{"/usr/bin/python3", "-c", libtorrentScript, role, r.dir}, r.torrents...), nil
}

func qbittorrent(r clientRun) ([]string, error) {
	conf := filepath.Join(r.home, "qBittorrent", "config")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return nil, err
	}
	text := "[LegalNotice]\nAccepted=true\n[BitTorrent]\nSession\\DefaultSavePath=" + r.dir + "\n"
	if err := os.WriteFile(filepath.Join(conf, "qBittorrent.conf"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	command := []string{
		"qbittorrent-nox", "--profile=" + r.home, "--save-path=" + r.dir, "--skip-dialog=true",
	}
	if r.seed {
		command = append(command, "--skip-hash-check")
	}
	return append(command, r.torrents...), nil
}

func transmission(r clientRun) ([]string, error) {
	watch := filepath.Join(r.home, "watch")
	if err := os.MkdirAll(watch, 0o755); err != nil {
		return nil, err
	}
	for _, t := range r.torrents {
		b, err := os.ReadFile(t)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(watch, filepath.Base(t)), b, 0o644); err != nil {
			return nil, err
		}
	}
	return []string{
		"transmission-daemon", "--foreground", "--config-dir", filepath.Join(r.home, "config"),
		"--download-dir", r.dir, "--watch-dir", watch, "--no-incomplete-dir",
	}, nil
}

// missing returns a client of the scenario that is not installed; "" if there is none.
func (s Scenario) missing() string {
	for _, p := range s.Peers {
		probe := clients[p.Client].probe
		if probe != nil && exec.Command(probe[0], probe[1:]...).Run() != nil {
			return p.Client
		}
	}
	return ""
}

// Once nearlyAll of the data has come, the files are compared. Without files, a leecher counts as
// complete after all but 0.5 %: how much of it was in small packets is not known.
const (
	nearlyAll      = 0.97
	allWithoutFile = 0.995
)

// observe measures the progress of another client from outside: by the bytes that its host's device
// receives, and by comparing its files. It sends the progress as events of the client.
func (a *attempt) observe(ps *process, files []string) {
	total, share := int64(a.torrentsOf(ps.peer))*int64(a.Size), testbed.TCPPacket(a.ip.MTU()).PayloadShare()
	enough := nearlyAll
	if len(files) == 0 {
		enough = allWithoutFile
	}
	same := func() bool {
		return !slices.ContainsFunc(files, func(f string) bool {
			return testbed.SameFile(filepath.Join(a.data.dir, f), filepath.Join(ps.out, f)) != nil
		})
	}
	tick := time.NewTicker(max(a.Sample.D(), 20*time.Millisecond))
	defer tick.Stop()
	var began time.Time
	for done := false; !done; {
		select {
		case <-a.done:
			return
		case <-tick.C:
		}
		in, out := ps.host.Traffic()
		if out == 0 {
			continue // it is still starting
		}
		now := time.Now()
		if began.IsZero() {
			began = now
		}
		payload := int64(float64(in) * share)
		done = float64(payload) >= enough*float64(total) && same()
		paths := []event.Path{{BytesRead: in}}
		fetched := fetchedOf(payload, total, done, len(files) > 0)
		m := message{from: ps, said: &event.Progress{
			Event: "progress", T: now.Sub(began).Seconds(), Total: total, Fetched: fetched, Paths: paths,
		}}
		if done {
			m.said = &event.Done{
				Event: "done", Seconds: time.Since(began).Seconds(), Bytes: total, Fetched: fetched,
				Paths: paths,
			}
		}
		var err error
		if m.line, err = json.Marshal(m.said); err != nil {
			panic(err) // an event of ours
		}
		a.send(m)
	}
}

// fetchedOf returns how much payload another client has. payload is an estimate, from the bytes on
// its link. With files, the result is all of the data as soon as the files are right, and less
// before. Without files, it is the estimate: a client that counts as complete after all but 0.5 %
// has not received the rest.
func fetchedOf(payload, total int64, done, withFiles bool) int64 {
	switch {
	case !withFiles:
		return min(payload, total)
	case done:
		return total
	}
	return min(payload, total-1)
}

// onIP tells whether the peer is a host on IP, in a namespace of its own.
func (p Peer) onIP() bool { return p.Transport == TCP || p.Transport == QUIC || p.Transport == WebRTC }

// foreign tells whether some peer is another BitTorrent client. Then a tracker tells peers of each
// other.
func (s Scenario) foreign() bool {
	return slices.ContainsFunc(s.Peers, func(p Peer) bool { return p.Client != Braid && p.Client != Iperf3 })
}

// webRTC tells whether some peer uses WebRTC. Then a tracker over WebSocket tells these peers of
// each other.
func (s Scenario) webRTC() bool {
	return slices.ContainsFunc(s.Peers, func(p Peer) bool { return p.Transport == WebRTC })
}

// onIP tells whether some peer is a host on IP; onlyIP whether nothing needs SCION.
func (s Scenario) onIP() bool { return slices.ContainsFunc(s.Peers, Peer.onIP) }

func (s Scenario) onlyIP() bool {
	onSCION := func(p Peer) bool { return !p.onIP() }
	return len(s.Peers) > 0 && len(s.Traffic) == 0 && !slices.ContainsFunc(s.Peers, onSCION)
}

// startForeign starts another client.
func (a *attempt) startForeign(p Peer) (*process, error) {
	home, err := os.MkdirTemp(a.scratch, "home-")
	if err != nil {
		return nil, err
	}
	torrents, files := a.data.wanted(p)
	r := clientRun{seed: p.Role == Seed, torrents: torrents, dir: a.data.dir, home: home}
	if p.Client == Iperf3 {
		files, r.bytes, r.tcp = nil, int64(a.torrentsOf(p))*int64(a.Size), a.TCP
		for _, x := range a.peers {
			if x.peer.Client == Iperf3 && a.downloads(p, x.peer) {
				r.from = x.host.Addr()
			}
		}
	}
	out := ""
	if !r.seed && p.Client != Iperf3 {
		out = filepath.Join(a.scratch, p.Name)
		if err := os.MkdirAll(out, 0o755); err != nil {
			return nil, err
		}
		r.dir = out
	}
	command, err := clients[p.Client].command(r)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", p.Client, err)
	}
	ps, err := a.startProcess(p, a.ip.AddHost(p.AS), out, command, "HOME="+home)
	if err == nil && !r.seed {
		a.observing.Go(func() { a.observe(ps, files) })
	}
	return ps, err
}
