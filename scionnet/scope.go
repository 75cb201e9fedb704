package scionnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
)

// Scope tells from where an IP address can be reached, nearest first. A peer must not make us
// contact an address that it cannot reach itself. So the addresses that we accept from it have its
// own scope or a wider one.
type Scope uint8

// Scopes, nearest first.
const (
	ScopeLoopback  Scope = iota // this machine
	ScopeLinkLocal              // the same link, which includes a cloud's metadata service at 169.254.169.254
	ScopePrivate                // a network that is not routed on the Internet
	ScopePublic
)

var scopeNames = [...]string{"loopback", "link-local", "private", "public"}

func (s Scope) String() string { return scopeNames[s] }

var (
	// thisNetwork is the host itself (RFC 1122, section 3.2.1.3).
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")
	reserved    = netip.MustParsePrefix("240.0.0.0/4")
	private     = []netip.Prefix{
		netip.MustParsePrefix("100.64.0.0/10"), // shared by the customers of a carrier (RFC 6598)
		netip.MustParsePrefix("192.0.0.0/24"),  // RFC 6890
		netip.MustParsePrefix("198.18.0.0/15"), // benchmarks (RFC 2544)
		netip.MustParsePrefix("fec0::/10"),     // site-local (RFC 3879)
		netip.MustParsePrefix("64:ff9b:1::/48"),
	}
	// embedded are IPv6 prefixes with an IPv4 address from that byte on: a gateway may lead to it.
	embedded = map[netip.Prefix]int{
		netip.MustParsePrefix("::/96"):        12, // RFC 4291, section 2.5.5.1
		netip.MustParsePrefix("64:ff9b::/96"): 12, // RFC 6052
		netip.MustParsePrefix("2002::/16"):    2,  // RFC 3056
	}
)

// ScopeOf is the scope of an address. Addresses that no host can have count as near ones.
func ScopeOf(a netip.Addr) Scope {
	a = a.Unmap().WithZone("")
	switch {
	case !a.IsValid(), a.IsUnspecified(), a.IsLoopback(), thisNetwork.Contains(a):
		return ScopeLoopback
	case a.IsLinkLocalUnicast(), a.IsMulticast(), reserved.Contains(a):
		return ScopeLinkLocal
	case a.IsPrivate(), slices.ContainsFunc(private, func(p netip.Prefix) bool { return p.Contains(a) }):
		return ScopePrivate
	}
	for p, at := range embedded {
		if p.Contains(a) {
			b := a.As16()
			return ScopeOf(netip.AddrFrom4([4]byte(b[at:])))
		}
	}
	return ScopePublic
}

// OwnAddrs are the addresses of this host's interfaces. There are none if the system does not tell.
func OwnAddrs() (out []netip.Addr) {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}

// IsFree tells whether nothing listens at an address of this host. It finds out by listening there
// for a moment. network is tcp or udp.
func IsFree(network, address string) bool {
	var c io.Closer
	var err error
	if network == "tcp" {
		c, err = net.Listen(network, address)
	} else {
		c, err = net.ListenPacket(network, address)
	}
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// maxRedirects is how many redirects in a row are followed.
const maxRedirects = 5

// CheckRedirect is an http.Client's: it follows a few redirects, but none that leads from TLS to
// plain HTTP or to another protocol.
func CheckRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errors.New("too many redirects")
	}
	if from := via[len(via)-1].URL.Scheme; r.URL.Scheme != "https" && r.URL.Scheme != from {
		return fmt.Errorf("redirect from %s to %s", from, r.URL.Scheme)
	}
	return nil
}

// ScopedDialer dials on IP for requests whose destination a peer may choose. It checks each address
// just before connecting, since the meaning of a name may have changed since.
type ScopedDialer struct {
	ScopeOf func(netip.Addr) Scope // ScopeOf of this package, except in tests
	May     func(to Scope) error   // refuses an address

	// net/http may still dial after it has given up a request.
	mu sync.Mutex
	at Scope
}

// Dial dials with d, whose ControlContext it sets.
func (s *ScopedDialer) Dial(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error) {
	d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.May(s.ScopeOf(to.Addr()))
	}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	remote, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		c.Close()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.ScopeOf(remote.Addr())
	return c, nil
}

// Contacted is the scope of the last address that was connected to.
func (s *ScopedDialer) Contacted() Scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// Redirected calls note with the scope of the address that has sent a redirect. May does not run
// meanwhile.
func (s *ScopedDialer) Redirected(note func(by Scope)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note(s.at)
}
