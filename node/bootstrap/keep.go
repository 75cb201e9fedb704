package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// Read returns the note of a configuration that braid has made.
func Read(dir string) (n Note, err error) {
	b, err := os.ReadFile(filepath.Join(dir, noteFile))
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	return n, err
}

// TRCs returns the kept TRCs. A damaged one is an error: without it, another one would be believed.
func TRCs(dir string) (out []cppki.SignedTRC, err error) {
	files, err := filepath.Glob(filepath.Join(dir, certsDir, "ISD*.trc"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		t, err := decodeTRC(b)
		if err != nil {
			return nil, fmt.Errorf("TRC file %s: %w", f, err)
		}
		out = append(out, t)
	}
	return out, nil
}

// Result is what a server offers and what is believed of it.
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
		name := filepath.Join(certsDir, fmt.Sprintf("ISD%d-B%d-S%d.trc", id.ISD, id.Base, id.Serial))
		if err := durable.Replace(durable.OS{}, root, name, j.TRC.Raw); err != nil {
			return err
		}
	}
	note, err := json.MarshalIndent(Note{r.Server, now, r.IA}, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(durable.Replace(durable.OS{}, root, noteFile, note), durable.Replace(durable.OS{}, root, topologyFile, r.Topology))
}

// refreshAfter is the age at which a configuration is fetched again: an AS changes its routers and its
// TRC rarely, and a TRC has a grace period.
const refreshAfter = 6 * time.Hour

// IsStale tells whether a configuration should be fetched again.
func (n Note) IsStale(now time.Time) bool {
	return now.Sub(n.Fetched) > refreshAfter || n.Fetched.After(now)
}
