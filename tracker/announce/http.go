package announce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	close()
}

func newAsker(u tracker.URL, scion *scionnet.HTTP) (asker, error) {
	if addr, ok := u.SCION(); ok {
		if scion == nil {
			return nil, errors.New("it is on SCION and this host is not; give --config-dir or --sciond")
		}
		t := scion.Client(addr)
		if name := u.Name(); name != "" {
			t = scion.ClientByName(name, addr.Port)
		}
		return &overHTTP{url: u, client: http.Client{Transport: t, CheckRedirect: noRedirect}, end: func() { t.Close() }}, nil
	}
	if u.Scheme() == "udp" {
		return newOverUDP(u), nil
	}
	t := &http.Transport{
		// Announces are rare: a connection kept would be closed by the other side before it is used again.
		DisableKeepAlives: true, DisableCompression: true,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &overHTTP{url: u, client: http.Client{Transport: t, CheckRedirect: sameScheme}, end: t.CloseIdleConnections}, nil
}

type overHTTP struct {
	url    tracker.URL
	client http.Client
	end    func()
}

func (o *overHTTP) close() { o.end() }

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

func (o *overHTTP) announce(ctx context.Context, a *wire.Announce, reports []wire.PathReport) (wire.Answer, error) {
	u := o.url.Request(a.Query())
	req := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{"User-Agent": {"braid"}}}).WithContext(ctx)
	if len(reports) > 0 {
		body := wire.AppendReports(nil, reports)
		req.Method, req.ContentLength = http.MethodPost, int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil } // for a connection that has ended meanwhile
		req.Body, _ = req.GetBody()
	}
	res, err := o.client.Do(req)
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
