package server

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"braid/tracker/wire"
)

// gate decides whom to answer. It is made of a configuration and not changed afterwards.
type gate struct {
	cfg   Config
	allow map[wire.InfoHash]struct{} // nil: all
	deny  map[wire.InfoHash]struct{}
	keys  map[string]struct{} // nil: everybody
}

func newGate(cfg Config) (*gate, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	g := &gate{cfg: cfg}
	var err error
	if cfg.Allow != "" {
		if g.allow, err = readHashes(cfg.Allow); err != nil {
			return nil, err
		}
	}
	if cfg.Deny != "" {
		if g.deny, err = readHashes(cfg.Deny); err != nil {
			return nil, err
		}
	}
	if cfg.Keys != "" {
		g.keys = map[string]struct{}{}
		err = eachLine(cfg.Keys, func(line string) error {
			k, _, _ := strings.Cut(line, " ")
			if len(k) < 8 || len(k) > 64 || strings.ContainsAny(k, "/?&%#+=") {
				return fmt.Errorf("key %q: want 8 to 64 characters that need no escape in a URL", k)
			}
			g.keys[k] = struct{}{}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Words for the user of a peer that is not answered.
var (
	errUnknownKey = &wire.Failure{Reason: "this tracker is private: the key in the announce URL is missing or not known", RetryIn: wire.Never}
	errNotAllowed = &wire.Failure{Reason: "this tracker does not serve this torrent", RetryIn: wire.Never}
)

func (g *gate) admit(h wire.InfoHash, passkey string) error {
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

func readHashes(name string) (map[wire.InfoHash]struct{}, error) {
	out := map[wire.InfoHash]struct{}{}
	return out, eachLine(name, func(line string) error {
		word, _, _ := strings.Cut(line, " ")
		b, err := hex.DecodeString(word)
		if err != nil || len(b) != len(wire.InfoHash{}) {
			return fmt.Errorf("%q: want an info hash in 40 hexadecimal digits", word)
		}
		out[wire.InfoHash(b)] = struct{}{}
		return nil
	})
}

// eachLine calls f with every line that is neither empty nor a comment (#).
func eachLine(name string, f func(string) error) error {
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("read a list: %w", err)
	}
	defer file.Close()
	scan := bufio.NewScanner(file)
	for n := 1; scan.Scan(); n++ {
		line := strings.TrimSpace(scan.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := f(line); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("read a list: %w", err)
	}
	return nil
}
