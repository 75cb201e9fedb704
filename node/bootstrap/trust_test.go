package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cppb "github.com/scionproto/scion/pkg/proto/control_plane"
	"github.com/scionproto/scion/pkg/scrypto/cppki"
	"google.golang.org/grpc"
)

// testdata is where scionproto keeps TRCs for its own tests, ISD 1 with two updates among them.
func testdata(t testing.TB, under string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/scionproto/scion").Output()
	if err != nil {
		t.Skipf("no source of scionproto: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), under)
}

func readTRC(t testing.TB, name string) cppki.SignedTRC {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	x, err := decodeTRC(b)
	if err != nil {
		t.Fatal(name, err)
	}
	return x
}

func chain(t testing.TB) (out []cppki.SignedTRC) {
	dir := testdata(t, "pkg/scrypto/cppki/testdata")
	for _, n := range []string{"ISD1-B1-S1.trc", "ISD1-B1-S2.trc", "ISD1-B1-S3.trc"} {
		out = append(out, readTRC(t, filepath.Join(dir, n)))
	}
	return out
}

// The first TRC of an ISD is believed, later ones only if they follow from it.
func TestJudge(t *testing.T) {
	c := chain(t)
	// The same ISD, made by somebody else.
	other := readTRC(t, testdata(t, "pkg/scrypto/cppki/testdata/verifychain/ISD1-B1-S1.trc"))
	forged := c[1]
	forged.SignerInfos = nil
	based := c[1]
	based.TRC.ID.Base = 2
	now := c[0].TRC.Validity.NotBefore.Add(time.Hour)
	for _, x := range []struct {
		name           string
		known, offered []cppki.SignedTRC
		trust          string
		wrong          bool // it contradicts
	}{
		{"first", nil, c[:1], "first use", false},
		{"first, with updates", nil, []cppki.SignedTRC{c[2], c[0], c[1]}, "first use, update, update", false},
		{"first, an update alone", nil, c[2:], "first use", false},
		{"known", c[:1], c[:1], "known", false},
		{"update", c[:1], c[:2], "known, update", false},
		{"older", c, c[:1], "known", false},
		{"update without a step", c[:1], c[2:], "", true},
		{"same ID, other content", c[:1], []cppki.SignedTRC{other}, "", true},
		{"not signed", c[:1], []cppki.SignedTRC{forged}, "", true},
		{"another base", c[:1], []cppki.SignedTRC{based}, "", true},
	} {
		got, err := Judge(x.known, x.offered, 1, now)
		if errors.Is(err, ErrContradiction) != x.wrong || err != nil && !x.wrong {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		var trust []string
		for _, j := range got {
			trust = append(trust, string(j.Trust))
		}
		if strings.Join(trust, ", ") != x.trust {
			t.Errorf("%s: %s, want %s", x.name, trust, x.trust)
		}
	}
	if _, err := Judge(nil, c[:1], 2, now); err == nil {
		t.Error("a TRC of the host's own ISD is not missed")
	}
	if _, err := Judge(nil, c[:1], 1, c[0].TRC.Validity.NotAfter.Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "clock") {
		t.Errorf("an expired TRC: %v", err)
	}
}

func TestMissing(t *testing.T) {
	c := chain(t)
	id := func(serial uint64) cppki.TRCID { return cppki.TRCID{ISD: 1, Base: 1, Serial: version(serial)} }
	for _, x := range []struct {
		list  []cppki.TRCID
		known []cppki.SignedTRC
		want  []cppki.TRCID
	}{
		{[]cppki.TRCID{id(3)}, nil, []cppki.TRCID{id(3)}},
		{[]cppki.TRCID{id(3)}, c[:1], []cppki.TRCID{id(2), id(3)}},
		{[]cppki.TRCID{id(3), id(3)}, c, []cppki.TRCID{id(3)}},
		{[]cppki.TRCID{id(1 << 40)}, c, []cppki.TRCID{id(1 << 40)}},
		{[]cppki.TRCID{id(math.MaxUint64)}, c, []cppki.TRCID{id(math.MaxUint64)}},
	} {
		if got := missing(x.list, x.known); !slices.Equal(got, x.want) {
			t.Errorf("%v, known %d: %v, want %v", x.list, len(x.known), got, x.want)
		}
	}
}

// discovery is a server with these answers.
func discovery(t *testing.T, answers map[string][]byte) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const topologyOf1 = `{"isd_as":"1-ff00:0:110","mtu":1472,"attributes":["core"],"border_routers":{},
"control_service":{"cs-1":{"addr":"192.0.2.1:30252"}},"discovery_service":{"cs-1":{"addr":"192.0.2.1:30252"}}}`

// What a server sends is bounded and checked before anything is written.
func TestFetchHostile(t *testing.T) {
	list := []byte(`[{"id":{"isd":1,"base_number":1,"serial_number":1}}]`)
	good := map[string][]byte{"/topology": []byte(topologyOf1), "/trcs": list, "/trcs/isd1-b1-s1/blob": chain(t)[0].Raw}
	if o, err := Fetch(t.Context(), discovery(t, good), nil); err != nil || o.IA.String() != "1-ff00:0:110" || len(o.TRCs) != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	for name, change := range map[string]func(map[string][]byte){
		"no topology": func(m map[string][]byte) { delete(m, "/topology") },
		"no JSON":     func(m map[string][]byte) { m["/topology"] = []byte("{") },
		"wildcard AS": func(m map[string][]byte) {
			m["/topology"] = []byte(strings.Replace(topologyOf1, "1-ff00", "0-ff00", 1))
		},
		"huge topology": func(m map[string][]byte) { m["/topology"] = make([]byte, maxTopology+1) },
		"damaged TRC":   func(m map[string][]byte) { m["/trcs/isd1-b1-s1/blob"] = []byte("x") },
		"another TRC":   func(m map[string][]byte) { m["/trcs/isd1-b1-s1/blob"] = chain(t)[1].Raw },
		"router without anything": func(m map[string][]byte) {
			m["/topology"] = []byte(strings.Replace(topologyOf1, `"border_routers":{}`, `"border_routers":{"b":null}`, 1))
		},
		"interface without anything": func(m map[string][]byte) {
			m["/topology"] = []byte(strings.Replace(topologyOf1, `"border_routers":{}`,
				`"border_routers":{"b":{"internal_addr":"192.0.2.1:5","interfaces":{"1":null}}}`, 1))
		},
		"service without anything": func(m map[string][]byte) {
			m["/topology"] = []byte(strings.Replace(topologyOf1, `{"cs-1":{"addr":"192.0.2.1:30252"}}`, `{"cs-1":null}`, 1))
		},
		"list of anything": func(m map[string][]byte) { m["/trcs"] = []byte(`[{"id":{"isd":0}}]`) },
		"long list": func(m map[string][]byte) {
			m["/trcs"] = []byte("[" + strings.Repeat(string(list[1:len(list)-1])+",", maxTRCs) + string(list[1:]))
		},
	} {
		answers := map[string][]byte{}
		for k, v := range good {
			answers[k] = v
		}
		change(answers)
		if o, err := Fetch(t.Context(), discovery(t, answers), nil); err == nil {
			t.Errorf("%s: %+v", name, o)
		}
	}
	for _, wrong := range []string{"ftp://host", "http://user@host", "http://host/?x", "", "http://"} {
		if u, err := ParseServer(wrong); err == nil {
			t.Errorf("%q is read as %s", wrong, u)
		}
	}
}

// A topology may have names of hosts. While one is looked up, the context can end the request.
func TestNamesInTopology(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	defer func(r *net.Resolver) { net.DefaultResolver = r }(net.DefaultResolver)
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		cancel()
		<-ended
		return nil, errors.New("no DNS here")
	}}
	at := discovery(t, map[string][]byte{"/topology": []byte(strings.Replace(topologyOf1, "192.0.2.1:30252", "cs.example:30252", 1))})
	got := make(chan error, 1)
	go func() { _, err := Fetch(ctx, at, nil); got <- err }()
	select {
	case err := <-got:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the lookup of a name does not end with the context")
	}
	close(ended)
}

// trcService is a control service that knows one TRC.
type trcService struct {
	cppb.UnimplementedTrustMaterialServiceServer
	trc cppki.SignedTRC
}

func (s *trcService) TRC(context.Context, *cppb.TRCRequest) (*cppb.TRCResponse, error) {
	return &cppb.TRCResponse{Trc: s.trc.Raw}, nil
}

// The next control service is asked if one is silent.
func TestSilentControlService(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	want, s := chain(t)[0], grpc.NewServer()
	cppb.RegisterTrustMaterialServiceServer(s, &trcService{trc: want})
	go s.Serve(l)
	defer s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), fetchPatience)
	defer cancel()
	got, err := AskForTRC(ctx, want.TRC.ID, []string{silent.Addr().String(), l.Addr().String()})
	if err != nil || got.TRC.ID != want.TRC.ID {
		t.Errorf("%v, %v", got.TRC.ID, err)
	}
}

// A server that accepts the connection and says nothing costs less than one that answers slowly.
func TestSpeechlessServer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, err = Fetch(t.Context(), silent.Addr().String(), nil)
	if err == nil || !strings.Contains(err.Error(), "awaiting response headers") {
		t.Errorf("given up at the end of all patience: %v", err)
	}
}

// What is kept is found again, and a damaged TRC is not passed over.
func TestKeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "scion [old]") // which is no pattern
	c := chain(t)
	r := Result{Offer: Offer{Server: "http://x:1", IA: 1<<48 | 7, Topology: []byte(topologyOf1)}, Judged: []Judged{{c[0], FirstUse}, {c[1], Chained}}}
	now := time.Now()
	if Has(dir) {
		t.Error("it has a configuration before there is one")
	}
	if err := r.Keep(dir, now); err != nil {
		t.Fatal(err)
	}
	n, err := read(dir)
	if err != nil || n.Server != r.Server || n.IA != r.IA || n.isStale(now) || !n.isStale(now.Add(refreshAfter+time.Second)) {
		t.Errorf("%+v, %v", n, err)
	}
	known, err := TRCs(dir)
	if err != nil || len(known) != 2 || !Has(dir) {
		t.Errorf("%d TRCs, %v", len(known), err)
	}
	if err := os.WriteFile(filepath.Join(dir, "certs", "ISD1-B1-S1.trc"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := TRCs(dir); err == nil {
		t.Error("a damaged TRC is forgotten, so that another one would be believed")
	}
}

// Who names a server reads why there is no configuration from it. An interrupt is no reason.
func TestRefreshNamesTheFailure(t *testing.T) {
	var warnings bytes.Buffer
	log := slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	Refresh(interrupted, "127.0.0.1:1", t.TempDir(), true, log)
	if warnings.Len() > 0 {
		t.Errorf("interrupted: %s", &warnings)
	}
	Refresh(t.Context(), "127.0.0.1:1", t.TempDir(), true, log)
	if !strings.Contains(warnings.String(), "refused") {
		t.Errorf("%q", &warnings)
	}
}

func FuzzParseTopology(f *testing.F) {
	f.Add([]byte(topologyOf1))
	f.Add([]byte(strings.Replace(topologyOf1, `"border_routers":{}`, `"border_routers":{"b":null}`, 1)))
	f.Add([]byte(`{"Timestamp":"2026-01-01T00:00:00Z","IA":"1-ff00:0:110","MTU":1472,"DispatchedPortEnd":9,"BR":{"b":{"InternalAddr":"192.0.2.1:5","IFs":{"1":{"IA":"1-ff00:0:111","LinkType":"child","MTU":1400}}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, ia, err := parseTopology(b)
		if err != nil {
			return
		}
		if again, same, err := parseTopology(file); err != nil || same != ia || !slices.Equal(again, file) {
			t.Errorf("%s is not read again: %v", file, err)
		}
	})
}
