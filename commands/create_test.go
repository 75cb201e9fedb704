package commands

import (
	"slices"
	"testing"
)

func TestSplitURLs(t *testing.T) {
	for text, want := range map[string][]string{
		"http://a/announce":                   {"http://a/announce"},
		"http://a/announce,udp://b:1":         {"http://a/announce", "udp://b:1"},
		"scion://1-ff00:0:110,[10.0.0.1]:80/": {"scion://1-ff00:0:110,[10.0.0.1]:80/"},
		"http://a/announce, scion://1-ff00:0:110,[10.0.0.1]:80/,http://b/announce": {
			"http://a/announce", "scion://1-ff00:0:110,[10.0.0.1]:80/", "http://b/announce"},
	} {
		if have := splitURLs(text); !slices.Equal(have, want) {
			t.Errorf("%s: %q, want %q", text, have, want)
		}
	}
}
