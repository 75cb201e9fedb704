package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// libtorrentFetch downloads a torrent: torrent, directory, port.
const libtorrentFetch = `
import libtorrent as lt, sys, time
session = lt.session({
    'listen_interfaces': '127.0.0.1:' + sys.argv[3], 'enable_dht': False, 'enable_lsd': False,
    'enable_upnp': False, 'enable_natpmp': False, 'allow_multiple_connections_per_ip': True, 'min_announce_interval': 1,
})
handle = session.add_torrent({'ti': lt.torrent_info(sys.argv[1]), 'save_path': sys.argv[2]})
handle.unset_flags(lt.torrent_flags.auto_managed)
handle.resume()
while True:
    time.sleep(1)
    handle.force_reannounce()
`

// A mixed swarm: the seed is on SCION and on IP. A braid in another AS finds it on SCION through a
// tracker on SCION, and another through the same tracker on IP; libtorrent finds it on IP. Nobody
// is told an address.
func TestMixedSwarm(t *testing.T) {
	t.Parallel()
	needProgram(t, "/usr/bin/python3", "-c", "import libtorrent")
	n, from, to := startNetwork(t, "two-paths")
	dir := t.TempDir()
	data := randomFile(t, dir, 10, 3<<20)
	urls := ready(t, dir, "tracker", "--json", "--min-interval", "1s", "--config-dir", n.ConfigDir(from),
		"--listen", fmt.Sprintf("scion://%s,[%s]:0", from, n.HostIP(from)), "--listen", "http://127.0.0.1:0", "--listen", statsAnywhere)
	torrents := map[string]string{}
	for i, name := range []string{"scion", "ip"} {
		torrents[name] = filepath.Join(dir, name+".torrent")
		if code, _, said := ends(t, dir, "create", "file", "-o", torrents[name], "--tracker", urls[i]); code != 0 {
			t.Fatal(said)
		}
	}
	seed := ready(t, dir, "seed", torrents["ip"], "--tracker", urls[0], "--json", "--config-dir", n.ConfigDir(from),
		"--listen", fmt.Sprintf("%s,[%s]:0", from, n.HostIP(from)), "--listen", "127.0.0.1:0")
	if len(seed) != 2 {
		t.Fatalf("the seed listens on %v", seed)
	}
	// The seed on IP may have sent everything before a busy control service answers.
	download := func(name string, how ...string) {
		t.Helper()
		soon(t, fmt.Sprintf("the seed %s, with the torrent %s and %q", seed[0], name, how), func() bool {
			out := t.TempDir()
			events := must(t, out, append([]string{"download", torrents[name], "-o", out, "--json", "--config-dir", n.ConfigDir(to), "--local", n.HostIP(to).String()}, how...)...)
			if got, err := os.ReadFile(filepath.Join(out, "file")); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%s, %q: %d bytes, %v", name, how, len(got), err)
			}
			return strings.Contains(events, `"peer":"`+seed[0]+`"`)
		})
	}
	download("scion")
	download("ip")
	// The seed by its name, without a tracker, and the tracker by its name. Names are in hosts
	// beside topology.json.
	hosts := fmt.Sprintf("%s,[%s] host.test\n", from, n.HostIP(from))
	if err := os.WriteFile(filepath.Join(n.ConfigDir(to), "hosts"), []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	byName := func(address string) string {
		return "scion://host.test" + address[strings.Index(address, "]")+1:]
	}
	download("ip", "--no-trackers", "--peer", byName(seed[0]))
	download("ip", "--no-trackers", "--tracker", byName(urls[0]))
	out := t.TempDir()
	background(t, exec.Command("/usr/bin/python3", "-c", libtorrentFetch, torrents["ip"], out, freeTCP(t)))
	ctx, cancel := context.WithTimeout(t.Context(), swarmPatience)
	defer cancel()
	if err := sameInTheEnd(ctx, filepath.Join(out, "file"), data); err != nil {
		t.Error(err)
	}
	s := trackerStats(t, urls[2])
	// Who has left may still be there: a goodbye is given up after two seconds.
	if s.Totals.SCION < 1 || s.Totals.IPv4 < 2 || s.Announces["scion"] < 4 {
		t.Errorf("%+v", s)
	}
}
