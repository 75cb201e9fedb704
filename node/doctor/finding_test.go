package doctor

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"braid/scionnet"
)

// TestExamine has the cases that a network on one machine cannot show.
func TestExamine(t *testing.T) {
	at := func(s string) scionnet.Addr {
		a, err := scionnet.ParseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	router := netip.MustParseAddrPort("10.0.0.1:30042")
	local := at("1-ff00:0:110,[192.168.1.2]:31000")
	for name, c := range map[string]struct {
		facts Facts
		want  Finding // parts of its texts
	}{
		"behind a NAT": {
			Facts{From: 1024, To: 65535, Routers: []scionnet.RouterView{{Router: router, Local: local, Seen: at("1-ff00:0:110,[192.0.2.1]:40000")}}},
			Finding{"border router", OK, "a NAT shows this host as 192.0.2.1:40000", "", ""},
		},
		"a NAT with a port outside of the range": {
			Facts{From: 31000, To: 32767, Routers: []scionnet.RouterView{{Router: router, Local: local, Seen: at("1-ff00:0:110,[192.0.2.1]:40000")}}},
			Finding{"border router", Fail, "at port 40000", "get lost", "masquerade to :31000-32767"},
		},
		"a router that is off, and no path": {
			Facts{Routers: []scionnet.RouterView{{Router: router, Local: local}}},
			Finding{"border router", Fail, "10.0.0.1:30042 does not answer", "carry nothing", "firewall"},
		},
		"no range of ports": {Facts{}, Finding{"port", Warn, "names no range", "30041", "dispatched_ports"}},
		"a full disk": {
			Facts{Dir: "/data", Free: 1 << 20}, Finding{"disk", Fail, "/data has 1 MiB left", "stops", "free some space"},
		},
		"small buffers": {Facts{Buffer: 212992}, Finding{"socket buffers", Warn, "212992", "lost", "net.core.rmem_max"}},
		"no offloading": {Facts{Offload: errors.New("not supported")}, Finding{"offloading", Warn, "not supported", "system call", "Linux"}},
	} {
		all := Examine(c.facts)
		hit := false
		for _, f := range all {
			hit = hit || f.Check == c.want.Check && f.Status == c.want.Status && strings.Contains(f.Found, c.want.Found) &&
				strings.Contains(f.Why, c.want.Why) && strings.Contains(f.Do, c.want.Do)
		}
		if !hit {
			t.Errorf("%s: %+v, want %+v", name, all, c.want)
		}
	}
}

func TestTarget(t *testing.T) {
	for s, want := range map[string]string{
		"1-ff00:0:111": "", "1-ff00:0:111,[127.0.0.1]:31000": "", "mirror.example.org": "mirror.example.org", "mirror.example.org:31000": "mirror.example.org",
	} {
		if r, name, err := parseTarget(s); err != nil || r == nil || name != want {
			t.Errorf("%s: %+v, %q, %v", s, r, name, err)
		}
	}
	for _, s := range []string{"127.0.0.1:80", "1-ff00:0:111,[::", "a b", "name:99999"} {
		if r, _, err := parseTarget(s); err == nil {
			t.Errorf("%s: %+v", s, r)
		}
	}
}
