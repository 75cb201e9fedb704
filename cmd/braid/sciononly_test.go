package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"braid/client"
	"braid/node/event"
)

// leaving prints the packets that leave a host (AF_PACKET), but for those with which the kernel
// sets up IPv6.
const leaving = `
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
s.bind(('eth0', 3))
print('ready', flush=True)
while True:
    p, (_, kind, way, *_) = s.recvfrom(70000)
    if way == socket.PACKET_OUTGOING and not (kind == 0x86dd and p[6] in (0, 58)):
        print('%04x %s' % (kind, p[:48].hex()), flush=True)
`

// A seed and a download over SCION only, with the DHT and peer exchange, send no packet on IP. The
// SCION network is on the host itself, so no packet that leaves the host is SCION's. A download
// that may use IP, and whose magnet link names a peer there, shows that the capture sees such
// packets.
func TestSCIONOnlyOnTheWire(t *testing.T) {
	t.Parallel()
	const elsewhere = "192.0.2.77" // an address that stands for one on the Internet
	host := startLocalNet(t).host(t)
	dir := t.TempDir()
	var mu sync.Mutex
	var seen []string
	observe(t, host.run(t, exec.Command("/usr/bin/python3", "-c", leaving)), func(line []byte) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, string(line))
	})
	packets := func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(seen) }
	soon(t, "the capture", func() bool { return len(packets()) > 0 })

	state := host.testbed(t, dir, "")
	from, to := state.ASes[0], state.ASes[1]
	data := randomFile(t, dir, 13, 1<<20)
	must(t, dir, "create", "--offline", "-o", "x.torrent", "file")
	src, err := client.OpenSource(t.Context(), filepath.Join(dir, "x.torrent"))
	if err != nil {
		t.Fatal(err)
	}
	at := make(chan string, 1)
	observe(t, host.run(t, braid(t, dir, "seed", "x.torrent", "--json", "--transport", "scion",
		"--config-dir", from.ConfigDir, "--listen", fmt.Sprintf("%s,[%s]:0", from.IA, from.Host))), func(line []byte) {
		if e, _ := event.Parse(line); e != nil {
			if r, ok := e.(*event.Ready); ok {
				at <- r.Listen[0]
			}
		}
	})
	download := func(magnet string, more ...string) {
		out := t.TempDir()
		cmd := host.run(t, braid(t, out, append([]string{"download", magnet, "-o", out, "--json",
			"--config-dir", to.ConfigDir, "--local", to.Host.String()}, more...)...))
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		if got, err := os.ReadFile(filepath.Join(out, "file")); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	seed := <-at
	download(src.Magnet(), "--transport", "scion", "--peer", seed)
	if p := packets(); len(p) > 1 {
		t.Errorf("on IP: %q", p[1:])
	}
	download(src.Magnet()+"&x.pe="+elsewhere+":6881", "--peer", seed)
	soon(t, "a packet on IP", func() bool { return len(packets()) > 1 })
}
