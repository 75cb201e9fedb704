// Package tracker introduces the peers of a swarm to each other.
//
// It owns announce URLs, over IP and over SCION. Subpackages have the server, the announcer and the
// wire format. It never transfers pieces or hands out paths: peers look up their own.
package tracker

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"braid/pathsel"
	"braid/scionnet"
)

// URL is a valid announce URL. It names a tracker on IP by host name or address, and one on SCION
// by address or by a name that scionnet.Names resolves.
type URL struct {
	text    string
	request url.URL // to send, without the parameters of an announce
	byUser  bool
	scion   bool
	addr    scionnet.Addr // if there is a name, only the port is set
	name    string        // only of scion://
}

// maxURL bounds an announce URL in bytes: torrents and magnet links come from strangers.
const maxURL = 2048

// defaultSCIONPort is the port of a tracker on SCION whose URL has none.
const defaultSCIONPort = 80

// ParseURL reads an announce URL. Trackers on IP have the schemes http, https and udp. The forms
// for SCION are:
//
//	scion://1-ff00:0:110,[127.0.0.1]:31080/announce
//	scion://tracker.example:31080/announce
//	http://scion4-1-ff00-0-110_127-0-0-1:8080/announce  for URL parsers that refuse the others
//	http://scion6-1-ff00-0-110_fd00--1:8080/announce    with dashes for the colons of IPv6
func ParseURL(s string) (URL, error) {
	u, err := parseURL(s)
	if err != nil {
		return URL{}, fmt.Errorf("tracker URL %q: %w", RedactURL(s), err)
	}
	return u, nil
}

func parseURL(s string) (URL, error) {
	if len(s) > maxURL {
		return URL{}, fmt.Errorf("longer than %d bytes", maxURL)
	}
	if rest, ok := strings.CutPrefix(s, "scion://"); ok {
		// A SCION address is not a host in the sense of RFC 3986, so net/url reads only the path.
		host, path, _ := strings.Cut(rest, "/")
		if !strings.Contains(host[strings.LastIndex(host, "]")+1:], ":") {
			host += ":" + strconv.Itoa(defaultSCIONPort)
		}
		a, name, err := parseSCION(host)
		if err != nil {
			return URL{}, err
		}
		if strings.ContainsAny(path, "# \r\n\t") {
			return URL{}, errors.New("the path has a character that needs an escape")
		}
		authority := hostName(a)
		if name != "" {
			authority = name + ":" + strconv.Itoa(int(a.Port))
		}
		return withRequest(URL{text: s, scion: true, addr: a, name: name}, "https://"+authority+"/"+path)
	}
	u, err := url.Parse(s)
	if err != nil {
		return URL{}, errors.Unwrap(err)
	}
	switch u.Scheme {
	case "http", "https", "udp":
	default:
		return URL{}, fmt.Errorf("scheme %q: want http, https, udp or scion", u.Scheme)
	}
	if u.Hostname() == "" {
		return URL{}, errors.New("the host is missing")
	}
	port := uint16(defaultSCIONPort)
	if p := u.Port(); p != "" {
		if port, err = parsePort(p); err != nil {
			return URL{}, err
		}
	} else if u.Scheme == "udp" {
		return URL{}, errors.New("the port is missing: udp has no default")
	}
	if !strings.HasPrefix(u.Hostname(), "scion4-") && !strings.HasPrefix(u.Hostname(), "scion6-") {
		return withRequest(URL{text: s}, s)
	}
	if u.Scheme != "http" {
		return URL{}, fmt.Errorf("scheme %q: a SCION host is reached by http or scion", u.Scheme)
	}
	a, err := parseSCIONHost(u.Hostname())
	if err != nil {
		return URL{}, err
	}
	a.Port = port
	return withRequest(URL{text: s, scion: true, addr: a}, "https"+s[len("http"):])
}

// withRequest adds the URL to send. It is parsed now, so that every URL without an error can be
// requested.
func withRequest(u URL, text string) (URL, error) {
	r, err := url.Parse(text)
	if err != nil {
		return URL{}, errors.Unwrap(err)
	}
	if r.Path == "" || r.Path == "/" {
		r.Path = "/announce"
	}
	r.Fragment, r.RawFragment = "", ""
	u.request = *r
	return u, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %q: want a number from 1 to 65535", s)
	}
	return uint16(n), nil
}

// parseSCION reads the part between scion:// and the path, with a port: an address, or the name of
// a host.
func parseSCION(s string) (a scionnet.Addr, name string, err error) {
	host, port, ok := strings.Cut(s, ":")
	if strings.Contains(s, ",") || !ok || !scionnet.IsName(host) {
		if a, err = scionnet.ParseAddr(s); err == nil && a.Port == 0 {
			err = errors.New("port 0: want a number from 1 to 65535")
		}
		return a, "", err
	}
	if a.Port, err = parsePort(port); err != nil {
		return a, "", err
	}
	return a, host, nil
}

// parseSCIONHost reads scion4-1-ff00-0-110_127-0-0-1: the family, the ISD-AS with dashes for
// colons, and after the underscore the host with dashes for its dots or colons.
func parseSCIONHost(s string) (scionnet.Addr, error) {
	family, rest, _ := strings.Cut(s, "-")
	ia, host, ok := strings.Cut(rest, "_")
	if !ok {
		return scionnet.Addr{}, fmt.Errorf("host %q: want for example scion4-1-ff00-0-110_127-0-0-1", s)
	}
	isd, as, _ := strings.Cut(ia, "-")
	v, err := pathsel.ParseIA(isd + "-" + strings.ReplaceAll(as, "-", ":"))
	if err != nil {
		return scionnet.Addr{}, err
	}
	separator := "."
	if family == "scion6" {
		separator = ":"
	}
	h, err := netip.ParseAddr(strings.ReplaceAll(host, "-", separator))
	if err != nil || h.Is4() != (family == "scion4") {
		return scionnet.Addr{}, fmt.Errorf("host %q: %q is not an address of the family %s", s, host, family)
	}
	// ParseAddr decides which SCION addresses are valid.
	return scionnet.ParseAddr(scionnet.Addr{IA: v, Host: h, Port: defaultSCIONPort}.String())
}

// OfUser is the same URL, named by the user and not by a torrent.
func (u URL) OfUser() URL {
	u.byUser = true
	return u
}

// ByUser reports whether the user named the tracker. Trackers that torrents name belong to
// strangers.
func (u URL) ByUser() bool { return u.byUser }

// String is the URL as it was given.
func (u URL) String() string { return u.text }

// SCION is the tracker's address if it is on SCION. If it has a Name, only the port is set.
func (u URL) SCION() (scionnet.Addr, bool) { return u.addr, u.scion }

// Name is the name to look up for a tracker on SCION, or empty if its URL has an address.
func (u URL) Name() string { return u.name }

// Scheme is http, https, udp or scion.
func (u URL) Scheme() string {
	if u.scion {
		return "scion"
	}
	scheme, _, _ := strings.Cut(u.text, ":")
	return strings.ToLower(scheme)
}

// Request is the URL of an announce over HTTP or HTTP/3 with that query.
func (u URL) Request(query string) *url.URL {
	r := u.request
	if r.RawQuery != "" {
		r.RawQuery += "&"
	}
	r.RawQuery += query
	return &r
}

// Sibling is the same URL at another address, such as scion://1-ff00:0:110,[10.0.0.1]:80 or
// http://tracker.example. The path and query stay.
func (u URL) Sibling(address string) (URL, error) {
	_, host, ok := strings.Cut(address, "://")
	if !ok || host == "" || strings.ContainsAny(host, "/?#@") {
		return URL{}, fmt.Errorf("tracker address %q: want a scheme, a host and a port", address)
	}
	path := u.request.EscapedPath()
	if u.request.RawQuery != "" {
		path += "?" + u.request.RawQuery
	}
	return ParseURL(address + path)
}

// Plain reports whether the URL is only an address and the path /announce. Whoever wrote such a URL
// chooses where the request goes, but not what it asks for.
func (u URL) Plain() bool {
	return u.request.Path == "/announce" && u.request.RawQuery == "" && u.request.User == nil
}

// Same reports whether two URLs lead to the same requests.
func (u URL) Same(v URL) bool {
	return u.scion == v.scion && u.request.String() == v.request.String()
}

// hostName is a SCION address as a host and port that every URL parser accepts.
func hostName(a scionnet.Addr) string {
	family := "scion4-"
	if a.Host.Is6() {
		family = "scion6-"
	}
	host := strings.NewReplacer(".", "-", ":", "-").Replace(a.IA.String() + "_" + a.Host.String())
	return family + host + ":" + strconv.Itoa(int(a.Port))
}
