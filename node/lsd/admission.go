package lsd

import (
	"maps"
	"net/netip"
	"time"

	"golang.org/x/time/rate"
)

const (
	// The server reads hostBurst messages of a host at once, and then one in each hostEvery. A host
	// may have several clients. A client sends one message a minute; libtorrent sends one for each
	// torrent.
	hostBurst = 20
	hostEvery = 5 * time.Second
	// The server reads allBurst messages of all hosts at once, and then one in each allEvery. A
	// sender on this network can pretend to be any of its hosts, so hostBurst is not enough.
	allBurst = 200
	allEvery = 50 * time.Millisecond
	// maxHosts bounds the senders in memory. Messages of further senders are dropped.
	maxHosts = 1024
	// forgetHost is the time after which a silent sender has its whole burst again, so that it can
	// be forgotten.
	forgetHost = hostBurst * hostEvery
)

// admission bounds the messages that the server reads. Each message costs a handshake with the
// address in it.
type admission struct {
	all    *rate.Limiter
	hosts  map[netip.Addr]*sender
	looked time.Time // when hosts were last forgotten, which takes a pass over all of them
}

type sender struct {
	*rate.Limiter
	last time.Time
}

// admit tells whether to read a message of a host.
func (g *admission) admit(from netip.Addr, now time.Time) bool {
	if g.all == nil {
		g.all, g.hosts = rate.NewLimiter(rate.Every(allEvery), allBurst), map[netip.Addr]*sender{}
	}
	s := g.hosts[from]
	if s == nil {
		if len(g.hosts) == maxHosts && now.Sub(g.looked) >= time.Second {
			g.looked = now
			maps.DeleteFunc(g.hosts, func(_ netip.Addr, s *sender) bool {
				return now.Sub(s.last) >= forgetHost
			})
		}
		if len(g.hosts) == maxHosts {
			return false
		}
		s = &sender{Limiter: rate.NewLimiter(rate.Every(hostEvery), hostBurst)}
		g.hosts[from] = s
	}
	s.last = now
	return s.AllowN(now, 1) && g.all.AllowN(now, 1)
}
