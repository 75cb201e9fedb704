package commands

import (
	"context"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/program"
	"braid/node"
	"braid/node/web/files"
	"braid/scionnet"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name: "serve",
		Usage: "serve the files of torrents over HTTP, as a web seed and for browsers and " +
			"players",
		ArgsUsage: "TORRENT|URL|DIR|MAGNET...",
		Description: "Answers GET and HEAD of /torrent/INFO HASH/PATH, with ranges; " +
			"http://ADDR/torrent/INFO HASH/ is a web seed for braid create --web-seed. A " +
			"directory stands for the .torrent files in it. Data that is missing below --data is " +
			"downloaded from peers; pieces that somebody reads come first. A torrent with " +
			"complete data is only read. With --listen, braid serve is also a seed. Everybody " +
			"who can connect and knows an info hash may read. It runs until it is interrupted. " +
			"When it is ready it says so on standard error, and with --json as " +
			`{"event":"ready","listen":[...],"http":[...]}.` + "\n\n" + program.ExitCodes,
		Flags: slices.Concat([]cli.Flag{
			flags.File("data", ".", "`DIR` that holds the torrents' files or directories"),
		}, filesFlags(), []cli.Flag{
			storageFlag(),
			flags.List("peer", "download missing data from `ADDR`: "+
				"1-ff00:0:110,[127.0.0.1]:31000, scion://name:31000, or host:port for TCP or QUIC "+
				"(repeatable)"),
			webSeedFlag(),
			recheckFlag(),
		}, sessionFlags()),
		Action: session(true, serve),
	}
}

// filesFlags say where files are served.
func filesFlags() []cli.Flag {
	return []cli.Flag{
		flags.List("http", "serve the files of torrents at `ADDR`: HOST:PORT for HTTP, or "+
			"1-ff00:0:110,[127.0.0.1]:31080 for HTTP/3 on SCION (repeatable)"),
		flags.Bool("http-private", "with --http: also serve private torrents, to everybody who "+
			"knows their info hash"),
	}
}

// openFiles serves the files of a node at the addresses of --http.
func (t *task) openFiles(ctx context.Context, n *node.Node) (*files.Server, error) {
	s, err := files.Serve(ctx, n, t.StringSlice("http"), t.Bool("http-private"), t.log)
	if err != nil {
		return nil, listenError(err)
	}
	t.atEnd(s.Close)
	return s, nil
}

func serve(ctx context.Context, t *task) error {
	if len(t.StringSlice("http")) == 0 {
		return program.UsageErrorf("no address to serve files at: give --http HOST:PORT (see " +
			"--help)")
	}
	torrents, err := t.served(ctx)
	if err != nil {
		return err
	}
	n, err := t.openNode(ctx, torrents)
	if err != nil {
		return err
	}
	added, err := t.addAll(ctx, n, torrents)
	if err != nil {
		return err
	}
	web, err := t.openFiles(ctx, n)
	if err != nil {
		return err
	}
	sayServing(t.out, n, web)
	t.out.watch(ctx, added)
	return nil // an interrupted server has ended as expected
}

// served returns the torrents that the command line names. If a torrent's data is complete, its
// files are opened for reading only.
func (t *task) served(ctx context.Context) ([]node.Options, error) {
	sources, err := t.sources(ctx)
	if err != nil {
		return nil, err
	}
	o := node.Options{
		Storage: node.Storage{
			Kind:    t.storageKind(),
			Dir:     t.String("data"),
			Recheck: t.Bool("recheck"),
		},
		Peers:    t.peers(ctx),
		WebSeeds: t.webSeeds(),
	}
	if t.Err != nil {
		return nil, t.Err
	}
	var all []node.Options
	for _, s := range sources {
		o.Source, o.Storage.Complete = s.WithKept(o.Storage.Dir), true
		err := checkComplete(ctx, t.out, o)
		if err != nil && !program.HasCode(err) {
			return nil, err
		}
		o.Storage.Complete = err == nil && !o.Source.IsMagnet()
		o.Trackers = t.trackers(o.Source, t.log)
		all = append(all, o)
	}
	return all, t.Err
}

// sayServing prints the addresses of the server and the served torrents.
func sayServing(out *display, n *node.Node, web *files.Server) {
	e := node.NewReady(n.Listening())
	e.HTTP = web.Addresses()
	out.event(e)
	out.people.Clear()
	out.people.Printf("ready; files are at %s\n", strings.Join(web.URLs(), " and "))
	for _, t := range n.Torrents() {
		out.people.Printf("  %s%s/  %s\n", files.Prefix, t.InfoHash(), t.Source().Name)
	}
}

// filesOnSCION checks the addresses of --http, and returns those on SCION.
func (f *cmdline) filesOnSCION() (out []scionnet.Addr) {
	f.Check("http", func(text string) error {
		if !files.IsSCION(text) {
			return flags.CheckHostPort(text)
		}
		a, err := scionnet.ParseAddr(text)
		out = append(out, a)
		return err
	})
	return out
}

// webSeedFlag names servers with the data.
func webSeedFlag() cli.Flag {
	return flags.List("web-seed", "download also from the HTTP server at `URL`, which may be on "+
		"the local network: http, https, or scion://1-ff00:0:110,[127.0.0.1]:31080/PATH "+
		"(repeatable)")
}

// webSeeds reads --web-seed.
func (f *cmdline) webSeeds() []client.WebSeed {
	return flags.ReadAll(f, "web-seed", func(u string) (client.WebSeed, error) {
		return client.WebSeed{URL: u, ByUser: true}, client.CheckWebSeed(u)
	})
}
