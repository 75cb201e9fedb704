package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/pelletier/go-toml/v2"

	"braid/tracker/swarm"
	"braid/units"
)

// Config is the configuration file. What it does not set has the value of Default.
type Config struct {
	Listen      []string       `toml:"listen" comment:"Addresses to answer on: http://127.0.0.1:8080, udp://127.0.0.1:8080,\nscion://1-ff00:0:110,[127.0.0.1]:31080. On stats://127.0.0.1:8081 /stats and /metrics\nare answered over HTTP, to everybody who reaches that port, and nowhere else. Read at the start only, like all that follows up to max_peers_per_network."`
	AnnounceAt  []string       `toml:"announce_urls" comment:"Where peers reach this tracker: scion://1-ff00:0:110,[192.0.2.1]:31080, https://tracker.example. Peers that announce over IP\nare told the address on SCION, and those on SCION the one on IP, so that they find each other if a torrent names only one.\nEmpty: those of listen, as far as they name a host; it must be set behind a proxy or an address translator. The first 4 of each kind are told."`
	Data        string         `toml:"data" comment:"Directory of the journal. Empty: peers are forgotten with the process."`
	Store       string         `toml:"store" comment:"A Valkey or Redis server instead, which several trackers may share: redis://user@host:6379/0, or rediss:// with TLS.\nmaxmemory-policy must be noeviction. Not together with data."`
	StorePass   string         `toml:"store_password_file" comment:"File with the password for the store, which is better there than in a URL."`
	Sync        units.Duration `toml:"sync" comment:"How often the journal is written: what a crash may forget."`
	TrackerID   string         `toml:"tracker_id" comment:"What peers are told as the tracker's ID; empty: another at each start. Trackers that stand for each other may have the same."`
	MaxConns    int            `toml:"max_connections" comment:"HTTP connections at once, of each listener."`
	Lifetime    units.Duration `toml:"lifetime" comment:"A peer that has not announced for so long is forgotten. Longer than interval."`
	MaxPeers    int            `toml:"max_peers" comment:"Addresses of peers in memory; one takes up to 200 bytes, one alone in its swarm 300. One SCION AS may have half of them."`
	MaxPerHost  int            `toml:"max_peers_per_host" comment:"Addresses in one swarm of one host (IPv6: of one /64)."`
	MaxPerAS    int            `toml:"max_peers_per_as" comment:"Addresses in one swarm of one SCION AS."`
	MaxPerNet   int            `toml:"max_peers_per_network" comment:"Addresses in all swarms of one network: a /24 of IPv4, a /48 of IPv6, on SCION within its AS. 0: a sixteenth of max_peers."`
	Interval    units.Duration `toml:"interval" comment:"What peers are told to wait between announces, give or take a tenth.\nThis and what follows is read again on SIGHUP."`
	MinInterval units.Duration `toml:"min_interval" comment:"And at the least, if they have too few peers."`
	NumWant     int            `toml:"num_want" comment:"Peers in an answer if none says how many it wants."`
	MaxNumWant  int            `toml:"max_num_want" comment:"Peers in an answer at the most."`
	PerHostRate float64        `toml:"requests_per_host" comment:"Requests a second of one host (IPv6: of one /64) in the long run; 0: no limit."`
	PerASRate   float64        `toml:"requests_per_as" comment:"Requests a second of one SCION AS in the long run; 0: no limit."`
	Paths       bool           `toml:"path_knowledge" comment:"Peers on SCION may report what they have measured of paths, and are told near peers and good paths.\nIt is kept beside the swarms, with the addresses of those who have reported, for two hours; see PROTOCOL.md."`
	Allow       string         `toml:"allow" comment:"File with the info hashes that are served, in hexadecimal digits, one a line. Empty: all."`
	Deny        string         `toml:"deny" comment:"File with the info hashes that are not served."`
	Keys        string         `toml:"keys" comment:"File with the keys of a private tracker, one a line; announce URLs are then http://HOST/KEY/announce.\nUDP takes the key from the URL too (BEP 41)."`
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

// maxConfig bounds a configuration file in bytes, so that a wrong file is noticed.
const maxConfig = 1 << 20

// Read reads a configuration file over cfg. Keys that it does not know are errors.
func (cfg *Config) Read(r io.Reader) error {
	d := toml.NewDecoder(io.LimitReader(r, maxConfig))
	d.DisallowUnknownFields()
	err := d.Decode(cfg)
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

// String is the configuration file, with comments. A password in the store's URL is not shown.
func (cfg Config) String() string {
	if u, err := url.Parse(cfg.Store); err == nil {
		cfg.Store = u.Redacted()
	} else {
		cfg.Store = "(not shown: it is not a URL)"
	}
	var b bytes.Buffer
	if err := toml.NewEncoder(&b).Encode(cfg); err != nil {
		panic(err) // no value of Config is one that TOML lacks
	}
	return b.String()
}

// Limits are those of the store.
func (cfg Config) Limits() swarm.Limits {
	return swarm.Limits{Lifetime: cfg.Lifetime.D(), Members: cfg.MaxPeers, PerHost: cfg.MaxPerHost, PerAS: cfg.MaxPerAS, PerNetwork: cfg.MaxPerNet}
}

// Check tells what a tracker would not start with: values out of their range, lists that cannot be read.
func (cfg Config) Check() error {
	_, err := newGate(cfg)
	return err
}

func (cfg Config) check() error {
	for _, c := range []struct {
		ok   bool
		want string
	}{
		{cfg.Interval.D() >= time.Second && cfg.Interval.D() <= 24*time.Hour, "interval: want 1s to 24h"},
		{cfg.MinInterval.D() >= 0 && cfg.MinInterval <= cfg.Interval, "min_interval: want 0s up to interval"},
		{cfg.Lifetime.D() > cfg.Interval.D()*11/10, "lifetime: want more than interval and a tenth, or peers are forgotten between announces"},
		{cfg.Sync.D() >= 10*time.Millisecond, "sync: want at least 10ms"},
		{cfg.Data == "" || cfg.Store == "", "data, store: want one of them, not both"},
		{len(cfg.TrackerID) <= 64, "tracker_id: want at most 64 bytes"},
		{cfg.MaxConns > 0, "max_connections: want at least 1"},
		{cfg.MaxPeers > 0 && cfg.MaxPerHost > 0 && cfg.MaxPerAS > 0, "max_peers, max_peers_per_host, max_peers_per_as: want at least 1"},
		{cfg.MaxPerNet >= 0, "max_peers_per_network: want 0 for a sixteenth of max_peers, or a number of addresses"},
		{cfg.NumWant >= 0 && cfg.MaxNumWant >= cfg.NumWant && cfg.MaxNumWant <= 1000, "num_want, max_num_want: want 0 to 1000, the second not below the first"},
		{cfg.PerHostRate >= 0 && cfg.PerASRate >= 0, "requests_per_host, requests_per_as: want 0 or more"},
	} {
		if !c.ok {
			return errors.New(c.want)
		}
	}
	return nil
}
