package testbed

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/slayers/path"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"
)

var (
	sender   = snet.SCIONAddress{IA: 1<<48 | 1, Host: addr.HostIP(netip.MustParseAddr("10.0.0.1"))}
	receiver = snet.SCIONAddress{IA: 1<<48 | 3, Host: addr.HostIP(netip.MustParseAddr("10.0.0.3"))}
)

// onTheWay is a packet from the first of three ASes to the last, on the link to the second.
func onTheWay(t testing.TB, payload snet.Payload) []byte {
	t.Helper()
	d := scion.Decoded{
		Base:       scion.Base{PathMeta: scion.MetaHdr{CurrHF: 1, SegLen: [3]uint8{3}}, NumINF: 1, NumHops: 3},
		InfoFields: []path.InfoField{{ConsDir: true, SegID: 7}},
		HopFields:  []path.HopField{{ConsEgress: 1}, {ConsIngress: 2, ConsEgress: 3}, {ConsIngress: 4}},
	}
	raw := make([]byte, d.Len())
	if err := d.SerializeTo(raw); err != nil {
		t.Fatal(err)
	}
	p := snet.Packet{PacketInfo: snet.PacketInfo{Source: sender, Destination: receiver, Path: snetpath.SCION{Raw: raw}, Payload: payload}}
	if err := p.Serialize(); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(p.Bytes)
}

func TestAnswerTooBig(t *testing.T) {
	at := netip.MustParseAddr("10.0.0.2")
	packet := onTheWay(t, snet.UDPPayload{SrcPort: 1000, DstPort: 2000, Payload: make([]byte, 1400)})
	answer := answerTooBig(packet, 1300, 1<<48|2, at)
	p := snet.Packet{Bytes: answer}
	if err := p.Decode(); err != nil {
		t.Fatal(err)
	}
	m, ok := p.Payload.(snet.SCMPPacketTooBig)
	if !ok || m.MTU != 1300 || !bytes.HasPrefix(packet, m.Payload) || len(m.Payload) < 100 || len(answer) > 1280 {
		t.Errorf("%d bytes of %T: %+v", len(answer), p.Payload, p.Payload)
	}
	if p.Destination != sender || p.Source.IA != 1<<48|2 || p.Source.Host.IP() != at {
		t.Errorf("from %s to %s", p.Source, p.Destination)
	}
	var d scion.Decoded
	if err := d.DecodeFromBytes(p.Path.(snet.RawPath).Raw); err != nil {
		t.Fatal(err)
	}
	// The first AS is next, which the answer reaches at the interface that it left by.
	if d.PathMeta.CurrHF != 2 || d.InfoFields[0].ConsDir || d.InfoFields[0].SegID != 7 || d.HopFields[2].ConsEgress != 1 {
		t.Errorf("path %+v", d)
	}
}

func TestNoAnswerTooBig(t *testing.T) {
	for name, packet := range map[string][]byte{
		"nothing": nil, "no packet": []byte("hello"), "cut off": onTheWay(t, snet.UDPPayload{})[:40],
		"an error": onTheWay(t, snet.SCMPPacketTooBig{MTU: 1300, Payload: make([]byte, 1400)}),
	} {
		if answer := answerTooBig(packet, 1300, 1<<48|2, netip.MustParseAddr("10.0.0.2")); answer != nil {
			t.Errorf("%s: answer %x", name, answer)
		}
	}
}

// FuzzAnswerTooBig reads what routers might send; an answer is a header and a quote.
func FuzzAnswerTooBig(f *testing.F) {
	f.Add(onTheWay(f, snet.UDPPayload{SrcPort: 1, DstPort: 2, Payload: make([]byte, 1400)}))
	f.Add(onTheWay(f, snet.UDPPayload{})[:60])
	f.Fuzz(func(t *testing.T, b []byte) {
		if answer := answerTooBig(b, 1300, 1<<48|2, netip.MustParseAddr("10.0.0.2")); len(answer) > 1020+8+quoted {
			t.Errorf("an answer of %d bytes", len(answer))
		}
	})
}
