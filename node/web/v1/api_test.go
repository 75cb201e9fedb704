package v1_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"braid/client"
	"braid/node"
	"braid/node/web"
	"braid/node/web/transmission"
	v1 "braid/node/web/v1"
	"braid/storage"
	"braid/units/await"
)

// daemon is a node with its server, and a client of it.
type daemon struct {
	*v1.Client
	node   *node.Node
	socket string
	tcp    string // address
	data   string // default directory
}

func start(t *testing.T) daemon {
	t.Helper()
	at, err := client.ParseListen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	d := daemon{socket: filepath.Join(t.TempDir(), "s"), data: t.TempDir()}
	n, err := node.Open(t.Context(), node.Config{
		Client: client.Config{Listen: []client.Peer{at}}, Service: true, State: t.TempDir(), Settings: node.Settings{Dir: d.data}, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	access, err := web.OpenAccess(filepath.Join(t.TempDir(), "password"), nil)
	if err != nil {
		t.Fatal(err)
	}
	d.node = n
	var s *web.Server
	api := v1.New(v1.Config{
		Node: n, Access: access, Version: "braid test", Journal: &v1.Journal{}, Addresses: func() []string { return s.Addresses() },
	})
	routes, err := web.Routes(n, api, access, transmission.Options{State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if s, err = web.New(web.Config{Listen: []string{"unix:" + d.socket, "127.0.0.1:0"}, Access: access, Logger: log}, routes); err != nil {
		t.Fatal(err)
	}
	s.Serve()
	d.tcp = s.Addresses()[1]
	t.Cleanup(func() {
		api.Close()
		if err := errors.Join(s.Close(), n.Close()); err != nil {
			t.Error(err)
		}
	})
	d.Client = v1.NewClient("unix:"+d.socket, "")
	t.Cleanup(d.Client.Close)
	return d
}

// The routes that no command uses.

func (d daemon) Session(ctx context.Context) (v1.Session, error) {
	return v1.Call[v1.Session](ctx, d.Client, "GET", "/session", nil)
}

func (d daemon) Totals(ctx context.Context) (v1.Totals, error) {
	return v1.Call[v1.Totals](ctx, d.Client, "GET", "/totals", nil)
}

func (d daemon) Verify(ctx context.Context, infoHash string) error {
	_, err := v1.Call[struct{}](ctx, d.Client, "POST", "/torrents/"+infoHash+"/verify", nil)
	return err
}

func (d daemon) Announce(ctx context.Context, infoHash string) error {
	_, err := v1.Call[struct{}](ctx, d.Client, "POST", "/torrents/"+infoHash+"/announce", nil)
	return err
}

func (d daemon) Pieces(ctx context.Context, infoHash string) (v1.Pieces, error) {
	return v1.Call[v1.Pieces](ctx, d.Client, "GET", "/torrents/"+infoHash+"/pieces", nil)
}

func (d daemon) Log(ctx context.Context) ([]v1.LogEntry, error) {
	return v1.Call[[]v1.LogEntry](ctx, d.Client, "GET", "/log", nil)
}

func (d daemon) Settings(ctx context.Context) (v1.Settings, error) {
	return v1.Call[v1.Settings](ctx, d.Client, "GET", "/settings", nil)
}

func (d daemon) SetSettings(ctx context.Context, in v1.ChangeSettings) (v1.Settings, error) {
	return v1.Call[v1.Settings](ctx, d.Client, "PATCH", "/settings", in)
}

func (d daemon) Policy(ctx context.Context) (v1.Policy, error) {
	return v1.Call[v1.Policy](ctx, d.Client, "GET", "/policy", nil)
}

func (d daemon) SetPolicy(ctx context.Context, in v1.Policy) (v1.Policy, error) {
	return v1.Call[v1.Policy](ctx, d.Client, "PUT", "/policy", in)
}

func (d daemon) PreviewPolicy(ctx context.Context, in v1.PreviewPolicy) (v1.PolicyPreview, error) {
	return v1.Call[v1.PolicyPreview](ctx, d.Client, "POST", "/policy/preview", in)
}

// ask sends a request past the client.
func (d daemon) ask(t *testing.T, method, path, kind string, body []byte) (status int, answer []byte) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", d.socket)
	}}}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://braid"+v1.Prefix+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	out, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	b, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	return out.StatusCode, b
}

// create makes a torrent of random data in dir.
func create(t *testing.T, dir, name string, size int) client.Source {
	t.Helper()
	b := make([]byte, size)
	rand.NewChaCha8([32]byte([]byte(name + strings.Repeat(" ", 32))[:32])).Read(b)
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := client.Create(t.Context(), filepath.Join(dir, name), client.CreateOptions{PieceLength: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return c.Source
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A torrent from its adding to its removal: one daemon serves it, another one downloads it.
func TestTorrent(t *testing.T) {
	from, to := start(t), start(t)
	ctx := t.Context()
	src := create(t, from.data, "file", 300_000)
	hash := src.InfoHash.HexString()
	seeded := must[v1.Added](t)(from.Add(ctx, v1.AddTorrent{Torrent: src.Torrent(), Complete: true}))
	if seeded != (v1.Added{InfoHash: hash, Name: "file"}) {
		t.Errorf("added %+v", seeded)
	}
	listen := must[v1.Session](t)(from.Session(ctx)).Listen
	dir := t.TempDir()
	slowly := &v1.Limits{DownloadMbitS: 0.1} // half a minute, which ends once the connection was seen
	must[v1.Added](t)(to.Add(ctx, v1.AddTorrent{Torrent: src.Torrent(), Directory: dir, Peers: listen, Limits: slowly}))
	if again := must[v1.Added](t)(to.Add(ctx, v1.AddTorrent{Source: src.Magnet()})); !again.Existed {
		t.Errorf("added twice: %+v", again)
	}
	var d v1.TorrentDetail
	var paths []v1.Path // while data comes: complete peers part
	var sources map[string]int
	await.True(t, "the connection", func() bool {
		sources = must[v1.TorrentDetail](t)(to.Show(ctx, hash)).PeerSources
		paths = must[[]v1.Path](t)(to.Paths(ctx, hash))
		return len(sources) > 0 && len(paths) > 0 && paths[0].Share > 0
	})
	if err := to.Set(ctx, hash, v1.Change{Limits: &v1.Limits{}}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the download", func() bool {
		d = must[v1.TorrentDetail](t)(to.Show(ctx, hash))
		return d.State == "seeding"
	})
	if d.HaveBytes != 300_000 || d.FetchedBytes != 300_000 || d.PiecesDone != 10 || d.Directory != dir || d.Name != "file" || d.Number != 1 {
		t.Errorf("%+v", d)
	}
	if sources["named"] != 1 {
		t.Errorf("the sources of the connected peers: %v", sources)
	}
	if len(paths) == 0 || paths[0].Source != "named" || paths[0].Peer != listen[0] || paths[0].Transport != "tcp" || paths[0].Share != 1 || paths[0].ReadBytes == 0 || paths[0].ID == "" {
		t.Errorf("%+v", paths)
	}
	if f := must[[]v1.File](t)(to.Files(ctx, hash)); len(f) != 1 || f[0].HaveBytes != 300_000 || f[0].Number != 1 || f[0].SizeBytes != 300_000 || f[0].Priority != "normal" {
		t.Errorf("%+v", f)
	}
	if s := must[v1.Totals](t)(to.Totals(ctx)); s.Torrents != 1 || s.States["seeding"] != 1 || s.FetchedBytes != 300_000 {
		t.Errorf("%+v", s)
	}

	if err := to.Pause(ctx, hash); err != nil {
		t.Fatal(err)
	}
	few := must[[]v1.Torrent](t)(to.List(ctx, "info_hash", "state"))
	if len(few) != 1 || few[0].State != "paused" || few[0].InfoHash != hash || few[0].Name != "" {
		t.Errorf("%+v", few)
	}
	if err := to.Resume(ctx, hash, v1.Resume{Now: true}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the seed", func() bool { return must[v1.TorrentDetail](t)(to.Show(ctx, hash)).State == "seeding" })
	if p := must[v1.Pieces](t)(to.Pieces(ctx, hash)); p.Count != 10 || p.Done != 10 || p.LengthBytes != 32<<10 || !bytes.Equal(p.Have, []byte{0xff, 0xc0}) {
		t.Errorf("%+v", p)
	}
	moved := t.TempDir()
	if err := errors.Join(to.Verify(ctx, hash), to.Announce(ctx, hash)); err != nil {
		t.Error(err)
	}
	await.True(t, "the move", func() bool {
		if err := to.Move(ctx, hash, v1.Move{Directory: moved, Data: true}); err != nil {
			t.Log(err) // while it is verified
		}
		d = must[v1.TorrentDetail](t)(to.Show(ctx, hash))
		return d.Directory == moved && d.State == "seeding"
	})
	dir = moved
	if err := to.Move(ctx, hash, v1.Move{Directory: "relative"}); err == nil {
		t.Error("a relative directory is accepted")
	}
	if err := to.Remove(ctx, hash, false); err != nil {
		t.Fatal(err)
	}
	if all := must[[]v1.Torrent](t)(to.List(ctx)); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Errorf("the data is gone: %v", err)
	}
	log := must[[]v1.LogEntry](t)(to.Log(ctx))
	if !slices.ContainsFunc(log, func(e v1.LogEntry) bool { return e.InfoHash == hash && strings.Contains(e.Text, "is complete") }) {
		t.Errorf("%+v", log)
	}
}

func TestSession(t *testing.T) {
	d := start(t)
	got := must[v1.Session](t)(d.Session(t.Context()))
	want, _, err := storage.DiskSpace(d.data)
	if err != nil {
		want = -1
	}
	// Other programs write meanwhile, but not everything.
	if free := got.FreeBytes; free < want/2 || want > 0 && free == 0 {
		t.Errorf("%d bytes are free, want about %d", free, want)
	}
}

// What is changed is there when it is read again, and after the node was opened again.
func TestChange(t *testing.T) {
	d := start(t)
	ctx := t.Context()
	src := create(t, t.TempDir(), "file", 1000)
	hash := must[v1.Added](t)(d.Add(ctx, v1.AddTorrent{Torrent: src.Torrent(), Paused: true, Priority: "high", Labels: []string{"first"}})).InfoHash
	if x := must[v1.TorrentDetail](t)(d.Show(ctx, hash)); x.Priority != "high" || !slices.Equal(x.Labels, []string{"first"}) || x.Added.IsZero() {
		t.Errorf("%+v", x)
	}
	low, yes, no, ten := "low", true, false, 10
	want := v1.TorrentSettings{
		Sequential: true, PeerLimit: 10, Goal: v1.Goal{Ratio: 1.5, TimeS: 60, IdleS: -1}, Trackers: [][]string{{"http://127.0.0.1:1/a"}, {"udp://127.0.0.1:1"}},
		Limits: v1.Limits{UploadMbitS: 1.5, DownloadMbitS: 0.02, Paths: []v1.PathLimit{{Pattern: "1-ff00:0:110#2", MbitS: 3}}},
		Policy: v1.PathPolicy{Sequence: "0*", ACL: "- 1-ff00:0:110#2, +", Preference: []string{"latency", "mtu"}, MaxLatencyMs: 50, MinMTUBytes: 1400},
	}
	if err := d.Set(ctx, hash, v1.Change{
		Labels: &[]string{"a", "b"}, Priority: &low, Files: map[string]string{"1": "high"}, Sequential: &yes, Limits: &want.Limits, HonourGlobal: &no,
		Goal: &want.Goal, Trackers: &want.Trackers, PeerLimit: &ten, Policy: &want.Policy,
	}); err != nil {
		t.Fatal(err)
	}
	x := must[v1.TorrentDetail](t)(d.Show(ctx, hash))
	if !reflect.DeepEqual(x.Settings, want) || x.Priority != "low" || !slices.Equal(x.Labels, []string{"a", "b"}) {
		t.Errorf("\n got %+v\nwant %+v", x.Settings, want)
	}
	if f := must[[]v1.File](t)(d.Files(ctx, hash)); f[0].Priority != "high" {
		t.Errorf("%+v", f)
	}
	for name, c := range map[string]v1.Change{
		"files": {Files: map[string]string{"0": "high"}}, "priority": {Priority: new(string)}, "label": {Labels: &[]string{"a,b"}},
		"ACL": {Policy: &v1.PathPolicy{ACL: "nonsense"}}, "10": {Limits: &v1.Limits{UploadMbitS: 0.001}},
	} {
		var status *v1.StatusError
		if err := d.Set(ctx, hash, c); !errors.As(err, &status) || status.Status != 400 || !strings.Contains(err.Error(), name) {
			t.Errorf("a wrong change of %s: %v", name, err)
		}
	}
}

// A torrent may name a tracker only in networks that its source could know, a user in all of them. So
// a user who sets a list that has the torrent's own trackers, as the page does, names only the others.
func TestTrackersOfTheTorrent(t *testing.T) {
	d := start(t)
	const theirs, ours = "http://127.0.0.1:1/announce", "http://127.0.0.1:2/announce"
	magnet := "magnet:?xt=urn:btih:0123456789abcdef0123456789abcdef01234567&tr=" + theirs
	hash := must[v1.Added](t)(d.Add(t.Context(), v1.AddTorrent{Source: magnet, Paused: true})).InfoHash
	if err := d.Set(t.Context(), hash, v1.Change{Trackers: &[][]string{{ours}, {theirs}}}); err != nil {
		t.Fatal(err)
	}
	x, err := d.node.Torrent(hash)
	if err != nil {
		t.Fatal(err)
	}
	tiers := x.Options().Trackers
	if len(tiers) != 2 || !tiers[0][0].ByUser() || tiers[1][0].ByUser() {
		t.Errorf("of the user: %t, of the torrent: %t", tiers[0][0].ByUser(), !tiers[1][0].ByUser())
	}
}

func TestSettings(t *testing.T) {
	d := start(t)
	ctx := t.Context()
	got := must[v1.Settings](t)(d.Settings(ctx))
	if got.Directory != d.data || got.Watched != "keep" {
		t.Errorf("%+v", got)
	}
	if !got.PeerExchange {
		t.Error("peer exchange is off at first")
	}
	if got.LocalDiscovery {
		t.Error("local discovery is on at first")
	}
	dir, then, two, yes, no := t.TempDir(), "rename", 2, true, false
	limits, other := v1.Limits{UploadMbitS: 10, Paths: []v1.PathLimit{}}, v1.Limits{DownloadMbitS: 1, Paths: []v1.PathLimit{}}
	schedule := v1.Schedule{Enabled: true, Begin: "22:30", End: "06:00", Days: []string{"mon", "sat"}, Always: true}
	policy := v1.PathPolicy{ACL: "- 1-ff00:0:110#2, +", Preference: []string{}}
	goal := v1.Goal{Ratio: 2, TimeS: 3600}
	got = must[v1.Settings](t)(d.SetSettings(ctx, v1.ChangeSettings{
		Limits: &limits, Alternative: &other, Schedule: &schedule, ActiveDownloads: &two, ActiveSeeds: &two, CompleteDir: &dir, WatchDir: &dir,
		Watched: &then, Policy: &policy, Goal: &goal, AddPaused: &yes, PeerExchange: &no, LocalDiscovery: &yes,
	}))
	want := v1.Settings{
		Limits: limits, Alternative: other, Schedule: schedule, ActiveDownloads: 2, ActiveSeeds: 2, Directory: d.data, CompleteDir: dir,
		WatchDir: dir, Watched: "rename", Policy: policy, Goal: goal, AddPaused: true, LocalDiscovery: true,
	}
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(must[v1.Settings](t)(d.Settings(ctx)), want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if !must[v1.Totals](t)(d.Totals(ctx)).Alternative {
		t.Error("the alternative rates do not hold although they were switched on")
	}
	script, relative, empty, bad := "x", "relative", "", v1.Schedule{Begin: "25:00", End: "06:00"}
	for name, c := range map[string]v1.ChangeSettings{
		"completion_script": {Script: &script}, "directory": {Directory: &relative}, `directory ""`: {Directory: &empty}, "HH:MM": {Schedule: &bad}, "ACL": {Policy: &v1.PathPolicy{ACL: "x"}},
	} {
		if _, err := d.SetSettings(ctx, c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a wrong %s: %v", name, err)
		}
	}
	if !reflect.DeepEqual(must[v1.Settings](t)(d.Settings(ctx)), want) {
		t.Error("a wrong change has changed something")
	}
}

// Saving the limits that were read keeps the values of those that are off.
func TestLimitsThatAreOff(t *testing.T) {
	d := start(t)
	off := node.Rates{Upload: 1e6, UploadOff: true, Download: 2e6, DownloadOff: true}
	hash := must[v1.Added](t)(d.Add(t.Context(), v1.AddTorrent{Torrent: create(t, t.TempDir(), "file", 1000).Torrent(), Paused: true})).InfoHash
	x := must[*node.Torrent](t)(d.node.Torrent(hash))
	if err := errors.Join(
		d.node.Change(func(s *node.Settings) error { s.Rates = off; return nil }),
		x.Change(func(o *node.Options) error { o.Rates = off; return nil }),
	); err != nil {
		t.Fatal(err)
	}
	read := must[v1.Settings](t)(d.Settings(t.Context())).Limits
	if _, err := d.SetSettings(t.Context(), v1.ChangeSettings{Limits: &read}); err != nil {
		t.Fatal(err)
	}
	if err := d.Set(t.Context(), hash, v1.Change{Limits: &read}); err != nil {
		t.Fatal(err)
	}
	if read.UploadMbitS != 0 || !reflect.DeepEqual(d.node.Settings().Rates, off) || !reflect.DeepEqual(x.Options().Rates, off) {
		t.Errorf("read %+v; now the settings have %+v, and the torrent %+v", read, d.node.Settings().Rates, x.Options().Rates)
	}
}

// Saving the program for complete torrents that was read keeps one that is off.
func TestScriptThatIsOff(t *testing.T) {
	d := start(t)
	off := func(s *node.Settings) error { s.Script, s.ScriptOff = "/bin/true", true; return nil }
	if err := d.node.Change(off); err != nil {
		t.Fatal(err)
	}
	read := must[v1.Settings](t)(d.Settings(t.Context())).Script
	if _, err := d.SetSettings(t.Context(), v1.ChangeSettings{Script: &read}); err != nil {
		t.Fatal(err)
	}
	if s := d.node.Settings(); read != "" || s.Script != "/bin/true" || !s.ScriptOff {
		t.Errorf("read %q; now the settings have %q, off: %v", read, s.Script, s.ScriptOff)
	}
	other := "/bin/false"
	if got := must[v1.Settings](t)(d.SetSettings(t.Context(), v1.ChangeSettings{Script: &other})).Script; got != other {
		t.Errorf("the program is %q, want %q", got, other)
	}
	none := ""
	if _, err := d.SetSettings(t.Context(), v1.ChangeSettings{Script: &none}); err != nil || d.node.Settings().Script != "" {
		t.Errorf("the program stays: %+v, %v", d.node.Settings().Script, err)
	}
}

// A torrent that has reached its goal is no seed any longer.
func TestServedTorrent(t *testing.T) {
	d := start(t)
	src := create(t, d.data, "file", 1000)
	added := must[v1.Added](t)(d.Add(t.Context(), v1.AddTorrent{Torrent: src.Torrent(), Complete: true, Goal: &v1.Goal{TimeS: 0.001}}))
	x := must[*node.Torrent](t)(d.node.Torrent(added.InfoHash))
	await.True(t, "the end", func() bool { return x.State() == node.Served })
	if got := must[v1.TorrentDetail](t)(d.Show(t.Context(), added.InfoHash)).State; got != "served" {
		t.Errorf("the torrent is %s", got)
	}
}

// A torrent that does not run takes no peers, and says so.
func TestPeersOfPausedTorrent(t *testing.T) {
	d := start(t)
	hash := must[v1.Added](t)(d.Add(t.Context(), v1.AddTorrent{Torrent: create(t, t.TempDir(), "file", 1000).Torrent(), Paused: true})).InfoHash
	err := d.AddPeers(t.Context(), hash, v1.AddPeers{Peers: []string{"127.0.0.1:1"}})
	if err == nil || !strings.Contains(err.Error(), "it is paused, and only a running torrent takes peers") {
		t.Error(err)
	}
}

// A preview says what forbidding an interface comes to, and changes nothing.
func TestPolicy(t *testing.T) {
	d := start(t)
	ctx := t.Context()
	before := must[v1.Policy](t)(d.Policy(ctx))
	p := must[v1.PolicyPreview](t)(d.PreviewPolicy(ctx, v1.PreviewPolicy{
		Forbid: []string{"1-ff00:0:110#2", "2"}, Limit: []v1.PathLimit{{Pattern: "1-ff00:0:111#1", MbitS: 5}},
	}))
	if p.Policy.ACL != "- 2-0#0, - 1-ff00:0:110#2, +" || len(p.Policy.Limits) != 1 {
		t.Errorf("%+v", p)
	}
	if now := must[v1.Policy](t)(d.Policy(ctx)); !reflect.DeepEqual(now, before) {
		t.Errorf("the preview has changed the policy to %+v", now)
	}
	if now := must[v1.Policy](t)(d.SetPolicy(ctx, p.Policy)); !reflect.DeepEqual(now, p.Policy) {
		t.Errorf("%+v, want %+v", now, p.Policy)
	}
	for _, wrong := range []v1.PreviewPolicy{{Forbid: []string{"x"}}, {Policy: &v1.Policy{PathPolicy: v1.PathPolicy{ACL: "x"}}}, {Limit: []v1.PathLimit{{Pattern: "1", MbitS: -1}}}} {
		if _, err := d.PreviewPolicy(ctx, wrong); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}

// What is wrong with a request is said, and nothing is done.
func TestWrongRequests(t *testing.T) {
	d := start(t)
	secret := filepath.Join(t.TempDir(), "secret.torrent")
	if err := os.WriteFile(secret, []byte("not for everybody"), 0o600); err != nil {
		t.Fatal(err)
	}
	unknown := strings.Repeat("0", 40)
	for _, tt := range []struct {
		method, path, kind, body string
		status                   int
		says                     string
	}{
		{"GET", "/nothing", "", "", 404, "openapi.yaml"},
		{"PUT", "/torrents", "", "", 404, "there is no PUT"},
		{"GET", "/torrents/" + unknown, "", "", 404, "there is no such torrent"},
		{"GET", "/torrents/xyz", "", "", 400, "40 hexadecimal digits"},
		{"GET", "/torrents?fields=name,nothing", "", "", 400, `no key "nothing"`},
		{"POST", "/torrents", "", `{}`, 400, "either source or torrent"},
		{"POST", "/torrents", "", `{"source":"magnet:?xt=urn:btih:` + unknown + `","torrent":"AA=="}`, 400, "either source or torrent"},
		{"POST", "/torrents", "", `{"sauce":"x"}`, 400, "sauce"},
		{"POST", "/torrents", "", `{"source":"x"} {}`, 400, "more than one"},
		{"POST", "/torrents", "", `{"source":`, 400, ""},
		{"POST", "/torrents", "text/plain", `{}`, 415, "want application/json"},
		{"POST", "/torrents", "", `{"source":"` + secret + `"}`, 400, "want a magnet link"},
		{"POST", "/torrents", "", `{"source":"file://` + secret + `"}`, 400, "want a magnet link"},
		{"POST", "/torrents", "", `{"torrent":"bm90IGEgdG9ycmVudA=="}`, 400, "not a torrent file"},
		{"POST", "/torrents", "", `{"source":"magnet:?xt=urn:btih:` + unknown + `","directory":"relative"}`, 400, "absolute"},
		{"POST", "/torrents", "", `{"source":"magnet:?xt=urn:btih:` + unknown + `","peers":["nonsense"]}`, 400, "peers"},
		{"POST", "/torrents", "", `{"source":"magnet:?xt=urn:btih:` + unknown + `","trackers":["ftp://x"]}`, 400, "trackers"},
		{"POST", "/torrents", "", `{"source":"magnet:?xt=urn:btih:` + unknown + `","limits":{"upload_mbit_s":-1,"download_mbit_s":0,"paths":[]}}`, 400, "upload_mbit_s"},
		{"POST", "/torrents", "", `{"source":"magnet:?xt=urn:btih:` + unknown + `","limits":{"upload_mbit_s":0,"download_mbit_s":0,"paths":[{"pattern":"x","mbit_s":1}]}}`, 400, "limits"},
		{"POST", "/torrents", "multipart/form-data", ``, 400, "boundary"},
		{"POST", "/torrents", "multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"what\"\r\n\r\n1\r\n--x--\r\n", 400, `part "what"`},
		{"POST", "/torrents", "multipart/form-data; boundary=x", "--x\r\n", 400, ""},
	} {
		status, b := d.ask(t, tt.method, tt.path, tt.kind, []byte(tt.body))
		var p v1.Problem
		if err := json.Unmarshal(b, &p); err != nil || p.Error == "" || status != tt.status || !strings.Contains(p.Error, tt.says) {
			t.Errorf("%s %s %s: %d %s, want %d with %q", tt.method, tt.path, tt.body, status, b, tt.status, tt.says)
		}
		if strings.Contains(string(b), "everybody") {
			t.Errorf("%s shows what is in a file: %s", tt.body, b)
		}
	}
	if n := len(d.node.Torrents()); n != 0 {
		t.Errorf("%d torrents were added", n)
	}
}

// A browser sends a file as a form.
func TestAddForm(t *testing.T) {
	d := start(t)
	src := create(t, t.TempDir(), "file", 1000)
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("torrent", "file.torrent")
	if err == nil {
		_, err = part.Write(src.Torrent())
	}
	if err = errors.Join(err, w.WriteField("options", `{"paused":true}`), w.Close()); err != nil {
		t.Fatal(err)
	}
	if status, answer := d.ask(t, "POST", "/torrents", w.FormDataContentType(), b.Bytes()); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	if all := must[[]v1.Torrent](t)(d.List(t.Context())); len(all) != 1 || all[0].State != "paused" || all[0].Directory != d.data {
		t.Errorf("%+v", all)
	}
}

// Every answer to GET has the keys that openapi.yaml says, and no other.
func TestAnswersAreDescribed(t *testing.T) {
	from, d := start(t), start(t)
	src := create(t, from.data, "file", 100_000)
	must[v1.Added](t)(from.Add(t.Context(), v1.AddTorrent{Torrent: src.Torrent(), Complete: true}))
	must[v1.Added](t)(d.Add(t.Context(), v1.AddTorrent{Torrent: src.Torrent(), Peers: must[v1.Session](t)(from.Session(t.Context())).Listen}))
	hash := src.InfoHash.HexString()
	await.True(t, "the download", func() bool { return must[v1.TorrentDetail](t)(d.Show(t.Context(), hash)).State == "seeding" })
	status, b := d.ask(t, "GET", "/openapi.yaml", "", nil)
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct{ Schema schema }
			}
		}
		Components struct{ Schemas map[string]schema }
	}
	if err := yaml.Unmarshal(b, &doc); err != nil || status != 200 {
		t.Fatal(status, err)
	}
	asked := 0
	for path, methods := range doc.Paths {
		want, ok := methods["get"].Responses["200"].Content["application/json"]
		if !ok {
			continue
		}
		status, b := d.ask(t, "GET", strings.ReplaceAll(path, "{hash}", hash), "", nil)
		var got any
		if err := json.Unmarshal(b, &got); err != nil || status != 200 {
			t.Errorf("GET %s: %d %s", path, status, b)
			continue
		}
		asked++
		compare(t, path, got, want.Schema, doc.Components.Schemas)
	}
	if asked < 8 {
		t.Errorf("only %d answers were compared", asked)
	}
}

type schema struct {
	Ref                  string `yaml:"$ref"`
	Type                 string
	Items                *schema
	Properties           map[string]schema
	AdditionalProperties *schema `yaml:"additionalProperties"`
	Required             []string
}

// compare finds where a value differs from its schema.
func compare(t *testing.T, at string, v any, s schema, all map[string]schema) {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		s = all[name]
	}
	kind := "null"
	switch v := v.(type) {
	case string:
		kind = "string"
	case bool:
		kind = "boolean"
	case float64:
		if kind = "number"; s.Type == "integer" && v == float64(int64(v)) {
			kind = "integer"
		}
	case []any:
		kind = "array"
		for _, x := range v {
			if s.Items != nil {
				compare(t, at+"[]", x, *s.Items, all)
			}
		}
	case map[string]any:
		kind = "object"
		for _, key := range s.Required {
			if _, ok := v[key]; !ok {
				t.Errorf("%s lacks %s", at, key)
			}
		}
		for key, x := range v {
			p, ok := s.Properties[key]
			if s.AdditionalProperties != nil {
				p, ok = *s.AdditionalProperties, true
			}
			if !ok {
				t.Errorf("%s has %s, which openapi.yaml lacks", at, key)
				continue
			}
			compare(t, at+"."+key, x, p, all)
		}
	}
	if kind != s.Type {
		t.Errorf("%s is of type %s, want %s", at, kind, s.Type)
	}
}

// A reader gets all torrents first, then what changes. One that reconnects misses nothing.
func TestEvents(t *testing.T) {
	d := start(t)
	first := create(t, t.TempDir(), "first", 1000)
	must[v1.Added](t)(d.Add(t.Context(), v1.AddTorrent{Torrent: first.Torrent(), Paused: true}))
	enough := errors.New("enough")
	last := ""
	// until reads events up to the first one that is wanted.
	until := func(after string, want func(name string, v any) bool) (names []string) {
		t.Helper()
		err := d.Events(t.Context(), after, func(e v1.Event) error {
			last = e.ID
			names = append(names, e.Name)
			v, err := e.Decode()
			if err == nil && want(e.Name, v) {
				err = enough
			}
			return err
		}, func() { t.Error("the daemon has gone") })
		if !errors.Is(err, enough) {
			t.Fatalf("the stream ended: %v", err)
		}
		return names
	}
	got := until("", func(_ string, v any) bool {
		s, ok := v.(*v1.Snapshot)
		return ok && len(s.Torrents) == 1 && s.Torrents[0].Name == "first" && s.Totals.Torrents == 1
	})
	if !slices.Equal(got, []string{"snapshot"}) {
		t.Errorf("the first events are %v", got)
	}
	seen := last
	second := create(t, t.TempDir(), "second", 1000)
	must[v1.Added](t)(d.Add(t.Context(), v1.AddTorrent{Torrent: second.Torrent(), Paused: true}))
	added := func(_ string, v any) bool {
		c, ok := v.(*v1.TorrentsChanged)
		return ok && len(c.Changed) == 1 && c.Changed[0].Name == "second"
	}
	if got := until(seen, added); slices.Contains(got, "snapshot") {
		t.Errorf("a reader that was away gets %v", got)
	}
	if got := until("other-1", func(name string, _ any) bool { return name == "snapshot" }); len(got) != 1 {
		t.Errorf("a reader of another process gets %v", got)
	}
	if err := d.Remove(t.Context(), second.InfoHash.HexString(), true); err != nil {
		t.Fatal(err)
	}
	until(seen, added) // the same again
	until(last, func(_ string, v any) bool {
		c, ok := v.(*v1.TorrentsChanged)
		return ok && slices.Equal(c.Removed, []string{second.InfoHash.HexString()})
	})
}

// The password is set over the unix socket only.
func TestSetPassword(t *testing.T) {
	d := start(t)
	if err := d.SetPassword(t.Context(), ""); err != nil { // a hash would take seconds under the race detector
		t.Error(err)
	}
	over := v1.NewClient(d.tcp, "")
	t.Cleanup(over.Close)
	var status *v1.StatusError
	if err := over.SetPassword(t.Context(), "mine"); !errors.As(err, &status) || status.Status != http.StatusForbidden {
		t.Errorf("over TCP: %v", err)
	}
}

// A reader hears that no daemon answers any more.
func TestEventsOfADaemonThatGoes(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = w.Write([]byte("id: 1\nevent: log\ndata: {}\n\n"))
	}))
	t.Cleanup(s.Close)
	c := v1.NewClient(s.URL, "")
	t.Cleanup(c.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone := false
	err := c.Events(ctx, "", func(v1.Event) error { return s.Listener.Close() }, func() {
		gone = true
		cancel()
	})
	if !gone || !errors.Is(err, context.Canceled) {
		t.Errorf("gone: %v, %v", gone, err)
	}
}

// The error of another program's server is a sentence, and no page.
func TestOtherServer(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{
		"<!DOCTYPE HTML>\n<html>": "the server answers 404 Not Found; is it a braid daemon?",
		"no such file\n":          "no such file",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(page))
		}))
		c := v1.NewClient(s.URL, "")
		if _, err := c.List(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		c.Close()
		s.Close()
	}
}
