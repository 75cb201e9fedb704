package testbed

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The document on the format has an example that is one, and explains every key.
func TestTopologyDocument(t *testing.T) {
	b, err := os.ReadFile("topologies/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	topo, err := ParseTopology("example.topo", strings.NewReader(example))
	if err != nil {
		t.Fatal(err)
	}
	if len(topo.ASes) != 3 || len(topo.Links) != 3 || topo.ASes[2].MTU != 1400 {
		t.Errorf("%+v", topo)
	}
	l := topo.Links[1]
	if c := l.Config; l.Type != Child || c.Rate != 20e6 || c.Delay != 5*time.Millisecond || c.Jitter != time.Millisecond || c.Loss != 0.005 || c.QueueBytes != 64<<10 {
		t.Errorf("%+v", l)
	}
	if l := topo.Links[2]; l.A.Router != "A" || l.B.Router != "B" || l.B.Interface.ID != 2 || l.Config.Rate != 20e6 || l.MTU != 1400 {
		t.Errorf("%+v", l)
	}
	// An unknown key has the parser list those that it knows.
	for _, text := range []string{"x: 1", "defaults: {x: 1}", "ASes: {1-ff00:0:110: {x: 1}}", "ASes: {1-ff00:0:110: {}}\nlinks: [{x: 1}]"} {
		_, err := ParseTopology("x", strings.NewReader(text))
		_, known, ok := strings.Cut(err.Error(), "known are ")
		if !ok {
			t.Fatal(err)
		}
		for key := range strings.SplitSeq(known, ", ") {
			if !regexp.MustCompile("(`|^|\n)" + key + "(`|:)").Match(b) {
				t.Errorf("the document does not explain the key %s", key)
			}
		}
	}
	for _, name := range Shipped() {
		if !strings.Contains(string(b), "`"+name+"`") {
			t.Errorf("the document does not name %s", name)
		}
	}
}
