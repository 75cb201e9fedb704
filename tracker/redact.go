package tracker

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
)

// A private tracker knows its users by a key in the announce URL: in the path, in the query, or before the host. Whoever
// has it downloads and uploads in the user's name, so it belongs in no log and no message.

// publicPaths are the paths of announce URLs that name no user. Any other path may be a key.
var publicPaths = []string{"", "/", "/announce", "/announce.php", "/scrape", "/scrape.php"}

// storeSchemes are of a tracker's store, where the path is the number of a database (see swarm.OpenShared).
var storeSchemes = []string{"redis", "rediss", "valkey", "valkeys"}

// inText finds URLs and magnet links in a message, also in quoted ones.
var inText = regexp.MustCompile(`(?i)(?:[a-z][a-z0-9+.-]*://|magnet:\?)(?:\\[^"]|[^\s"\\])*`)

// Redact hides what could be a user's key in every URL and magnet link of a message: user information, paths and queries
// become "…". Hosts and ports stay, and so do the usual paths without a key, such as /announce.
func Redact(message string) string {
	if !strings.Contains(message, "://") && !strings.Contains(strings.ToLower(message), "magnet:") {
		return message // the usual case: quick
	}
	return inText.ReplaceAllStringFunc(message, func(s string) string {
		u := strings.TrimRight(s, ":;,.)'") // of the sentence around it
		return RedactURL(u) + s[len(u):]
	})
}

// RedactURL is Redact for one URL or magnet link, whatever characters it has. It changes nothing in a URL without
// a key.
func RedactURL(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if before, params, magnet := strings.Cut(s, "?"); magnet && (!ok || len(before) < len(scheme)) {
		// Trackers are parameters of a magnet link. The info hash and the name say enough.
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

// leastKey is the length of the shortest key that Hide looks for: a shorter one is a word of many messages, and too short to
// be secret.
const leastKey = 5

// Hide is a message of this tracker without what could be the user's key: trackers quote it back, as in "passkey … is
// unknown".
func (u URL) Hide(message string) string {
	keys := strings.Split(u.request.Path, "/")
	for name, values := range u.request.Query() {
		if keys = append(keys, values...); slices.Equal(values, []string{""}) {
			keys = append(keys, name) // the key alone: /announce?key
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

// LogValue is the URL without what could be the user's key.
func (u URL) LogValue() slog.Value { return slog.StringValue(RedactURL(u.text)) }
