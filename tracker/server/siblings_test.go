package server_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"braid/tracker/server"
	"braid/tracker/swarm"
	"braid/tracker/wire"
)

func TestAddresses(t *testing.T) {
	const scion = "scion://1-ff00:0:110,[10.0.0.1]:80"
	for _, tt := range []struct {
		urls string
		ok   bool
	}{
		{"", true},
		{"http://0.0.0.0:1/announce udp://[::]:1 http://10.0.0.1:1", true},
		{strings.Repeat(scion+" ", wire.MaxSiblings+1), true},
		{scion + "/KEY/announce", false},
		{"http://x/?y", false},
		{"http://" + strings.Repeat("x", wire.MaxSibling), false},
		{"gopher://x", false},
	} {
		cfg := server.Default()
		s, err := server.New(cfg, swarm.NewMemory(cfg.Limits()), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetAddresses(strings.Fields(tt.urls)); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.urls, err)
		}
	}
	for _, tt := range []struct{ urls, told string }{
		{"http://0.0.0.0:1 " + scion + "/announce scion://tracker.example/", scion + " scion://tracker.example"},
		{strings.Repeat(scion+" ", wire.MaxSiblings+1), strings.Repeat(scion+" ", wire.MaxSiblings)},
		{"http://10.0.0.1:1 udp://10.0.0.1:1", ""},
	} {
		r := start(t, nil, 10)
		if err := r.SetAddresses(strings.Fields(tt.urls)); err != nil {
			t.Fatal(err)
		}
		a := announceOf(1)
		a.SCION = true
		answer, err := r.announce(t, a)
		if err != nil || !slices.Equal(answer.Siblings, strings.Fields(tt.told)) {
			t.Errorf("%s: told %q, %v", tt.urls, answer.Siblings, err)
		}
	}
}
