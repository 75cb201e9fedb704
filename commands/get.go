package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anacrolix/torrent/metainfo"
	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/program"
	"braid/node"
	"braid/node/send"
	"braid/scionnet"
	"braid/storage"
)

func getCommand() *cli.Command {
	return &cli.Command{
		Name:      "get",
		Usage:     "fetch what braid send serves",
		ArgsUsage: "LINE",
		Description: "Fetches files from the braid send that has printed LINE, over all SCION " +
			"paths, or over TCP if there are none. LINE - is read from standard input, where " +
			"other users of this host cannot see it. Ctrl-C stops cleanly, and the same command " +
			"resumes; it waits for a sender that is away.\n\n" + program.ExitCodes,
		Flags: slices.Concat([]cli.Flag{
			flags.File("output", ".", "download into `DIR`", "o"),
			flags.Bool("follow", "if the sender runs with --watch: keep running and fetch each "+
				"change. It overwrites changed files, and deletes none"),
			flags.Period("stop-timeout", 0, "give up after `TIME` without data, and say why "+
				"(default: never)"),
			flags.Bool("piece-events", "with --json: print an event for each verified piece"),
		}, withoutFlags(keepFlags(), "list"), writeFlags(), groupFlags()),
		Action: session(false, runGet),
	}
}

// maxStdinLine is more than the longest line, with white space around it.
const maxStdinLine = 8 << 10

func runGet(ctx context.Context, t *task) error {
	l, err := readLine(ctx, t.Command, envOf(t.Command).In)
	if err != nil {
		return err
	}
	switch {
	case l.IsNews():
		return t.followNews(ctx, l)
	case t.Bool("follow"):
		return program.UsageErrorf("--follow: this line is of a sender without --watch")
	}
	return t.fetchLine(ctx, l, nil)
}

// fetchLine fetches the torrent of a line. It gives up if the torrent is not complete when replaced
// is closed: the sender, and so everybody else, no longer has it.
func (t *task) fetchLine(ctx context.Context, l send.Line, replaced <-chan struct{}) error {
	all, err := t.downloadsOf(ctx, []client.Source{{InfoHash: l.InfoHash, Peers: l.Peers}})
	if err != nil {
		return err
	}
	o := all[0]
	if t.Bool("follow") && o.Storage.Existing != storage.RenameExisting {
		o.Storage.Existing = storage.ReplaceExisting // existing files are an earlier state
	}
	var later []client.Peer
	addTorrent := func(cfg *node.Config, host *scionnet.Host) {
		o.Source.Peers = nil // inTurn chooses among l.Peers instead
		o.Peers, later = inTurn(l.Peers, host != nil, cfg.Client.IP != client.NoIP)
		cfg.Torrents = []node.Options{o}
	}
	n, err := t.openGroup(ctx, l.Key, anyOnSCION(l.Peers), addTorrent)
	if err != nil {
		return err
	}
	if len(o.Peers) == 0 {
		return errUnreachable
	}
	added, err := t.addAll(ctx, n, []node.Options{o})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var asking sync.WaitGroup
	asking.Go(func() { askLater(ctx, added[0], later) })
	asking.Go(func() {
		select {
		case <-replaced:
			cancel(errReplaced)
		case <-added[0].Done():
		case <-ctx.Done():
		}
	})
	defer asking.Wait()
	defer cancel(nil)
	err = t.fetch(ctx, added)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errReplaced) {
		return cause
	}
	return err
}

var errUnreachable = errors.New("no address in the line can be reached from this host: " +
	"the sender is only on SCION, and this host is not")

// readLine reads the line from the command line or from standard input.
func readLine(ctx context.Context, cmd *cli.Command, stdin io.Reader) (send.Line, error) {
	if cmd.Args().Len() == 0 {
		return send.Line{}, program.UsageErrorf("name the line that braid send has printed, " +
			"or - to read it from standard input")
	}
	text := strings.Join(cmd.Args().Slice(), "") // a mail program may have broken the line
	if text == "-" {
		b, err := interruptible(ctx, func() ([]byte, error) {
			return io.ReadAll(io.LimitReader(stdin, maxStdinLine))
		})
		if err != nil {
			return send.Line{}, err
		}
		text = string(b)
	}
	l, err := send.ParseLine(text)
	if err != nil {
		return l, program.UsageErrorf("%w", err)
	}
	return l, nil
}

// inTurn says which addresses of a sender to try now, and which later if no data comes: TCP is
// tried if SCION does not work.
func inTurn(peers []client.Peer, scion, ip bool) (first, later []client.Peer) {
	for _, p := range peers {
		switch {
		case onSCION(p) && scion:
			first = append(first, p)
		case !onSCION(p) && ip:
			later = append(later, p)
		}
	}
	if len(first) == 0 {
		return later, nil
	}
	return first, later
}

// scionPatience is how long a download waits for a connection over SCION before it tries TCP as
// well. A lookup of paths may take seconds.
const scionPatience = 5 * time.Second

// askLater adds the peers if nobody is connected after a while.
func askLater(ctx context.Context, t *node.Torrent, peers []client.Peer) {
	if len(peers) == 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-t.Done():
	case <-time.After(scionPatience):
		if node.ConnectedPeers(t.Progress()) == 0 {
			t.AddPeers(peers...)
		}
	}
}

// followNews fetches the newest state of the sender's files. With --follow it fetches each later
// state as well; a newer state ends the download of the previous one.
func (t *task) followNews(ctx context.Context, l send.Line) error {
	a, err := t.openAsker(ctx, l)
	if err != nil {
		return err
	}
	first, cancel := ctx, func() {}
	if stop := t.Duration("stop-timeout"); stop > 0 {
		silent := fmt.Errorf("the sender has not answered within %v", stop)
		first, cancel = context.WithTimeoutCause(ctx, stop, silent)
	}
	newest, err := a.Next(first, metainfo.Hash{})
	cancel()
	if err != nil {
		return err
	}
	if !t.Bool("follow") {
		replaced := make(chan struct{})
		asking, stop := context.WithCancel(ctx)
		var ended sync.WaitGroup
		ended.Go(func() {
			if _, err := a.Next(asking, newest.InfoHash); err == nil {
				close(replaced)
			}
		})
		defer ended.Wait()
		defer stop()
		return t.fetchLine(ctx, newest, replaced)
	}
	// A directory that cannot be made is an error at once, not a warning for each state.
	if err := os.MkdirAll(t.String("output"), 0o755); err != nil {
		return err
	}
	for {
		state, superseded := context.WithCancel(ctx)
		next := make(chan send.Line, 1)
		go func() {
			defer close(next)
			if l, err := a.Next(state, newest.InfoHash); err == nil {
				next <- l
				superseded()
			}
		}()
		err := t.part(func(t *task) error { return t.fetchLine(state, newest, nil) })
		if program.Code(err) == program.Usage {
			superseded()
			<-next
			return err // a later state would fail in the same way
		}
		if err != nil && state.Err() == nil {
			t.log.Warn("this state of the files has not arrived; waiting for the next",
				"error", err)
		}
		l, ok := <-next
		superseded()
		if !ok {
			return nil // an interrupt is the expected end
		}
		newest = l
	}
}

var errReplaced = errors.New("there is a newer state of the files: " +
	"run the same command again, or give --follow")

// openAsker returns an asker for the sender of a line.
func (t *task) openAsker(ctx context.Context, l send.Line) (*send.Asker, error) {
	cfg := t.node(t.log)
	if t.Err != nil {
		return nil, t.Err
	}
	id, err := l.Key.Member()
	if err != nil {
		return nil, err
	}
	a := &send.Asker{Line: l, TCP: send.OverTCP(id)}
	a.Warn = func(err error) { t.log.Warn("no news of the sender; asking again", "error", err) }
	t.atEnd(func() error { a.TCP.CloseIdleConnections(); return nil })
	host, err := t.groupHost(ctx, cfg, anyOnSCION(l.Peers))
	if err != nil {
		return nil, err
	}
	if host != nil {
		t.atEnd(host.Close)
		if a.SCION, err = host.OpenGroupHTTP(ctx, 0, id); err != nil {
			return nil, err
		}
		a.SCION.SetPolicy(cfg.Client.Policy)
		t.atEnd(a.SCION.Close)
	}
	first, later := inTurn(l.Peers, host != nil, cfg.Client.IP != client.NoIP)
	if a.Peers = append(first, later...); len(a.Peers) == 0 {
		return nil, errUnreachable
	}
	return a, nil
}
