package report

import (
	"fmt"
	"strings"

	"braid/pathsel"
	"braid/testbed"
)

// names are short forms of the ASes of a network.
type names map[pathsel.IA]string

// shortNames calls each AS by the last part of its number, such as 110 of 1-ff00:0:110, if that is enough to tell them apart.
func shortNames(t testbed.Topology) names {
	n, taken := names{}, map[string]bool{}
	for _, a := range t.ASes {
		s := a.IA.String()
		short := s[strings.LastIndexAny(s, ":-")+1:]
		if taken[short] {
			return names{}
		}
		n[a.IA], taken[short] = short, true
	}
	return n
}

func (n names) as(ia pathsel.IA) string {
	if s := n[ia]; s != "" {
		return s
	}
	return ia.String()
}

func (n names) at(i pathsel.Interface) string { return fmt.Sprintf("%s#%d", n.as(i.IA), i.ID) }

// written is the short form of an interface that a file names.
func (n names) written(s string) string {
	i, err := pathsel.ParseInterface(s)
	if err != nil {
		return s
	}
	return n.at(i)
}

// path writes the interfaces as scion showpaths does: 111 1>2 110 4>1 112.
func (n names) path(interfaces []pathsel.Interface) string {
	var b strings.Builder
	for i := 0; i+1 < len(interfaces); i += 2 {
		if i == 0 {
			b.WriteString(n.as(interfaces[0].IA))
		}
		fmt.Fprintf(&b, " %d>%d %s", interfaces[i].ID, interfaces[i+1].ID, n.as(interfaces[i+1].IA))
	}
	return b.String()
}

// process is the short form of a process's name: SCION programs have that of their AS before their own.
func (n names) process(s string) string {
	if as, own, ok := strings.Cut(s, " "); ok {
		if ia, err := pathsel.ParseIA(as); err == nil {
			return n.as(ia) + " " + own
		}
	}
	return s
}
