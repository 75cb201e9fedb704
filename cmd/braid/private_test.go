package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"braid/client"
)

// capture reads all packets of a host (AF_PACKET). For each of two torrents it prints how packets
// reveal it: lsd (an announce to the multicast group names it), dht (another UDP packet contains its
// info hash), peer (a TCP handshake of BitTorrent has it), pex (such a connection offers peer
// exchange).
const capture = `
import socket, struct, sys
hashes = {'private': bytes.fromhex(sys.argv[1]), 'public': bytes.fromhex(sys.argv[2])}
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: nothing is lost while Python waits for a CPU
s.bind(('eth0', 3))
print('ready', flush=True)
flows, told = {}, set()
def tell(what):
    if what not in told:
        told.add(what)
        print(what, flush=True)
while True:
    p, (_, kind, *_) = s.recvfrom(70000)
    if kind == 0x0800:
        proto, at, ends = p[9], (p[0] & 15) * 4, (p[12:16], p[16:20])
    elif kind == 0x86dd:
        proto, at, ends = p[6], 40, (p[8:24], p[24:40])
    else:
        continue
    ports = struct.unpack('!HH', p[at:at + 4])
    for name, h in hashes.items():
        if proto == 17 and ports[1] == 6771 and h.hex().encode() in p.lower():
            tell(name + ' lsd')
        elif proto == 17 and h in p:
            tell(name + ' dht')
        elif proto == 6 and b'BitTorrent protocol' in p and h in p:
            flows[frozenset(zip(ends, ports))] = name
            tell(name + ' peer')
    name = flows.get(frozenset(zip(ends, ports))) if proto == 6 else None
    if name and b'_pex' in p:
        tell(name + ' pex')
`

// A process serves a private torrent and another one. Everybody who watches the network sees the
// other one in the DHT, in peer exchange and in local discovery; of the private one there is
// nothing but the connection to the peer that the user has named.
func TestPrivateTorrentsOnTheWire(t *testing.T) {
	t.Parallel()
	l := startLocalNet(t)
	seed, node, peer := l.host(t), l.host(t), l.host(t)
	dir := t.TempDir()
	var hashes, torrents []string
	for _, flags := range [][]string{{"private", "--private", "--tracker", "http://" + node.ip + ":9/announce"}, {"public"}} {
		if err := os.WriteFile(filepath.Join(dir, flags[0]), bytes.Repeat([]byte(flags[0]), 100_000), 0o600); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, flags[0]+".torrent")
		must(t, dir, append([]string{"create", "--offline", "-o", name}, flags...)...)
		torrents = append(torrents, name)
		s, err := client.OpenSource(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, s.InfoHash.HexString())
	}
	var mu sync.Mutex
	var seen []string
	observe(t, seed.run(t, exec.Command("/usr/bin/python3", append([]string{"-c", capture}, hashes...)...)), func(line []byte) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, string(line))
	})
	has := func(what string) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return slices.Contains(seen, what) }
	}
	soon(t, "the capture", has("ready"))
	background(t, node.run(t, braid(t, dir, "dht", "--listen", node.ip+":6000")))
	seed.braid(t, "seed", torrents[0], torrents[1], "--data", dir, "--dht", "on", "--dht-node", node.ip+":6000", "--lsd", "on")
	all := peer.braid(t, "download", torrents[0], torrents[1], "-o", t.TempDir(), "--peer", seed.ip+":6881")
	for _, what := range []string{"public dht", "public lsd", "public peer", "public pex", "private peer"} {
		soon(t, what, has(what))
	}
	soon(t, "both downloads", func() bool { return all.hasDone(2) })
	mu.Lock()
	defer mu.Unlock()
	for _, s := range seen {
		if strings.HasPrefix(s, "private") && s != "private peer" {
			t.Errorf("on the network: %s", s)
		}
	}
}
