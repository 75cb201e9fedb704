package client

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/anacrolix/torrent/metainfo"

	"braid/client/wire"
	"braid/pathsel"
)

func fromIP(s string) pathsel.Origin { return pathsel.OriginIP(netip.MustParseAddr(s), "") }

func TestAdmit(t *testing.T) {
	q := quota{total: 6, net: 4, host: 2, unproven: 2}
	var t0 time.Time
	of := func(w worth, since int, ips ...string) (out []place) {
		for i, ip := range ips {
			out = append(out, place{fromIP(ip), w, t0.Add(time.Duration(since+i) * time.Second)})
		}
		return out
	}
	all := func(parts ...[]place) (out []place) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	claimed := func(w worth, n int) (out []place) {
		for i := range n {
			out = append(out, place{pathsel.OriginUnproven(fmt.Sprint(i)), w, t0.Add(time.Duration(i))})
		}
		return out
	}
	singles := []string{"10.0.1.1", "10.0.2.1", "10.0.3.1", "10.0.4.1", "10.0.5.1", "10.0.6.1"}
	const refused = -2
	for _, c := range []struct {
		name     string
		taken    []place
		newcomer pathsel.Origin
		want     int
	}{
		{"there is room", of(busy, 0, singles[:5]...), fromIP("10.0.9.1"), noPlace},
		{"all contribute", of(busy, 0, singles...), fromIP("10.0.9.1"), refused},
		{"the silent one goes", all(of(idle, 0, singles[:5]...), of(silent, 9, "10.0.6.1")), fromIP("10.0.9.1"), 5},
		{"of idle ones the oldest", of(idle, 0, singles...), fromIP("10.0.9.1"), 0},
		{"of the largest network", all(of(idle, 0, singles[:4]...), of(idle, 50, "10.1.0.1", "10.1.0.2")), fromIP("10.0.9.1"), 4},
		{"of its largest host", all(of(idle, 0, "10.0.1.1", "10.0.2.1", "10.0.3.1", "10.1.0.1"), of(idle, 50, "10.1.0.2", "10.1.0.2")),
			fromIP("10.0.9.1"), 4},
		{"an idle one does not make room for a larger network", all(of(busy, 0, "10.1.0.1", "10.1.0.2"), of(idle, 0, singles[:4]...)),
			fromIP("10.1.0.3"), refused},
		{"a silent one does", all(of(busy, 0, "10.1.0.1", "10.1.0.2"), of(idle, 0, singles[:3]...), of(silent, 0, singles[3])),
			fromIP("10.1.0.3"), 5},
		{"a host replaces its own", all(of(idle, 0, "10.0.1.1", "10.0.2.1"), of(idle, 9, "10.0.2.1")), fromIP("10.0.2.1"), 1},
		{"a host that contributes has its share", of(busy, 0, "10.0.2.1", "10.0.2.1"), fromIP("10.0.2.1"), refused},
		{"a network replaces its own", all(of(idle, 0, singles[0]), of(idle, 9, "10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4")),
			fromIP("10.1.0.5"), 1},
		{"the unproven replace each other", all(of(silent, 0, singles[0]), claimed(idle, 2)), pathsel.OriginUnproven("x"), 1},
		{"and are one network", claimed(busy, 2), pathsel.OriginUnproven("x"), refused},
		{"a /64 is a host", of(busy, 0, "2001:db8::1", "2001:db8::2:1"), fromIP("2001:db8::3"), refused},
		{"a /48 is a network", of(busy, 0, "2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db8:0:3::1", "2001:db8:0:4::1"),
			fromIP("2001:db8:0:5::1"), refused},
	} {
		victim, ok := q.admit(c.taken, c.newcomer)
		if !ok {
			victim = refused
		}
		if victim != c.want {
			t.Errorf("%s: %d, want %d", c.name, victim, c.want)
		}
	}
}

// Whatever comes: no quota is exceeded, nothing that carries data goes, and a host that has nothing
// yet gets in as long as anything from larger networks is without use.
func TestAdmitProperties(t *testing.T) {
	q := quota{total: 40, net: 20, host: 8, unproven: 5}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		var taken []place
		for step := range 600 {
			o := pathsel.OriginIP(netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(6)), byte(r.IntN(1 + r.IntN(9)))}), "")
			if r.IntN(4) == 0 {
				o = pathsel.OriginUnproven(fmt.Sprint(r.IntN(3)))
			}
			victim, ok := q.admit(taken, o)
			if ok && victim >= 0 {
				if taken[victim].worth == busy {
					t.Fatal("a connection that carries data was replaced")
				}
				taken = append(taken[:victim], taken[victim+1:]...)
			}
			if ok {
				taken = append(taken, place{o, worth(r.IntN(3)), time.Unix(int64(step), 0)})
			}
			nets, hosts := map[string]int{}, map[string]int{}
			for _, p := range taken {
				nets[p.origin.Net]++
				hosts[p.origin.Host]++
				if net, host := q.of(p.origin); nets[p.origin.Net] > net || hosts[p.origin.Host] > host {
					t.Fatalf("%v has more than its share", p.origin)
				}
			}
			if len(taken) > q.total {
				t.Fatal("more than there are places")
			}
		}
	}
}

// linkOf makes a link of an accepted connection.
func linkOf(w Wire, transport string, f engineAddr, onClose func()) *link {
	return newLink(wire.Accepted(w, wire.Options{Addr: f, OnClose: onClose}), w, transport, f)
}

// Ten hosts connect 1100 times and say nothing, over TCP. The next peers are taken in, over TCP as
// over another transport.
func TestSilentFlood(t *testing.T) {
	in := newInbound(nil)
	defer in.close()
	go func() {
		for {
			if _, err := in.Accept(); err != nil {
				return
			}
		}
	}()
	slots := newOffers()
	connect := func(peer, transport string) (*link, error) {
		w, _ := pipeTo(t, peer)
		f, err := slots.takeSlot(engineAddrOf(w.Peer()))
		if err != nil {
			t.Fatal(err)
		}
		l := linkOf(w, transport, f, func() { slots.freeSlot(f) })
		l.accepted = true
		if err = slots.attach(l); err == nil {
			err = slots.makeRoom(l, testLog(t))
		}
		if err != nil {
			slots.freeSlot(f)
			return l, err
		}
		return l, in.add(t.Context(), l)
	}
	var last *link
	for i := range 1100 {
		if l, err := connect(fmt.Sprintf("10.0.%d.%d:%d", i%5, i%10, 1000+i), "tcp"); err == nil {
			last = l
		}
	}
	for i := range 20 {
		if _, err := connect(fmt.Sprintf("10.9.%d.1:7", i), "tcp"); err != nil {
			t.Fatalf("newcomer %d: %v", i, err)
		}
	}
	if _, err := connect("10.9.1.1:7", "quic"); err != nil {
		t.Errorf("over another transport: %v", err)
	}
	if n := len(slots.accepted()); n > maxAccepted+1 {
		t.Errorf("%d connections", n)
	}
	// What carries data stays.
	last.Greet()
	last.carried.Store(time.Now().UnixNano())
	for i := range 1100 {
		_, _ = connect(fmt.Sprintf("10.1.%d.1:%d", i%200, i), "tcp")
	}
	if last.Closed() {
		t.Error("a connection that carries data has made room")
	}
}

// Five hosts shake hands 512 times and do nothing. The next peer is served at once all the same.
func TestIdleFlood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRandom(t, filepath.Join(dir, "file"), 1<<20)
	src := makeTorrent(t, filepath.Join(dir, "file"), CreateOptions{}).Source
	seeder := seed(t, src, dir)
	to := seeder.Listening()[0].String()
	for i := range 512 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(20+i%5), 1)}}
		c, err := d.DialContext(t.Context(), "tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := shakeHands(c, src.InfoHash, i); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := openSession(t, Config{}).Add(src, openStore(t, t.TempDir()), Options{Peers: seeder.Listening()})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, tr)
}

// shakeHands does a peer's handshake (BEP 3) and reads the answer, and the length of the first
// message: only then a connection belongs to the torrent.
func shakeHands(c net.Conn, hash metainfo.Hash, id int) error {
	hello := fmt.Appendf(nil, "\x13BitTorrent protocol%s%s%020d", make([]byte, 8), hash[:], id)
	if _, err := c.Write(hello); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, len(hello)+4))
	return err
}
