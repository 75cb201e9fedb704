// Package tracker introduces the peers of a swarm to each other.
//
// It owns announce URLs, over IP and over SCION. Subpackages have the server, the announcer and the
// wire format. It never transfers pieces or hands out paths: peers look up their own.
package tracker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

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

// ParseURL parses an announce URL. It ignores white space around the URL. Trackers on IP have the
// schemes http, https, udp and, for WebRTC, ws and wss. The forms for SCION are:
//
//	scion://1-ff00:0:110,[127.0.0.1]:31080/announce
//	scion://tracker.example:31080/announce
//	http://scion4-1-ff00-0-110_127-0-0-1:8080/announce  for URL parsers that refuse the others
//	http://scion6-1-ff00-0-110_fd00--1:8080/announce    with dashes for the colons of IPv6
func ParseURL(s string) (URL, error) {
	u, err := parseURL(strings.TrimSpace(s))
	if err != nil {
		return URL{}, fmt.Errorf("tracker URL %q: %w", RedactURL(s), err)
	}
	return u, nil
}

func parseURL(s string) (URL, error) {
	if len(s) > maxURL {
		return URL{}, fmt.Errorf("longer than %d bytes", maxURL)
	}
	if u, ok, err := scionnet.ParseServerURL(s); ok {
		if err != nil {
			return URL{}, err
		}
		return withRequest(URL{text: s, scion: true, addr: u.Addr, name: u.Name}, u.Request.String())
	}
	u, err := url.Parse(s)
	if err != nil {
		return URL{}, errors.Unwrap(err)
	}
	switch u.Scheme {
	case "http", "https", "udp", "ws", "wss":
	default:
		return URL{}, fmt.Errorf("scheme %q: want http, https, udp, ws, wss or scion", u.Scheme)
	}
	if u.Hostname() == "" {
		return URL{}, errors.New("the host is missing")
	}
	if p := u.Port(); p != "" {
		if _, err := scionnet.ParsePort(p); err != nil {
			return URL{}, err
		}
	} else if u.Scheme == "udp" {
		return URL{}, errors.New("the port is missing: udp has no default")
	}
	return withRequest(URL{text: s}, s)
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

// savedURL is a URL in a file.
type savedURL struct {
	URL    string `json:"url"`
	ByUser bool   `json:"by_user,omitempty"`
}

// MarshalJSON writes the URL, and who has named it.
func (u URL) MarshalJSON() ([]byte, error) { return json.Marshal(savedURL{u.text, u.byUser}) }

// UnmarshalJSON reads what MarshalJSON writes. It believes who has named the URL.
func (u *URL) UnmarshalJSON(b []byte) error {
	var saved savedURL
	err := json.Unmarshal(b, &saved)
	if err == nil {
		*u, err = ParseURL(saved.URL)
		u.byUser = saved.ByUser
	}
	return err
}

// SCION is the tracker's address if it is on SCION. If it has a Name, only the port is set.
func (u URL) SCION() (scionnet.Addr, bool) { return u.addr, u.scion }

// Name is the name to look up for a tracker on SCION, or empty if its URL has an address.
func (u URL) Name() string { return u.name }

// WebSocket reports whether the tracker speaks WebTorrent's protocol, by which peers meet that
// connect over WebRTC. It names no addresses of peers.
func (u URL) WebSocket() bool { return u.Scheme() == "ws" || u.Scheme() == "wss" }

// Scheme is http, https, udp, ws, wss or scion.
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
