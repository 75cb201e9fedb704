package commands

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/commands/flags"
	"braid/commands/program"
	"braid/dht"
	"braid/node"
	"braid/node/event"
	"braid/scionnet"
)

func dhtCommand() *cli.Command {
	return &cli.Command{
		Name:  "dht",
		Usage: "run a node of the DHT, which helps peers to find each other without a tracker",
		Description: "Runs until it is interrupted. To join a DHT over SCION or IP, a host needs " +
			"the address of a node: give others the address of this one, for --dht-node. With " +
			"--publish, a node on SCION and IP publishes its address on SCION in the DHT over " +
			"IP. Hosts in that DHT then need only the key of --publish, for --dht-item. Once it " +
			"is ready, it prints its addresses and the key on standard error. With --json it " +
			"prints {\"event\":\"ready\",\"listen\":[...],\"item\":KEY}, and then its state " +
			"every --sample.\n\n" + program.ExitCodes,
		Flags: append([]cli.Flag{
			flags.List("listen", "run a node at `ADDR`: 1-ff00:0:110,[127.0.0.1]:31000, or "+
				"host:port for UDP on IP (repeatable)"),
			dhtNodeFlag(),
			dhtItemFlag(),
			flags.File("publish", "", "with a node on SCION and one on IP: publish the addresses "+
				"of nodes on SCION in the DHT over IP, signed with the private key in `FILE`, "+
				"which is created if it is missing; others find them with --dht-item"),
			flags.File("data", "", "keep the nodes that were found in `FILE` (default: they are "+
				"forgotten when the node ends)"),
			flags.Events(),
			flags.Time("sample", 10*time.Second, "with --json: print the state every `TIME`"),
			debugFlag(),
			forceFlag(),
			flags.Verbose(),
		}, scionFlags()...),
		Action: program.EndOnHangup(working(true, runDHT)),
	}
}

func dhtNodeFlag() cli.Flag {
	return flags.List("dht-node", "`ADDR` of a node of the DHT, through which others are found: "+
		"1-ff00:0:110,[127.0.0.1]:31000 or IP:port (repeatable)")
}

func dhtItemFlag() cli.Flag {
	return flags.List("dht-item", "find the first nodes on SCION in the DHT over IP, where braid "+
		"dht --publish has published them: `KEY` is the 64 hexadecimal digits that it prints; "+
		"needs --dht on, or a node on IP (repeatable)")
}

// dhtItems reads --dht-item.
func (f *cmdline) dhtItems() (out []ed25519.PublicKey) {
	for _, text := range f.StringSlice("dht-item") {
		key, err := hex.DecodeString(text)
		f.Wantf(err == nil && len(key) == ed25519.PublicKeySize,
			"--dht-item %q: want the 64 hexadecimal digits that braid dht --publish prints", text)
		out = append(out, key)
	}
	return out
}

// dht reads --dht, --dht-node and --dht-item. Over IP the DHT is off unless the user asks for it,
// since it sends packets to hosts that the user has not named. Over SCION it is on: there is no
// other way to find peers without a tracker, and all nodes there are braid's.
func (f *cmdline) dht() *node.DHTConfig {
	cfg := &node.DHTConfig{
		SCION: true, OverIP: f.String("dht") == "on", File: dhtFile(f.Command),
		Nodes: flags.ReadAll(f, "dht-node", dht.ParseAddr), Items: f.dhtItems(),
	}
	f.Wantf(len(cfg.Items) == 0 || cfg.OverIP,
		"--dht-item: the DHT over IP is off unless you give --dht on")
	if f.String("dht") == "off" {
		f.Wantf(len(cfg.Nodes) == 0, "--dht-node: --dht is off")
		return nil
	}
	for _, a := range cfg.Nodes {
		f.Wantf(cfg.OverIP || a.IsSCION(),
			"--dht-node %s: the DHT over IP is off unless you give --dht on", a)
	}
	return cfg
}

// dhtFile returns the file that keeps found nodes and peers. It is beside the private key. Empty:
// there is no place for it.
func dhtFile(cmd *cli.Command) string {
	if key := cmd.String("identity"); key != "" {
		return strings.TrimSuffix(key, ".pem") + ".dht.json"
	}
	dir, err := envOf(cmd).configDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "braid", "dht.json")
}

// mayFindInDHT tells whether the DHT may name peers of a torrent: braid knows a node to begin with.
func mayFindInDHT(cmd *cli.Command, s client.Source) bool {
	if cmd.String("dht") == "off" || s.IsPrivate() {
		return false
	}
	_, err := os.Stat(dhtFile(cmd))
	return err == nil || cmd.IsSet("dht-node") || cmd.IsSet("dht-item") || len(s.Nodes) > 0
}

// dhtListen reads --listen of braid dht.
func (f *cmdline) dhtListen() (scion []scionnet.Addr, ip []netip.AddrPort) {
	for _, text := range f.StringSlice("listen") {
		if strings.Contains(text, ",") {
			a, err := scionnet.ParseAddr(text)
			if err != nil {
				f.Wrongf("--listen: %w", err)
			}
			scion = append(scion, a)
			continue
		}
		a, err := netip.ParseAddrPort(text)
		f.Wantf(err == nil, "--listen %q: want IP:port, or ISD-AS,[IP]:port on SCION", text)
		ip = append(ip, a)
	}
	f.Wantf(len(scion)+len(ip) > 0, "no listen address: give --listen (see --help)")
	f.Wantf(len(scion) <= 1, "--listen: one node on SCION in a process")
	byKind := map[bool]int{}
	for _, a := range ip {
		byKind[a.Addr().Is4()]++
	}
	f.Wantf(byKind[true] <= 1 && byKind[false] <= 1,
		"--listen: one node on IPv4 and one on IPv6 in a process")
	return scion, ip
}

func runDHT(ctx context.Context, t *task) error {
	scion, ip := t.dhtListen()
	cfg := node.DHTConfig{
		IP:     ip,
		File:   t.String("data"),
		Logger: t.log,
		Nodes:  flags.ReadAll(&t.Reader, "dht-node", dht.ParseAddr),
		Items:  t.dhtItems(),
	}
	both := len(scion) > 0 && len(ip) > 0
	for _, flag := range []string{"publish", "dht-item"} {
		t.Wantf(both || !t.IsSet(flag),
			"--%s needs a node on SCION and one on IP: give --listen twice", flag)
	}
	if t.Err != nil {
		return t.Err
	}
	var err error
	item := ""
	if file := t.String("publish"); file != "" {
		if cfg.Publish, err = scionnet.LoadKey(file); err != nil {
			return err
		}
		item = hex.EncodeToString(cfg.Publish.Public().(ed25519.PublicKey))
	}
	var host *scionnet.Host
	if len(scion) > 0 {
		if host, err = openHost(ctx, t.Command, t.log, scion...); err != nil {
			return err
		}
		t.atEnd(host.Close)
		cfg.SCION, cfg.Port = true, scion[0].Port
	}
	d, err := node.OpenDHT(ctx, cfg, host)
	if err != nil {
		return listenError(err)
	}
	t.atEnd(d.Close)
	if t.out.JSON {
		t.out.emit(event.Ready{Event: "ready", Listen: d.Listening(), Item: item})
		t.out.emit(d.Status())
		t.repeat(t.out.sample, func() { t.out.emit(d.Status()) })
	}
	t.out.say("a node of the DHT at " + strings.Join(d.Listening(), ", "))
	if item != "" {
		t.out.say("others find nodes on SCION with --dht-item " + item)
	}
	<-ctx.Done()
	for _, n := range d.Status().Networks {
		t.out.say(fmt.Sprintf("%s: %d queries answered for others, "+
			"%d nodes in %d networks known, %d peers of %d torrents kept",
			n.Network, n.Queries-n.Refused, n.Nodes, len(n.ByAS), n.Peers, n.Torrents))
	}
	return nil
}
