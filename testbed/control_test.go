package testbed

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"braid/testbed/linkemu"
)

// Every program of the user can write to the control socket. What is refused changes nothing, and
// what is accepted is a link that the emulator knows.
func FuzzControlSocket(f *testing.F) {
	const at = `{"interface":{"isd_as":"1-ff00:0:110","interface":1}`
	f.Add([]byte("GET /status?paths=no HTTP/1.1\r\nHost: testbed\r\n\r\n"))
	for _, change := range []string{
		at + `,"direction":"out","rate":1000000,"delay":5000000,"down":true}`,
		at + `,"direction":"in","loss":0.5,"jitter":1,"queue_bytes":70000,"mtu":1400,"too_big":true}`,
		at + `,"queue_time":50000000}`,
		at + `,"loss":2}`,
		at + `,"direction":"up"}`,
		`{"interface":{"isd_as":"1-ff00:0:110","interface":9}}`,
	} {
		f.Add(fmt.Appendf(nil, "POST /link HTTP/1.1\r\nHost: testbed\r\nContent-Length: %d\r\n\r\n%s", len(change), change))
	}
	end := linkemu.Endpoint{Local: netip.MustParseAddrPort("127.0.0.1:0"), Router: netip.MustParseAddrPort("127.0.0.1:9")}
	link, err := linkemu.New(end, end, linkemu.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { link.Close() })
	topo, err := LoadTopology("two-paths")
	if err != nil {
		f.Fatal(err)
	}
	topo.Links = topo.Links[:1]
	n := &Network{opts: Options{Topology: topo, LinksOnly: true}, links: []*linkemu.Link{link}, log: slog.New(slog.DiscardHandler)}
	requests := n.requests()
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(in)))
		if err != nil || r.URL.Path == "/down" { // which ends the network
			return
		}
		var before, after [2]linkemu.Config
		before[0], before[1] = link.Config()
		w := httptest.NewRecorder()
		requests.ServeHTTP(w, r)
		after[0], after[1] = link.Config()
		if w.Code != http.StatusOK && after != before {
			t.Errorf("a refused request (%d) changed %v to %v", w.Code, before, after)
		}
		for _, c := range after {
			if err := c.Validate(); err != nil {
				t.Error(err)
			}
		}
	})
}
