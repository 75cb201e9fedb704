package commands

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/node"
	"braid/node/event"
	"braid/node/send"
	"braid/scionnet"
	"braid/units/lists"
)

func sendCommand() *cli.Command {
	return &cli.Command{
		Name:      "send",
		Usage:     "serve files or directories to everybody who has the line that this prints",
		ArgsUsage: "PATH...",
		Description: "Serves the files until interrupted, and prints one line on standard " +
			"output. On another host, braid get LINE fetches them: over all SCION paths, or over " +
			"TCP if there are none. The line contains a key. Connections are encrypted, and " +
			"nobody can connect without the key. No tracker, DHT or other peer hears of the " +
			"files. The same command prints the same line the next time, if the files are the " +
			"same or you give --watch.\n\n" + program.ExitCodes,
		Flags: slices.Concat([]cli.Flag{
			flags.Env("key", "BRAID_KEY", fmt.Sprintf("make the key of the line from `PHRASE`, of "+
				"at least %d characters that nobody can guess (default: a random key; also "+
				"BRAID_KEY, which other users of this host cannot see)", send.MinPhrase)),
			flags.List("address", "add `ADDR` to the line, such as the host:port of a port "+
				"forwarding (repeatable)"),
			flags.Pattern("exclude", "leave out files and directories that match `GLOB`, such as "+
				"'*.tmp' or 'docs/draft' (repeatable)"),
			flags.File("state", "", "remember keys in `DIR` (default: $XDG_STATE_HOME/braid or "+
				"~/.local/state/braid)"),
			flags.Bool("watch", "publish changes: braid get --follow fetches new and changed "+
				"files as soon as nothing has changed for two seconds"),
			flags.Bool("recheck", "hash all data, even if no file has changed since the last time"),
		}, seedGoalFlags("no limit"), groupFlags()),
		Action: session(true, runSend),
	}
}

// groupFlags are the sessionFlags without those of peer sources, which a group does not use.
func groupFlags() []cli.Flag {
	return withoutFlags(sessionFlags(), "pex", "lsd", "tracker", "no-trackers",
		"dht", "dht-node", "dht-item", "peer-order", "path-knowledge")
}

func runSend(ctx context.Context, t *task) error {
	s, err := openSender(t)
	if err != nil {
		return err
	}
	o := node.Options{
		Goal:    t.seedGoal(),
		Storage: node.Storage{Kind: "file", Dir: filepath.Dir(s.files.Root), Complete: true},
	}
	if t.Err != nil {
		return t.Err
	}
	if t.Bool("watch") {
		return s.sendChanges(ctx, o)
	}
	if o.Source, err = s.torrent(ctx); err != nil {
		return err
	}
	n, err := s.open(ctx)
	if err != nil {
		return err
	}
	added, err := t.addAll(ctx, n, []node.Options{o})
	if err != nil {
		return err
	}
	if err := s.remember(n.Listening()); err != nil {
		return err
	}
	t.out.line(send.Line{
		Key:      s.key,
		InfoHash: o.Source.InfoHash,
		Peers:    send.Reach(s.named, n.Listening(), scionnet.OwnAddrs()),
	}, o.Source)
	t.out.watch(ctx, added)
	return nil // an interrupt is the expected end
}

// sender is the part of braid send that needs no node.
type sender struct {
	*task
	files send.Files
	stash *send.Stash
	key   send.Key       // of the stash, or of the user
	named []client.Peer  // addresses that the user names
	host  *scionnet.Host // of the node; nil: it is not on SCION
}

func openSender(t *task) (s *sender, err error) {
	s = &sender{task: t}
	if t.Args().Len() == 0 {
		return nil, program.UsageErrorf("name at least one file or directory; see braid send " +
			"--help")
	}
	if s.files, err = send.Select(lists.Map(t.Args().Slice(), envOf(t.Command).Path)); err != nil {
		return nil, program.UsageErrorf("%w", err)
	}
	s.files.Exclude = t.StringSlice("exclude")
	s.named = flags.ReadAll(&t.Reader, "address", client.ParsePeer)
	if t.String("key") != "" {
		s.key = flags.Read(&t.Reader, "key", send.KeyOf)
	}
	if t.Err != nil {
		return nil, t.Err
	}
	state, err := envOf(t.Command).stateDir(t.String("state"))
	if err != nil {
		return nil, err
	}
	if s.stash, err = send.OpenStash(filepath.Join(state, "sends"), s.files); err != nil {
		return nil, err
	}
	if s.key == (send.Key{}) {
		s.key = s.stash.Key
	}
	return s, nil
}

// torrent returns the torrent of the files. It hashes them unless they are the same as last time.
func (s *sender) torrent(ctx context.Context) (client.Source, error) {
	stamp, err := s.files.Stamp(ctx)
	if err != nil {
		return client.Source{}, err
	}
	stamp += fmt.Sprintf(" %q", s.files.Exclude)
	if src, ok := s.stash.Source(stamp); ok && !s.Bool("recheck") {
		return src, nil
	}
	count, stop := s.out.counting("hashing "+s.files.Root, 0)
	c, err := client.Create(ctx, s.files.Root, client.CreateOptions{
		Only: s.files.Only, Exclude: s.files.Exclude, Private: true,
		Skipped:  s.out.leftOut,
		Progress: count.of,
	})
	stop()
	if err != nil {
		return client.Source{}, err
	}
	s.stash.Stamp, s.stash.Torrent = stamp, c.Torrent
	return c.Source, s.stash.Save()
}

// open opens a node that accepts members on SCION, if this host has it, and on TCP.
func (s *sender) open(ctx context.Context) (*node.Node, error) {
	return s.openGroup(ctx, s.key, true, func(cfg *node.Config, host *scionnet.Host) {
		if s.host = host; s.IsSet("listen") {
			return
		}
		if host != nil {
			port := send.Free("udp", host.LocalIP().String(), s.stash.SCIONPort)
			at := scionnet.Addr{IA: host.IA(), Host: host.LocalIP(), Port: port}
			cfg.Client.Listen = append(cfg.Client.Listen, client.PeerAt(at))
		}
		if cfg.Client.IP != client.NoIP {
			port := send.Free("tcp", "", s.stash.IPPort)
			everywhere, _ := client.ParseListen(fmt.Sprintf(":%d", port)) // is always valid
			cfg.Client.Listen = append(cfg.Client.Listen, everywhere)
		}
	})
}

// openGroup opens a node that only holders of the key can connect to. scion says that SCION would
// be useful. adapt completes the configuration; its host is nil without SCION.
func (t *task) openGroup(
	ctx context.Context, key send.Key, scion bool, adapt func(*node.Config, *scionnet.Host),
) (*node.Node, error) {
	t.Wantf(!slices.Contains(t.StringSlice("transport"), "quic"),
		"--transport quic: braid send and braid get know only scion or tcp")
	cfg := t.node(t.log)
	if t.Err != nil {
		return nil, t.Err
	}
	var err error
	if cfg.Group, err = scionnet.NewGroup(key[:]); err != nil {
		return nil, err
	}
	host, err := t.groupHost(ctx, cfg, scion)
	if err != nil {
		return nil, err
	}
	cfg.SCION.Open, cfg.SCION.Required = nil, host != nil
	if host != nil {
		cfg.SCION.Open = func(context.Context) (*scionnet.Host, error) { return host, nil }
	}
	adapt(&cfg, host)
	return t.start(ctx, cfg, t.out.event)
}

// groupHost opens the SCION host. It does so if SCION is wanted, or if this host seems to be on
// SCION; a host without a SCION configuration asks the network for one. If that fails, groupHost
// returns nil, and the node uses only TCP. It is an error if the user's flags demand SCION.
func (t *task) groupHost(
	ctx context.Context, cfg node.Config, wanted bool,
) (*scionnet.Host, error) {
	only := cfg.Client.IP == client.NoIP
	likely := cfg.SCION.Likely || cfg.SCION.Required || anyOnSCION(cfg.Client.Listen)
	if cfg.SCION.Open == nil || !likely && !wanted && !only {
		return nil, nil
	}
	host, err := cfg.SCION.Open(ctx)
	switch {
	case err == nil:
		return host, nil
	case ctx.Err() != nil, cfg.SCION.Required, only && likely:
		return nil, err
	case only:
		return nil, program.UsageErrorf("--transport: this host has no SCION: %w", err)
	case likely:
		t.log.Warn("this host has no SCION, so only TCP is used", "error", err)
	default:
		t.log.Info("this host has no SCION, so only TCP is used", "error", err)
	}
	return nil, nil
}

func onSCION(p client.Peer) bool { _, ok := p.SCION(); return ok }

func anyOnSCION(all []client.Peer) bool { return slices.ContainsFunc(all, onSCION) }

// remember keeps the key and the ports for the next time.
func (s *sender) remember(listening []client.Peer) error {
	for _, p := range listening {
		if onSCION(p) {
			s.stash.SCIONPort = p.Port()
		} else {
			s.stash.IPPort = p.Port()
		}
	}
	return s.stash.Save()
}

// line prints the line of a sender.
func (d *display) line(l send.Line, src client.Source) {
	files, size := len(src.Layout.Files), src.Layout.Length
	if d.JSON {
		d.emit(event.Line{
			Event:    "line",
			Line:     l.String(),
			Torrent:  src.Name,
			InfoHash: src.InfoHash.HexString(),
			Bytes:    size,
			Files:    files,
			Peers:    lists.Map(l.Peers, client.Peer.String),
		})
		return
	}
	d.people.Clear()
	d.people.Printf("%s: %s in %s; on the other host run braid get with this line:\n",
		src.Name, terminal.BytesText(size), terminal.Plural(files, "file"))
	d.results.Printf("%s\n", l)
}
