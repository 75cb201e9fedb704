package client

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"braid/pathsel"
	"braid/scionnet"
)

// Peer is the address of an address-level peer: a SCION address, or host and port on IP. Whether a
// peer on IP is reached over TCP or QUIC depends on the session. Peers can be compared.
type Peer struct {
	scion scionnet.Addr
	// host and port of a peer on IP. An IP address stands in its canonical form.
	host string
	port uint16
	// guarded: a stranger has named the host, so its address must be public (mayDial).
	guarded bool
	// web is the URL of a web seed, whose address the other fields have; empty for other peers.
	web string
	// rtc: the peer is at the other end of a WebRTC connection from that host and port, at which
	// nobody can dial it.
	rtc bool
}

// PeerSource says where a peer's address comes from.
type PeerSource string

// The sources.
const (
	FromUser    PeerSource = "named"    // the user, the torrent or the magnet link names it
	FromTracker PeerSource = "tracker"  // a tracker
	FromDHT     PeerSource = "dht"      // the DHT
	FromPEX     PeerSource = "pex"      // a connected peer (pex.go)
	FromLSD     PeerSource = "lsd"      // a host of the local network (BEP 14)
	FromEarlier PeerSource = "earlier"  // it has delivered data in an earlier run
	FromItself  PeerSource = "incoming" // it has connected to us, and nobody has named its address
)

// ParsePeer reads a SCION address in one of its forms (1-ff00:0:111,[127.0.0.1]:31000), or
// host:port.
func ParsePeer(s string) (Peer, error) {
	p, err := ParseListen(s)
	if err == nil && p.Port() == 0 {
		err = fmt.Errorf("peer %q: the port must not be 0", s)
	}
	return p, err
}

const maxHostName = 253 // RFC 1035

// ParseListen reads an address at which braid shall listen. Port 0 means any free port. On IP, an
// empty host means all addresses of the machine.
func ParseListen(s string) (Peer, error) {
	if strings.Contains(s, ",") {
		a, err := scionnet.ParseAddr(s)
		if err != nil {
			return Peer{}, err
		}
		return Peer{scion: a}, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return Peer{}, fmt.Errorf("address %q: want ISD-AS,[host]:port for SCION, "+
			"or host:port for TCP or QUIC on IP", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Peer{}, fmt.Errorf("address %q: want a port from 0 to 65535", s)
	}
	if len(host) > maxHostName || strings.ContainsAny(host, " /\\?#@\x00") {
		return Peer{}, fmt.Errorf("address %q: the host is not a name", s)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return Peer{host: host, port: uint16(n)}, nil
}

// PeerAt is the peer at an address.
func PeerAt(a scionnet.Addr) Peer {
	if a.IsSCION() {
		return Peer{scion: a}
	}
	return Peer{host: a.Host.Unmap().String(), port: a.Port}
}

// SCION is the peer's SCION address, if it has one.
func (p Peer) SCION() (scionnet.Addr, bool) { return p.scion, p.scion.IA != 0 }

// Addr is the peer's address, with a zero IA on IP. It has no host if the peer is named by a name.
func (p Peer) Addr() scionnet.Addr {
	if a, ok := p.SCION(); ok {
		return a
	}
	host, _ := netip.ParseAddr(p.host)
	return scionnet.Addr{Host: host, Port: p.port}
}

// Host is the IP address or the name of a peer on IP. It is empty for a peer on SCION, and for a
// socket that listens at all addresses.
func (p Peer) Host() string { return p.host }

// WithPort is a peer on IP, at another port of the same host.
func (p Peer) WithPort(n uint16) Peer {
	p.port = n
	return p
}

// Port is the peer's port.
func (p Peer) Port() uint16 { return p.Addr().Port }

// String is the form that ParsePeer reads; the URL of a web seed; webrtc:host:port.
func (p Peer) String() string {
	at := net.JoinHostPort(p.host, strconv.Itoa(int(p.port)))
	switch a, ok := p.SCION(); {
	case p.web != "":
		return p.web
	case p.rtc:
		return "webrtc:" + at
	case ok:
		return a.String()
	}
	return at
}

// same tells whether two peers are at the same address, whoever has named it.
func (p Peer) same(q Peer) bool {
	p.guarded = q.guarded
	return p == q
}

// ofStranger is the peer as named by a stranger, such as the author of a magnet link. An IP address
// must be public; the address of a name is checked when it is dialled. A SCION address always
// belongs to its AS.
func (p Peer) ofStranger() (Peer, error) {
	if p.host == "" {
		return p, nil
	}
	p.guarded = true
	a, err := netip.ParseAddr(p.host)
	if err != nil {
		return p, nil //nolint:nilerror // a name
	}
	err = p.mayDial(a)
	p.guarded = false
	return p, err
}

// mayDial returns an error if the address of the peer's host name must not be contacted.
func (p Peer) mayDial(a netip.Addr) error {
	if s := scionnet.ScopeOf(a); p.guarded && s != scionnet.ScopePublic {
		return fmt.Errorf("a magnet link may not name a peer at a %s address; "+
			"name the peer yourself if you trust it", s)
	}
	return nil
}

// MarshalText writes String's form.
func (p Peer) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what ParsePeer does.
func (p *Peer) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePeer(string(b))
	return err
}

// ID names the peer in pathsel.
func (p Peer) ID() pathsel.PeerID { return pathsel.PeerID(p.String()) }

// engineAddrOf is the address under which the engine knows a host: a unique local IPv6 address (RFC
// 4193) made of a hash. It must be an IP address, since the engine panics otherwise. The engine
// bans by IP address, so one bad block ends the host's connections over all paths.
func engineAddrOf(p Peer) netip.Addr {
	kind := "ip "
	if _, ok := p.SCION(); ok {
		kind = "scion "
	}
	return engineAddrNamed(kind + p.origin().Host)
}

func engineAddrNamed(name string) netip.Addr {
	sum := sha256.Sum256([]byte(name))
	var b [16]byte
	copy(b[1:], sum[:])
	b[0] = 0xfd
	return netip.AddrFrom16(b)
}

// engineAddr is the address under which the engine knows one path-level connection. The port is a
// slot: it tells the ports and paths of a host apart, and means nothing on any network.
type engineAddr struct {
	host netip.Addr
	slot uint16
}

var _ net.Addr = engineAddr{}

func (a engineAddr) Network() string { return "braid" }

func (a engineAddr) String() string { return netip.AddrPortFrom(a.host, a.slot).String() }

// AddrPort is zero, so that the engine never tells other peers of this address (peer exchange).
func (a engineAddr) AddrPort() netip.AddrPort { return netip.AddrPort{} }

// IsWebSeed tells whether the peer is a server with the files of one torrent. Other peers have no
// use for its address.
func (p Peer) IsWebSeed() bool { return p.web != "" }

// Dialable tells whether others can connect to the peer at its address, and exchange pieces with
// it.
func (p Peer) Dialable() bool { return p.web == "" && !p.rtc }

// origin is where connections with the address come from, as far as the address shows it. A web
// seed counts as a host of its own: if it sends wrong data, a peer on the same host is not guilty.
func (p Peer) origin() pathsel.Origin {
	if p.IsWebSeed() {
		port := p.Port()
		p.web = ""
		o := p.origin()
		o.Host = fmt.Sprintf("web %s %d", o.Host, port)
		return o
	}
	if a, ok := p.SCION(); ok {
		return pathsel.OriginSCION(a.IA, a.Host, "")
	}
	if ip, err := netip.ParseAddr(p.host); err == nil {
		return pathsel.OriginIP(ip, "")
	}
	// A name costs nothing and can have any address: all names count as one network.
	return pathsel.Origin{Net: "names", Host: "name " + p.host}
}

// originOf is where a connection with that peer and its key comes from; nil: it has none.
func originOf(p Peer, key *scionnet.PeerKey) pathsel.Origin {
	o := p.origin()
	if key != nil {
		o.Key = string(key[:])
	}
	return o
}
