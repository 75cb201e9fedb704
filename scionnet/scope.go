package scionnet

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// Scope is from how far an IP address can be reached, the nearest first. A stranger must not have
// us contact what he cannot reach himself: whoever names an address has at most the addresses of
// his own scope or a wider one named to us.
type Scope uint8

// The scopes.
const (
	ScopeLoopback  Scope = iota // this machine
	ScopeLinkLocal              // the same link: also what answers for a whole cloud at 169.254.169.254
	ScopePrivate                // a network that the Internet does not route to
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
	// embedded are IPv6 prefixes in which an IPv4 address stands at that byte: a gateway may lead
	// to it.
	embedded = map[netip.Prefix]int{
		netip.MustParsePrefix("::/96"):        12, // RFC 4291, section 2.5.5.1
		netip.MustParsePrefix("64:ff9b::/96"): 12, // RFC 6052
		netip.MustParsePrefix("2002::/16"):    2,  // RFC 3056
	}
)

// ScopeOf is the scope of an address. What is no address of a host has one of the nearer scopes.
func ScopeOf(a netip.Addr) Scope {
	a = a.Unmap().WithZone("")
	switch {
	case !a.IsValid(), a.IsUnspecified(), a.IsLoopback(), thisNetwork.Contains(a):
		return ScopeLoopback
	case a.IsLinkLocalUnicast(), a.IsMulticast(), reserved.Contains(a):
		return ScopeLinkLocal
	case a.IsPrivate():
		return ScopePrivate
	}
	for _, p := range private {
		if p.Contains(a) {
			return ScopePrivate
		}
	}
	for p, at := range embedded {
		if p.Contains(a) {
			b := a.As16()
			return ScopeOf(netip.AddrFrom4([4]byte(b[at:])))
		}
	}
	return ScopePublic
}

// ScopedDialer dials on IP for requests that a stranger may direct. It checks each address when it
// is about to be contacted, since a name may mean another one by then.
type ScopedDialer struct {
	ScopeOf func(netip.Addr) Scope // that of this package, but in tests
	May     func(to Scope) error   // refuses an address

	// net/http may still dial after it has given a request up.
	mu sync.Mutex
	at Scope
}

// Dial dials as d does, whose ControlContext it sets.
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

// Contacted is the scope of the address that was contacted last.
func (s *ScopedDialer) Contacted() Scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// Redirected has note take in a redirect, with the scope of the address that it came from. May does
// not run meanwhile.
func (s *ScopedDialer) Redirected(note func(by Scope)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note(s.at)
}
