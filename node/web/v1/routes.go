package v1

import (
	"net/http"
	"reflect"

	"braid/node"
)

//go:generate go test -run TestOpenAPI -update .

// Prefix begins the paths of all routes.
const Prefix = "/api/v1"

const about = `braid's own interface, over its unix socket or HTTP. A torrent is named by its info hash. Every
error is an object with one key, error, a sentence for people; 400 says that the request is wrong,
401 that a password is needed, 404 that there is no such torrent, 409 that the torrent is in the
wrong state, 413 that the body is too large, 502 that the server of a .torrent file does not send
one. Unknown keys of a request are an error.

GET /events is a stream of server-sent events. Each has an id, an event and one line of data in
JSON. The first is "snapshot" (Snapshot). Then come "torrents" (TorrentsChanged) and "totals"
(Totals), at most once a second and only if something has changed; "decision" (Decision); "log"
(LogEntry); and after a change "settings" (Settings) and "policy" (Policy). A reader that reconnects
with Last-Event-ID gets all later events; if the daemon has forgotten them or was restarted, the
first event is "snapshot" again.`

// route is one method of one path.
type route struct {
	method, path, about string
	query               []param
	in, out             reflect.Type // nil: no body
	media               string       // of the answer, if it is not JSON
	serve               func(*API, http.ResponseWriter, *http.Request) error
}

// param is a parameter in the query or, if it begins with a capital letter, a header.
type param struct{ name, kind, about string }

func (p param) in() string {
	if p.name[0] >= 'A' && p.name[0] <= 'Z' {
		return "header"
	}
	return "query"
}

// none stands for no body.
type none struct{}

// raw makes a route that reads the request and writes the answer by itself.
func raw[In, Out any](
	method, path, about string,
	serve func(*API, http.ResponseWriter, *http.Request) error, query ...param,
) route {
	r := route{
		method: method,
		path:   path,
		about:  about,
		query:  query,
		in:     reflect.TypeFor[In](),
		out:    reflect.TypeFor[Out](),
		serve:  serve,
	}
	if r.in == reflect.TypeFor[none]() {
		r.in = nil
	}
	if r.out == reflect.TypeFor[none]() {
		r.out = nil
	}
	return r
}

// as is the route with an answer of that media type, which is not JSON.
func (r route) as(media string) route {
	r.media = media
	return r
}

// on makes a route that reads an In and answers with an Out, both in JSON.
func on[In, Out any](
	method, path, about string, serve func(*API, *http.Request, In) (Out, error), query ...param,
) route {
	r := raw[In, Out](method, path, about, nil, query...)
	r.serve = func(a *API, w http.ResponseWriter, q *http.Request) error {
		var in In
		if r.in != nil {
			if err := decode(q, &in); err != nil {
				return err
			}
		}
		out, err := serve(a, q, in)
		if err != nil {
			return err
		}
		if r.out == nil {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return answer(w, http.StatusOK, out)
	}
	return r
}

// of makes a route about one torrent.
func of[In, Out any](
	method, path, about string, serve func(*API, *node.Torrent, In) (Out, error), query ...param,
) route {
	find := func(a *API, r *http.Request, in In) (out Out, err error) {
		t, err := a.torrent(r)
		if err != nil {
			return out, err
		}
		return serve(a, t, in)
	}
	return on(method, "/torrents/{hash}"+path, about, find, query...)
}

var routes = []route{
	on("GET", "/session", "Describe the daemon.", (*API).session),
	on("GET", "/totals", "Sums over all torrents.", (*API).totals),
	raw[none, []Torrent]("GET", "/torrents", "List the torrents, in the order of the queue.",
		(*API).list,
		param{"fields", "string", "Keys of Torrent with commas between them; only these are in the answer."},
		param{"state", "string", "Only torrents in this state."},
		param{"label", "string", "Only torrents with this label."}),
	raw[AddTorrent, Added]("POST", "/torrents", "Add a torrent.", (*API).add),
	of("GET", "", "Show a torrent with its settings.", (*API).show),
	of("PATCH", "", "Change settings of a torrent.", (*API).change),
	on("DELETE", "/torrents/{hash}", "Remove a torrent.", (*API).remove,
		param{"data", "boolean", "Delete its data, too."}),
	of("POST", "/pause", "Pause a torrent.", (*API).pause),
	of("POST", "/resume", "Resume a torrent that is paused, has failed or is served.",
		(*API).resume),
	of("POST", "/verify", "Hash all data of a torrent again.", (*API).verify),
	of("POST", "/announce", "Ask the trackers of a torrent now.", (*API).announce),
	of("POST", "/move", "Move a torrent to another directory, in the background.", (*API).move),
	of("POST", "/rename", "Rename a file or directory of a torrent, also on disk.", (*API).rename),
	of("POST", "/peers", "Give a running torrent addresses of peers.", (*API).addPeers),
	of("GET", "/files", "List the files of a torrent.", (*API).files),
	of("GET", "/pieces", "Say which pieces of a torrent are there.", (*API).pieces),
	of("GET", "/peers", "List the connected peers of a torrent.", (*API).peers),
	of("GET", "/paths", "List the paths to the peers of a torrent.", (*API).paths),
	of("GET", "/trackers", "List the trackers of a torrent.", (*API).trackers),
	of("GET", "/history", "The rate of each path over time, with the selector's decisions.",
		(*API).history),
	of("GET", "/log", "What has happened with a torrent, oldest first.", (*API).torrentLog),
	on("GET", "/map", "The ISD-ASes and links of all known paths, with their rates.",
		(*API).network),
	on("GET", "/policy", "The path policy of all torrents.", (*API).policy),
	on("PUT", "/policy", "Replace the path policy of all torrents.", (*API).setPolicy),
	on("POST", "/policy/preview", "Say which paths would remain under a policy. Changes nothing.",
		(*API).preview),
	on("GET", "/settings", "The settings of all torrents.", (*API).settings),
	on("PATCH", "/settings", "Change settings of all torrents.", (*API).changeSettings),
	on("GET", "/log", "What has happened, oldest first.", (*API).log),
	raw[Password, none]("POST", "/login", "Begin a session: the answer sets a cookie.", (*API).login),
	raw[none, none]("POST", "/logout", "End the session.", (*API).logout),
	on("PUT", "/password", "Set the password for TCP; an empty one removes it. Only over the unix "+
		"socket.", (*API).setPassword),
	raw[none, none]("GET", "/events", "Stream what changes, as server-sent events.", (*API).events,
		param{"Last-Event-ID", "string", "Id of the last event that the reader has seen."},
		param{"last_event_id", "string", "The same, for readers that cannot send a header."}).as("text/event-stream"),
	raw[none, none]("GET", "/openapi.yaml", "This description.", (*API).openapi).as("application/yaml"),
}
