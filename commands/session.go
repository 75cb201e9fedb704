package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/node"
	"braid/scionnet"
	"braid/scionnet/congestion"
	"braid/tracker"
	"braid/tracker/wire"
	"braid/units/lists"
)

// sessionFlags are common to the commands that talk to peers and end.
func sessionFlags() []cli.Flag {
	output := []cli.Flag{
		flags.Events(),
		statusFlag(),
		flags.Time("sample", time.Second, "with --json: print the progress every `TIME`, at least "+
			"10ms"),
	}
	return append(output, nodeFlags()...)
}

// nodeFlags configure a node.
func nodeFlags() []cli.Flag {
	return slices.Concat(flags.Selector(), peerFlags(), limitFlags(), policyFlags(),
		announceFlags(), scionFlags(), []cli.Flag{forceFlag()})
}

// peerFlags say how peers are reached.
func peerFlags() []cli.Flag {
	return append([]cli.Flag{
		transportFlag(),
		flags.List("listen", "accept peers on `ADDR`: 1-ff00:0:111,[127.0.0.1]:31000, or "+
			"host:port for TCP or QUIC (repeatable)"),
		flags.Choice("pex", "on", "exchange addresses of peers with connected peers, over SCION "+
			"and IP, except in private torrents: `WHETHER` is on or off", "on", "off"),
		flags.Choice("lsd", "off", "announce torrents that are not private to the local network, "+
			"and find peers there: `WHETHER` is on or off", "on", "off"),
		flags.Count("max-paths", client.DefaultMaxPaths, "use at most `N` paths to each peer"),
		flags.Int("max-requests", 0, "keep at most `N` requests outstanding on each connection "+
			"(default: as many as are useful)"),
		flags.Congestion(),
		flags.String("tcp-congestion", "", "`NAME` of the congestion controller of TCP "+
			"connections, one of the kernel's, such as cubic or bbr (default: the system's)"),
		flags.Int("max-uploads", 0, "serve at most `N` peers of each torrent at a time, over all "+
			"of their paths; the others take turns, by network and host (default: all)"),
		flags.File("identity", "", "`FILE` with the private key that identifies this client to "+
			"peers; created if missing (default: identity.pem in the user's configuration "+
			"directory; of braid daemon, in that of --state)"),
		flags.Verbose(),
	}, iceFlags()...)
}

// logger returns a log of warnings, and of more with --verbose.
func logger(cmd *cli.Command) *slog.Logger {
	level := slog.LevelWarn
	switch n := cmd.Count("verbose"); {
	case n > 1:
		level = slog.LevelDebug
	case n == 1:
		level = slog.LevelInfo
	}
	h := terminal.Stderr(cmd).Handler(level)
	if level == slog.LevelWarn { // with --verbose the user wants every line
		h = newCalm(h)
	}
	return slog.New(h)
}

// openNamed reads a torrent that the user has named. A malformed magnet link is a usage error.
func openNamed(ctx context.Context, name string) (client.Source, error) {
	s, err := client.OpenSource(ctx, name)
	if err != nil && strings.HasPrefix(strings.ToLower(name), "magnet:") {
		return s, program.UsageErrorf("%w", err)
	}
	return s, err
}

// openSource reads the only torrent that the command line names.
func openSource(ctx context.Context, cmd *cli.Command) (client.Source, error) {
	if cmd.Args().Len() != 1 {
		return client.Source{},
			program.UsageErrorf("name one torrent; see braid %s --help", cmd.Name)
	}
	return openNamed(ctx, envOf(cmd).source(cmd.Args().First()))
}

// sourceArgs returns the arguments of a command that takes torrents.
func (f *cmdline) sourceArgs() []string {
	return lists.Map(f.Args().Slice(), envOf(f.Command).source)
}

// sources reads the torrents that the command line names.
func (t *task) sources(ctx context.Context) ([]listedSource, error) {
	if t.Args().Len() == 0 {
		return nil, program.UsageErrorf("name at least one torrent; see braid %s --help", t.Name)
	}
	return readSources(ctx, t.sourceArgs(), t.log)
}

// openNode opens a node for these torrents, with more sources of peers, and shows its events.
func (t *task) openNode(
	ctx context.Context, torrents []node.Options, sources ...node.Source,
) (*node.Node, error) {
	cfg := t.node(t.log)
	if cfg.DHT = t.dht(); t.Err != nil {
		return nil, t.Err
	}
	cfg.Torrents, cfg.Sources = torrents, sources
	if t.Bool("interactive") {
		cfg.SCION.Choose = newQuestions(envOf(t.Command).In, terminal.Stderr(t.Command)).paths
	}
	n, err := t.start(ctx, cfg, t.out.event)
	if errors.Is(err, node.ErrNothingToChoose) {
		err = program.UsageErrorf("--interactive: %w", err)
	}
	return n, err
}

// start opens a node, and calls show for its events. The end of the task closes the node and waits
// until all events are shown.
func (t *task) start(ctx context.Context, cfg node.Config, show func(any)) (*node.Node, error) {
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return nil, listenError(err)
	}
	shown := follow(n, show)
	t.atEnd(func() error { defer shown(); return n.Close() })
	return n, nil
}

// node reads the flags that configure a node.
func (f *cmdline) node(log *slog.Logger) node.Config {
	cfg := node.Config{Identity: f.String("identity"), Logger: log, Client: f.client()}
	// Without a directory for settings, the key does not last.
	cfg.ConfigDir, _ = envOf(f.Command).configDir()
	if f.String("pex") != "" { // the command has the flags of peer sources: see groupFlags
		cfg.Knowledge = f.knowledge()
		cfg.Settings.NoPEX, cfg.Settings.LSD = f.String("pex") == "off", f.String("lsd") == "on"
	}
	http := f.filesOnSCION()
	over := f.transports()
	f.Wantf(!cfg.Settings.LSD || over.ip != client.NoIP,
		"--lsd on sends packets on IP, which --transport scion forbids")
	cfg.Client.WebRTC, cfg.Client.IP = over.rtc, over.ip
	if over.scion {
		var at []scionnet.Addr // addresses that the host must have
		for _, p := range cfg.Client.Listen {
			if a, ok := p.SCION(); ok {
				at = append(at, a)
			}
		}
		at = append(at, http...)
		cmd := f.Command
		cfg.SCION = node.SCION{
			Required: f.IsSet("config-dir") || f.IsSet("sciond") || len(http) > 0,
			Likely:   hasSCION(cmd),
			Open: func(ctx context.Context) (*scionnet.Host, error) {
				return openHost(ctx, cmd, log, at...)
			},
		}
	}
	return cfg
}

// client reads the flags that configure the session.
func (f *cmdline) client() client.Config {
	return client.Config{
		Listen:        flags.ReadAll(f, "listen", client.ParseListen),
		Selector:      flags.ReadSelector(&f.Reader),
		Policy:        f.policy(),
		Limits:        f.limits(),
		Congestion:    flags.Read(f, "congestion", congestion.ParseAlgorithm),
		TCPCongestion: f.String("tcp-congestion"),
		MaxPaths:      f.Int("max-paths"),
		MaxRequests:   f.Int("max-requests"),
		MaxUploads:    f.Int("max-uploads"),
	}
}

// announceFlags are common to the commands that let peers find them.
func announceFlags() []cli.Flag {
	return []cli.Flag{
		flags.List("tracker", "ask the tracker at `URL`, too, in addition to the torrent's own "+
			"trackers: http, https, udp or scion (repeatable)"),
		flags.Bool("no-trackers", "ask no tracker of the torrent"),
		flags.Choice("dht", "", "take part in the DHT, where peers find each other without a "+
			"tracker: `WHERE` is on (over SCION and IP) or off (default: over SCION only)",
			"on", "off"),
		dhtNodeFlag(),
		dhtItemFlag(),
		flags.Choice("peer-order", "mixed", "ask trackers on SCION for peers in `ORDER`: random, "+
			"nearest, or mixed (half of each)", "random", "nearest", "mixed"),
		flags.Choice("path-knowledge", "share", "`HOW` to use the path knowledge of trackers on "+
			"SCION: share (try the paths first that trackers recommend, and send them "+
			"measurements of paths), use (send no measurements), or off", "share", "use", "off"),
	}
}

// trackers returns the tiers of trackers to ask for a torrent: first those of the command line,
// then those of the torrent. Wrong URLs of the command line are errors; those of the torrent are
// logged.
func (f *cmdline) trackers(s client.Source, log *slog.Logger) (out [][]tracker.URL) {
	for _, u := range flags.ReadAll(f, "tracker", tracker.ParseURL) {
		out = append(out, []tracker.URL{u.OfUser()})
	}
	if f.Bool("no-trackers") {
		return out
	}
	return append(out, node.ParseTrackers(s, log)...)
}

// knowledge reads --peer-order and --path-knowledge.
func (f *cmdline) knowledge() node.Knowledge {
	how := f.String("path-knowledge")
	if how == "off" {
		f.Wantf(!f.IsSet("peer-order"),
			"--peer-order has no effect with --path-knowledge off: give only one of them")
		return node.Knowledge{}
	}
	order := flags.Read(f, "peer-order", wire.ParseOrder)
	return node.Knowledge{Peers: order, Use: true, Share: how == "share"}
}

// peers reads --peer. The name in scion://name:31000 is looked up in the hosts files and in DNS;
// all its addresses are peers.
func (f *cmdline) peers(ctx context.Context) (out []client.Peer) {
	for _, text := range f.StringSlice("peer") {
		name, isURL := strings.CutPrefix(text, "scion://")
		host, port, err := net.SplitHostPort(name)
		if !isURL || err != nil || !scionnet.IsName(host) {
			p, err := client.ParsePeer(name)
			if _, ok := p.SCION(); err == nil && isURL && !ok {
				err = fmt.Errorf("peer %q: want scion://name:port, or an address on SCION", text)
			}
			if err != nil {
				f.Wrongf("--peer: %w", err)
			}
			out = append(out, p)
			continue
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			f.Wrongf("--peer: peer %q: want a port from 1 to 65535", text)
			continue
		}
		c, err := scionConfig(f.Command, nil)
		if err != nil {
			f.Note(err)
			continue
		}
		found, err := c.Names().Lookup(ctx, host, uint16(n))
		if err != nil {
			f.Note(fmt.Errorf("--peer: %w", err))
		}
		out = append(out, lists.Map(found, client.PeerAt)...)
	}
	return out
}

// transports are the ways in which peers may be reached.
type transports struct {
	scion bool
	ip    client.IPTransport
	rtc   *client.WebRTCConfig // nil: no WebRTC
}

func transportFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name:   "transport",
		Value:  []string{"scion", "tcp"},
		Config: cli.StringConfig{TrimSpace: true},
		Usage: "reach peers over `NAME`: scion; tcp or quic, one of the two for all peers on IP; " +
			"webrtc, for peers in browsers, whom trackers at ws:// and wss:// introduce " +
			"(repeatable)",
	}
}

// iceFlags say how WebRTC connections get through NATs.
func iceFlags() []cli.Flag {
	return []cli.Flag{
		flags.List("ice", "webrtc: ask the server at `URL`, stun:HOST:PORT or "+
			"turn:USER:PASSWORD@HOST:PORT, for a way through NATs (repeatable; default: none)"),
		flags.Bool("ice-local", "webrtc: tell peers this host's addresses on local networks, and "+
			"contact peers at such addresses"),
	}
}

// transports reads --transport.
func (f *cmdline) transports() (t transports) {
	names := f.StringSlice("transport")
	has := func(n string) bool { return slices.Contains(names, n) }
	for _, n := range names {
		f.Wantf(slices.Contains([]string{"scion", "tcp", "quic", "webrtc"}, n),
			"--transport %q: want scion, tcp, quic or webrtc", n)
	}
	t.scion = has("scion")
	if has("webrtc") {
		t.rtc = &client.WebRTCConfig{ICE: f.StringSlice("ice"), Local: f.Bool("ice-local")}
		flags.ReadAll(f, "ice", client.ParseICE)
	} else if f.IsSet("ice") || f.IsSet("ice-local") {
		f.Wrongf("--ice and --ice-local are for WebRTC: add webrtc to --transport")
	}
	switch {
	case has("tcp") && has("quic"):
		f.Wrongf("--transport: give tcp or quic, not both: " +
			"the address of a peer does not tell which one it speaks")
	case has("quic"):
		t.ip = client.QUIC
	case !has("tcp"):
		t.ip = client.NoIP
	}
	return t
}
