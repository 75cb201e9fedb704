package client

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	"braid/client/webseed"
	"braid/scionnet"
)

// WebSeed is a server that has a torrent's files (BEP 19).
type WebSeed struct {
	URL string `json:"url"`
	// ByUser says that the user has named the server, and not the torrent. The user's servers may
	// be anywhere, those of a torrent must be on the Internet or on SCION.
	ByUser bool `json:"by_user,omitempty"`
}

// maxWebSeedURL bounds the URL of a web seed in bytes.
const maxWebSeedURL = 2048

// peer returns the web seed as a peer, with the URL to send requests to.
func (w WebSeed) peer() (p Peer, request *url.URL, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("web seed %.200q: %w", w.URL, err)
		}
	}()
	if len(w.URL) > maxWebSeedURL {
		return p, nil, fmt.Errorf("longer than %d bytes", maxWebSeedURL)
	}
	p.web = w.URL
	if u, ok, err := scionnet.ParseServerURL(w.URL); ok {
		if err == nil && u.Name != "" {
			err = errors.New("a name on SCION; want an address, " +
				"as in scion://1-ff00:0:110,[127.0.0.1]:31080/")
		}
		p.scion = u.Addr
		return p, &u.Request, err
	}
	u, err := url.Parse(w.URL)
	if err != nil {
		return p, nil, errors.Unwrap(err)
	}
	if err := webseed.Check(u); err != nil {
		return p, nil, err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	q, err := ParseListen(net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return p, nil, err
	}
	p.host, p.port, p.guarded = q.host, q.port, !w.ByUser
	if a, err := netip.ParseAddr(p.host); err == nil && p.guarded {
		if scope := scionnet.ScopeOf(a); scope != scionnet.ScopePublic {
			return p, nil, fmt.Errorf("a torrent may not name a server at a %s address; "+
				"name it yourself if you trust it", scope)
		}
	}
	u.Fragment, u.RawFragment = "", ""
	return p, u, nil
}

// CheckWebSeed finds URLs that braid cannot use as web seeds.
func CheckWebSeed(url string) error {
	_, _, err := WebSeed{URL: url, ByUser: true}.peer()
	return err
}
