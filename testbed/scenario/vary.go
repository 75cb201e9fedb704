package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"braid/testbed"
)

// Variant is one way of running the scenario. Fields that it leaves out are as in the scenario, and
// a scenario without variants has one that changes nothing.
type Variant struct {
	Name     string   `yaml:"name"` // by default the selector's, or the values of the matrix
	Selector string   `yaml:"selector"`
	Args     []string `yaml:"args"` // more flags for every leecher of braid
	// SeedArgs are more flags for every seed of braid.
	SeedArgs []string `yaml:"seed_args"`
	// Transport and Client override those of all peers.
	Transport string `yaml:"transport"`
	Client    string `yaml:"client"`
	Settings  `yaml:",inline"`
	Links     []Link `yaml:"links"`
	// Separate runs a process for each torrent in place of one leecher.
	Separate bool `yaml:"separate"`
	// Leechers keeps the first so many leechers; 0: all.
	Leechers int `yaml:"leechers"`
	// Neighbours says which peers leechers download from: see neighbours.go.
	Neighbours string `yaml:"neighbours"`
	Degree     int    `yaml:"degree"`
	// Traffic names the flows to keep; nil: all. Quiet leaves out events.
	Traffic []string `yaml:"traffic"`
	Quiet   bool     `yaml:"quiet"`
	// Baseline says whether the variant is only there for comparison; nil: if its selector is not
	// braid's own.
	Baseline *bool `yaml:"baseline"`
	// Expect has more expectations, or others than the scenario's.
	Expect map[string]string `yaml:"expect"`

	line int // of the file
}

// baseline tells whether nothing is expected of the variant. Expectations are about braid, and not
// about the shortest path alone or the published algorithm, which it is compared with.
func (v Variant) baseline() bool {
	if v.Baseline != nil {
		return *v.Baseline
	}
	return v.Selector == "first" || v.Selector == "slots"
}

// dimension is a name of the matrix with its values.
type dimension struct {
	name   string
	values []string
}

const (
	maxVariants   = 256
	maxDimensions = 6
)

var plainValue = regexp.MustCompile(`^[A-Za-z0-9.%:#_+-]{1,40}$`)

// parseMatrix reads the matrix: names with lists of values, in the order of the file.
func parseMatrix(n *yaml.Node) ([]dimension, error) {
	if n.IsZero() {
		return nil, nil
	}
	if n.Kind != yaml.MappingNode || len(n.Content) > 2*maxDimensions {
		return nil, fmt.Errorf("want at most %d names, each with a list of values", maxDimensions)
	}
	var out []dimension
	for i := 0; i < len(n.Content); i += 2 {
		d := dimension{name: n.Content[i].Value}
		if plainName(d.name) != nil || slices.ContainsFunc(out, func(x dimension) bool { return x.name == d.name }) {
			return nil, fmt.Errorf("%q: want different names of small letters", d.name)
		}
		list := n.Content[i+1]
		if list.Kind != yaml.SequenceNode || len(list.Content) == 0 || len(list.Content) > maxVariants {
			return nil, fmt.Errorf("%s: want a list of values", d.name)
		}
		for _, v := range list.Content {
			if v.Kind != yaml.ScalarNode || !plainValue.MatchString(v.Value) {
				return nil, fmt.Errorf("%s: %q: want short values without spaces", d.name, v.Value)
			}
			d.values = append(d.values, v.Value)
		}
		out = append(out, d)
	}
	return out, nil
}

// expandVariants makes a variant for every template and every combination of values. Values replace
// $NAME. Without a template, the names of the matrix are fields of a variant.
func expandVariants(templates []yaml.Node, matrix []dimension) ([]Variant, error) {
	if len(templates) == 0 && len(matrix) > 0 {
		var n yaml.Node
		n.Kind = yaml.MappingNode
		for _, d := range matrix {
			n.Content = append(n.Content,
				&yaml.Node{Kind: yaml.ScalarNode, Value: d.name},
				&yaml.Node{Kind: yaml.ScalarNode, Value: "$" + d.name})
		}
		templates = []yaml.Node{n}
	}
	combinations := [][]string{nil}
	for _, d := range matrix {
		var next [][]string
		for _, c := range combinations {
			for _, v := range d.values {
				next = append(next, append(slices.Clip(c), v))
			}
		}
		if combinations = next; len(combinations) > maxVariants {
			return nil, fmt.Errorf("more than %d variants", maxVariants)
		}
	}
	var out []Variant
	for _, t := range templates {
		made := map[string]bool{}
		for _, c := range combinations {
			var pairs [][2]string
			for i, d := range matrix {
				pairs = append(pairs, [2]string{"$" + d.name, c[i]})
			}
			// A name comes before its own beginning: $size before $s.
			slices.SortFunc(pairs, func(a, b [2]string) int { return strings.Compare(b[0], a[0]) })
			room := maxFile // far more than a template has
			n, err := replaced(&t, pairs, &room)
			if err != nil {
				return nil, onLine(t.Line, "%w", err)
			}
			text, err := yaml.Marshal(n)
			if err != nil {
				return nil, err
			}
			if made[string(text)] {
				continue // the template does not name what is different
			}
			made[string(text)] = true
			var v Variant
			if err := decode(text, &v); err != nil {
				return nil, onLine(t.Line, "%s", err) // not in the line of this text
			}
			v.line = t.Line
			if v.Name == "" && v.Selector == "" {
				v.Name = strings.Join(c, "-")
			}
			v.Name = cmp.Or(v.Name, v.Selector)
			v.Name = strings.ToLower(strings.ReplaceAll(v.Name, "%", ""))
			out = append(out, v)
		}
	}
	if len(out) > maxVariants {
		return nil, fmt.Errorf("more than %d variants", maxVariants)
	}
	return out, nil
}

// replaced returns a copy of a node. The copy has values in place of the names in pairs, and copies
// of their targets in place of aliases. A target may be large, or contain its own alias, so room is
// the number of nodes that the copy may still get.
func replaced(n *yaml.Node, pairs [][2]string, room *int) (*yaml.Node, error) {
	if *room--; *room < 0 {
		return nil, errors.New("its aliases make it too large")
	}
	if n.Kind == yaml.AliasNode {
		return replaced(n.Alias, pairs, room)
	}
	c := *n
	c.Anchor, c.Content = "", nil
	for _, x := range n.Content {
		y, err := replaced(x, pairs, room)
		if err != nil {
			return nil, err
		}
		c.Content = append(c.Content, y)
	}
	if c.Kind != yaml.ScalarNode || !strings.Contains(c.Value, "$") {
		return &c, nil
	}
	for _, p := range pairs {
		c.Value = strings.ReplaceAll(c.Value, p[0], p[1])
	}
	c.Tag, c.Style = "", 0 // a number may have become one
	return &c, nil
}

// expandPeers makes the peers of a group: NAME-1, NAME-2 and so on. The first has the group's
// times, and each of the others comes Every later.
func expandPeers(groups []Peer) ([]Peer, error) {
	var out []Peer
	for _, g := range groups {
		if g.Count == 0 {
			if g.Every != 0 {
				return nil, onLine(g.line, "peer %s: every needs count", g.Name)
			}
			out = append(out, g)
			continue
		}
		if g.Count < 0 || g.Count > maxPeers || g.Every < 0 || g.Every.D() > maxTime ||
			g.Every > 0 && g.Start.Done > 0 {
			return nil, onLine(g.line, "peers %s: want a count from 1 to %d, and with every a start that is a time",
				g.Name, maxPeers)
		}
		for i := range g.Count {
			p := g
			p.Name, p.Count, p.Every = fmt.Sprintf("%s-%d", g.Name, i+1), 0, 0
			shift := time.Duration(i) * g.Every.D()
			p.Start.After += shift
			p.Stop, p.Crash = p.Stop.later(shift), p.Crash.later(shift)
			out = append(out, p)
		}
		if len(out) > maxPeers {
			return nil, fmt.Errorf("more than %d peers", maxPeers)
		}
	}
	return out, nil
}

// in returns the scenario as it is in a variant.
func (s Scenario) in(v Variant) (Scenario, error) {
	s.Settings = Settings{
		Size: cmp.Or(v.Size, s.Size), Pieces: cmp.Or(v.Pieces, s.Pieces),
		Torrents: cmp.Or(v.Torrents, s.Torrents),
		Router:   cmp.Or(v.Router, s.Router), MTU: cmp.Or(v.MTU, s.MTU),
		Congestion: cmp.Or(v.Congestion, s.Congestion), TCP: cmp.Or(v.TCP, s.TCP),
	}
	s.Peers = slices.Clone(s.Peers)
	if most := v.Leechers; s.leechers > 0 && (most == 0 || most > s.leechers) {
		v.Leechers = s.leechers
	}
	if v.Leechers > 0 {
		n := 0
		s.Peers = slices.DeleteFunc(s.Peers, func(p Peer) bool {
			if p.Role == Leech {
				n++
			}
			return p.Role == Leech && n > v.Leechers
		})
	}
	starts := func(p Peer) bool { return p.Role == Leech && p.Start.immediately() }
	if len(s.Peers) > 0 && !slices.ContainsFunc(s.Peers, starts) {
		return s, errors.New("peers: at least one leech must start at 0s, " +
			"because times count from its first payload byte")
	}
	for i := range s.Peers {
		p := &s.Peers[i]
		p.Transport = cmp.Or(v.Transport, p.Transport)
		p.Client = cmp.Or(v.Client, p.Client)
		if p.Client != Braid {
			p.Transport = TCP
		}
		if p.Client == Iperf3 {
			continue // it has no flags of braid
		}
		if s.Congestion != "" {
			p.Args = slices.Concat(p.Args, []string{"--congestion", s.Congestion})
		}
		if s.TCP != "" && p.Transport == TCP {
			p.Args = slices.Concat(p.Args, []string{"--tcp-congestion", s.TCP})
		}
		if p.Role == Seed {
			p.Args = slices.Concat(p.Args, v.SeedArgs)
			continue
		}
		p.Selector = cmp.Or(v.Selector, p.Selector)
		p.Args = slices.Concat(p.Args, v.Args)
	}
	if v.Traffic != nil {
		s.Traffic = slices.DeleteFunc(slices.Clone(s.Traffic), func(t Traffic) bool {
			return !slices.Contains(v.Traffic, t.Name)
		})
	}
	if v.Quiet {
		s.Events = nil
	}
	if v.Neighbours != "" {
		if err := s.chooseNeighbours(v.Neighbours, v.Degree); err != nil {
			return s, err
		}
	}
	if v.Separate {
		s.Peers = separate(s.Peers, s.Torrents)
	}
	return s, s.setLinks(v.Links)
}

// separate replaces each leecher by one for each torrent, which downloads from those of the same
// torrent.
func separate(peers []Peer, torrents int) []Peer {
	var out []Peer
	for _, p := range peers {
		if p.Role != Leech {
			out = append(out, p)
			continue
		}
		for i := range torrents {
			name := func(of string) string { return fmt.Sprintf("%s-t%d", of, i+1) }
			q := p
			q.Name, q.torrent, q.From = name(p.Name), i+1, slices.Clone(p.From)
			for k, f := range q.From {
				if slices.ContainsFunc(peers, func(x Peer) bool { return x.Name == f && x.Role == Leech }) {
					q.From[k] = name(f)
				}
			}
			out = append(out, q)
		}
	}
	return out
}

// setLinks applies changes and the MTU to the topology.
func (s *Scenario) setLinks(links []Link) error {
	s.topology.Links = slices.Clone(s.topology.Links)
	for _, l := range links {
		if len(l.Properties) == 0 || l.Direction != "" {
			return onLine(l.line, "links: %s: want properties, without a direction", l.At)
		}
		found := false
		for i := range s.topology.Links {
			t := &s.topology.Links[i]
			if l.At.IA != 0 && t.A.Interface != l.At.Interface && t.B.Interface != l.At.Interface {
				continue
			}
			found = true
			l.change.Apply(&t.Config)
			if err := t.Config.Validate(); err != nil {
				return onLine(l.line, "links: %s: %w", l.At, err)
			}
		}
		if !found {
			return onLine(l.line, "links: no link of topology %s ends at %s", s.topology.Name, l.At)
		}
	}
	if mtu := s.MTU; mtu != 0 {
		if mtu < testbed.MinMTU || mtu > testbed.MaxMTU {
			return fmt.Errorf("mtu %d: want %d to %d", mtu, testbed.MinMTU, testbed.MaxMTU)
		}
		s.topology.ASes = slices.Clone(s.topology.ASes)
		for i := range s.topology.ASes {
			s.topology.ASes[i].MTU = mtu
		}
		for i := range s.topology.Links {
			s.topology.Links[i].MTU = mtu
		}
	}
	return nil
}
