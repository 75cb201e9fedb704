package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/scionproto/scion/pkg/segment/iface"
	"github.com/scionproto/scion/private/topology"
	topojson "github.com/scionproto/scion/private/topology/json"

	"braid/pathsel"
)

// offered is a topology that a server offers.
type offered struct {
	file     []byte // in the format of topology.json
	ia       pathsel.IA
	services []string // see controlServices
	err      error
}

// readTopology reads a topology until the context ends. The parser looks up names of hosts without
// a time limit, and a server may send thousands of names.
func readTopology(ctx context.Context, b []byte) offered {
	read := make(chan offered, 1)
	go func() {
		file, ia, err := parseTopology(b)
		read <- offered{file, ia, controlServices(file), err}
	}()
	select {
	case o := <-read:
		return o
	case <-ctx.Done():
		return offered{err: fmt.Errorf("look up the names in its topology: %w", ctx.Err())}
	}
}

// parseTopology reads a topology, and returns it in the format of topology.json. A discovery server
// sends that format. A control service of scionproto sends another one, with the names of its Go
// fields.
func parseTopology(b []byte) (file []byte, ia pathsel.IA, err error) {
	defer func() { // scionproto's parser panics at a null in the place of a router or service
		if r := recover(); r != nil {
			err = fmt.Errorf("its topology is wrong: %v", r)
		}
	}()
	topo, err := topology.FromJSONBytes(b)
	if err != nil {
		converted, e := convert(b)
		if e != nil {
			return nil, 0, fmt.Errorf("its topology is wrong: %w", err)
		}
		b = converted
		topo, err = topology.FromJSONBytes(b)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("its topology is wrong: %w", err)
	}
	if ia = pathsel.IA(topo.IA()); ia.ISD() == 0 || ia.AS() == 0 {
		return nil, 0, errors.New("its topology names no AS")
	}
	return b, ia, nil
}

// convert makes a topology.json of a loaded topology.
func convert(b []byte) ([]byte, error) {
	var t topology.RWTopology
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, err
	}
	out := topojson.Topology{
		IA:               t.IA.String(),
		MTU:              t.MTU,
		EndhostPortRange: fmt.Sprintf("%d-%d", t.DispatchedPortStart, t.DispatchedPortEnd),
		Attributes:       topojson.Attributes{},
		BorderRouters:    map[string]*topojson.BRInfo{},
		ControlService:   servers(t.CS),
		DiscoveryService: servers(t.DS),
	}
	if t.DispatchedPortEnd == 0 {
		out.EndhostPortRange = "-"
	}
	if t.IsCore {
		out.Attributes = topojson.Attributes{topojson.AttrCore}
	}
	for name, r := range t.BR {
		router := &topojson.BRInfo{
			InternalAddr: r.InternalAddr.String(),
			Interfaces:   map[iface.ID]*topojson.BRInterface{},
		}
		for id, i := range r.IFs {
			if i == nil {
				return nil, fmt.Errorf("interface %d is missing", id)
			}
			router.Interfaces[id] = &topojson.BRInterface{
				IA:         i.IA.String(),
				LinkTo:     i.LinkType.String(),
				MTU:        i.MTU,
				RemoteIfID: i.RemoteIfID,
				Underlay: topojson.Underlay{
					Provider: i.Provider,
					Local:    i.Local,
					Remote:   i.Remote,
				},
			}
		}
		out.BorderRouters[name] = router
	}
	return json.MarshalIndent(out, "", "  ")
}

func servers(all topology.IDAddrMap) map[string]*topojson.ServerInfo {
	out := map[string]*topojson.ServerInfo{}
	for name, a := range all {
		if a.SCIONAddress != nil {
			out[name] = &topojson.ServerInfo{Addr: a.SCIONAddress.String()}
		}
	}
	return out
}

// maxServices bounds the control services that are asked for a TRC.
const maxServices = 3

// controlServices returns the addresses of the control services. file is a result of parseTopology.
func controlServices(file []byte) (out []string) {
	topo, err := topology.FromJSONBytes(file)
	if err != nil {
		return nil
	}
	for _, a := range topo.Writable().CS {
		if len(out) < maxServices && a.SCIONAddress != nil {
			out = append(out, a.SCIONAddress.String())
		}
	}
	return out
}
