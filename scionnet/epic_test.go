package scionnet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/experimental/epic"
	"github.com/scionproto/scion/pkg/slayers"
	epicpath "github.com/scionproto/scion/pkg/slayers/path/epic"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
	"github.com/scionproto/scion/pkg/snet"
)

// testAuths begin with the MACs of the hop fields of rawPath.
var testAuths = snet.EpicAuths{AuthPHVF: append(make([]byte, 6), "penultimate"[:10]...), AuthLHVF: append(make([]byte, 6), "last in row"[:10]...)}

// epicWay is a way with EPIC whose path has begun an hour ago.
func epicWay(t testing.TB) *way {
	t.Helper()
	raw := rawPath(t, true, up, core)
	binary.BigEndian.PutUint32(raw[8:], uint32(time.Now().Add(-time.Hour).Unix()))
	keys, err := newEPIC(raw, testAuths)
	if err != nil {
		t.Fatal(err)
	}
	return &way{raw: raw, epic: keys}
}

// quicLike is a payload that is not a frame.
func quicLike(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	b[0] |= 0x40
	return b
}

// Scionproto's routers accept what both packet connections write, and nothing that was changed.
func TestEPICHeader(t *testing.T) {
	w := epicWay(t)
	payload := quicLike(1200, 1)
	for _, tt := range []struct{ from, to string }{
		{"1-ff00:0:110,[10.0.0.1]:4000", "2-ff00:0:210,[10.0.0.2]:5000"},
		{"1-ff00:0:110,[fd00::1]:4000", "2-ff00:0:210,[10.0.0.2]:5000"},
		{"1-ff00:0:110,[10.0.0.1]:4000", "2-ff00:0:210,[fd00::2]:5000"},
	} {
		from, to := mustAddr(t, tt.from), mustAddr(t, tt.to)
		tmpl, err := newTemplate(from, to, w)
		if err != nil {
			t.Fatal(err)
		}
		fast := make([]byte, len(tmpl.header))
		if want := w.headerLen(from, to); len(fast) != want {
			t.Fatalf("a header of %d bytes, want %d", len(fast), want)
		}
		tmpl.write(fast, from.Port, nil, payload)
		w.epic.stamp(fast, time.Now(), new(epicScratch))
		fast = append(fast, payload...)

		p := snet.Packet{PacketInfo: packetInfo(from, to, w.dataplane(bytes.Clone(w.raw)), snet.UDPPayload{SrcPort: from.Port, DstPort: to.Port, Payload: payload})}
		if err := p.Serialize(); err != nil {
			t.Fatal(err)
		}
		w.epic.stamp(p.Bytes, time.Now(), new(epicScratch))

		for name, b := range map[string][]byte{"template": fast, "snet": p.Bytes} {
			phvf, lhvf := checkEPIC(t, b)
			if phvf != nil || lhvf != nil {
				t.Errorf("%s, %s to %s: %v, %v", name, from, to, phvf, lhvf)
			}
			shorter := bytes.Clone(b)
			binary.BigEndian.PutUint16(shorter[atPayloadLen:], uint16(udpHeader+len(payload)-1))
			if phvf, lhvf := checkEPIC(t, shorter); phvf == nil || lhvf == nil {
				t.Error("a packet of another length passes")
			}
		}
		// The identifiers differ, and whatever else two packets of a connection have in common does
		// not.
		at, end := epicFields(fast)
		if bytes.Equal(fast[at+4:at+8], p.Bytes[at+4:at+8]) {
			t.Error("two packets have the same number")
		}
		if end-at != 16 {
			t.Errorf("the fields are at %d to %d", at, end)
		}
		a, payloadA, okA := splitHeader(fast)
		b, payloadB, okB := splitHeader(p.Bytes)
		if !okA || !okB || !bytes.Equal(payloadA, payloadB) || !sameHeader(a, string(headerKey(nil, b))) {
			t.Error("the header is not recognised")
		}
		b[end]++
		if sameHeader(a, string(headerKey(nil, b))) {
			t.Error("another path is taken for this one")
		}
	}
}

// checkEPIC verifies a packet as the routers of the last two ASes do.
func checkEPIC(t *testing.T, b []byte) (phvf, lhvf error) {
	t.Helper()
	var s slayers.SCION
	if err := s.DecodeFromBytes(b, gopacket.NilDecodeFeedback); err != nil {
		t.Fatal(err)
	}
	p, ok := s.Path.(*epicpath.Path)
	if !ok {
		t.Fatalf("a path of type %T", s.Path)
	}
	info, err := p.ScionPath.GetInfoField(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := epic.VerifyTimestamp(time.Unix(int64(info.Timestamp), 0), p.PktID.Timestamp, time.Now()); err != nil {
		t.Error(err)
	}
	return epic.VerifyHVF(testAuths.AuthPHVF, p.PktID, &s, info.Timestamp, p.PHVF, nil),
		epic.VerifyHVF(testAuths.AuthLHVF, p.PktID, &s, info.Timestamp, p.LHVF, nil)
}

// The time of a packet stays in its 32 bits, whatever the clock says.
func TestEPICTimestamp(t *testing.T) {
	k := &epicKeys{begun: 1000}
	for after, want := range map[time.Duration]uint32{-time.Hour: 0, 0: 0, 42 * time.Microsecond: 1, time.Second: 47618, 48 * time.Hour: 1<<32 - 1} {
		if got := k.timestamp(time.Unix(1000, 0).Add(after)); got != want {
			t.Errorf("after %v: %d, want %d", after, got, want)
		}
	}
}

// A packet with EPIC and one without belong to the same route, whose answers go without. Only
// connections that were opened with EPIC go on with it when hop fields are renewed.
func TestEPICRoutes(t *testing.T) {
	w := epicWay(t)
	h, err := readHops(w.raw)
	if err != nil {
		t.Fatal(err)
	}
	w.expiry = h.expiry
	remote := mustAddr(t, "2-ff00:0:210,[10.0.0.2]:5000")
	renewed := *w
	renewed.expiry = w.expiry.Add(time.Hour)
	for _, dialled := range []bool{true, false} {
		rs := testRoutes()
		plain := *w
		plain.epic = nil
		r := rs.dial(remote, h.trail, &plain)
		if r.way.Load().epic != nil {
			t.Fatal("EPIC on a path that was opened without")
		}
		if dialled {
			if rs.dial(remote, h.trail, w) != r || r.way.Load().epic == nil {
				t.Fatal("no EPIC although a connection was opened with it")
			}
		}
		rs.learn(remote.IA, []found{{trail: h.trail, way: &renewed}})
		if now := r.way.Load(); now.expiry != renewed.expiry || (now.epic != nil) != dialled {
			t.Errorf("opened with EPIC: %v; after the renewal: %v, until %v", dialled, now.epic != nil, now.expiry)
		}
	}
}

// A peer has connected, and then we connect to it with EPIC along the same path. Packets of both
// connections fit the path.
func TestEPICBesideAnAcceptedConnection(t *testing.T) {
	var cp controlPlane
	h, _, f := hostWithPath(t, &cp)
	h.cfg.EPIC, h.mtu = true, 9000
	us, peer := Addr{usIA, h.localIP, 1000}, Addr{peerIA, netip.MustParseAddr("10.0.0.3"), 2000}
	r := h.routes.mustArrive(t, peer, oneTrail(t, 1000), router)
	first := make([]byte, 1300)
	first[0] = 0xc0
	r.noteInitial(first)
	const bundle = 8000
	r.large.limit.Store(bundle)
	size, mtu, large := h.answerSize(us, r), len(first)+r.headerLen(us), bundle+r.headerLen(us)
	keys, err := newEPIC(f.way.raw, testAuths)
	if err != nil {
		t.Fatal(err)
	}
	if h.routes.dial(peer, f.trail, &way{raw: f.way.raw, epic: keys}) != r || r.way.Load().epic == nil {
		t.Fatal("not along the same route with EPIC")
	}
	if got := size + r.headerLen(us); got > mtu {
		t.Errorf("packets of %d bytes on a path for %d", got, mtu)
	}
	if got := int(r.large.limit.Load()) + r.headerLen(us); got > large {
		t.Errorf("large packets of %d bytes on a path for %d", got, large)
	}
}

// What is no EPIC is not read as such, however it ends.
func TestWithoutEPIC(t *testing.T) {
	for n := range 40 {
		b := make([]byte, n)
		if _, ok := withoutEPIC(snet.RawPath{PathType: scion.PathType, Raw: b}); ok {
			t.Errorf("%d bytes of another type", n)
		}
		// An empty path inside would be taken for the one within the AS.
		if raw, ok := withoutEPIC(snet.RawPath{PathType: epicpath.PathType, Raw: b}); ok != (n > 16) || ok && len(raw) != n-16 {
			t.Errorf("%d bytes: %d, %v", n, len(raw), ok)
		}
	}
}

func BenchmarkHeader(b *testing.B) {
	from, to := mustAddr(b, "1-ff00:0:110,[10.0.0.1]:4000"), mustAddr(b, "2-ff00:0:210,[10.0.0.2]:5000")
	with := epicWay(b)
	without := *with
	without.epic = nil
	payload := quicLike(1200, 1)
	for name, w := range map[string]*way{"epic": with, "without": &without} {
		b.Run(name, func(b *testing.B) {
			tmpl, err := newTemplate(from, to, w)
			if err != nil {
				b.Fatal(err)
			}
			h := make([]byte, len(tmpl.header))
			s := new(epicScratch)
			b.ReportAllocs()
			for b.Loop() {
				tmpl.write(h, from.Port, nil, payload)
				if w.epic != nil {
					w.epic.stamp(h, time.Now(), s)
				}
			}
		})
	}
}
