package bootstrap

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/scrypto/cppki"

	"braid/pathsel"
	"braid/storage/durable"
)

// Note says where a configuration comes from.
type Note struct {
	Server  string     `json:"server"` // URL
	Fetched time.Time  `json:"fetched"`
	IA      pathsel.IA `json:"isd_as"`
}

// The files of a configuration, as SCION's own programs read them, and the note.
const (
	topologyFile = "topology.json"
	certsDir     = "certs"
	noteFile     = "bootstrap.json"
)

// Has tells whether a directory has a configuration.
func Has(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, topologyFile))
	return err == nil
}

// read returns the note of a configuration that braid has made.
func read(dir string) (n Note, err error) {
	b, err := os.ReadFile(filepath.Join(dir, noteFile))
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	return n, err
}

// TRCs returns the kept TRCs. A damaged one is an error: if it were ignored, a server could replace
// it.
func TRCs(dir string) (out []cppki.SignedTRC, err error) {
	certs := os.DirFS(filepath.Join(dir, certsDir))
	files, err := fs.Glob(certs, "ISD*.trc")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := fs.ReadFile(certs, f)
		if err != nil {
			return nil, err
		}
		t, err := decodeTRC(b)
		if err != nil {
			return nil, fmt.Errorf("TRC file %s: %w", filepath.Join(dir, certsDir, f), err)
		}
		out = append(out, t)
	}
	return out, nil
}

// Result is a server's offer, with the TRCs that are trusted.
type Result struct {
	Offer
	Judged []Judged
}

// Ask fetches a configuration and judges it by the TRCs in the directory. It writes nothing.
func Ask(ctx context.Context, server, dir string) (r Result, err error) {
	known, err := TRCs(dir)
	if err != nil {
		return r, err
	}
	if r.Offer, err = Fetch(ctx, server, known); err != nil {
		return r, err
	}
	if r.Judged, err = Judge(known, r.TRCs, addr.ISD(r.IA.ISD()), time.Now()); err != nil {
		return r, fmt.Errorf("configuration of %s: %w", r.Server, err)
	}
	return r, nil
}

// maxServers bounds the servers that are asked.
const maxServers = 4

// AskAny asks a server, or with "auto" the servers that the network names, for a configuration. Of
// several answers, that of the most trustworthy hint counts. An ErrContradiction ends the search: it
// may be an attack.
func AskAny(
	ctx context.Context, server, dir string, log *slog.Logger,
) (r Result, h Hint, err error) {
	hints := []Hint{{Server: server, From: "--bootstrap"}}
	if server == "auto" {
		hints = Local().Find(ctx, log)
	}
	if len(hints) == 0 {
		return r, h, cmp.Or(ctx.Err(), errors.New("no SCION discovery server found by DHCP, DNS "+
			"or multicast DNS; name one with --bootstrap URL, or ask the administrator of the network"))
	}
	return askAll(ctx, hints[:min(len(hints), maxServers)],
		func(ctx context.Context, server string) (Result, error) { return Ask(ctx, server, dir) })
}

// askAll asks all servers at once, since a silent one must not take the time of others. In the
// order of the hints, it returns the first good answer.
func askAll(
	ctx context.Context, hints []Hint, ask func(context.Context, string) (Result, error),
) (r Result, h Hint, err error) {
	type answer struct {
		Result
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	answers := make([]chan answer, len(hints))
	for i, h := range hints {
		answers[i] = make(chan answer, 1)
		all.Go(func() {
			r, err := ask(ctx, h.Server)
			answers[i] <- answer{r, err}
		})
	}
	var failed []error
	for i, h := range hints {
		a := <-answers[i]
		if a.err == nil {
			return a.Result, h, nil
		}
		failed = append(failed, fmt.Errorf("%w (server from %s)", a.err, h.From))
		if errors.Is(a.err, ErrContradiction) {
			break
		}
	}
	return r, h, errors.Join(failed...)
}

// Refresh gets a configuration if there is none, if it is old, or if now is true. If that fails,
// the old configuration stays. Opening the SCION host shows whether it is good enough.
func Refresh(ctx context.Context, server, dir string, now bool, log *slog.Logger) {
	if n, err := read(dir); err == nil && Has(dir) && !n.isStale(time.Now()) && !now {
		return
	}
	r, hint, err := AskAny(ctx, server, dir, log)
	failed := slog.LevelInfo // many networks have no server
	if now || err == nil {
		failed = slog.LevelWarn
	}
	if err == nil {
		err = r.Keep(dir, time.Now())
	}
	switch {
	case errors.Is(err, ErrContradiction):
		log.Error("the SCION configuration of this network is refused", "error", err)
		return
	case err != nil:
		if ctx.Err() == nil {
			log.Log(ctx, failed, "no SCION configuration from the network", "error", err)
		}
		return
	}
	for _, j := range r.Judged {
		if j.Trust == FirstUse {
			log.Warn("a SCION root of trust is believed without proof, since it is the first",
				"TRC", j.TRC.TRC.ID, "sha256", Fingerprint(j.TRC),
				"server", r.Server, "from", hint.From)
		}
	}
}

// Keep writes a configuration: TRCs first, so that a crash leaves no topology without them.
func (r Result) Keep(dir string, now time.Time) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep the SCION configuration in %s: %w", dir, err)
		}
	}()
	if err := os.MkdirAll(filepath.Join(dir, certsDir), 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, j := range r.Judged {
		if j.Trust == Known {
			continue
		}
		id := j.TRC.TRC.ID
		name := filepath.Join(certsDir, fmt.Sprintf("ISD%d-B%d-S%d.trc",
			id.ISD, id.Base, id.Serial))
		if err := durable.Replace(durable.OS{}, root, name, j.TRC.Raw); err != nil {
			return err
		}
	}
	note, err := json.MarshalIndent(Note{r.Server, now, r.IA}, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		durable.Replace(durable.OS{}, root, noteFile, note),
		durable.Replace(durable.OS{}, root, topologyFile, r.Topology))
}

// refreshAfter is the age at which a configuration is fetched again. An AS rarely changes its
// routers and its TRC, and a TRC has a grace period.
const refreshAfter = 6 * time.Hour

// isStale tells whether a configuration should be fetched again.
func (n Note) isStale(now time.Time) bool {
	return now.Sub(n.Fetched) > refreshAfter || n.Fetched.After(now)
}
