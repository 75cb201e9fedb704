package udpbatch

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"braid/units/await"
)

// port is a UDP socket on loopback.
type port struct {
	*Conn
	udp  *net.UDPConn
	addr netip.AddrPort
}

func open(t *testing.T, ip string) *port {
	t.Helper()
	p := &port{}
	var err error
	if p.udp, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(ip)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.udp.Close() })
	if err := p.udp.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	if err := p.udp.SetReadDeadline(await.Deadline(t)); err != nil {
		t.Fatal(err)
	}
	p.addr = p.udp.LocalAddr().(*net.UDPAddr).AddrPort()
	if p.Conn, err = NewConn(p.udp); err != nil {
		t.Fatal(err)
	}
	return p
}

// read returns n packets, each preceded by the port of its sender.
func (p *port) read(t *testing.T, n int) (got []string, messages int) {
	t.Helper()
	r := NewReader(4)
	for len(got) < n {
		k, err := r.Wait(p.Conn, 4)
		if err != nil {
			t.Fatalf("%v after %d packets of %d", err, len(got), n)
		}
		messages += k
		for b, ok := r.Next(); ok; b, ok = r.Next() {
			got = append(got, fmt.Sprintf("%v %s", r.From(), b))
		}
	}
	return got, messages
}

func (p *port) send(t *testing.T, w *Writer) {
	t.Helper()
	if err := w.Flush(p.Conn); err != nil {
		t.Fatal(err)
	}
}

// TestRuns sends packets of many sizes to two destinations, from sockets of both IP versions, with
// and without offloading. Those to one of them name their source. However they are joined into
// runs, each must arrive unchanged and in order.
func TestRuns(t *testing.T) {
	sizes := []int{1400, 1400, 1400, 20, 0, 0, 7, 7, 8, 3, 9000, 9000, 9000, 9000, 9000, 9000, 9000, 9000, 12, 12}
	for len(sizes) < 130 { // more than a run may have
		sizes = append(sizes, 100)
	}
	for _, ip := range []string{"127.0.0.1", "::1"} {
		for _, plain := range []bool{false, true} {
			from, a, b := open(t, ip), open(t, ip), open(t, ip)
			if plain {
				if err := from.Control(from.Socket.Plain); err != nil {
					t.Fatal(err)
				}
			}
			w := NewWriter(from.Socket, 50, 2)
			var wantA, wantB []string
			add := func(to *port, want *[]string, size int) {
				data := bytes.Repeat([]byte{byte('a' + len(*want)%26)}, size)
				*want = append(*want, fmt.Sprintf("%v %s", from.addr, data))
				source := map[*port]netip.Addr{b: from.addr.Addr()}[to]
				for !w.AddFrom(source, to.addr, data[:size/3], data[size/3:]) {
					from.send(t, w)
					if w.Err() != nil || w.Sent() != 50 {
						t.Fatalf("sent %d: %v", w.Sent(), w.Err())
					}
					w.Reset()
				}
			}
			for i, size := range sizes {
				add(a, &wantA, size)
				if i%5 == 4 {
					add(b, &wantB, size)
				}
			}
			from.send(t, w)
			if w.Err() != nil {
				t.Fatal(w.Err())
			}
			gotA, messages := a.read(t, len(wantA))
			if !slices.Equal(gotA, wantA) {
				t.Errorf("%s, plain %v: packets differ", ip, plain)
			}
			if !plain && messages > len(gotA)/2 {
				t.Errorf("%s: %d packets came in %d messages: nothing was joined", ip, len(gotA), messages)
			}
			if plain && messages != len(gotA) {
				t.Errorf("%s, plain: %d packets came in %d messages", ip, len(gotA), messages)
			}
			if gotB, _ := b.read(t, len(wantB)); !slices.Equal(gotB, wantB) {
				t.Errorf("%s, plain %v: packets to the second port differ", ip, plain)
			}
		}
	}
}

// TestRefused sends a packet that the kernel refuses among others: only that packet may be lost.
func TestRefused(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.1")
	w := NewWriter(from.Socket, 8, 1)
	for _, p := range [][]byte{[]byte("first"), make([]byte, 70000), []byte("third")} {
		w.Add(to.addr, p)
	}
	from.send(t, w)
	if !errors.Is(w.Err(), unix.EMSGSIZE) || w.Sent() != 3 {
		t.Errorf("sent %d, error %v; want 3 and message too long", w.Sent(), w.Err())
	}
	got, _ := to.read(t, 2)
	if want := []string{fmt.Sprint(from.addr, " first"), fmt.Sprint(from.addr, " third")}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTooLargeForInterface sends packets above the interface's MTU, in a run. They must arrive as
// fragments or, if those are forbidden, the last packet must.
func TestTooLargeForInterface(t *testing.T) {
	smallLoopback(t, 1400)
	for _, whole := range []bool{false, true} {
		from, to := open(t, "127.0.0.1"), open(t, "127.0.0.1")
		large, last := string(bytes.Repeat([]byte("x"), 1500)), "last"
		sent := []string{large, large, large, last}
		want, discover := sent, unix.IP_PMTUDISC_DONT
		if whole {
			want, discover = sent[3:], unix.IP_PMTUDISC_DO
		}
		var err error
		set := func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, discover)
		}
		if closed := from.Control(set); closed != nil || err != nil {
			t.Fatal(closed, err)
		}
		w := NewWriter(from.Socket, len(sent), 1)
		for _, p := range sent {
			w.Add(to.addr, []byte(p))
		}
		from.send(t, w)
		if refused := errors.Is(w.Err(), unix.EMSGSIZE); refused != whole {
			t.Errorf("whole %v: error %v", whole, w.Err())
		}
		got, _ := to.read(t, len(want))
		for i, p := range want {
			if got[i] != fmt.Sprintf("%v %s", from.addr, p) {
				t.Errorf("whole %v, packet %d: %d bytes, want %d", whole, i, len(got[i]), len(p))
			}
		}
	}
}

// smallLoopback gives the test a network of its own, with a loopback interface of that MTU.
func smallLoopback(t *testing.T, mtu uint32) {
	t.Helper()
	runtime.LockOSThread() // and never unlock: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network of its own: %v", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint32(mtu)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFMTU, lo); err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}

// TestSplit splits a run, as after the kernel has refused it.
func TestSplit(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.1")
	w := NewWriter(from.Socket, 9, 1)
	var want []string
	for i := range 9 {
		p := []byte{'0' + byte(i), 'x', 'y'}[:3-i/3%2] // the first run has 4, the second 2, the third 3
		w.Add(to.addr, p)
		want = append(want, fmt.Sprintf("%v %s", from.addr, p))
	}
	if w.used != 3 {
		t.Fatalf("%d runs, want 3", w.used)
	}
	w.next = 1 // the first run is sent
	w.split()
	from.send(t, w)
	got, messages := to.read(t, 5)
	if !slices.Equal(got, want[4:]) || messages != len(got) || w.Sent() != 9 {
		t.Errorf("got %q in %d messages, want %q", got, messages, want[4:])
	}
}

// TestOldError sends to a port that is closed. The error caused by the first packet must not cost
// the second.
func TestOldError(t *testing.T) {
	gone := open(t, "127.0.0.1")
	udp, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(gone.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	gone.udp.Close()
	raw, err := udp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var w *Writer
	send := func(data string) {
		if w == nil {
			if err := raw.Control(func(fd uintptr) { w = NewWriter(NewSocket(fd), 1, 1) }); err != nil {
				t.Fatal(err)
			}
		}
		w.Reset()
		w.Add(netip.AddrPort{}, []byte(data))
		if err := raw.Write(w.Send); err != nil || w.Err() != nil {
			t.Fatal(err, w.Err())
		}
	}
	send("to nobody") // on loopback the error is there when the call returns
	back, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(gone.addr))
	if err != nil {
		t.Skip("the port was taken by somebody else")
	}
	defer back.Close()
	send("to somebody")
	_ = back.SetReadDeadline(await.Deadline(t))
	b := make([]byte, 100)
	if n, err := back.Read(b); err != nil || string(b[:n]) != "to somebody" {
		t.Errorf("%q, %v", b[:n], err)
	}
}

func TestStamp(t *testing.T) {
	from, to := open(t, "127.0.0.1"), open(t, "127.0.0.1")
	if err := to.Control(func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
			t.Fatal(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	if _, err := from.udp.WriteToUDPAddrPort([]byte("x"), to.addr); err != nil {
		t.Fatal(err)
	}
	r := NewReader(1)
	if err := to.Read(func(fd uintptr) bool {
		_, errno := r.Receive(fd, 1)
		return errno != unix.EAGAIN
	}); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Next(); !ok || r.Stamp().Before(before.Add(-time.Minute)) || r.Stamp().After(time.Now().Add(time.Minute)) {
		t.Errorf("stamp %v, want about %v", r.Stamp(), before)
	}
}

func TestSegmentSize(t *testing.T) {
	var b [unix.SizeofCmsghdr + 8]byte
	if got := SegmentSize(putSegmentSize(b[:], 1452)); got != 1452 {
		t.Errorf("size %d, want 1452", got)
	}
	if got := SegmentSize(nil); got != 0 {
		t.Errorf("size of nothing %d", got)
	}
}

// FuzzControl compares the parser with that of the library.
func FuzzControl(f *testing.F) {
	var b [unix.SizeofCmsghdr + 8]byte
	size := putSegmentSize(b[:], 1400)
	f.Add(size)
	f.Add(append(bytes.Clone(size), size...))
	f.Add(size[:17])
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 17, 0, 0, 0, 104, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		b = append(make([]byte, 0, len(b)+8), b...)
		if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 != 0 {
			t.Skip("not aligned as control data is")
		}
		got := readControl(b)
		if got.size < -1<<31 || got.size > 1<<31 {
			t.Errorf("size %d", got.size)
		}
		if all, err := unix.ParseSocketControlMessage(b); err == nil && len(all) == 0 && got != (control{}) {
			t.Errorf("%+v in control data without a message", got)
		}
	})
}

// A received address can be used for sending, even if it is link-local.
func TestNames(t *testing.T) {
	for _, s := range []string{"127.0.0.1:1", "[::1]:65535", "[fe80::1%7]:80", "[2001:db8::1]:0"} {
		a := netip.MustParseAddrPort(s)
		var n name
		size := n.put(a)
		if want := map[bool]uint32{true: unix.SizeofSockaddrInet4, false: unix.SizeofSockaddrInet6}[a.Addr().Is4()]; size != want || n.get() != a {
			t.Errorf("%v became %v, in %d bytes", a, n.get(), size)
		}
	}
}
