package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/commands/program"
)

// discovery serves the configuration of an AS as a control service does. change may falsify an
// answer.
func discovery(t *testing.T, dir string, change func(path string, b []byte) []byte) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := map[string]string{"/topology": "topology.json", "/trcs/isd1-b1-s1/blob": "certs/ISD1-B1-S1.trc"}[r.URL.Path]
		b := []byte(`[{"id":{"isd":1,"base_number":1,"serial_number":1}}]`)
		if name != "" {
			var err error
			if b, err = os.ReadFile(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
		if change != nil {
			b = change(r.URL.Path, b)
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// bootstrapResult is what braid bootstrap --json prints.
type bootstrapResult struct {
	From       string
	IA         string `json:"isd_as"`
	Dir        string
	Kept, Used bool
	TRCs       []struct{ Fingerprint, Trust string }
}

// A host without SCION configuration gets one from the stock control service and finds paths with
// it, by itself if a command needs SCION. An AS that shows another TRC is refused.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	n, from, to := startNetwork(t, "two-paths")
	dir := t.TempDir()
	api := n.API(from).String()
	// answered runs braid again while a control service does not answer within four seconds.
	answered := func(args ...string) (code int, out, said string) {
		t.Helper()
		soon(t, "an answer of the control service", func() bool {
			code, out, said = ends(t, dir, args...)
			return !strings.Contains(said, "timeout") && !strings.Contains(said, "no answer in time")
		})
		return code, out, said
	}
	var got bootstrapResult
	_, out, said := answered("bootstrap", "--bootstrap", "http://"+api, "--dry-run", "--json")
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if got.IA != from.String() || got.Kept || !got.Used || len(got.TRCs) == 0 || len(got.TRCs[0].Fingerprint) != 64 || got.TRCs[0].Trust != "first use" {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(got.Dir); err == nil {
		t.Error("--dry-run has written something")
	}
	here := []string{"paths", to.String(), "--local", n.HostIP(from).String()}
	if code, _, said := ends(t, dir, append(here, "--bootstrap", "off")...); code == 0 {
		t.Errorf("paths without a configuration: %s", said)
	}
	code, out, said := answered(append(here, "--bootstrap", "http://"+api)...)
	if code != 0 || !strings.Contains(said, got.TRCs[0].Fingerprint) {
		t.Errorf("%d: %s%s", code, out, said)
	}
	must(t, dir, here...) // kept
	if code, out, said := answered("bootstrap", "--bootstrap", api); code != 0 || !strings.Contains(out, "known") {
		t.Errorf("again: %d: %s%s", code, out, said)
	}
	kept, err := os.ReadFile(filepath.Join(got.Dir, "topology.json"))
	if err != nil {
		t.Fatal(err)
	}
	// Somebody else's network with the same ISD.
	other, first, _ := startNetwork(t, "two-paths")
	evil := discovery(t, other.ConfigDir(first), nil)
	if code, _, said := answered("bootstrap", "--bootstrap", evil); code != program.Failed || !strings.Contains(said, "contradicts the known one") {
		t.Errorf("a TRC of others: %d: %s", code, said)
	}
	if b, err := os.ReadFile(filepath.Join(got.Dir, "topology.json")); err != nil || !bytes.Equal(b, kept) {
		t.Errorf("a refused server has changed the topology: %v", err)
	}
	// An administrator's setup wins.
	must(t, dir, "paths", to.String(), "--config-dir", n.ConfigDir(from), "--local", n.HostIP(from).String(), "--bootstrap", evil)
	for args, want := range map[string]string{
		"bootstrap x":                       "takes no arguments",
		"bootstrap --bootstrap ftp://x":     "want http://",
		"bootstrap --bootstrap off":         "want the URL",
		"bootstrap --bootstrap 127.0.0.1:1": "refused",
	} {
		if code, _, said := ends(t, dir, strings.Fields(args)...); code == 0 || !strings.Contains(said, want) {
			t.Errorf("braid %s: exit code %d: %s", args, code, said)
		}
	}
}
