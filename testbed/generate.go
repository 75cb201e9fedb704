package testbed

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/scionproto/scion/pkg/private/util"
	"github.com/scionproto/scion/pkg/segment/iface"
	topojson "github.com/scionproto/scion/private/topology/json"
	"gopkg.in/yaml.v3"
)

const (
	// bestSetSize is how many segments a control service keeps and sends on for each origin,
	// instead of 20. 30 parallel links would give 20 paths with the default.
	bestSetSize = 64
	// candidateSetSize is what the best ones are chosen from; the default has the same proportion.
	candidateSetSize = 5 * bestSetSize

	// queryInterval is how long a control service answers from its cache while paths are being
	// found; at rest it is scionproto's default.
	queryInterval, queryAtRest = "2s", "5m"

	// Every sent segment costs a QUIC handshake and signatures at both ends, about beaconCost of CPU
	// time. The interval is short, because finding paths takes a few of them (the default is 5 s), but
	// long enough to take at most half a core. A control service drops a beacon that it could not
	// send within one interval. On a busy machine, a handshake can take a second.
	minBeaconInterval = 2 * time.Second
	maxBeaconInterval = 5 * time.Second
	beaconCost        = 12 * time.Millisecond
	// beaconAtRest is the interval once all paths are found.
	beaconAtRest = time.Minute

	// socketBuffer is what most systems allow without privileges. Queues belong in the emulator.
	socketBuffer = 1 << 20

	// expirationUnit is SCION's unit of hop field lifetimes: 24 h / 256.
	expirationUnit = 24 * time.Hour / 256
)

// hiddenPaths is the file with Options.HiddenPaths.
const hiddenPaths = "hidden.yml"

// beaconPolicies are the control service's policies by their names in its configuration, with their
// types.
var beaconPolicies = map[string]string{
	"propagation": "Propagation", "core_registration": "CoreSegmentRegistration",
	"up_registration": "UpSegmentRegistration", "down_registration": "DownSegmentRegistration",
}

// generator writes the configuration of a testbed's processes.
type generator struct {
	dir  string // all below it is replaced
	plan plan
	bfd  time.Duration // as Options.BFD
	// lifetime of a path; 0: scionproto's default of 6 h.
	lifetime time.Duration
	// segments is how many are sent in every round of beaconing.
	segments int
	atRest   bool   // all paths are found
	hidden   string // as Options.HiddenPaths
	pki      string // scion-pki executable
	// at is the AS's directory as its programs see it; "" if they see it where it is written.
	at string
}

func (g generator) asDir(a asPlan) string { return filepath.Join(g.dir, filepath.FromSlash(a.folder)) }

// seenAt returns the AS's folder as its programs see it.
func (g generator) seenAt(a asPlan) string {
	if g.at != "" {
		return g.at
	}
	return g.asDir(a)
}

func (g generator) run(ctx context.Context) error {
	if err := os.RemoveAll(g.dir); err != nil {
		return fmt.Errorf("clear the configuration of an earlier testbed: %w", err)
	}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return fmt.Errorf("create configuration folder: %w", err)
	}
	if err := g.crypto(ctx); err != nil {
		return err
	}
	trcs, err := filepath.Glob(filepath.Join(g.dir, "ISD*", "trcs", "ISD*-B*-S*.trc"))
	if err != nil || len(trcs) == 0 {
		return fmt.Errorf("scion-pki wrote no trust root configuration below %s: %w",
			g.dir, errors.Join(err, fs.ErrNotExist))
	}
	for _, a := range g.plan.ases {
		if err := g.as(a, trcs); err != nil {
			return fmt.Errorf("write configuration of %s: %w", a.IA, err)
		}
	}
	return nil
}

// crypto has scion-pki make keys, certificates and trust root configurations.
func (g generator) crypto(ctx context.Context) error {
	type as struct {
		Core, Voting, Authoritative, Issuing bool
		CertIssuer                           string `yaml:"cert_issuer,omitempty"`
	}
	ases := map[string]as{}
	for _, a := range g.plan.ases {
		issuer := ""
		if !a.Issuing {
			issuer = a.CertIssuer.String()
		}
		ases[a.IA.String()] = as{a.Core, a.Voting, a.Authoritative, a.Issuing, issuer}
	}
	file := filepath.Join(g.dir, "crypto.topo")
	if err := writeAs(yaml.Marshal, file, map[string]any{"ASes": ases}); err != nil {
		return err
	}
	pki := exec.CommandContext(ctx, g.pki,
		"testcrypto", "-t", file, "-o", g.dir, "--isd-dir", "--as-validity", "365d")
	out, err := pki.CombinedOutput()
	if err != nil {
		return fmt.Errorf("make keys and certificates with %s: %w: %s", g.pki, err, out)
	}
	return nil
}

func (g generator) as(a asPlan, trcs []string) error {
	dir := g.asDir(a)
	errs := []error{os.MkdirAll(filepath.Join(dir, "certs"), 0o755), os.MkdirAll(filepath.Join(dir, "keys"), 0o755)}
	for _, trc := range trcs {
		_, err := copyFile(trc, filepath.Join(dir, "certs", filepath.Base(trc)), 0)
		errs = append(errs, err)
	}
	for _, name := range []string{"master0.key", "master1.key"} {
		var key [16]byte
		rand.Read(key[:])
		text := base64.StdEncoding.EncodeToString(key[:])
		errs = append(errs, os.WriteFile(filepath.Join(dir, "keys", name), []byte(text), 0o600))
	}
	errs = append(errs, WriteJSON(filepath.Join(dir, "topology.json"), g.topologyJSON(a)),
		WriteJSON(filepath.Join(dir, "staticInfoConfig.json"), staticInfo(a)), g.control(a))
	for key, kind := range beaconPolicies {
		policy := map[string]any{"Type": kind, "BestSetSize": bestSetSize, "CandidateSetSize": candidateSetSize}
		if g.lifetime > 0 {
			policy["MaxExpTime"] = expTime(g.lifetime)
		}
		errs = append(errs, writeAs(yaml.Marshal, filepath.Join(dir, key+".yml"), policy))
	}
	for _, r := range a.routers {
		config := g.routerTOML(r, g.seenAt(a))
		errs = append(errs, writeAs(toml.Marshal, filepath.Join(dir, r.name+".toml"), config))
	}
	return errors.Join(errs...)
}

// control writes the configuration of the control service.
func (g generator) control(a asPlan) error {
	var err error
	if g.hidden != "" {
		err = os.WriteFile(filepath.Join(g.asDir(a), hiddenPaths), []byte(g.hidden), 0o644)
	}
	config := g.controlTOML(a, g.seenAt(a))
	return errors.Join(err, writeAs(toml.Marshal, filepath.Join(g.asDir(a), controlService+".toml"), config))
}

// expTime is the largest hop field lifetime that is not longer than d: (n+1) units of 5 min 37.5 s.
func expTime(d time.Duration) uint8 {
	return uint8(min(max(int(d/expirationUnit)-1, 0), 255))
}

func (g generator) topologyJSON(a asPlan) topojson.Topology {
	cs := map[string]*topojson.ServerInfo{controlService: {Addr: a.control.String()}}
	t := topojson.Topology{
		IA: a.IA.String(), MTU: a.MTU, EndhostPortRange: "1024-65535",
		Attributes: topojson.Attributes{}, ControlService: cs, DiscoveryService: cs,
		BorderRouters: map[string]*topojson.BRInfo{},
	}
	if a.Core {
		t.Attributes = topojson.Attributes{topojson.AttrCore}
	}
	if g.hidden != "" {
		t.HiddenSegmentLookup, t.HiddenSegmentReg = cs, cs
	}
	for _, r := range a.routers {
		br := &topojson.BRInfo{InternalAddr: r.internal.String(), Interfaces: map[iface.ID]*topojson.BRInterface{}}
		for _, i := range r.interfaces {
			bi := &topojson.BRInterface{
				IA: i.neighbor.IA.String(), LinkTo: i.linkTo, MTU: i.link.MTU,
				Underlay: topojson.Underlay{Local: i.local.String(), Remote: i.remote.String()},
			}
			if i.link.Type == Peer {
				bi.RemoteIfID = iface.ID(i.neighbor.ID)
			}
			br.Interfaces[iface.ID(i.id)] = bi
		}
		t.BorderRouters[r.name] = br
	}
	return t
}

// staticInfo announces the links' properties in beacons. It announces no delay inside an AS,
// because otherwise the latency of every path would count as incomplete. A link without a rate
// announces no bandwidth.
func staticInfo(a asPlan) map[string]any {
	type latency struct {
		Inter string
		Intra map[string]string
	}
	type bandwidth struct{ Inter int64 } // kbit/s
	latencies, bandwidths, kinds := map[string]latency{}, map[string]bandwidth{}, map[string]string{}
	for _, r := range a.routers {
		for _, i := range r.interfaces {
			id := strconv.FormatUint(i.id, 10)
			l := latency{Inter: i.link.Config.Delay.String(), Intra: map[string]string{}}
			for _, other := range a.routers {
				for _, j := range other.interfaces {
					if j.id != i.id {
						l.Intra[strconv.FormatUint(j.id, 10)] = "0s"
					}
				}
			}
			latencies[id], kinds[id] = l, "direct"
			if rate := i.link.Config.Rate; rate >= 1000 {
				bandwidths[id] = bandwidth{rate / 1000}
			}
		}
	}
	return map[string]any{"Latency": latencies, "Bandwidth": bandwidths, "LinkType": kinds}
}

// beaconInterval in whole seconds.
func (g generator) beaconInterval() time.Duration {
	if g.atRest {
		return beaconAtRest
	}
	cost := 2 * time.Duration(g.segments) * beaconCost
	return min(max(cost.Round(time.Second), minBeaconInterval), maxBeaconInterval)
}

// databaseOptions make SQLite write ahead and never wait for the disk: nobody needs these databases
// after a crash of the machine. By default a control service waits for the disk eleven times a
// second, and nobody can read meanwhile. Where each wait takes 100 ms, most lookups of paths fail.
// scionproto means to set this too, but spells it for another SQLite driver. It also appends a
// question mark and its own options, which the last name here takes as its value.
const databaseOptions = "?_journal_mode=WAL&_synchronous=OFF&ignored="

func (g generator) controlTOML(a asPlan, dir string) map[string]any {
	policies := map[string]string{}
	for key := range beaconPolicies {
		policies[key] = filepath.Join(dir, key+".yml")
	}
	db := func(name string) map[string]any {
		return map[string]any{"connection": filepath.Join(dir, controlService+"."+name+".db") + databaseOptions}
	}
	interval := fmt.Sprintf("%.0fs", g.beaconInterval().Seconds()) // scionproto takes one number and one unit
	query := queryInterval
	if g.atRest {
		query = queryAtRest
	}
	t := map[string]any{
		"general":  map[string]any{"id": controlService, "config_dir": dir},
		"log":      map[string]any{"console": map[string]any{"level": "info"}},
		"trust_db": db("trust"), "beacon_db": db("beacon"), "path_db": db("path"),
		"beaconing": map[string]any{
			"origination_interval": interval, "propagation_interval": interval,
			"registration_interval": interval, "policies": policies,
			"epic": true, // hosts use it if they are told to
		},
		// Otherwise a slow call on a busy machine is repeated over gRPC.
		"rpc":  map[string]any{"client_protocol": "connectrpc"},
		"path": map[string]any{"query_interval": query},
		"api":  map[string]any{"addr": a.api.String()},
	}
	if g.hidden != "" {
		t["path"] = map[string]any{"query_interval": query, "hidden_paths_cfg": filepath.Join(dir, hiddenPaths)}
	}
	if a.Issuing {
		t["ca"] = map[string]any{"mode": "in-process"}
	}
	return t
}

func (g generator) routerTOML(r routerPlan, dir string) map[string]any {
	bfd := map[string]any{"disable": true}
	if g.bfd > 0 {
		every := util.FmtDuration(g.bfd) // a whole number of a unit; the router reads no 2.5s
		bfd = map[string]any{
			"detect_mult": 3, "desired_min_tx_interval": every, "required_min_rx_interval": every,
		}
	}
	return map[string]any{
		"general": map[string]any{"id": r.name, "config_dir": dir},
		"log":     map[string]any{"console": map[string]any{"level": "info"}},
		"metrics": map[string]any{"prometheus": r.metrics.String()},
		"router": map[string]any{
			"receive_buffer_size": socketBuffer, "send_buffer_size": socketBuffer, "bfd": bfd,
		},
	}
}

// writeAs writes a value into a file in the form that marshal gives it.
func writeAs(marshal func(any) ([]byte, error), file string, v any) error {
	b, err := marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
