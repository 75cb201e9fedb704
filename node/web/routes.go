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

// Routes returns everything that a daemon answers: patterns, handlers, and bounds of requests.
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
		// It checks the password itself.
		{Pattern: "/api/v2/", Handler: qb, Body: qbittorrent.MaxBody, Public: true},
		// transmission-remote uses the second of these.
		{Pattern: "/transmission/rpc", Handler: rpc, Body: transmission.MaxBody},
		{Pattern: "/transmission/rpc/", Handler: rpc, Body: transmission.MaxBody},
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
