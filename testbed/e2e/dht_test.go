package e2e

import (
	"slices"
	"testing"
	"time"

	"braid/dht"
	"braid/scionnet"
	"braid/testbed"
	"braid/testbed/dhtbench"
	"braid/units/await"
)

// Nodes in three ASes find peers over the real network.
func TestDHTOnNetwork(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a SCION network")
	}
	star, err := dhtbench.Star(3, 40*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	net, err := dhtbench.Open(t.Context(), testbed.Options{Topology: star, Dir: t.TempDir(), SCIONBin: programs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	cfg := dhtbench.OnNetwork(12)
	cfg.Torrents, cfg.Searches = 3, 9
	cfg.Joining, cfg.Settling, cfg.Keeping, cfg.Searching = time.Second, time.Second, time.Second, time.Second
	// A busy machine loses messages. How many peers are found then is a measurement.
	if r, err := net.Measure(t.Context(), dhtbench.Cases[0], cfg); err != nil || r.Found == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// firstQueries sends two queries to an AS whose paths a host has not looked up. Both arrive: a node
// that joins asks its first neighbour several things at once.
func (n ends) firstQueries(t *testing.T) {
	open := func(h *scionnet.Host) dht.Socket {
		s, err := dht.ListenSCION(t.Context(), h, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	to, sent := open(n.b), []string{"first", "second"}
	arrived := make(chan string, 100)
	go func() {
		b := make([]byte, 100)
		for {
			size, _, _, err := to.Receive(b)
			if err != nil {
				return
			}
			arrived <- string(b[:size])
		}
	}()
	await.True(t, "both queries of a new host", func() bool { // busy routers lose some
		from := open(openHost(t, n.network, n.a.IA()))
		for _, q := range sent {
			from.Send([]byte(q), to.Addr(), false)
		}
		var got []string
		for len(got) < len(sent) {
			select {
			case q := <-arrived:
				got = append(got, q)
			case <-time.After(time.Second):
				return false
			}
		}
		slices.Sort(got)
		return slices.Equal(got, sent)
	})
}
