package testbed

import (
	"fmt"
	"slices"

	"braid/pathsel"
	"braid/testbed/linkemu"
)

// Topology is what a .topo file says: ASes and the links between them, in the order of the file.
type Topology struct {
	Name  string // base name of the file without .topo
	ASes  []AS
	Links []Link
}

// LinkAt returns the index of the link that ends at an interface; -1 if there is none.
func (t Topology) LinkAt(at pathsel.Interface) int {
	return slices.IndexFunc(t.Links, func(l Link) bool {
		return l.A.Interface == at || l.B.Interface == at
	})
}

// Validate returns an error if the topology has too many ASes or links, or a link that cannot be
// emulated. No topology from a file has these faults.
func (t Topology) Validate() error {
	if len(t.ASes) > maxASes || len(t.Links) > maxLinks {
		return fmt.Errorf("topology %s has %d ASes and %d links: at most %d and %d",
			t.Name, len(t.ASes), len(t.Links), maxASes, maxLinks)
	}
	for _, l := range t.Links {
		if err := l.Config.Validate(); err != nil {
			return fmt.Errorf("topology %s: %s to %s: %w", t.Name, l.A.Interface, l.B.Interface, err)
		}
	}
	return nil
}

// AS is one autonomous system of a Topology.
type AS struct {
	IA                                   pathsel.IA
	Core, Voting, Authoritative, Issuing bool
	// CertIssuer is the AS that issues this one's certificate; zero for an issuing AS.
	CertIssuer pathsel.IA
	// MTU of the AS's internal network, in bytes of a SCION packet.
	MTU int
	// IPv6 puts the AS's internal underlay on IPv6.
	IPv6 bool
	Line int // of the .topo file
}

// LinkType says which role A has towards B.
type LinkType string

const (
	Core  LinkType = "CORE"  // both are core ASes
	Child LinkType = "CHILD" // B is a child of A
	Peer  LinkType = "PEER"
)

// Link is an inter-domain link.
type Link struct {
	A, B LinkEnd
	Type LinkType
	MTU  int  // bytes of a SCION packet
	IPv6 bool // the link's underlay is IPv6
	// Config holds for each direction by itself.
	Config linkemu.Config
}

// LinkEnd is one end of a link: its interface, and the letter of the border router that has it.
// Ends of one AS with the same letter share a router; an empty letter is a router of its own.
type LinkEnd struct {
	Interface pathsel.Interface
	Router    string
}
