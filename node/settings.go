package node

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"braid/node/event"
	"braid/pathsel"
)

// Settings are the settings of a node for all torrents. A node with a state directory keeps them in
// settings.json there.
type Settings struct {
	Rates       Rates       `json:"rates"`
	Alternative Alternative `json:"alternative"`
	Queue       Queue       `json:"queue"`
	// Goal replaces the parts of a torrent's goal that are 0.
	Goal Goal `json:"goal"`
	// Dir is for torrents that name no directory. Complete data in it is moved to CompleteDir, if
	// that is not empty.
	Dir         string `json:"dir"`
	CompleteDir string `json:"complete_dir,omitempty"`
	// AddPaused adds torrents without starting them.
	AddPaused bool   `json:"add_paused,omitempty"`
	Policy    Policy `json:"policy"`
	// PeerLimit bounds the peers that each torrent dials; 0: as many as are useful.
	PeerLimit int   `json:"peer_limit,omitempty"`
	Watch     Watch `json:"watch"`
	// Script is a program that package daemon runs when a torrent is complete.
	Script    string `json:"script,omitempty"`
	ScriptOff bool   `json:"script_off,omitempty"`
	// Trackers are for torrents that name none and are not private. Each is a tier of its own.
	Trackers []string `json:"trackers,omitempty"`
	// NoPEX switches peer exchange off: see client.Config.PEX.
	NoPEX bool `json:"no_pex,omitempty"`
	// LSD announces torrents that are not private to the local network, and finds peers there.
	LSD bool `json:"lsd,omitempty"`
}

// RunsScript tells whether a program is run for complete torrents.
func (s Settings) RunsScript() bool { return s.Script != "" && !s.ScriptOff }

// Watch is a directory in which package daemon looks for .torrent files.
type Watch struct {
	Dir string `json:"dir,omitempty"`
	// Then says what happens to a file that was added: keep, rename or delete.
	Then string `json:"then,omitempty"`
}

// Policy says which paths connections may use. It holds the texts that the user has written; Parse
// makes a pathsel.Policy of them.
type Policy struct {
	Sequence   string        `json:"sequence,omitempty"`
	ACL        string        `json:"acl,omitempty"`
	Preference string        `json:"preference,omitempty"`
	MaxLatency time.Duration `json:"max_latency_ns,omitempty"`
	MinMTU     int           `json:"min_mtu,omitempty"`
}

// maxPolicy bounds the length of a policy's clauses, in bytes.
const maxPolicy = 64 << 10

// Parse reads the clauses.
func (p Policy) Parse() (out pathsel.Policy, err error) {
	if len(p.Sequence)+len(p.ACL)+len(p.Preference) > maxPolicy {
		return out, fmt.Errorf("the policy is longer than %d bytes", maxPolicy)
	}
	if p.MaxLatency < 0 || p.MinMTU < 0 {
		return out, errors.New("the policy's longest latency or smallest MTU is below 0")
	}
	out.MaxLatency, out.MinMTU = p.MaxLatency, p.MinMTU
	if out.Sequence, err = pathsel.ParseSequence(p.Sequence); err != nil {
		return out, err
	}
	if out.ACL, err = pathsel.ParseACL(p.ACL); err != nil {
		return out, err
	}
	out.Preference, err = pathsel.ParsePreference(p.Preference)
	return out, err
}

// RatesAt returns the rates that hold at a time, and whether they are the alternative ones.
func (s Settings) RatesAt(now time.Time) (r Rates, alternative bool) {
	if s.Alternative.holds(now) {
		return s.Alternative.Rates, true
	}
	return s.Rates, false
}

// maxPeerLimit bounds the limit of peers; more make no sense for one torrent.
const maxPeerLimit = 10_000

// Validate returns an error if settings are invalid.
func (s Settings) Validate() error {
	if _, err := s.Rates.Limits(); err != nil {
		return err
	}
	if err := s.Alternative.check(); err != nil {
		return fmt.Errorf("alternative rates: %w", err)
	}
	if _, err := s.Policy.Parse(); err != nil {
		return err
	}
	if err := s.Goal.check(); err != nil {
		return err
	}
	if s.PeerLimit < 0 || s.PeerLimit > maxPeerLimit {
		return fmt.Errorf("a limit of %d peers: want 0 to %d", s.PeerLimit, maxPeerLimit)
	}
	if _, err := parseTiers(s.Trackers); err != nil {
		return err
	}
	for _, dir := range []string{s.Dir, s.CompleteDir, s.Watch.Dir} {
		if dir != "" && !filepath.IsAbs(dir) {
			return fmt.Errorf("directory %q: want an absolute path", dir)
		}
	}
	if then := s.Watch.Then; !slices.Contains([]string{"", "keep", "rename", "delete"}, then) {
		return fmt.Errorf("watched files: %q: want keep, rename or delete", then)
	}
	return s.Queue.check()
}

const settingsFile = "settings.json"

// firstSettings reads the settings when the node is opened, and applies them to cfg.
func (n *Node) firstSettings(cfg *Config) error {
	n.settings = cfg.Settings
	if n.settings.Rates.isZero() {
		n.settings.Rates = RatesOf(cfg.Client.Limits)
	}
	var kept *Settings
	err := n.read(settingsFile, &kept)
	if err == nil && kept != nil {
		n.settings = *kept
		err = kept.Validate()
	}
	if err != nil {
		return fmt.Errorf("read the settings: %w; repair or remove %s",
			err, filepath.Join(n.state, settingsFile))
	}
	cfg.Client.PEX = !n.settings.NoPEX
	if n.settings.Policy == (Policy{}) {
		return nil
	}
	chosen := cfg.Client.Policy.Chosen
	cfg.Client.Policy, err = n.settings.Policy.Parse()
	cfg.Client.Policy.Chosen = chosen
	return err
}

// Dir returns the directory for torrents that name none.
func (n *Node) Dir() string { return n.Settings().Dir }

// Settings returns the settings.
func (n *Node) Settings() Settings {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.settings
}

// Change calls a function that changes some of the settings. It checks them, saves them and applies
// them at once. No other change can come between. An error of the function is returned as it is,
// and nothing changes. Change needs Config.Service.
func (n *Node) Change(change func(*Settings) error) error {
	n.setting.Lock()
	defer n.setting.Unlock()
	s := n.Settings()
	if err := change(&s); err != nil {
		return err
	}
	if err := s.Validate(); err != nil {
		return fmt.Errorf("change the settings: %w", err)
	}
	if n.limiter == nil {
		return errNotAdjustable
	}
	if err := n.write(settingsFile, s); err != nil {
		return fmt.Errorf("change the settings: %w", err)
	}
	n.mu.Lock()
	old := n.settings
	n.settings = s
	n.mu.Unlock()
	n.applyRates(time.Now())
	if s.Policy != old.Policy {
		p, _ := s.Policy.Parse() // it is valid
		p.Chosen = n.chosen
		n.session.SetPolicy(p)
		if n.http != nil {
			n.http.SetPolicy(p)
		}
		if n.dht != nil {
			n.dht.SetPolicy(p)
		}
	}
	n.session.SetPEX(!s.NoPEX)
	if n.nearby != nil && s.LSD != old.LSD {
		n.nearby.server.Switch(s.LSD)
		n.searchAllAgain()
	}
	if s.PeerLimit != old.PeerLimit {
		for _, t := range n.Torrents() {
			if r := t.current(); r != nil {
				r.transfer.SetMaxPeers(cmp.Or(t.Options().PeerLimit, s.PeerLimit))
			}
		}
	}
	n.poke()
	n.stream.publish(event.Changed{Event: "settings"})
	return nil
}

// applyRates applies the rates that hold now.
func (n *Node) applyRates(now time.Time) {
	if n.limiter == nil {
		return
	}
	r, _ := n.Settings().RatesAt(now)
	l, _ := r.Limits() // they are valid
	n.mu.Lock()
	same := reflect.DeepEqual(n.applied, l)
	n.applied = l
	n.mu.Unlock()
	if !same {
		n.limiter.Set(l)
	}
}
