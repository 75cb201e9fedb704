package server

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"braid/tracker/wire"
)

// admission decides which requests to answer. It follows from a configuration and never changes.
type admission struct {
	cfg   Config
	allow map[wire.InfoHash]struct{} // nil: all
	deny  map[wire.InfoHash]struct{}
	keys  map[string]struct{} // nil: everybody
}

func newAdmission(cfg Config) (*admission, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &admission{cfg: cfg}
	var errs [3]error
	g.allow, errs[0] = readList(cfg.Allow, parseHash)
	g.deny, errs[1] = readList(cfg.Deny, parseHash)
	g.keys, errs[2] = readList(cfg.Keys, parseKey)
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, err
	}
	return g, nil
}

// Refusals, with words for the user of the peer.
var (
	errUnknownKey = &wire.Failure{
		Reason:  "this tracker is private: the key in the announce URL is missing or unknown",
		RetryIn: wire.Never,
	}
	errNotAllowed = &wire.Failure{Reason: "this tracker does not serve this torrent", RetryIn: wire.Never}
)

func (g *admission) admit(h wire.InfoHash, passkey string) error {
	if g.keys != nil {
		if _, ok := g.keys[passkey]; !ok {
			return errUnknownKey
		}
	}
	if g.allow != nil {
		if _, ok := g.allow[h]; !ok {
			return errNotAllowed
		}
	}
	if _, denied := g.deny[h]; denied {
		return errNotAllowed
	}
	return nil
}

func parseKey(s string) (string, error) {
	if len(s) < 8 || len(s) > 64 || strings.ContainsAny(s, "/?&%#+=") {
		// The error does not quote the key, since it may get into a log.
		return "", errors.New("want a key of 8 to 64 characters that need no escape in a URL")
	}
	return s, nil
}

func parseHash(s string) (h wire.InfoHash, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) {
		return h, fmt.Errorf("%q: want an info hash in 40 hexadecimal digits", s)
	}
	return wire.InfoHash(b), nil
}

// readList reads the first word of every line that is neither empty nor a comment (#). Without a
// file the list is nil.
func readList[T comparable](name string, parse func(string) (T, error)) (map[T]struct{}, error) {
	if name == "" {
		return nil, nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read a list: %w", err)
	}
	out := map[T]struct{}{}
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		v, err := parse(words[0])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		out[v] = struct{}{}
	}
	return out, nil
}
