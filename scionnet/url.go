package scionnet

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"braid/pathsel"
)

// ServerURL is the URL of an HTTP/3 server on SCION.
type ServerURL struct {
	Addr Addr   // with a Name, only the port is set
	Name string // to look up; empty if there is an address
	// Request is the URL to send, with https and a host name that every URL parser accepts.
	Request url.URL
}

// defaultSCIONPort is the port of a server on SCION whose URL has none.
const defaultSCIONPort = 80

// ParseServerURL reads the URL of a server on SCION; ok is false for URLs of servers on IP. The
// forms are:
//
//	scion://1-ff00:0:110,[127.0.0.1]:31080/path
//	scion://server.example:31080/path
//	http://scion4-1-ff00-0-110_127-0-0-1:8080/path  for URL parsers that refuse the others
//	http://scion6-1-ff00-0-110_fd00--1:8080/path    with dashes for the colons of IPv6
func ParseServerURL(s string) (u ServerURL, ok bool, err error) {
	if rest, ok := strings.CutPrefix(s, "scion://"); ok {
		u, err := parseSCIONURL(rest)
		return u, true, err
	}
	r, err := url.Parse(s)
	if err != nil || !strings.HasPrefix(r.Hostname(), "scion4-") && !strings.HasPrefix(r.Hostname(), "scion6-") {
		return u, false, nil //nolint:nilerror // whoever reads it as another URL says what is wrong
	}
	if r.Scheme != "http" {
		return u, true, fmt.Errorf("scheme %q: a SCION host is reached by http or scion", r.Scheme)
	}
	port := uint16(defaultSCIONPort)
	if p := r.Port(); p != "" {
		if port, err = ParsePort(p); err != nil {
			return u, true, err
		}
	}
	if u.Addr, err = parseSCIONHost(r.Hostname()); err != nil {
		return u, true, err
	}
	u.Addr.Port = port
	u.Request = *r
	u.Request.Scheme = "https"
	return u, true, nil
}

// parseSCIONURL reads what follows scion://. A SCION address is not a host in the sense of RFC
// 3986, so net/url reads only the path.
func parseSCIONURL(rest string) (u ServerURL, err error) {
	host, path, _ := strings.Cut(rest, "/")
	if !strings.Contains(host[strings.LastIndex(host, "]")+1:], ":") {
		host += ":" + strconv.Itoa(defaultSCIONPort)
	}
	if u.Addr, u.Name, err = parseSCION(host); err != nil {
		return u, err
	}
	if strings.ContainsAny(path, "# \r\n\t") {
		return u, errors.New("the path has a character that needs an escape")
	}
	authority := hostName(u.Addr)
	if u.Name != "" {
		authority = u.Name + ":" + strconv.Itoa(int(u.Addr.Port))
	}
	r, err := url.Parse("https://" + authority + "/" + path)
	if err != nil {
		return u, errors.Unwrap(err)
	}
	u.Request = *r
	return u, nil
}

// ParsePort reads the port in a URL.
func ParsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %q: want a number from 1 to 65535", s)
	}
	return uint16(n), nil
}

// parseSCION reads the part between scion:// and the path, with a port: an address, or the name of
// a host.
func parseSCION(s string) (a Addr, name string, err error) {
	host, port, ok := strings.Cut(s, ":")
	if strings.Contains(s, ",") || !ok || !IsName(host) {
		if a, err = ParseAddr(s); err == nil && a.Port == 0 {
			err = errors.New("port 0: want a number from 1 to 65535")
		}
		return a, "", err
	}
	if a.Port, err = ParsePort(port); err != nil {
		return a, "", err
	}
	return a, host, nil
}

// parseSCIONHost reads scion4-1-ff00-0-110_127-0-0-1: the family, the ISD-AS with dashes for
// colons, and after the underscore the host with dashes for its dots or colons.
func parseSCIONHost(s string) (Addr, error) {
	family, rest, _ := strings.Cut(s, "-")
	ia, host, ok := strings.Cut(rest, "_")
	if !ok {
		return Addr{}, fmt.Errorf("host %q: want for example scion4-1-ff00-0-110_127-0-0-1", s)
	}
	isd, as, _ := strings.Cut(ia, "-")
	v, err := pathsel.ParseIA(isd + "-" + strings.ReplaceAll(as, "-", ":"))
	if err != nil {
		return Addr{}, err
	}
	separator := "."
	if family == "scion6" {
		separator = ":"
	}
	h, err := netip.ParseAddr(strings.ReplaceAll(host, "-", separator))
	if err != nil || h.Is4() != (family == "scion4") {
		return Addr{}, fmt.Errorf("host %q: %q is not an address of the family %s", s, host, family)
	}
	// ParseAddr decides which SCION addresses are valid.
	return ParseAddr(Addr{IA: v, Host: h, Port: defaultSCIONPort}.String())
}

// hostName is a SCION address as a host and port that every URL parser accepts.
func hostName(a Addr) string {
	family := "scion4-"
	if a.Host.Is6() {
		family = "scion6-"
	}
	host := strings.NewReplacer(".", "-", ":", "-").Replace(a.IA.String() + "_" + a.Host.String())
	return family + host + ":" + strconv.Itoa(int(a.Port))
}
