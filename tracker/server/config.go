package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"braid/tracker/swarm"
	"braid/units"
)

// Config is the configuration file. Settings that are missing in the file have the value of
// Default.
type Config struct {
	Listen      []string       `toml:"listen"`
	AnnounceAt  []string       `toml:"announce_urls"`
	Data        string         `toml:"data"`
	Store       string         `toml:"store"`
	StorePass   string         `toml:"store_password_file"`
	Sync        units.Duration `toml:"sync"`
	TrackerID   string         `toml:"tracker_id"`
	MaxConns    int            `toml:"max_connections"`
	Lifetime    units.Duration `toml:"lifetime"`
	MaxPeers    int            `toml:"max_peers"`
	MaxPerHost  int            `toml:"max_peers_per_host"`
	MaxPerAS    int            `toml:"max_peers_per_as"`
	MaxPerNet   int            `toml:"max_peers_per_network"`
	Interval    units.Duration `toml:"interval"`
	MinInterval units.Duration `toml:"min_interval"`
	NumWant     int            `toml:"num_want"`
	MaxNumWant  int            `toml:"max_num_want"`
	PerHostRate float64        `toml:"requests_per_host"`
	PerASRate   float64        `toml:"requests_per_as"`
	Paths       bool           `toml:"path_knowledge"`
	Allow       string         `toml:"allow"`
	Deny        string         `toml:"deny"`
	Keys        string         `toml:"keys"`
}

// comments explain the settings in the file. Each line of a text is a line there.
var comments = map[string]string{
	"listen": "Addresses to listen on: http://127.0.0.1:8080, udp://127.0.0.1:8080, " +
		"scion://1-ff00:0:110,[127.0.0.1]:31080.\n" +
		"Only a listener such as stats://127.0.0.1:8081 answers /stats and /metrics, over HTTP " +
		"and to everybody who reaches it.\n" +
		"This setting and the following ones, down to max_peers_per_network, are read only at the " +
		"start.",
	"announce_urls": "Where peers reach this tracker: scion://1-ff00:0:110,[192.0.2.1]:31080, " +
		"https://tracker.example.\n" +
		"Peers that announce over IP learn the address on SCION, and the other way round, so that " +
		"they find each other even if\n" +
		"a torrent names only one. Peers get at most 4 addresses of each kind. Empty: the " +
		"addresses of listen that name a host.\n" +
		"Set it if the tracker is behind a proxy or an address translator.",
	"data": "Directory of the journal. Empty: peers are forgotten when the tracker ends.",
	"store": "A Valkey or Redis server instead of data, which several trackers may share: " +
		"redis://user@host:6379/0, or rediss:// for TLS.\n" +
		"The server's maxmemory-policy must be noeviction.",
	"store_password_file": "File with the password for the store. It is safer there than in the URL.",
	"sync":                "How often the journal is written. A crash loses at most the announces of that time.",
	"tracker_id": "The tracker's ID in its answers. Empty: a new one at each start. Trackers that replace " +
		"each other may share one.",
	"max_connections": "Maximum number of simultaneous HTTP connections per listener.",
	"lifetime": "A peer is forgotten if it has not announced for this time. It must be longer than " +
		"interval.",
	"max_peers": "Maximum number of peer addresses in memory. Each takes up to 200 bytes, or 300 if it is " +
		"alone in its swarm.\n" +
		"A single SCION AS may have half of them. As many peers over WebSocket have room " +
		"besides, and take up to 900 bytes each.",
	"max_peers_per_host": "Maximum number of addresses of one host (IPv6: of one /64) in one swarm.",
	"max_peers_per_as":   "Maximum number of addresses of one SCION AS in one swarm.",
	"max_peers_per_network": "Maximum number of addresses of one network in all swarms. " +
		"A network is a /24 of IPv4 or a /48 of IPv6,\n" +
		"on SCION within its AS. 0: a sixteenth of max_peers.",
	"interval": "Time between the announces of a peer. Each answer varies it by up to a tenth.\n" +
		"This setting and the following ones are read again on SIGHUP.",
	"min_interval":      "Shortest time between the announces of a peer that has too few peers.",
	"num_want":          "Number of peers in an answer if the request names none.",
	"max_num_want":      "Maximum number of peers in an answer.",
	"requests_per_host": "Maximum requests per second of one host (IPv6: of one /64), on average; 0: no limit.",
	"requests_per_as":   "Maximum requests per second of one SCION AS, on average; 0: no limit.",
	"path_knowledge": "Accept path measurements from peers on SCION, and tell them near peers and good paths.\n" +
		"The measurements are stored with the swarms for two hours, with the addresses of the " +
		"reporting peers; see PROTOCOL.md.",
	"allow": "File with the info hashes to serve, in hexadecimal digits, one per line. Empty: all.",
	"deny":  "File with the info hashes not to serve.",
	"keys": "File with the keys of a private tracker, one per line. Announce URLs are then " +
		"http://HOST/KEY/announce.\n" +
		"Over UDP the key is in the URL too (BEP 41).",
}

// Default is the configuration of a public tracker of medium size.
func Default() Config {
	return Config{
		Sync: units.Duration(swarm.DefaultSync), MaxConns: 10_000,
		Lifetime: units.Duration(swarm.DefaultLifetime), MaxPeers: swarm.DefaultMembers,
		MaxPerHost: swarm.DefaultPerHost, MaxPerAS: swarm.DefaultPerAS,
		Interval: units.Duration(20 * time.Minute), MinInterval: units.Duration(15 * time.Second),
		NumWant: 50, MaxNumWant: 200, PerHostRate: 50, PerASRate: 2000, Paths: true,
	}
}

// maxConfig bounds a configuration file in bytes. A larger one must be another kind of file.
const maxConfig = 1 << 20

// Read applies a configuration file to cfg. Unknown settings are errors.
func (cfg *Config) Read(r io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err != nil {
		return err
	}
	if len(text) > maxConfig {
		return fmt.Errorf("larger than %d bytes", maxConfig)
	}
	d := toml.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(cfg)
	var strict *toml.StrictMissingError
	var syntax *toml.DecodeError
	switch {
	case errors.As(err, &strict):
		return fmt.Errorf("unknown settings:\n%s", strict.String())
	case errors.As(err, &syntax):
		row, _ := syntax.Position()
		return fmt.Errorf("line %d: %w", row, err)
	}
	return err
}

// String is the configuration file, with comments. It hides a password in the store's URL.
func (cfg Config) String() string {
	if u, err := url.Parse(cfg.Store); err == nil && cfg.checkStore() == nil {
		cfg.Store = u.Redacted()
	} else {
		cfg.Store = "(not shown: it is malformed)"
	}
	b, err := toml.Marshal(cfg)
	if err != nil {
		panic(err) // no value of Config is one that TOML lacks
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		name, _, _ := strings.Cut(line, " = ")
		for comment := range strings.Lines(comments[name]) {
			out.WriteString("# " + strings.TrimSuffix(comment, "\n") + "\n")
		}
		out.WriteString(line)
	}
	return out.String()
}

// Limits are the limits of the store.
func (cfg Config) Limits() swarm.Limits {
	return swarm.Limits{
		Lifetime: cfg.Lifetime.D(), Members: cfg.MaxPeers,
		PerHost: cfg.MaxPerHost, PerAS: cfg.MaxPerAS, PerNetwork: cfg.MaxPerNet,
	}
}

// Check returns an error if a tracker would not start: a value is out of range, or a list cannot be
// read.
func (cfg Config) Check() error {
	_, err := newAdmission(cfg)
	return err
}

func (cfg Config) check() error {
	for _, c := range []struct {
		ok   bool
		want string
	}{
		{cfg.Interval.D() >= time.Second && cfg.Interval.D() <= 24*time.Hour, "interval: want 1s to 24h"},
		{cfg.MinInterval.D() >= 0 && cfg.MinInterval <= cfg.Interval, "min_interval: want 0s up to interval"},
		{cfg.Lifetime.D() > cfg.Interval.D()*11/10,
			"lifetime: want more than interval plus a tenth, or peers are forgotten between announces"},
		{cfg.Sync.D() >= 10*time.Millisecond, "sync: want at least 10ms"},
		{cfg.Data == "" || cfg.Store == "", "data, store: want one of them, not both"},
		{len(cfg.TrackerID) <= 64, "tracker_id: want at most 64 bytes"},
		{cfg.MaxConns > 0, "max_connections: want at least 1"},
		{cfg.MaxPeers > 0 && cfg.MaxPerHost > 0 && cfg.MaxPerAS > 0,
			"max_peers, max_peers_per_host, max_peers_per_as: want at least 1"},
		{cfg.MaxPerNet >= 0,
			"max_peers_per_network: want 0 for a sixteenth of max_peers, or a number of addresses"},
		{cfg.NumWant >= 0 && cfg.MaxNumWant >= cfg.NumWant && cfg.MaxNumWant <= 1000,
			"num_want, max_num_want: want 0 to 1000, and max_num_want at least num_want"},
		{cfg.PerHostRate >= 0 && cfg.PerASRate >= 0, "requests_per_host, requests_per_as: want 0 or more"},
	} {
		if !c.ok {
			return errors.New(c.want)
		}
	}
	return cfg.checkStore()
}

func (cfg Config) checkStore() error {
	if cfg.Store == "" {
		return nil
	}
	return swarm.CheckStore(cfg.Store)
}
