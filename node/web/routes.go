package web

import (
	"fmt"
	"net/http"

	"braid/node"
	"braid/node/web/page"
	"braid/node/web/qbittorrent"
	"braid/node/web/transmission"
	v1 "braid/node/web/v1"
)

// Routes are all that a daemon answers. Each interface is one line: its pattern, its handler, and
// how large its requests may be.
func Routes(
	n *node.Node, api *v1.API, access *Access, remote transmission.Options,
) ([]Route, error) {
	rpc := transmission.Handler(n, remote)
	qb, err := qbittorrent.Handler(n, qbittorrent.Options{
		Access: access, State: remote.State, Shutdown: remote.Shutdown, Logger: remote.Logger,
	})
	if err != nil {
		return nil, err
	}
	return []Route{
		{
			Pattern: "/api/v2/",
			Handler: qb,
			Body:    qbittorrent.MaxBody,
			Public:  true,
		}, // it asks for the password itself
		{Pattern: "/transmission/rpc", Handler: rpc, Body: transmission.MaxBody},
		{
			Pattern: "/transmission/rpc/",
			Handler: rpc,
			Body:    transmission.MaxBody,
		}, // which transmission-remote uses
		{Pattern: "GET /{$}", Handler: page.Handler(), Public: true},
		{Pattern: "GET /page/", Handler: page.Handler(), Public: true},
		{Pattern: v1.Prefix + "/", Handler: api.Handler(), Body: v1.MaxBody},
		{Pattern: "POST " + v1.Prefix + "/login", Handler: api.Handler(), Public: true},
		{Pattern: "GET /healthz", Handler: http.HandlerFunc(healthy), Public: true},
		{Pattern: "GET /metrics", Handler: metrics(n)},
	}, nil
}

// healthy answers as long as the process does.
func healthy(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") }
