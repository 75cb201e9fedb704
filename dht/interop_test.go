package dht

import (
	"bufio"
	"context"
	"crypto/sha1"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// Foreign nodes are processes that run several of them. They read commands, a line each, and answer
// each with a line:
//
//	announce HASH ...    each node announces one of them; the answer is HASH:PORT ...
//	find HASH:PORT ...   each node looks for all of them; the answer counts what was found
const libtorrentNodes = `
import libtorrent as lt, os, socket, sys, threading, time
boot, n = sys.argv[1], int(sys.argv[2])
def free_port(): # libtorrent announces the port of UDP, but tells only that of TCP, which may be another one
    while True:
        with socket.socket(type=socket.SOCK_DGRAM) as u, socket.socket() as t:
            u.bind(('127.0.0.1', 0))
            try:
                t.bind(u.getsockname())
            except OSError:
                continue
            return u.getsockname()[1]
sessions = [lt.session({
    'listen_interfaces': '127.0.0.1:%d' % free_port(), 'enable_dht': True, 'enable_lsd': False, 'enable_upnp': False, 'enable_natpmp': False,
    'dht_bootstrap_nodes': boot, 'dht_restrict_routing_ips': False, 'dht_restrict_search_ips': False, 'dht_enforce_node_id': False,
    'dht_prefer_verified_node_ids': False, 'dht_ignore_dark_internet': False,
    'dht_block_ratelimit': 1000000, 'dht_upload_rate_limit': 10000000, # all nodes have one address here
    'alert_mask': lt.alert.category_t.dht_operation_notification | lt.alert.category_t.dht_notification,
}) for _ in range(n)]
hash_of = lambda s: lt.sha1_hash(bytes.fromhex(s))
handles = []
def announce_again(): # libtorrent does so every 15 minutes; an announcement is lost if nobody answers in time
    while True:
        time.sleep(10)
        for h in list(handles):
            h.force_dht_announce()
threading.Thread(target=announce_again, daemon=True).start()
for line in sys.stdin:
    what, *args = line.split()
    if what == 'announce':
        for s, h in zip(sessions, args):
            p = lt.add_torrent_params()
            p.info_hashes, p.save_path = lt.info_hash_t(hash_of(h)), '/nonexistent'
            handle = s.add_torrent(p)
            end = time.time() + 30 # it announces only once it has found nodes
            while time.time() < end and not any(isinstance(a, lt.dht_bootstrap_alert) for a in s.pop_alerts()):
                time.sleep(0.05)
            while time.time() < end and s.status().dht_nodes < 8: # with fewer, it announces to nodes where nobody looks
                s.dht_get_peers(lt.sha1_hash(os.urandom(20)))
                time.sleep(0.2)
            handle.force_dht_announce()
            handles.append(handle)
        print(*['%s:%d' % (h, s.listen_port()) for s, h in zip(sessions, args)], flush=True)
        continue
    missing = {(i, a) for i in range(n) for a in args}
    end = time.time() + 60
    while missing and time.time() < end:
        for i, a in missing:
            sessions[i].dht_get_peers(hash_of(a.split(':')[0]))
        until = time.time() + 4
        while missing and time.time() < until:
            time.sleep(0.05)
            for i, s in enumerate(sessions):
                for alert in s.pop_alerts():
                    if isinstance(alert, lt.dht_get_peers_reply_alert):
                        for _, port in alert.peers():
                            missing.discard((i, '%s:%d' % (alert.info_hash, port)))
    print(n * len(args) - len(missing), flush=True)
`

const webtorrentNodes = `
import { createInterface } from 'node:readline'
const [boot, n, dir] = [process.argv[1], +process.argv[2], process.argv[3]]
const DHT = (await import(dir + '/node_modules/bittorrent-dht/index.js')).Client
const nodes = Array.from({length: n}, () => new DHT({bootstrap: [boot], host: '127.0.0.1', verify: null}))
nodes.forEach(d => { d.on('error', () => {}); d.on('warning', () => {}); d.listen(0, '127.0.0.1') })
const wait = ms => new Promise(r => setTimeout(r, ms))
createInterface({input: process.stdin}).on('line', async line => {
  const [what, ...args] = line.split(' ')
  if (what === 'announce') {
    await Promise.all(args.map((h, i) => new Promise(r => nodes[i].announce(h, 40000 + i, r))))
    return console.log(args.map((h, i) => h + ':' + (40000 + i)).join(' '))
  }
  const missing = new Set()
  nodes.forEach((_, i) => args.forEach(a => missing.add(i + ' ' + a)))
  nodes.forEach((d, i) => d.on('peer', (p, h) => missing.delete(i + ' ' + h.toString('hex') + ':' + p.port)))
  const end = Date.now() + 60000
  while (missing.size && Date.now() < end) {
    await Promise.all([...missing].map(m => new Promise(r => { const [i, a] = m.split(' '); nodes[+i].lookup(a.split(':')[0], r) })))
    await wait(100)
  }
  console.log(n * args.length - missing.size)
})
`

// foreign are nodes in a process.
type foreign struct {
	in  io.Writer
	out *bufio.Reader
	n   int
}

func startForeign(t *testing.T, n int, name string, args ...string) *foreign {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &foreign{in, bufio.NewReader(out), n}
}

// ask sends a command and returns the answer.
func (f *foreign) ask(t *testing.T, format string, args ...any) string {
	t.Helper()
	fmt.Fprintf(f.in, format+"\n", args...)
	line, err := f.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", format, err)
	}
	return strings.TrimSpace(line)
}

func serveLocal(t *testing.T, boot ...Addr) *Server {
	t.Helper()
	socket, err := ListenUDP(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(ServerConfig{Sockets: []Socket{socket}})
	t.Cleanup(func() { s.Close() })
	s.AddNodes(boot...)
	return s
}

// torrentOf is the torrent that node i announces.
func torrentOf(i int) ID { return sha1.Sum(fmt.Append(nil, "torrent ", i)) }

// Thirty nodes in one DHT on IP: braid's, libtorrent's and, where it is installed,
// bittorrent-dht's. Each announces a torrent, and each finds the torrents of all. Set
// BRAID_BITTORRENT_DHT to the directory whose node_modules has bittorrent-dht.
func TestForeignNodes(t *testing.T) {
	const each = 10
	if out, err := exec.Command("/usr/bin/python3", "-c", "import libtorrent").CombinedOutput(); err != nil {
		t.Skipf("libtorrent is not installed: %s", out)
	}
	var ours []*Server
	for i := range each {
		var boot []Addr
		if i > 0 {
			boot = append(boot, ours[0].members[0].socket.Addr())
		}
		ours = append(ours, serveLocal(t, boot...))
	}
	for i, s := range ours { // a node that knows nobody yet announces to nobody
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			found, err := s.FindPeers(t.Context(), torrentOf(-1-i))
			if err == nil && len(found.Results) == 1 && len(found.Results[0].Closest) >= 8 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("braid's node %d knows too few others: %+v, %v", i, found, err)
			}
		}
	}
	boot, n := ours[0].members[0].socket.Addr().String(), fmt.Sprint(each)
	foreigners := []*foreign{startForeign(t, each, "/usr/bin/python3", "-c", libtorrentNodes, boot, n)}
	if dir := os.Getenv("BRAID_BITTORRENT_DHT"); dir != "" {
		foreigners = append(foreigners, startForeign(t, each, "node", "--input-type=module", "-e", webtorrentNodes, boot, n, dir))
	}
	var all []string // HASH:PORT
	for i, s := range ours {
		hash, port := torrentOf(i), uint16(20_000+i)
		if _, err := s.Follow(hash, map[Network]uint16{OverIP4: port}, func([]Addr) {}); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s:%d", hash, port))
	}
	for i, f := range foreigners {
		var hashes []string
		for j := range f.n {
			hashes = append(hashes, torrentOf((i+1)*each+j).String())
		}
		all = append(all, strings.Fields(f.ask(t, "announce %s", strings.Join(hashes, " ")))...)
	}
	for i, s := range ours {
		for _, x := range all {
			if !findsSoon(t, s, x) {
				t.Fatalf("braid's node %d does not find %s", i, x)
			}
		}
	}
	for i, f := range foreigners {
		if got, want := f.ask(t, "find %s", strings.Join(all, " ")), fmt.Sprint(f.n*len(all)); got != want {
			t.Errorf("foreign nodes %d find %s of %s torrents", i, got, want)
		}
	}
}

// findsSoon searches until the peer is found: a foreign announcement takes a while.
func findsSoon(t *testing.T, s *Server, hashPort string) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	text, port, _ := strings.Cut(hashPort, ":")
	hash := hexID(t, text)
	for ctx.Err() == nil {
		found, err := s.FindPeers(ctx, hash)
		if err == nil && slices.ContainsFunc(found.Peers, func(a Addr) bool { return fmt.Sprint(a.Port) == port }) {
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return false
}
