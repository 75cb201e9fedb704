package tracker

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
)

// A private tracker recognizes its users by a key in the announce URL: in the path, in the query,
// or before the host. Whoever has the key can act in the user's name, so it must not appear in logs
// and messages.

// publicPaths are paths of announce URLs without a key. Any other path may contain one.
var publicPaths = []string{"", "/", "/announce", "/announce.php", "/scrape", "/scrape.php"}

// storeSchemes are those of a tracker's store, whose path is the number of a database (see
// swarm.OpenShared).
var storeSchemes = []string{"redis", "rediss", "valkey", "valkeys"}

// inText finds URLs and magnet links in a message, also between quotes.
var inText = regexp.MustCompile(`(?i)(?:[a-z][a-z0-9+.-]*://|magnet:\?)(?:\\[^"]|[^\s"\\])*`)

// Redact hides possible keys in every URL and magnet link of a message: user information, paths and
// queries become "…". Hosts, ports and the usual paths such as /announce stay.
func Redact(message string) string {
	if !strings.Contains(message, "://") && !strings.Contains(strings.ToLower(message), "magnet:") {
		return message // the usual case, without the regular expression
	}
	return inText.ReplaceAllStringFunc(message, func(s string) string {
		u := strings.TrimRight(s, ":;,.)'") // these belong to the sentence around the URL
		return RedactURL(u) + s[len(u):]
	})
}

// RedactURL is Redact for one URL or magnet link, whatever characters it has. A URL without a key
// stays as it is.
func RedactURL(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if before, params, magnet := strings.Cut(s, "?"); magnet && (!ok || len(before) < len(scheme)) {
		// The parameters of a magnet link include trackers. The info hash and the name suffice.
		kept := slices.DeleteFunc(strings.Split(params, "&"), func(p string) bool {
			return !strings.HasPrefix(p, "xt=") && !strings.HasPrefix(p, "dn=")
		})
		if text := before + "?" + strings.Join(kept, "&"); len(text) < len(s) {
			return strings.TrimSuffix(text, "&") + "&…"
		}
		return s
	}
	if !ok {
		return s
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host, path := rest[:end], rest[end:]
	if at := strings.LastIndex(host, "@"); at >= 0 {
		host = "…" + host[at:]
	}
	query := ""
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		if path, query = path[:i], path[i:]; len(query) > 1 {
			query = query[:1] + "…"
		}
	}
	if !slices.Contains(publicPaths, path) && !slices.Contains(storeSchemes, strings.ToLower(scheme)) {
		path = "/…"
	}
	return scheme + "://" + host + path + query
}

// leastKey is the length of the shortest key that Hide looks for. A shorter text is in many
// messages, and no secret.
const leastKey = 5

// Hide removes the user's key from a message of this tracker. Trackers quote it, as in "passkey …
// is unknown".
func (u URL) Hide(message string) string {
	keys := strings.Split(u.request.Path, "/")
	for name, values := range u.request.Query() {
		if keys = append(keys, values...); slices.Equal(values, []string{""}) {
			keys = append(keys, name) // a key without a name: /announce?key
		}
	}
	if user := u.request.User; user != nil {
		password, _ := user.Password()
		keys = append(keys, user.Username(), password)
	}
	for _, k := range keys {
		if len(k) >= leastKey && !slices.Contains(publicPaths, "/"+k) {
			message = strings.ReplaceAll(message, k, "…")
		}
	}
	return Redact(message)
}

// HideIn is the error with Hide for its text. For errors.Is and errors.As it is the same error.
func (u URL) HideIn(err error) error {
	if err == nil {
		return nil
	}
	return hidden{err, u.Hide(err.Error())}
}

type hidden struct {
	error
	text string
}

func (h hidden) Error() string { return h.text }
func (h hidden) Unwrap() error { return h.error }

// LogValue is the URL with possible keys hidden.
func (u URL) LogValue() slog.Value { return slog.StringValue(RedactURL(u.text)) }
