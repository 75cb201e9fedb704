package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"braid/client"
	"braid/pathsel"
	"braid/scionnet"
)

// SCION says whether and how a node gets onto SCION.
type SCION struct {
	// Open opens the local host; nil: the node stays on IP. It is called if the node needs SCION.
	Open func(context.Context) (*scionnet.Host, error)
	// Required makes node.Open fail without SCION. It is implied if the node listens on SCION, or
	// if a named peer is on SCION.
	Required bool
	// Likely says that this host seems to be on SCION. Then the node uses SCION also for the DHT,
	// and if a tracker on IP may have a sibling on SCION.
	Likely bool
	// Choose, if not nil, chooses among the paths to an AS that the policy allows.
	Choose func(
		ctx context.Context, h *scionnet.Host, to pathsel.IA, allowed []pathsel.Path,
	) ([]pathsel.Fingerprint, error)
}

// ErrNothingToChoose: paths should be chosen from a list, but no SCION peer was named.
var ErrNothingToChoose = errors.New("no SCION peer is named whose paths could be listed")

// isSCION tells whether a peer's address is on SCION.
func isSCION(p client.Peer) bool { _, ok := p.SCION(); return ok }

// peers returns all named peers.
func (c Config) peers() (out []client.Peer) {
	for _, o := range c.Torrents {
		out = append(append(out, o.Peers...), o.Source.Peers...)
	}
	return out
}

// webSeedOnSCION tells whether a torrent has a web seed on SCION.
func (c Config) webSeedOnSCION() bool {
	return slices.ContainsFunc(c.Torrents, func(o Options) bool {
		return slices.ContainsFunc(o.WebSeedURLs(), func(u string) bool {
			_, ok, err := scionnet.ParseServerURL(u)
			return ok && err == nil
		})
	})
}

// openHost opens the SCION host if the node needs one. If only trackers need it, a host without
// SCION gets a warning instead of an error.
func (c Config) openHost(ctx context.Context, log *slog.Logger) (*scionnet.Host, error) {
	listens := slices.ContainsFunc(c.Client.Listen, isSCION)
	required := c.SCION.Required || listens || slices.ContainsFunc(c.peers(), isSCION)
	onSCION := anyTracker(c.Torrents, onNetwork(true)) || c.webSeedOnSCION()
	mayHelp := c.DHT != nil && c.DHT.SCION || anyTracker(c.Torrents, MayKnowSiblings)
	wanted := required || onSCION || c.SCION.Likely && mayHelp
	if c.SCION.Open == nil || !wanted {
		return nil, nil
	}
	h, err := c.SCION.Open(ctx)
	switch {
	case err != nil && required:
		return nil, err
	case err != nil && onSCION:
		log.Warn("trackers and web seeds on SCION are not asked: this host has no SCION",
			"error", err)
		return nil, nil
	case err != nil:
		log.Info("SCION is not used", "error", err)
		return nil, nil
	}
	if listens {
		if err := h.AnswerEcho(); err != nil {
			log.Info("scion ping will get no answer from this braid", "error", err)
		}
	}
	return h, nil
}

// lookupPatience bounds the first lookup of paths, which takes seconds while the control service is
// busy. After that the node continues, and learns the paths later.
const lookupPatience = 10 * time.Second

// fitPolicy applies the policy to the current paths to the named peers, and lets the user choose.
//
// It returns an error if the policy allows no path to any of these peers, and no other peers can
// connect: the download would most likely wait for ever.
func (c Config) fitPolicy(
	ctx context.Context, h *scionnet.Host, log *slog.Logger,
) (pathsel.Policy, error) {
	policy, choose := c.Client.Policy, c.SCION.Choose
	if policy.IsZero() && choose == nil {
		return policy, nil
	}
	others := len(c.Client.Listen) > 0 // other peers may connect to us
	var destinations []pathsel.IA
	for _, p := range c.peers() {
		a, ok := p.SCION()
		if !ok {
			others = true
		} else if !slices.Contains(destinations, a.IA) {
			destinations = append(destinations, a.IA)
		}
	}
	if choose != nil && len(destinations) == 0 {
		return policy, ErrNothingToChoose
	}
	var none []error
	chosen := map[pathsel.IA][]pathsel.Fingerprint{}
	for _, to := range destinations {
		paths, err := pathsWithin(ctx, h, to)
		if err != nil && choose != nil {
			return policy, fmt.Errorf("list the paths to choose from: %w", err)
		} else if err != nil {
			continue // the transfer waits for paths, and says so
		}
		allowed, refused := policy.Apply(paths)
		if len(allowed) == 0 {
			none = append(none, &pathsel.RefusedError{To: to, Refused: refused})
			continue
		}
		if n := policy.Unjudged(allowed); n > 0 {
			log.Warn("paths are allowed although not all of their latency is announced",
				"to", to, "paths", n)
		}
		if choose == nil {
			continue
		}
		if chosen[to], err = choose(ctx, h, to, allowed); err != nil {
			return policy, err
		}
	}
	if len(none) > 0 && len(none) == len(destinations) && !others {
		return policy, errors.Join(none...)
	}
	if len(chosen) > 0 {
		policy.Chosen = chosen
	}
	return policy, nil
}

func pathsWithin(ctx context.Context, h *scionnet.Host, to pathsel.IA) ([]pathsel.Path, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	return h.Paths(ctx, to)
}

// OpenHTTP opens a port of the node's SCION host for HTTP/3. The caller must close it before the
// node.
func (n *Node) OpenHTTP(ctx context.Context, port uint16) (*scionnet.HTTP, error) {
	if n.host == nil {
		return nil, errors.New("open a port for HTTP/3: this node is not on SCION")
	}
	return n.host.OpenHTTP(ctx, port)
}
