package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/scionproto/scion/pkg/scrypto"
)

func version(n uint64) scrypto.Version { return scrypto.Version(n) }

// nameserver answers with these records until the end of the test.
func nameserver(t *testing.T, zone string) (at string) {
	t.Helper()
	var records []dns.RR
	for line := range strings.Lines(zone) {
		rr, err := dns.NewRR(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		if rr != nil {
			records = append(records, rr)
		}
	}
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: c, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg)
		a.SetReply(q)
		for _, rr := range records {
			if rr.Header().Name == q.Question[0].Name && rr.Header().Rrtype == q.Question[0].Qtype {
				a.Answer = append(a.Answer, rr)
			}
		}
		_ = w.WriteMsg(a)
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.ActivateAndServe() }()
	t.Cleanup(func() { c.Close(); <-ended })
	return c.LocalAddr().String()
}

// Silent ways, such as interfaces without a DHCP server, take no time of others.
func TestAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		silent := func() ([]Hint, error) { time.Sleep(time.Second); return nil, errDHCP }
		found, errs := atOnce([]func() ([]Hint, error){silent, silent, silent, func() ([]Hint, error) {
			time.Sleep(time.Second / 2)
			return []Hint{{"192.0.2.1:8041", "DHCP"}}, nil
		}})
		if took := time.Since(began); took != time.Second || len(found[3]) != 1 || errs[3] != nil || errs[0] == nil {
			t.Errorf("%v, %v after %v", found, errs, took)
		}
	})
}

// All servers are asked at once. The answer of the one with the most trustworthy hint counts, and
// nobody waits for the others.
func TestServersAskedAtOnce(t *testing.T) {
	answer := func(server string, after time.Duration, err error) func(context.Context) (Result, error) {
		return func(ctx context.Context) (Result, error) {
			select {
			case <-time.After(after):
				return Result{Offer: Offer{Server: server}}, err
			case <-ctx.Done():
				return Result{}, ctx.Err()
			}
		}
	}
	silent, bad, good := answer("", 2*time.Second, errDHCP), answer("", time.Second, ErrContradiction), answer("good", time.Second, nil)
	for name, tt := range map[string]struct {
		servers []func(context.Context) (Result, error)
		from    string // of the hint whose server is chosen
		took    time.Duration
		wrong   error
	}{
		"silent ones": {[]func(context.Context) (Result, error){silent, silent, silent, good}, "3", 2 * time.Second, nil},
		"in order":    {[]func(context.Context) (Result, error){good, answer("quick", 0, nil), silent}, "0", time.Second, nil},
		"an attack":   {[]func(context.Context) (Result, error){bad, good, silent}, "", time.Second, ErrContradiction},
		"none":        {[]func(context.Context) (Result, error){silent, silent}, "", 2 * time.Second, errDHCP},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hints []Hint
				for i := range tt.servers {
					hints = append(hints, Hint{strconv.Itoa(i), strconv.Itoa(i)})
				}
				began := time.Now()
				r, h, err := askAll(t.Context(), hints, func(ctx context.Context, server string) (Result, error) {
					i, _ := strconv.Atoi(server)
					return tt.servers[i](ctx)
				})
				if took := time.Since(began); took != tt.took || h.From != tt.from || !errors.Is(err, tt.wrong) || err == nil && r.Server != "good" {
					t.Errorf("%+v from %q after %v: %v", r, h.From, took, err)
				}
			})
		})
	}
}

// Every kind of record that SCION's bootstrapping knows leads to a server.
func TestDNS(t *testing.T) {
	at := nameserver(t, `
		_sciondiscovery._tcp.srv.example. 60 IN SRV 20 1 8042 far.example.
		_sciondiscovery._tcp.srv.example. 60 IN SRV 10 1 8041 near.example.
		_sciondiscovery._tcp.sd.example. 60 IN PTR a._sciondiscovery._tcp.sd.example.
		a._sciondiscovery._tcp.sd.example. 60 IN SRV 1 1 8043 near.example.
		naptr.example. 60 IN NAPTR 1 1 "A" "x-sciondiscovery:TCP" "" far.example.
		naptr.example. 60 IN NAPTR 1 1 "A" "x-other:tcp" "" near.example.
		naptr.example. 60 IN TXT "x-sciondiscovery=8050"
		near.example. 60 IN A 192.0.2.1
		near.example. 60 IN AAAA 2001:db8::1
		far.example. 60 IN A 192.0.2.2
		bad.example. 60 IN A 0.0.0.0
		_sciondiscovery._tcp.bad.example. 60 IN SRV 1 1 8041 bad.example.`)
	n := Network{Servers: []string{at}, Domains: []string{"srv.example", "sd.example", "naptr.example", "bad.example", "none.example"}}
	var got []string
	for _, h := range n.Find(t.Context(), slog.New(slog.DiscardHandler)) {
		got = append(got, h.From+" "+h.Server)
	}
	want := []string{
		"DNS SRV 192.0.2.1:8041", "DNS SRV [2001:db8::1]:8041", "DNS SRV 192.0.2.2:8042",
		"DNS-SD 192.0.2.1:8043", "DNS-SD [2001:db8::1]:8043", "DNS NAPTR 192.0.2.2:8050",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// The next server is asked if one is silent.
func TestSilentDNS(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	at := nameserver(t, `
		_sciondiscovery._tcp.srv.example. 60 IN SRV 10 1 8041 near.example.
		near.example. 60 IN A 192.0.2.1`)
	n := Network{Servers: []string{silent.LocalAddr().String(), at}, Domains: []string{"other.example", "srv.example"}}
	want := []Hint{{"192.0.2.1:8041", "DNS SRV"}}
	if got := n.Find(t.Context(), slog.New(slog.DiscardHandler)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A host on the network answers the question by multicast DNS.
func TestMDNS(t *testing.T) {
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		b := make([]byte, 1500)
		n, from, err := c.ReadFrom(b)
		q := new(dns.Msg)
		if err != nil || q.Unpack(b[:n]) != nil || q.Question[0].Name != service+".local." {
			return
		}
		a := new(dns.Msg)
		a.SetReply(q)
		for _, text := range []string{"_sciondiscovery._tcp.local. 9 IN PTR x._sciondiscovery._tcp.local.", "x._sciondiscovery._tcp.local. 9 IN SRV 0 0 8044 x.local.", "x.local. 9 IN A 127.0.0.1", "x.local. 9 IN A 192.0.2.9", "y.local. 9 IN A 192.0.2.10"} {
			rr, _ := dns.NewRR(text)
			a.Extra = append(a.Extra, rr)
		}
		b, _ = a.Pack()
		_, _ = c.WriteTo([]byte("no DNS"), from)
		_, _ = c.WriteTo(b, from)
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, err := askMDNS(ctx, c.LocalAddr().String())
	if err != nil || !slices.Equal(got, []Hint{{"192.0.2.9:8044", "mDNS"}}) {
		t.Errorf("%v, %v", got, err)
	}
}

// ack is an answer to a DHCPINFORM packet.
func ack(id uint32, options ...byte) []byte {
	b := informPacket(id, netip.MustParseAddr("192.0.2.50"), []byte{1, 2, 3, 4, 5, 6})[:dhcpFixed+4]
	b[0] = 2
	return append(append(b, optionMessage, 1, messageAck), options...)
}

var vendorOption = []byte{optionVendor, 4 + 1 + 10, 0, 0, 0xd8, 0x1c, 10, vendorIP, 4, 192, 0, 2, 3, vendorPort, 2, 0x1f, 0x90}

func TestDHCP(t *testing.T) {
	b := ack(7, slices.Concat([]byte{0, optionWWW, 8, 192, 0, 2, 1, 192, 0, 2, 2}, vendorOption, []byte{optionEnd, optionWWW, 4, 1, 1, 1, 1})...)
	got, err := parseAck(b, 7)
	want := []Hint{{"192.0.2.3:8080", "DHCP"}, {"192.0.2.1:8041", "DHCP"}, {"192.0.2.2:8041", "DHCP"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for name, b := range map[string][]byte{"another request": b, "a question": informPacket(8, netip.MustParseAddr("192.0.2.50"), nil), "cut off": b[:200], "no ack": append(ack(8)[:dhcpFixed+4], optionEnd)} {
		if got, err := parseAck(b, 8); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzParseAck(f *testing.F) {
	f.Add(ack(1, vendorOption...))
	f.Add(ack(1, optionWWW, 5, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		hints, _ := parseAck(b, 1)
		checkHints(t, hints)
	})
}

func FuzzParseMDNS(f *testing.F) {
	m := new(dns.Msg)
	m.SetReply(new(dns.Msg).SetQuestion(service+".local.", dns.TypePTR))
	rr, _ := dns.NewRR("x._sciondiscovery._tcp.local. 9 IN SRV 0 0 8044 x.local.")
	a, _ := dns.NewRR("x.local. 9 IN A 192.0.2.9")
	m.Extra = []dns.RR{rr, a}
	b, _ := m.Pack()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) { checkHints(t, parseMDNS(b)) })
}

func checkHints(t *testing.T, hints []Hint) {
	if len(hints) > 2*maxDHCPServers {
		t.Errorf("%d hints", len(hints))
	}
	for _, h := range hints {
		if a, err := netip.ParseAddrPort(h.Server); err != nil || a.Port() == 0 || a.Addr().IsUnspecified() {
			t.Errorf("%+v", h)
		}
	}
}
