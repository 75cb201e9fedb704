package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"braid/units/lists"
)

// Hint is the address of a possible discovery server, and the source of that hint.
type Hint struct {
	Server string // host:port
	From   string // "DNS SRV", "DNS-SD", "DNS NAPTR", "mDNS" or "DHCP"
}

// Names of the DNS records for SCION's bootstrapping.
const (
	service    = "_sciondiscovery._tcp"
	naptrName  = "x-sciondiscovery:tcp"
	portPrefix = "x-sciondiscovery="
)

// Bounds of a search.
const (
	// askPatience is how long all questions together may take. A server in the same network answers
	// in milliseconds; a silent one must not delay the start of a download on IP.
	askPatience = 2 * time.Second
	maxDomains  = 6 // search domains
	maxRecords  = 8 // of one answer
	maxHints    = 32
)

// Network is where hints come from. The zero value has none.
type Network struct {
	Servers []string // DNS servers as host:port
	Domains []string // search domains
	MDNS    string   // the address to which multicast DNS questions go; empty: none
	DHCP    func(context.Context) ([]Hint, error)
}

// Local is the network of this host.
func Local() Network {
	n := Network{MDNS: "224.0.0.251:5353", DHCP: informAll}
	if c, err := dns.ClientConfigFromFile("/etc/resolv.conf"); err == nil {
		withPort := func(host string) string { return net.JoinHostPort(host, c.Port) }
		n.Servers = lists.Map(c.Servers, withPort)
		n.Domains = c.Search[:min(len(c.Search), maxDomains)]
	}
	return n
}

// Find asks the network for discovery servers in all ways at once. The most trustworthy hints come
// first: DHCP and DNS are set up by an administrator, while any host can answer mDNS.
func (n Network) Find(ctx context.Context, log *slog.Logger) []Hint {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	ways := []func() ([]Hint, error){
		func() ([]Hint, error) {
			if n.DHCP == nil {
				return nil, nil
			}
			return n.DHCP(ctx)
		},
		func() ([]Hint, error) { return n.askDNS(ctx) },
		func() ([]Hint, error) { return askMDNS(ctx, n.MDNS) },
	}
	found, errs := atOnce(ways)
	for i, err := range errs {
		if err != nil {
			log.Debug("no discovery server found",
				"way", []string{"DHCP", "DNS", "mDNS"}[i], "error", err)
		}
	}
	var out []Hint
	for _, h := range slices.Concat(found...) {
		isSame := func(o Hint) bool { return o.Server == h.Server }
		if len(out) < maxHints && !slices.ContainsFunc(out, isSame) {
			out = append(out, h)
		}
	}
	return out
}

// atOnce asks in all ways at once, since a silent one must not take the time of others. It returns
// the answers in the order of the ways.
func atOnce(ways []func() ([]Hint, error)) ([][]Hint, []error) {
	found, errs := make([][]Hint, len(ways)), make([]error, len(ways))
	var all sync.WaitGroup
	for i, way := range ways {
		all.Go(func() { found[i], errs[i] = way() })
	}
	all.Wait()
	return found, errs
}

// askDNS asks for SRV, DNS-SD and NAPTR records in each search domain.
func (n Network) askDNS(ctx context.Context) (out []Hint, err error) {
	if len(n.Servers) == 0 {
		return nil, nil
	}
	ask := resolver{ctx, slices.Clone(n.Servers)}
	for _, d := range n.Domains {
		out = append(out, ask.srv(service+"."+dns.Fqdn(d), "DNS SRV")...)
		for _, p := range records[*dns.PTR](ask, service+"."+dns.Fqdn(d), dns.TypePTR) {
			out = append(out, ask.srv(p.Ptr, "DNS-SD")...)
		}
		out = append(out, ask.naptr(dns.Fqdn(d))...)
	}
	return out, ctx.Err()
}

// resolver asks DNS servers. It uses a library, since Go's own resolver has no NAPTR records.
type resolver struct {
	ctx     context.Context
	servers []string
}

// records returns a few records of that type, from the first server that answers. That server is
// asked first from then on.
func records[T dns.RR](r resolver, name string, kind uint16) (out []T) {
	q := new(dns.Msg)
	q.SetQuestion(name, kind)
	q.SetEdns0(1232, false)
	for i, s := range r.servers {
		c := dns.Client{Timeout: askPatience}
		if i+1 < len(r.servers) { // leave time for the next one
			c.Timeout = askPatience / 4
		}
		answer, _, err := c.ExchangeContext(r.ctx, q, s)
		if err == nil && answer.Truncated {
			answer, _, err = (&dns.Client{Net: "tcp"}).ExchangeContext(r.ctx, q, s)
		}
		if err != nil {
			continue
		}
		r.servers[0], r.servers[i] = s, r.servers[0]
		for _, rr := range answer.Answer {
			if x, ok := rr.(T); ok && rr.Header().Rrtype == kind && len(out) < maxRecords {
				out = append(out, x)
			}
		}
		return out
	}
	return nil
}

// srv follows SRV records (RFC 2782).
func (r resolver) srv(name, from string) (out []Hint) {
	all := records[*dns.SRV](r, name, dns.TypeSRV)
	slices.SortStableFunc(all, func(a, b *dns.SRV) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.Weight, a.Weight))
	})
	for _, s := range all {
		out = append(out, r.hosts(s.Target, s.Port, from)...)
	}
	return out
}

// naptr follows NAPTR records that lead to an address (RFC 3958). A TXT record has the port.
func (r resolver) naptr(domain string) (out []Hint) {
	all := records[*dns.NAPTR](r, domain, dns.TypeNAPTR)
	slices.SortStableFunc(all, func(a, b *dns.NAPTR) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Preference, b.Preference))
	})
	for _, n := range all {
		switch flag := strings.ToUpper(n.Flags); {
		case !strings.EqualFold(n.Service, naptrName):
		case flag == "A":
			out = append(out, r.hosts(n.Replacement, r.port(domain), "DNS NAPTR")...)
		case flag == "S":
			out = append(out, r.srv(n.Replacement, "DNS NAPTR")...)
		}
	}
	return out
}

func (r resolver) port(domain string) uint16 {
	for _, t := range records[*dns.TXT](r, domain, dns.TypeTXT) {
		if p, ok := portOf(t.Txt); ok {
			return p
		}
	}
	return DefaultPort
}

func portOf(texts []string) (uint16, bool) {
	for _, x := range texts {
		if text, ok := strings.CutPrefix(x, portPrefix); ok {
			if p, err := strconv.ParseUint(text, 10, 16); err == nil && p > 0 {
				return uint16(p), true
			}
		}
	}
	return 0, false
}

// hosts are the addresses of a name.
func (r resolver) hosts(name string, port uint16, from string) (out []Hint) {
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		for _, rr := range records[dns.RR](r, name, kind) {
			out = appendHint(out, addressIn(rr), port, from)
		}
	}
	return out
}

// addressIn returns the address in an address record.
func addressIn(rr dns.RR) net.IP {
	switch rr := rr.(type) {
	case *dns.A:
		return rr.A
	case *dns.AAAA:
		return rr.AAAA
	}
	return nil
}

// appendHint adds a server, if the address and the port can be those of one.
func appendHint(out []Hint, ip []byte, port uint16, from string) []Hint {
	a, ok := netip.AddrFromSlice(ip)
	if a = a.Unmap(); !ok || a.IsUnspecified() || a.IsMulticast() || port == 0 {
		return out
	}
	return append(out, Hint{netip.AddrPortFrom(a, port).String(), from})
}

// askMDNS sends one question to the hosts of the network (RFC 6762, section 5.1): it leaves from a
// port of its own, so the answers come to this host alone. Answers are taken for as long as the
// context allows, or until one is complete.
func askMDNS(ctx context.Context, to string) (out []Hint, err error) {
	if to == "" {
		return nil, nil
	}
	addr, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		return nil, err
	}
	c, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Now()) })()
	q := new(dns.Msg)
	q.SetQuestion(service+".local.", dns.TypePTR)
	q.RecursionDesired = false
	b, err := q.Pack()
	if err == nil {
		_, err = c.WriteToUDP(b, addr)
	}
	if err != nil {
		return nil, err
	}
	for buf := make([]byte, 9000); len(out) == 0; { // the largest mDNS packet (RFC 6762, section 17)
		n, _, err := c.ReadFromUDP(buf)
		if err != nil {
			return nil, fmt.Errorf("no host has answered: %w", err)
		}
		out = parseMDNS(buf[:n])
	}
	return out, nil
}

// parseMDNS reads an answer with all of its records: PTR, SRV and addresses (RFC 6763, section
// 12.1). Any host can answer, and must not make this host contact its own services.
func parseMDNS(b []byte) (out []Hint) {
	m := new(dns.Msg)
	if m.Unpack(b) != nil || !m.Response {
		return nil
	}
	all := slices.Concat(m.Answer, m.Extra)
	all = all[:min(len(all), 8*maxRecords)]
	for _, rr := range all {
		s, ok := rr.(*dns.SRV)
		if !ok || !strings.HasSuffix(strings.ToLower(s.Hdr.Name), service+".local.") {
			continue
		}
		for _, x := range all {
			ip, isTarget := addressIn(x), strings.EqualFold(x.Header().Name, s.Target)
			if isTarget && !ip.IsLoopback() && len(out) < maxRecords {
				out = appendHint(out, ip, s.Port, "mDNS")
			}
		}
	}
	return out
}
