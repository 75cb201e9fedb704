package testbed

import (
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"braid/pathsel"
	"braid/testbed/linkemu"
	"braid/units"
)

const (
	// defaultMTU is scionproto's: 1500 bytes of Ethernet without the IPv4 and UDP headers.
	defaultMTU = 1472
	// MinMTU is SCION's own minimum, and what QUIC needs. MaxMTU is the largest packet that the
	// stock router passes on.
	MinMTU, MaxMTU = 1280, 8488

	maxTopologyBytes = 1 << 20 // 4000 links in the longest notation
	maxASes          = 250     // an AS each in the /24 of a testbed
	maxLinks         = 4000
)

// ParseTopology reads the YAML that scionproto's topology generator reads (.topo), with additional
// keys for each link: rate, delay, jitter, loss, queue (as linkemu and parseDelay read them). An
// interface without an ID gets the lowest free one. Keys that only other parts of scionproto's
// generator use are accepted and have no effect; unknown keys are errors. Errors start with name
// and line.
func ParseTopology(name string, r io.Reader) (Topology, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxTopologyBytes+1))
	if err != nil {
		return Topology{}, fmt.Errorf("read topology %s: %w", name, err)
	}
	if len(raw) > maxTopologyBytes {
		return Topology{}, fmt.Errorf("%s: larger than %d bytes, no topology", name, maxTopologyBytes)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		if m := yamlError.FindStringSubmatch(err.Error()); m != nil {
			return Topology{}, fmt.Errorf("%s:%s: %s", name, m[1], m[2])
		}
		return Topology{}, fmt.Errorf("%s:1: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	p := parser{file: name, mtu: defaultMTU, ases: map[pathsel.IA]*AS{}, used: map[pathsel.Interface]int{}}
	if len(doc.Content) != 1 {
		return Topology{}, p.fail(&yaml.Node{Line: 1}, "empty, want ASes and links")
	}
	if err := p.document(doc.Content[0]); err != nil {
		return Topology{}, err
	}
	p.topo.Name = strings.TrimSuffix(path.Base(name), ".topo")
	if line, err := check(p.topo); err != nil {
		return Topology{}, fmt.Errorf("%s:%d: %w", name, line, err)
	}
	return p.topo, nil
}

// yamlError matches what yaml.v3 says about a line.
var yamlError = regexp.MustCompile(`(?s)^yaml: line (\d+): (.*)`)

type parser struct {
	file string
	mtu  int // default of the file
	topo Topology
	ases map[pathsel.IA]*AS
	used map[pathsel.Interface]int // line where the interface is used
}

func (p *parser) fail(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", p.file, n.Line, fmt.Errorf(format, args...))
}

// keys walks a mapping; each handler gets the value of its key. A nil handler ignores the value.
func (p *parser) keys(n *yaml.Node, what string, handlers map[string]func(*yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return p.fail(n, "%s: want keys and values", what)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		h, ok := handlers[k.Value]
		if !ok {
			known := slices.Sorted(maps.Keys(handlers))
			return p.fail(k, "%s: unknown key %q; known are %s", what, k.Value, strings.Join(known, ", "))
		}
		if seen[k.Value] {
			return p.fail(k, "%s: key %q twice", what, k.Value)
		}
		seen[k.Value] = true
		if h == nil {
			continue
		}
		if err := h(v); err != nil {
			return err
		}
	}
	return nil
}

// value reads a scalar with a function that knows nothing of YAML.
func value[T any](p *parser, to *T, read func(string) (T, error)) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode {
			return p.fail(n, "want a single value")
		}
		v, err := read(n.Value)
		if err != nil {
			return p.fail(n, "%w", err)
		}
		*to = v
		return nil
	}
}

func (p *parser) document(n *yaml.Node) error {
	var ases, links *yaml.Node
	err := p.keys(n, "topology", map[string]func(*yaml.Node) error{
		"ASes":  func(n *yaml.Node) error { ases = n; return nil },
		"links": func(n *yaml.Node) error { links = n; return nil },
		"defaults": func(n *yaml.Node) error {
			return p.keys(n, "defaults", map[string]func(*yaml.Node) error{
				"mtu": value(p, &p.mtu, parseMTU), "dispatched_ports": nil, "subnet": nil,
			})
		},
	})
	if err != nil {
		return err
	}
	if ases == nil {
		return p.fail(n, "no ASes")
	}
	if err := p.asSection(ases); err != nil {
		return err
	}
	if links == nil || links.Tag == "!!null" {
		return nil
	}
	if links.Kind != yaml.SequenceNode {
		return p.fail(links, "links: want a list")
	}
	if len(links.Content) > maxLinks {
		return p.fail(links, "%d links, at most %d", len(links.Content), maxLinks)
	}
	for _, l := range links.Content {
		if err := p.link(l); err != nil {
			return err
		}
	}
	for i := range p.topo.Links {
		p.number(&p.topo.Links[i].A)
		p.number(&p.topo.Links[i].B)
	}
	return nil
}

func (p *parser) asSection(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		return p.fail(n, "ASes: want an ISD-AS and its properties for each AS")
	}
	if len(n.Content)/2 > maxASes {
		return p.fail(n, "%d ASes, at most %d", len(n.Content)/2, maxASes)
	}
	p.topo.ASes = make([]AS, 0, len(n.Content)/2) // p.ases points into it
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		ia, err := pathsel.ParseIA(k.Value)
		if err == nil && (ia.ISD() == 0 || ia.AS() == 0) {
			err = fmt.Errorf("ISD-AS %q: 0 is a wildcard, not an AS", k.Value)
		}
		if err != nil {
			return p.fail(k, "%w", err)
		}
		if old, ok := p.ases[ia]; ok {
			return p.fail(k, "AS %s twice, first in line %d", ia, old.Line)
		}
		as := AS{IA: ia, MTU: p.mtu, Line: k.Line}
		err = p.keys(v, "AS "+ia.String(), map[string]func(*yaml.Node) error{
			"core": value(p, &as.Core, parseBool), "voting": value(p, &as.Voting, parseBool),
			"authoritative": value(p, &as.Authoritative, parseBool), "issuing": value(p, &as.Issuing, parseBool),
			"cert_issuer": value(p, &as.CertIssuer, pathsel.ParseIA),
			"mtu":         value(p, &as.MTU, parseMTU), "underlay": value(p, &as.IPv6, parseUnderlay),
			"dispatched_ports": nil, "test_dispatcher": nil, "control_servers": nil,
		})
		if err != nil {
			return err
		}
		p.topo.ASes = append(p.topo.ASes, as)
		p.ases[ia] = &p.topo.ASes[len(p.topo.ASes)-1]
	}
	return nil
}

func (p *parser) link(n *yaml.Node) error {
	l := Link{MTU: p.mtu}
	var a, b string
	text := func(s string) (string, error) { return s, nil }
	keys := map[string]func(*yaml.Node) error{
		"a": value(p, &a, text), "b": value(p, &b, text), "linkAtoB": value(p, &l.Type, parseLinkType),
		"mtu": value(p, &l.MTU, parseMTU), "underlay": value(p, &l.IPv6, parseUnderlay), "bw": nil,
	}
	var properties LinkChange
	for _, name := range []string{"rate", "delay", "jitter", "loss", "queue", "police"} {
		keys[name] = value(p, new(any), func(s string) (any, error) { return nil, properties.Set(name, s) })
	}
	err := p.keys(n, "link", keys)
	if err != nil {
		return err
	}
	properties.Apply(&l.Config)
	if a == "" || b == "" || l.Type == "" {
		return p.fail(n, "link: want a, b and linkAtoB")
	}
	if l.A, err = p.end(n, a); err != nil {
		return err
	}
	if l.B, err = p.end(n, b); err != nil {
		return err
	}
	ends := fmt.Sprintf("link %s to %s", a, b)
	ca, cb := p.ases[l.A.Interface.IA].Core, p.ases[l.B.Interface.IA].Core
	switch {
	case l.A.Interface.IA == l.B.Interface.IA:
		return p.fail(n, "%s: both ends are in one AS", ends)
	case l.Type == Core && !ca:
		return p.fail(n, "%s: CORE, but %s is not a core AS", ends, l.A.Interface.IA)
	case l.Type == Core && !cb:
		return p.fail(n, "%s: CORE, but %s is not a core AS", ends, l.B.Interface.IA)
	case l.Type == Child && cb:
		return p.fail(n, "%s: CHILD, but %s is a core AS and has no parent", ends, l.B.Interface.IA)
	case l.Type == Child && l.A.Interface.IA.ISD() != l.B.Interface.IA.ISD():
		return p.fail(n, "%s: CHILD, but the ASes are in different ISDs", ends)
	}
	if err := l.Config.Validate(); err != nil {
		return p.fail(n, "%s: %w", ends, err)
	}
	p.topo.Links = append(p.topo.Links, l)
	return nil
}

// end reads ISD-AS[-letter][#interface].
func (p *parser) end(n *yaml.Node, s string) (LinkEnd, error) {
	as, id, numbered := strings.Cut(s, "#")
	parts := strings.SplitN(as, "-", 3)
	router := ""
	if len(parts) == 3 {
		as, router = parts[0]+"-"+parts[1], parts[2]
		// Routers without a letter have numbers, and the name of a router is that of its files.
		if strings.Trim(strings.ToLower(router), "abcdefghijklmnopqrstuvwxyz") != "" || router == "" {
			return LinkEnd{}, p.fail(n, "link end %q: no letter after the AS, such as 1-ff00:0:110-A", s)
		}
	}
	ia, err := pathsel.ParseIA(as)
	if err != nil {
		return LinkEnd{}, p.fail(n, "link end %q: %w", s, err)
	}
	if p.ases[ia] == nil {
		return LinkEnd{}, p.fail(n, "link end %q: AS %s is not among the ASes", s, ia)
	}
	e := LinkEnd{Interface: pathsel.Interface{IA: ia}, Router: router}
	if !numbered {
		return e, nil
	}
	e.Interface.ID, err = strconv.ParseUint(id, 10, 16)
	if err != nil || e.Interface.ID == 0 {
		return LinkEnd{}, p.fail(n, "link end %q: interface must be a number from 1 to 65535", s)
	}
	if line, ok := p.used[e.Interface]; ok {
		return LinkEnd{}, p.fail(n, "interface %s twice, first in line %d", e.Interface, line)
	}
	p.used[e.Interface] = n.Line
	return e, nil
}

// number gives an interface without an ID the lowest one that is free in its AS.
func (p *parser) number(e *LinkEnd) {
	if e.Interface.ID != 0 {
		return
	}
	for e.Interface.ID = 1; ; e.Interface.ID++ {
		if _, ok := p.used[e.Interface]; !ok {
			p.used[e.Interface] = 0
			return
		}
	}
}

// ParseRate reads the rate of a link, such as 20mbit; 0 is no limit.
func ParseRate(s string) (int64, error) {
	v, err := units.ParseRate(s)
	if err != nil {
		return 0, fmt.Errorf("rate %q: %w", s, err)
	}
	return v, nil
}

// parseDelay reads a delay or jitter of a link, such as 30ms.
func parseDelay(s string) (time.Duration, error) {
	d, err := units.ParseDuration(s)
	if err != nil || d > linkemu.MaxDelay {
		return 0, fmt.Errorf("delay %q: want a time from 0 to %v, such as 30ms", s, linkemu.MaxDelay)
	}
	return d, nil
}

func parseMTU(s string) (int, error) {
	v, err := strconv.Atoi(s)
	if err != nil || v < MinMTU || v > MaxMTU {
		return 0, fmt.Errorf("mtu %q: must be a number from %d to %d", s, MinMTU, MaxMTU)
	}
	return v, nil
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "yes", "on":
		return true, nil
	case "false", "no", "off":
		return false, nil
	}
	return false, fmt.Errorf("%q: want true or false", s)
}

func parseUnderlay(s string) (ipv6 bool, err error) {
	switch s {
	case "UDP/IPv4":
		return false, nil
	case "UDP/IPv6":
		return true, nil
	}
	return false, fmt.Errorf("underlay %q: want UDP/IPv4 or UDP/IPv6", s)
}

func parseLinkType(s string) (LinkType, error) {
	switch t := LinkType(strings.ToUpper(s)); t {
	case Core, Child, Peer:
		return t, nil
	}
	return "", fmt.Errorf("linkAtoB %q: want CORE, CHILD or PEER", s)
}
