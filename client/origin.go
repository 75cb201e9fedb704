package client

import (
	"net/netip"

	"braid/pathsel"
)

// originOf is where a connection comes from: see pathsel.Origin. It may change once, when a claimed ISD-AS is proven.
func originOf(w Wire) pathsel.Origin {
	key := ""
	if k := w.Key(); k != nil {
		key = string(k[:])
	}
	if !w.Proven() {
		return pathsel.OriginUnproven(key)
	}
	o := w.Peer().origin()
	o.Key = key
	return o
}

// origin is that of an address, as far as an address shows it.
func (p Peer) origin() pathsel.Origin {
	if a, ok := p.SCION(); ok {
		return pathsel.OriginSCION(a.IA, a.Host, "")
	}
	if ip, err := netip.ParseAddr(p.host); err == nil {
		return pathsel.OriginIP(ip, "")
	}
	// A name is free, and leads anywhere: all names are one network.
	return pathsel.Origin{Net: "names", Host: "name " + p.host}
}
