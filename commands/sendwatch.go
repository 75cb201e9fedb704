package commands

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"braid/client"
	"braid/commands/program"
	"braid/commands/terminal"
	"braid/node"
	"braid/node/send"
	"braid/scionnet"
)

// sendChanges serves the files until the context ends, and publishes each change as a new torrent.
// The line leads to the news of this sender, which name the newest torrent.
func (s *sender) sendChanges(ctx context.Context, o node.Options) error {
	for _, flag := range []string{"status", "ratio", "seed-time"} {
		if s.IsSet(flag) {
			return program.UsageErrorf("--%s: not with --watch, which serves one torrent after "+
				"the other",
				flag)
		}
	}
	stamp, src, err := s.nextState(ctx, "")
	if err != nil {
		return err
	}
	n, err := s.open(ctx)
	if err != nil {
		return err
	}
	if err := s.remember(n.Listening()); err != nil {
		return err
	}
	news := send.NewNews()
	at, err := s.serveNews(ctx, n, news)
	if err != nil {
		return err
	}
	line := send.Line{Key: s.key, Peers: send.Reach(s.named, at, scionnet.OwnAddrs())}
	var old *node.Torrent
	hide := func() {}
	defer func() { hide() }()
	for {
		if old == nil || src.InfoHash != old.Source().InfoHash {
			o.Source = src
			added, err := s.addAll(ctx, n, []node.Options{o})
			if err != nil {
				return err
			}
			news.Publish(send.Line{
				Key:      s.key,
				InfoHash: src.InfoHash,
				Peers:    send.Reach(nil, n.Listening(), scionnet.OwnAddrs()),
			})
			s.out.published(line, src, old == nil)
			hide()
			if old != nil {
				if err := n.Remove(old.InfoHash(), false); err != nil {
					return err
				}
			}
			old, hide = added[0], s.out.showing(ctx, added)
		}
		if stamp, src, err = s.nextState(ctx, stamp); ctx.Err() != nil {
			return nil // an interrupt is the expected end
		}
		if err != nil {
			return err
		}
	}
}

// showing runs watch in the background until the returned function is called.
func (d *display) showing(ctx context.Context, torrents []*node.Torrent) (hide func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { d.watch(ctx, torrents) })
	return func() { cancel(); watching.Wait() }
}

// nextState waits until the files have another stamp and no longer change, and makes a torrent of
// them.
func (s *sender) nextState(ctx context.Context, stamp string) (string, client.Source, error) {
	said := ""
	complain := func(err error) {
		if text := fmt.Sprint(err); err != nil && text != said {
			said = text
			s.log.Warn("the files cannot be published; waiting until they can", "error", err)
		}
	}
	for {
		now, err := s.files.AtRest(ctx, stamp, complain)
		if err != nil {
			return "", client.Source{}, err
		}
		src, err := s.torrent(ctx)
		if ctx.Err() != nil {
			return "", src, ctx.Err()
		}
		after, again := s.files.Stamp(ctx)
		if err == nil && again == nil && after == now {
			return now, src, nil
		}
		if stamp = now; after != now { // they have changed meanwhile
			stamp = ""
			continue
		}
		complain(err)
	}
}

// serveNews serves the news beside each address at which the node accepts peers.
func (s *sender) serveNews(
	ctx context.Context, n *node.Node, news *send.News,
) (at []client.Peer, err error) {
	id, err := s.key.Member()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	s.atEnd(func() error { cancel(); serving.Wait(); return nil })
	serve := func(f func() error) {
		serving.Go(func() {
			if err := f(); err != nil {
				s.out.people.Say("braid", err.Error())
			}
		})
	}
	for _, p := range n.Listening() {
		if a, ok := p.SCION(); ok && s.host != nil {
			port := send.Free("udp", s.host.LocalIP().String(), s.stash.NewsSCIONPort)
			h, err := s.host.OpenGroupHTTP(ctx, port, id)
			if err != nil {
				return nil, fmt.Errorf("open a port for news in %s: %w", a.IA, err)
			}
			s.stash.NewsSCIONPort = h.Addr().Port
			at = append(at, client.PeerAt(h.Addr()))
			serve(func() error { return errors.Join(h.Serve(ctx, news, 0), h.Close()) })
			continue
		}
		free := send.Free("tcp", p.Host(), s.stash.NewsIPPort)
		l, err := envOf(s.Command).Network.listen(ctx, "tcp", p.WithPort(free).String())
		if err != nil {
			return nil, fmt.Errorf("open a port for news: %w", err)
		}
		s.stash.NewsIPPort = uint16(l.Addr().(*net.TCPAddr).Port)
		at = append(at, p.WithPort(s.stash.NewsIPPort))
		serve(func() error { return news.ServeTCP(ctx, l, id) })
	}
	return at, s.stash.Save()
}

// published reports a new state of the files. The line, which is the same for all states, is
// printed only once.
func (d *display) published(l send.Line, src client.Source, first bool) {
	if first || d.JSON {
		d.line(l, src)
		return
	}
	d.say(fmt.Sprintf("published: %s: %s in %s",
		src.Name, terminal.BytesText(src.Layout.Length),
		terminal.Plural(len(src.Layout.Files), "file")))
}
