package testbed

import (
	"fmt"
	"slices"

	"braid/pathsel"
)

// check returns what would prevent the network from finding its paths, with the line in the file.
func check(t Topology) (line int, err error) {
	byIA := map[pathsel.IA]AS{}
	for _, as := range t.ASes {
		byIA[as.IA] = as
	}
	for _, as := range t.ASes {
		if err := checkCertificates(as, byIA); err != nil {
			return as.Line, err
		}
	}
	for _, as := range t.ASes {
		if err := checkISD(as.IA.ISD(), t.ASes); err != nil {
			return as.Line, err
		}
	}
	return checkReach(t)
}

func checkCertificates(as AS, byIA map[pathsel.IA]AS) error {
	switch {
	case as.Authoritative && !as.Core:
		return fmt.Errorf("AS %s is authoritative but not core", as.IA)
	case as.Issuing && as.CertIssuer != 0 && as.CertIssuer != as.IA:
		return fmt.Errorf("AS %s issues certificates itself, yet names cert_issuer %s", as.IA, as.CertIssuer)
	case as.Issuing:
		return nil
	case as.CertIssuer == 0:
		return fmt.Errorf("AS %s: no cert_issuer, and it is not issuing itself", as.IA)
	}
	issuer, ok := byIA[as.CertIssuer]
	switch {
	case !ok:
		return fmt.Errorf("AS %s: cert_issuer %s is not among the ASes", as.IA, as.CertIssuer)
	case !issuer.Issuing:
		return fmt.Errorf("AS %s: cert_issuer %s is not issuing", as.IA, as.CertIssuer)
	case issuer.IA.ISD() != as.IA.ISD():
		return fmt.Errorf("AS %s: cert_issuer %s is in another ISD", as.IA, as.CertIssuer)
	}
	return nil
}

// checkISD checks that an ISD has a core, a voting, an authoritative and an issuing AS for its
// trust root configuration.
func checkISD(isd uint16, ases []AS) error {
	var core, voting, authoritative, issuing bool
	for _, as := range ases {
		if as.IA.ISD() == isd {
			core, voting = core || as.Core, voting || as.Voting
			authoritative, issuing = authoritative || as.Authoritative, issuing || as.Issuing
		}
	}
	for _, need := range []struct {
		have bool
		role string
	}{{core, "core"}, {voting, "voting"}, {authoritative, "authoritative"}, {issuing, "issuing"}} {
		if !need.have {
			return fmt.Errorf("ISD %d has no %s AS", isd, need.role)
		}
	}
	return nil
}

// checkReach checks that CORE links connect every core AS to the first one, and that every other AS
// is below a core AS of its ISD.
func checkReach(t Topology) (line int, err error) {
	g := newBeaconGraph(t)
	cores := map[pathsel.IA]bool{}
	below := map[pathsel.IA]bool{}
	for _, as := range t.ASes {
		if as.Core && len(cores) == 0 {
			spread(g[Core], as.IA, cores)
		}
		if as.Core {
			spread(g[Child], as.IA, below)
		}
	}
	for _, as := range t.ASes {
		isChild := func(l Link) bool { return l.Type == Child && l.B.Interface.IA == as.IA }
		switch {
		case as.Core && !cores[as.IA]:
			return as.Line, fmt.Errorf("core AS %s is not connected to the other core ASes by CORE links", as.IA)
		case !as.Core && !slices.ContainsFunc(t.Links, isChild):
			return as.Line, fmt.Errorf("AS %s has no parent: it is not core and the b of no CHILD link", as.IA)
		case !as.Core && !below[as.IA]:
			return as.Line, fmt.Errorf("AS %s is below no core AS: its parents do not reach one", as.IA)
		}
	}
	return 0, nil
}

// spread marks every AS that is reached over the links.
func spread(links map[pathsel.IA][]halfLink, from pathsel.IA, reached map[pathsel.IA]bool) {
	if reached[from] {
		return
	}
	reached[from] = true
	for _, l := range links[from] {
		spread(links, l.far.IA, reached)
	}
}
