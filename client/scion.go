package client

import (
	"context"

	"braid/pathsel"
	"braid/scionnet"
)

// scionTransport is one endpoint of a SCION host, which dials and accepts.
type scionTransport struct {
	routes
	endpoint *scionnet.Endpoint
}

func openSCION(
	ctx context.Context, host *scionnet.Host, cfg scionnet.ListenConfig,
) (*scionTransport, error) {
	e, err := host.Listen(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &scionTransport{routes{host}, e}, nil
}

func (t *scionTransport) Name() string { return "scion" }

func (t *scionTransport) Reaches(p Peer) bool {
	_, ok := p.SCION()
	return ok && p.Dialable()
}

func (t *scionTransport) Dial(
	ctx context.Context, p Peer, path pathsel.Path, want *scionnet.PeerKey,
) (Wire, error) {
	c, err := t.endpoint.Dial(ctx, p.scion, path, want)
	if err != nil {
		return nil, err
	}
	return scionWire{c}, nil
}

func (t *scionTransport) Accept(ctx context.Context) (Wire, error) {
	c, err := t.endpoint.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return scionWire{c}, nil
}

func (t *scionTransport) Listening() []Peer { return []Peer{PeerAt(t.endpoint.Addr())} }

func (t *scionTransport) Close() error { return t.endpoint.Close() }

type scionWire struct{ *scionnet.Conn }

func (w scionWire) Peer() Peer { return PeerAt(w.RemoteSCION()) }

func (w scionWire) Key() *scionnet.PeerKey {
	k := w.PeerKey()
	return &k
}

func (w scionWire) Origin() pathsel.Origin {
	key := w.PeerKey()
	if !w.Proven() {
		return pathsel.OriginUnproven(string(key[:]))
	}
	return originOf(w.Peer(), &key)
}

func (w scionWire) Measure() Measurement { return w.Stats() }
