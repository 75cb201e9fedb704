package send

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/anacrolix/torrent/metainfo"

	"braid/client"
	"braid/scionnet"
	"braid/scionnet/crowd"
)

// A sender with --watch makes a torrent of each state of its files. Its line names no torrent. It
// leads to the sender's news, which name the newest torrent. The news are served over HTTPS on TCP
// and HTTP/3 on SCION, to holders of the key only (see scionnet.Group).

// IsNews tells whether a line leads to the news of a sender, and not to a torrent.
func (l Line) IsNews() bool { return l.InfoHash == (metainfo.Hash{}) }

// Member returns a new identity in the group of those who have the key.
func (k Key) Member() (*scionnet.Identity, error) {
	group, err := scionnet.NewGroup(k[:])
	if err != nil {
		return nil, err
	}
	id, err := scionnet.NewIdentity()
	if err != nil {
		return nil, err
	}
	return id.In(group)
}

const (
	// newsWait is how long a request waits for news. Connections on SCION end after 15 seconds
	// without an answer.
	newsWait = 10 * time.Second
	// newsPatience is how long a receiver waits for an answer in all.
	newsPatience = 20 * time.Second
	newsALPN     = "http/1.1"
	// maxNewsConnections bounds the connections on TCP, those of strangers included. A stranger's
	// ends after ten seconds, since it lacks the key.
	maxNewsConnections = 512
)

// News tells receivers of the newest line.
type News struct {
	mu      sync.Mutex
	line    Line
	changed chan struct{} // closed at the next line
}

// NewNews returns news without a line yet.
func NewNews() *News { return &News{changed: make(chan struct{})} }

// Publish replaces the line, and answers all waiting requests.
func (n *News) Publish(l Line) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.line = l
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *News) newest() (Line, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.line, n.changed
}

// ServeHTTP answers with the newest line. A request with ?not=INFO HASH waits a while for another
// one.
func (n *News) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	not, wait := r.URL.Query().Get("not"), time.After(newsWait)
	for {
		l, changed := n.newest()
		if !l.IsNews() && l.InfoHash.HexString() != not {
			_, _ = io.WriteString(w, l.String())
			return
		}
		select {
		case <-changed:
		case <-wait:
			w.WriteHeader(http.StatusNoContent)
			return
		case <-r.Context().Done():
			return
		}
	}
}

// ServeTCP serves the news to members of the identity's group until the context ends.
func (n *News) ServeTCP(ctx context.Context, l net.Listener, id *scionnet.Identity) error {
	s := &http.Server{
		Handler:           n,
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      2 * newsWait,
		IdleTimeout:       2 * newsWait,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // connections without the key are no news
	}
	few := crowd.Listen(l, maxNewsConnections)
	return crowd.Serve(ctx, s, tls.NewListener(few, id.TLS(newsALPN, nil)), 0)
}

// Ask asks the news at an address for the newest line. It waits a while until that names another
// torrent than not, which may be zero; otherwise changed is false. The key of the line is that of
// the news.
func Ask(
	ctx context.Context, over http.RoundTripper, l Line, at client.Peer, not metainfo.Hash,
) (newest Line, changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, newsPatience)
	defer cancel()
	host := at.String()
	if _, ok := at.SCION(); ok {
		host = "news.invalid" // the transport knows the address
	}
	url := "https://" + host + "/"
	if not != (metainfo.Hash{}) {
		url += "?not=" + not.HexString()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return newest, false, err
	}
	res, err := (&http.Client{Transport: over, CheckRedirect: noRedirect}).Do(req)
	if err != nil {
		return newest, false, err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNoContent {
		return newest, false, nil
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxLine+1))
	if err != nil {
		return newest, false, err
	}
	if res.StatusCode != http.StatusOK {
		return newest, false, fmt.Errorf("the sender answers %s", res.Status)
	}
	if newest, err = ParseLine(string(b)); err != nil {
		return newest, false, err
	}
	if newest.Key != l.Key || newest.IsNews() {
		return newest, false, errors.New("the sender answers with a line of another key")
	}
	return newest.alsoAt(at), newest.InfoHash != not, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// alsoAt adds the host at which the news were, with the port of the torrent on TCP: it is one that
// this receiver can reach.
func (l Line) alsoAt(news client.Peer) Line {
	if _, ok := news.SCION(); ok || len(l.Peers) >= MaxPeers {
		return l
	}
	for _, p := range l.Peers {
		if _, ok := p.SCION(); ok {
			continue
		}
		l.Peers = append([]client.Peer{news.WithPort(p.Port())}, l.Peers...)
		break
	}
	return l
}

// OverTCP carries requests to news on TCP.
func OverTCP(id *scionnet.Identity) *http.Transport {
	return &http.Transport{
		TLSClientConfig:        id.TLS(newsALPN, nil),
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 16 << 10,
		DisableCompression:     true,
	}
}
