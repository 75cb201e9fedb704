package v1

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"braid/client"
	"braid/pathsel"
)

// network returns the map of all paths of all torrents.
func (a *API) network(*http.Request, none) (Map, error) {
	m := newMapper()
	for _, t := range a.Node.Torrents() {
		for _, p := range t.Paths() {
			m.add(t.InfoHash(), p.PathProgress)
		}
	}
	s := a.Node.Settings()
	policy, err := s.Policy.Parse()
	if err != nil {
		return Map{}, err // Validate has read it
	}
	rates, _ := s.RatesAt(time.Now())
	limits, err := rates.Limits()
	if err != nil {
		return Map{}, err // likewise
	}
	for ends, l := range m.links {
		link := pathsel.Path{Src: ends[0].IA, Dst: ends[1].IA, Interfaces: ends[:]}
		l.Forbidden = !policy.ACL.Allows(link)
		l.LimitMbitS = lowest(limits, link)
	}
	return m.result(), nil
}

// lowest returns the lowest limit for a path in Mbit/s, or 0 if there is none.
func lowest(l client.Limits, p pathsel.Path) float64 {
	out := 0.
	for _, x := range l.Paths {
		if rate := float64(x.Rate) / mega; x.Pattern.Matches(p) && (out == 0 || rate < out) {
			out = rate
		}
	}
	return out
}

// destination is an AS with peers, and the known paths to it, allowed or not.
type destination struct {
	to    pathsel.IA
	paths []pathsel.Path
}

// destinations returns the ASes with peers of all torrents, in the order of their numbers.
func (a *API) destinations() (out []destination) {
	seen := map[pathsel.Fingerprint]bool{}
	for _, t := range a.Node.Torrents() {
		for _, p := range t.Paths() {
			if p.Path.Fingerprint == "" || p.Accepted || seen[p.Path.Fingerprint] {
				continue
			}
			seen[p.Path.Fingerprint] = true
			i := slices.IndexFunc(out, func(d destination) bool { return d.to == p.Path.Dst })
			if i < 0 {
				i = len(out)
				out = append(out, destination{to: p.Path.Dst})
			}
			out[i].paths = append(out[i].paths, p.Path)
		}
	}
	slices.SortFunc(out, func(a, b destination) int { return cmp.Compare(a.to, b.to) })
	return out
}

// mapper sums over paths. An AS or link counts a path once, and a peer once.
type mapper struct {
	local pathsel.IA
	ases  map[pathsel.IA]*MapAS
	links map[[2]pathsel.Interface]*MapLink
	peers map[string]bool
}

func newMapper() *mapper {
	return &mapper{
		ases:  map[pathsel.IA]*MapAS{},
		links: map[[2]pathsel.Interface]*MapLink{},
		peers: map[string]bool{},
	}
}

func (m *mapper) add(infoHash string, p client.PathProgress) {
	down, up := p.ReadRate/mega, p.WriteRate/mega
	if p.Path.Src == 0 {
		return // not on SCION
	}
	if m.local == 0 {
		m.local = p.Path.Src
	}
	for i, ia := range p.Path.ASes() {
		x := m.as(ia)
		x.Paths++
		x.DownMbitS, x.UpMbitS = x.DownMbitS+down, x.UpMbitS+up
		if i == p.Path.Hops() && !m.peers[p.Peer] {
			m.peers[p.Peer] = true
			x.Peers++
		}
	}
	for i := 0; i+1 < len(p.Path.Interfaces); i += 2 {
		x := m.link(p.Path.Interfaces[i], p.Path.Interfaces[i+1])
		x.Paths++
		if p.State.Carries() {
			x.ActivePaths++
		}
		x.DownMbitS, x.UpMbitS = x.DownMbitS+down, x.UpMbitS+up
		if !slices.Contains(x.Torrents, infoHash) {
			x.Torrents = append(x.Torrents, infoHash)
		}
	}
}

func (m *mapper) as(ia pathsel.IA) *MapAS {
	if m.ases[ia] == nil {
		m.ases[ia] = &MapAS{ISDAS: ia.String()}
	}
	return m.ases[ia]
}

// link returns the entry of a link, which is the same in both directions.
func (m *mapper) link(a, b pathsel.Interface) *MapLink {
	if x := m.links[[2]pathsel.Interface{b, a}]; x != nil {
		return x
	}
	key := [2]pathsel.Interface{a, b}
	if m.links[key] == nil {
		m.links[key] = &MapLink{A: a.String(), B: b.String(), Torrents: []string{}}
	}
	return m.links[key]
}

func (m *mapper) result() Map {
	out := Map{ASes: []MapAS{}, Links: []MapLink{}}
	if m.local != 0 {
		out.Local = m.local.String()
	}
	for _, x := range m.ases {
		out.ASes = append(out.ASes, *x)
	}
	slices.SortFunc(out.ASes, func(a, b MapAS) int { return cmp.Compare(a.ISDAS, b.ISDAS) })
	for _, x := range m.links {
		out.Links = append(out.Links, *x)
	}
	slices.SortFunc(out.Links, func(a, b MapLink) int {
		return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B))
	})
	return out
}
