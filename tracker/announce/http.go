package announce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/wire"
)

// asker makes announces to one tracker.
type asker interface {
	// announce makes one, with reports where the tracker takes them.
	announce(context.Context, *wire.Announce, []wire.PathReport) (wire.Answer, error)
	// scope is that of the address that was asked last.
	scope() scionnet.Scope
	close()
}

// newAsker prepares to ask a tracker. If another tracker has named it, from is the scope of that one.
func newAsker(u tracker.URL, cfg *Config, from scionnet.Scope) (asker, error) {
	if addr, ok := u.SCION(); ok {
		if cfg.SCION == nil {
			return nil, errors.New("it is on SCION and this host is not; give --config-dir or --sciond")
		}
		o := &overSCION{url: u, at: scionnet.ScopePublic}
		t := cfg.SCION.Client(addr)
		if name := u.Name(); name != "" {
			t = cfg.SCION.ClientByName(name, addr.Port)
		} else if addr.IA == cfg.SCION.Addr().IA { // elsewhere the same address is another host
			o.at = scionnet.ScopeOf(addr.Host)
		}
		o.client, o.end = http.Client{Transport: t, CheckRedirect: noRedirect}, t.Close
		return o, nil
	}
	o := &overIP{
		outlets: outletsOf(cfg.Listen), scopeOf: scionnet.ScopeOf,
		named: named{user: u.ByUser(), plain: u.Plain(), from: from},
		ask:   overHTTP(u),
	}
	if u.Scheme() == "udp" {
		o.ask = overUDP(u.Request(""))
	}
	return o, nil
}

// overSCION is HTTP/3.
type overSCION struct {
	url    tracker.URL
	client http.Client
	at     scionnet.Scope // as far as it is known
	end    func() error
}

func (o *overSCION) scope() scionnet.Scope { return o.at }
func (o *overSCION) close()                { _ = o.end() } // nobody waits for it

func (o *overSCION) announce(ctx context.Context, a *wire.Announce, reports []wire.PathReport) (wire.Answer, error) {
	answer, err := exchange(ctx, &o.client, o.url.Request(a.Query()), reports)
	answer.Peers = reachable(answer.Peers, o.at)
	return answer, err
}

// overIP is a tracker on IP, over HTTP or UDP.
type overIP struct {
	outlets []outlet
	named   named
	scopeOf func(netip.Addr) scionnet.Scope
	ask     func(context.Context, *dialer, *wire.Announce) (wire.Answer, error)
	at      scionnet.Scope
}

func (o *overIP) scope() scionnet.Scope { return o.at }
func (o *overIP) close()                {}

func (o *overIP) announce(ctx context.Context, a *wire.Announce, _ []wire.PathReport) (answer wire.Answer, err error) {
	for _, from := range o.outlets {
		d := newDialer(from, o.named, o.scopeOf)
		told := *a
		told.Port = from.port
		if answer, err = o.ask(ctx, d, &told); err == nil || !elsewhere(err) {
			o.at = d.Contacted()
			answer.Peers = reachable(answer.Peers, o.at)
			break
		}
	}
	return answer, err
}

func overHTTP(u tracker.URL) func(context.Context, *dialer, *wire.Announce) (wire.Answer, error) {
	return func(ctx context.Context, d *dialer, a *wire.Announce) (wire.Answer, error) {
		c := http.Client{
			Transport: &http.Transport{
				// Announces are rare: a connection kept would be closed by the other side before it is used again.
				DisableKeepAlives: true, DisableCompression: true,
				DialContext:            d.dial,
				TLSHandshakeTimeout:    10 * time.Second,
				MaxResponseHeaderBytes: 64 << 10,
			},
			CheckRedirect: func(r *http.Request, via []*http.Request) error {
				d.redirected()
				return sameScheme(r, via)
			},
		}
		return exchange(ctx, &c, u.Request(a.Query()), nil)
	}
}

// sameScheme follows few redirects, and none that would leave TLS or HTTP.
func sameScheme(r *http.Request, via []*http.Request) error {
	if len(via) > 3 {
		return errors.New("too many redirects")
	}
	if was := via[0].URL.Scheme; r.URL.Scheme != "https" && r.URL.Scheme != was {
		return fmt.Errorf("redirect from %s to %s", was, r.URL.Scheme)
	}
	return nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// exchange makes one request. It is a POST if there are reports.
func exchange(ctx context.Context, client *http.Client, u *url.URL, reports []wire.PathReport) (wire.Answer, error) {
	req := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{"User-Agent": {"braid"}}}).WithContext(ctx)
	if len(reports) > 0 {
		body := wire.AppendReports(nil, reports)
		req.Method, req.ContentLength = http.MethodPost, int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil } // for a connection that has ended meanwhile
		req.Body, _ = req.GetBody()
	}
	res, err := client.Do(req)
	if err != nil {
		// net/http would repeat the whole URL, which has the user's key in it.
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err
		}
		return wire.Answer{}, fmt.Errorf("announce: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, wire.MaxAnswer+1))
	switch {
	case err != nil:
		return wire.Answer{}, fmt.Errorf("announce: read the answer: %w", err)
	case len(b) > wire.MaxAnswer:
		return wire.Answer{}, fmt.Errorf("announce: the answer is longer than %d bytes", wire.MaxAnswer)
	}
	answer, err := wire.ParseAnswer(b)
	var f *wire.Failure
	if err != nil && !errors.As(err, &f) && res.StatusCode != http.StatusOK {
		return wire.Answer{}, fmt.Errorf("announce: the tracker answers %s", res.Status)
	}
	return answer, err
}
