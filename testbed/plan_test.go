package testbed

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"braid/pathsel"
)

func load(t *testing.T, name string) Topology {
	t.Helper()
	topo, err := LoadTopology(name)
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

func TestMakePlan(t *testing.T) {
	subnet := netip.MustParsePrefix("127.99.7.0/24")
	for _, name := range Shipped() {
		topo := load(t, name)
		p, err := makePlan(topo, subnet, first6Port)
		if err != nil {
			t.Fatal(err)
		}
		taken := map[listener]string{}
		for _, l := range p.listeners {
			if other, ok := taken[listener{l.network, l.at, ""}]; ok {
				t.Errorf("%s: %s %s for %s and %s", name, l.network, l.at, l.who, other)
			}
			taken[listener{l.network, l.at, ""}] = l.who
			if l.at.Addr() != netip.IPv6Loopback() && !subnet.Contains(l.at.Addr()) {
				t.Errorf("%s: %s of %s is outside of %s", name, l.at, l.who, subnet)
			}
			if l.at.Port() > lastPort {
				t.Errorf("%s: %s of %s is a port that the kernel may give to a host", name, l.at, l.who)
			}
		}
		again, err := makePlan(topo, subnet, first6Port)
		if err != nil || !reflect.DeepEqual(again.listeners, p.listeners) {
			t.Errorf("%s: another plan for the same block: %v", name, err)
		}
		for i, a := range p.ases {
			if a.IPv6 != a.host.Is6() {
				t.Errorf("%s: host %s in AS %s", name, a.host, topo.ASes[i].IA)
			}
		}
	}
}

// Ends with the same letter share a router; the routers' remotes are the emulator's ends.
func TestPlanRouters(t *testing.T) {
	topo, err := ParseTopology("x.topo", strings.NewReader("ASes:\n  1-1: "+coreAS+"\n  1-2: "+leafAS+`
links:
  - {a: 1-1-A#1, b: 1-2#1, linkAtoB: CHILD}
  - {a: 1-1-B#2, b: 1-2#2, linkAtoB: CHILD}
  - {a: 1-1-A#3, b: 1-2#3, linkAtoB: CHILD}
`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := makePlan(topo, netip.MustParsePrefix("127.99.7.0/24"), 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range p.ases {
		for _, r := range a.routers {
			s := a.IA.String() + " " + r.name
			for _, i := range r.interfaces {
				s += " " + i.neighbor.String() + " " + i.linkTo
			}
			got = append(got, s)
		}
	}
	want := []string{
		"1-1 br-A 1-2#1 child 1-2#3 child", "1-1 br-B 1-2#2 child",
		"1-2 br-1 1-1#1 parent", "1-2 br-2 1-1#2 parent", "1-2 br-3 1-1#3 parent",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("routers %q\nwant %q", got, want)
	}
	i, j, l := p.ases[0].routers[0].interfaces[0], p.ases[1].routers[0].interfaces[0], p.links[0]
	if i.local != l.a.Router || i.remote != l.a.Local || j.local != l.b.Router || j.remote != l.b.Local {
		t.Errorf("interfaces %v and %v do not meet the emulator at %v", i, j, l)
	}
}

func TestPlanRefuses(t *testing.T) {
	topo := load(t, "default")
	if _, err := makePlan(topo, netip.MustParsePrefix("127.99.7.0/28"), first6Port); err == nil || !strings.Contains(err.Error(), "no room for the 16 ASes") {
		t.Errorf("16 ASes in a /28: error %v", err)
	}
	for _, s := range []string{"11.0.0.0/24", "126.0.0.0/7", "::1/128"} {
		if checkSubnet(netip.MustParsePrefix(s)) == nil {
			t.Errorf("subnet %s accepted", s)
		}
	}
}

func TestClaims(t *testing.T) {
	topo := load(t, "two-paths")
	one, held, err := claimPlan(topo, "/some/dir", netip.Prefix{})
	if err != nil {
		t.Fatal(err)
	}
	defer held.release()
	// The same directory would have the same block, were it not taken.
	two, held2, err := claimPlan(topo, "/some/dir", netip.Prefix{})
	if err != nil {
		t.Fatal(err)
	}
	held2.release()
	if one.subnet == two.subnet {
		t.Errorf("both have %s", one.subnet)
	}
	if _, _, err := claimPlan(topo, "/some/dir", one.subnet); err == nil || !strings.Contains(err.Error(), "used by another testbed") {
		t.Errorf("a fixed subnet that is taken: error %v", err)
	}
	missing := netip.MustParsePrefix("192.168.255.240/28")
	if _, _, err := claimPlan(topo, "/some/dir", missing); err == nil || !strings.Contains(err.Error(), "this host does not have 192.168.255.240") {
		t.Errorf("a subnet that this host does not have: error %v", err)
	}
	// A stranger on one of the ports.
	at := two.ases[1].routers[0].internal
	c, err := bind("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _, err = claimPlan(topo, "/some/dir", two.subnet)
	if err == nil || !strings.Contains(err.Error(), "udp "+at.String()+", wanted by the router br-1 of 1-ff00:0:111, is in use") || !strings.Contains(err.Error(), "--subnet") {
		t.Errorf("a port in use: error %v", err)
	}
}

func TestRouterCommands(t *testing.T) {
	topology := load(t, "two-paths")
	p, err := makePlan(topology, netip.MustParsePrefix("127.99.0.0/24"), 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b := topology.ASes[0].IA, topology.ASes[1].IA
	at := func(ia pathsel.IA, id uint64, command ...string) RouterOf {
		return RouterOf{pathsel.Interface{IA: ia, ID: id}, command}
	}
	for _, tt := range []struct {
		all  []string
		of   []RouterOf
		want string // of a's routers, then b's
		err  string
	}{
		{nil, nil, "[[stock] [stock] [stock] [stock]]", ""},
		{[]string{"mine", "-v"}, nil, "[[mine -v] [mine -v] [mine -v] [mine -v]]", ""},
		{nil, []RouterOf{at(a, 0, "fast"), at(a, 2), at(b, 1, "fast")}, "[[fast] [stock] [fast] [stock]]", ""},
		{[]string{"fast"}, []RouterOf{at(a, 2), at(a, 0, "x")}, "[[x] [x] [fast] [fast]]", ""},
		{nil, []RouterOf{at(a, 7, "fast")}, "", "no router of topology two-paths is at 1-ff00:0:110#7"},
		{nil, []RouterOf{at(9, 0, "fast")}, "", "no router of topology two-paths"},
	} {
		n := Network{opts: Options{Topology: topology, RouterCommand: tt.all, RoutersOf: tt.of}, plan: p}
		err := n.chooseRouters("stock")
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v: error %v, want one with %q", tt.of, err, tt.err)
			}
			continue
		}
		var list [][]string
		for _, as := range n.plan.ases {
			for _, r := range as.routers {
				list = append(list, r.command)
			}
		}
		if err != nil || fmt.Sprint(list) != tt.want {
			t.Errorf("%+v: %v, %v; want %s", tt.of, list, err, tt.want)
		}
	}
}
