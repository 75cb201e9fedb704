package lsd

import (
	"maps"
	"net/netip"
	"time"

	"golang.org/x/time/rate"
)

const (
	// hostBurst messages of a host are read at once, and then one in each hostEvery. Several
	// clients may be on a host. A client sends one message a minute, libtorrent one for each
	// torrent.
	hostBurst = 20
	hostEvery = 5 * time.Second
	// allBurst messages of all hosts are read at once, and then one in each allEvery. Whoever can
	// send here can claim to be any host of the network.
	allBurst = 200
	allEvery = 50 * time.Millisecond
	// maxHosts bounds the senders that are told apart; further ones are not read for a while.
	maxHosts = 1024
	// forgetHost is when a silent sender has its allowance back.
	forgetHost = hostBurst * hostEvery
)

// admission bounds how many messages are read. Each one costs a handshake with the address that it
// names.
type admission struct {
	all    *rate.Limiter
	hosts  map[netip.Addr]*sender
	looked time.Time // for hosts to forget, which costs a pass over all of them
}

type sender struct {
	*rate.Limiter
	last time.Time
}

// admit tells whether a message of a host is read.
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
