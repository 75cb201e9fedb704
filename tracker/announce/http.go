package announce

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"braid/scionnet"
	"braid/tracker"
	"braid/tracker/wire"
)

// asker makes announces to one tracker.
type asker interface {
	// announce makes one announce. Only trackers on SCION get the reports.
	announce(context.Context, *wire.Announce, []wire.PathReport) (wire.Answer, error)
	// scope is the scope of the tracker's address in the last announce.
	scope() scionnet.Scope
	close()
}

// newAsker prepares to ask a tracker. If another tracker named it, from is the scope of that
// tracker.
func newAsker(u tracker.URL, cfg *Config, from scionnet.Scope) (asker, error) {
	if u.WebSocket() {
		return nil, errors.New("its peers connect over WebRTC, which is not used")
	}
	if addr, ok := u.SCION(); ok {
		if cfg.SCION == nil {
			return nil, errors.New("it is on SCION, and this host has no connection to SCION")
		}
		o := &overSCION{url: u, http: cfg.SCION, addr: addr, at: scionnet.ScopePublic}
		// In another AS the same address is another host.
		if u.Name() == "" && addr.IA == cfg.SCION.Addr().IA {
			o.at = scionnet.ScopeOf(addr.Host)
		}
		return o, nil
	}
	o := &overIP{
		scopeOf: scionnet.ScopeOf, named: named{user: u.ByUser(), plain: u.Plain(), from: from},
		outlets: outletsOf(cfg.Listen, u.Scheme() == "udp"), answered: map[outlet]bool{},
		ask: overHTTP(u), found: cfg.passOn,
	}
	if u.Scheme() == "udp" {
		o.ask = overUDP(u.Request(""))
	}
	return o, nil
}

// overSCION is HTTP/3.
type overSCION struct {
	url  tracker.URL
	http *scionnet.HTTP
	addr scionnet.Addr
	at   scionnet.Scope // public if unknown
}

func (o *overSCION) scope() scionnet.Scope { return o.at }
func (o *overSCION) close()                {}

func (o *overSCION) announce(ctx context.Context, a *wire.Announce, reports []wire.PathReport) (wire.Answer, error) {
	// Announces are rare, and a tracker has few places for connections of one host and one AS. So
	// announces at the same time share a connection, and it ends with the last of them.
	t := o.http.ClientOf(o.addr, o.url.Name())
	defer t.Close()
	client := http.Client{Transport: t, CheckRedirect: noRedirect}
	answer, err := exchange(ctx, &client, o.url.Request(a.Query()), reports)
	answer.Peers = allowed(answer.Peers, o.at)
	return answer, err
}

// overIP is a tracker on IP, over HTTP or UDP.
type overIP struct {
	outlets  [][]outlet // to be tried in turn, those of one list together
	answered map[outlet]bool
	noPort   uint16 // says that nobody listens: 0 or deadPort
	named    named
	scopeOf  func(netip.Addr) scionnet.Scope
	ask      func(context.Context, *dialer, *wire.Announce) (wire.Answer, error)
	found    func([]wire.Peer)
	at       scionnet.Scope
}

func (o *overIP) scope() scionnet.Scope { return o.at }
func (o *overIP) close()                {}

func (o *overIP) announce(ctx context.Context, a *wire.Announce, _ []wire.PathReport) (answer wire.Answer, err error) {
	for _, from := range o.outlets {
		answer, err = o.together(ctx, from, a)
		f, _ := errors.AsType[*wire.Failure](err)
		if f != nil && f.RetryIn == 0 && from[0].port == 0 && o.noPort == 0 {
			o.noPort = deadPort
			answer, err = o.together(ctx, from, a)
		}
		if err == nil || !unreachable(err) {
			break
		}
	}
	if isRefusal(err) {
		o.noPort = 0 // that was not the reason
	}
	return answer, err
}

// deadPort is a port at which nobody listens. It is for trackers that refuse port 0.
const deadPort = 1

// unknownLeft is the number of missing bytes that braid announces for a magnet link, as other
// clients do. Some trackers on IP refuse a negative number, and others read it as 0, which means a
// seed.
const unknownLeft = 16 << 10

// together announces from several outlets at once, and joins the answers. After the first answer
// the others have little time left, and the peers in it do not wait for that. The event stopped
// goes only where the tracker has answered.
func (o *overIP) together(ctx context.Context, from []outlet, a *wire.Announce) (answer wire.Answer, err error) {
	if a.Event == wire.Stopped && slices.ContainsFunc(from, func(x outlet) bool { return o.answered[x] }) {
		from = slices.DeleteFunc(slices.Clone(from), func(x outlet) bool { return !o.answered[x] })
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		from   outlet
		at     scionnet.Scope
		answer wire.Answer
		err    error
	}
	results := make(chan result, len(from))
	for _, x := range from {
		go func() {
			d := newDialer(x, o.named, o.scopeOf)
			out := *a
			if out.Port = cmp.Or(x.port, o.noPort); out.Left == wire.NoCount {
				out.Left = unknownLeft
			}
			got, err := o.ask(ctx, d, &out)
			got.Peers = allowed(got.Peers, d.Contacted())
			results <- result{x, d.Contacted(), got, err}
		}()
	}
	ok := false
	for range from {
		r := <-results
		switch {
		case r.err == nil && !ok:
			ok, answer, err, o.at = true, r.answer, nil, r.at
			defer time.AfterFunc(udpPatience, cancel).Stop()
			if len(from) > 1 {
				o.found(answer.Peers)
			}
		case r.err == nil:
			for _, p := range r.answer.Peers {
				if !slices.Contains(answer.Peers, p) {
					answer.Peers = append(answer.Peers, p)
				}
			}
			answer.Complete = max(answer.Complete, r.answer.Complete)
			answer.Incomplete = max(answer.Incomplete, r.answer.Incomplete)
			o.at = max(o.at, r.at)
		case !ok && (err == nil || unreachable(err) || isRefusal(r.err)):
			err = r.err
		}
		o.answered[r.from] = o.answered[r.from] || r.err == nil
	}
	return answer, err
}

func isRefusal(err error) bool { _, ok := errors.AsType[*wire.Failure](err); return ok }

func overHTTP(u tracker.URL) func(context.Context, *dialer, *wire.Announce) (wire.Answer, error) {
	return func(ctx context.Context, d *dialer, a *wire.Announce) (wire.Answer, error) {
		c := d.client(func(r *http.Request, via []*http.Request) error {
			d.redirected()
			return scionnet.CheckRedirect(r, via)
		})
		return exchange(ctx, c, u.Request(a.Query()), nil)
	}
}

// client makes requests with the dialer.
func (d *dialer) client(redirect func(*http.Request, []*http.Request) error) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			// Announces are rare. The other side would close an idle connection before the next
			// one.
			DisableKeepAlives: true, DisableCompression: true,
			DialContext:            d.dial,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: redirect,
	}
}

// withoutURL is the cause of an error of net/http. The error itself has the whole URL in it, with
// the user's key.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// exchange makes one request. With reports it is a POST.
func exchange(ctx context.Context, client *http.Client, u *url.URL, reports []wire.PathReport) (wire.Answer, error) {
	header := http.Header{"User-Agent": {"braid"}}
	req := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: header}
	if len(reports) > 0 {
		body := wire.AppendReports(nil, reports)
		req.Method, req.ContentLength = http.MethodPost, int64(len(body))
		// GetBody lets net/http repeat the request if an idle connection has ended.
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.Body, _ = req.GetBody()
	}
	res, err := client.Do(req.WithContext(ctx))
	if err != nil {
		return wire.Answer{}, fmt.Errorf("announce: %w", withoutURL(err))
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
	if err != nil && !isRefusal(err) && res.StatusCode != http.StatusOK {
		return wire.Answer{}, fmt.Errorf("announce: the tracker answers %s", res.Status)
	}
	return answer, err
}
