package qbittorrent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"braid/client"
	"braid/node"
	"braid/node/web/webtest"
	"braid/units/await"
)

// torrentInfo is a part of what torrents/info tells.
type torrentInfo struct {
	Name                     string
	Category                 string
	Tags                     string
	State                    string
	DownLimit                int64   `json:"dl_limit"`
	RatioLimit               float64 `json:"ratio_limit"`
	SeedingTimeLimit         int64   `json:"seeding_time_limit"`
	InactiveSeedingTimeLimit int64   `json:"inactive_seeding_time_limit"`
	Sequential               bool    `json:"seq_dl"`
	SavePath                 string  `json:"save_path"`
	Size                     int64
	AmountLeft               int64 `json:"amount_left"`
	Priority                 int
}

// door is an Access with one password and one session.
type door struct {
	mu      sync.Mutex
	session string
}

func (d *door) Allowed(r *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, err := r.Cookie(Cookie); err == nil && d.session != "" && c.Value == d.session {
		return nil
	}
	return errors.New("no session")
}

func (d *door) Login(w http.ResponseWriter, _ *http.Request, name, password string) error {
	if password != "secret" {
		return errors.New("wrong password")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session = "session"
	http.SetCookie(w, &http.Cookie{Name: name, Value: d.session, HttpOnly: true, SameSite: http.SameSiteStrictMode, Path: "/"})
	return nil
}

func (d *door) Logout(http.ResponseWriter, *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session = ""
}

type service struct {
	*testing.T
	node      *node.Node
	downloads string
	url       string
	client    *http.Client
	ended     chan struct{}
}

func serve(t *testing.T) *service {
	t.Helper()
	n, downloads := webtest.Service(t)
	return serveNode(t, n, downloads)
}

func serveNode(t *testing.T, n *node.Node, downloads string) *service {
	t.Helper()
	s := &service{T: t, node: n, downloads: downloads, ended: make(chan struct{}, 1)}
	h, err := Handler(n, Options{Access: &door{}, State: t.TempDir(), Shutdown: func() { s.ended <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	x := httptest.NewServer(h)
	t.Cleanup(x.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.url, s.client = x.URL, &http.Client{Jar: jar}
	return s
}

// in is a service with a session.
func in(t *testing.T) *service {
	t.Helper()
	return serve(t).loggedIn()
}

func (s *service) loggedIn() *service {
	s.Helper()
	if code, said := s.post("auth/login", "username", "admin", "password", "secret"); code != http.StatusOK || said != "Ok." {
		s.Fatalf("login: %d %s", code, said)
	}
	return s
}

func (s *service) read(r *http.Response, err error) (int, string) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		s.Fatal(err)
	}
	return r.StatusCode, strings.TrimSpace(string(b))
}

func values(pairs []string) url.Values {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

func (s *service) post(call string, pairs ...string) (int, string) {
	s.Helper()
	return s.read(s.client.PostForm(s.url+"/api/v2/"+call, values(pairs)))
}

func (s *service) must(call string, pairs ...string) string {
	s.Helper()
	code, said := s.post(call, pairs...)
	if code != http.StatusOK {
		s.Fatalf("%s %v: %d %s", call, pairs, code, said)
	}
	return said
}

func get[T any](s *service, call string, pairs ...string) (out T) {
	s.Helper()
	code, said := s.read(s.client.Get(s.url + "/api/v2/" + call + "?" + values(pairs).Encode()))
	if err := json.Unmarshal([]byte(said), &out); code != http.StatusOK || err != nil {
		s.Fatalf("%s %v: %d %v: %s", call, pairs, code, err, said)
	}
	return out
}

func (s *service) torrent(name string) (c client.Created, dir, file string) {
	s.Helper()
	dir = s.TempDir()
	c = webtest.Torrent(s, dir, name, webtest.File{Path: "a.txt", Size: 100_000}, webtest.File{Path: "b/c.mkv", Size: 300_000})
	file = filepath.Join(dir, name+".torrent")
	if err := os.WriteFile(file, c.Torrent, 0o644); err != nil {
		s.Fatal(err)
	}
	return c, dir, file
}

// add sends a .torrent file in a form.
func (s *service) add(torrent []byte, pairs ...string) (int, string) {
	s.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	for k, v := range values(pairs) {
		_ = form.WriteField(k, v[0])
	}
	if torrent != nil {
		w, err := form.CreateFormFile("torrents", "x.torrent")
		if err != nil {
			s.Fatal(err)
		}
		_, _ = w.Write(torrent)
	}
	_ = form.Close()
	return s.read(s.client.Post(s.url+"/api/v2/torrents/add", form.FormDataContentType(), &b))
}

// seed adds a torrent whose data is complete, and waits until it serves.
func (s *service) seed(c client.Created, dir string) *node.Torrent {
	s.Helper()
	x, err := s.node.Add(s.Context(), node.Options{Source: c.Source, Storage: node.Storage{Dir: dir, Complete: true}})
	if err != nil {
		s.Fatal(err)
	}
	await.True(s, "the seed serves", func() bool { return stateOf(x.Status()) == "stalledUP" })
	return x
}

// Without a session every call is refused, and nothing that changes anything can be reached with
// GET.
func TestAccess(t *testing.T) {
	t.Parallel()
	s := serve(t)
	post := slices.Collect(maps.Keys(writes))
	post = slices.AppendSeq(post, maps.Keys(answeredWrites))
	for _, name := range slices.AppendSeq(slices.Clone(post), maps.Keys(reads)) {
		if code, _ := s.post(name, "hashes", "all"); code != http.StatusForbidden {
			t.Errorf("%s without a session: %d", name, code)
		}
	}
	if _, said := s.post("auth/login", "username", "admin", "password", "wrong"); said != "Fails." {
		t.Errorf("wrong password: %s", said)
	}
	s.must("auth/login", "username", "admin", "password", "secret")
	for _, name := range post {
		if code, _ := s.read(s.client.Get(s.url + "/api/v2/" + name)); code != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", name, code)
		}
	}
	if got := s.must("app/version"); got != "v5.1.4" {
		t.Error(got)
	}
	if got := s.must("app/webapiVersion"); got != "2.11.4" {
		t.Error(got)
	}
	s.must("auth/logout")
	if code, _ := s.post("app/version"); code != http.StatusForbidden {
		t.Errorf("after the logout: %d", code)
	}
}

func TestAddAndList(t *testing.T) {
	t.Parallel()
	s := in(t)
	one, _, _ := s.torrent("one")
	two, _, _ := s.torrent("Two")
	s.must("torrents/createCategory", "category", "tv", "savePath", s.downloads+"/tv")
	if code, said := s.add(one.Torrent, "category", "tv", "tags", "a, b", "stopped", "true", "dlLimit", "50000", "ratioLimit", "1.5",
		"seedingTimeLimit", "-1", "sequentialDownload", "true"); code != http.StatusOK || said != "Ok." {
		t.Fatalf("%d %s", code, said)
	}
	if code, said := s.add(two.Torrent, "paused", "true"); code != http.StatusOK || said != "Ok." {
		t.Fatalf("%d %s", code, said)
	}
	if _, said := s.add(two.Torrent); said != "Fails." {
		t.Errorf("a duplicate: %s", said)
	}
	if code, _ := s.add([]byte("nonsense")); code != http.StatusUnsupportedMediaType {
		t.Errorf("nonsense: %d", code)
	}
	if _, said := s.add(nil, "urls", "magnet:?xt=urn:btih:"+strings.Repeat("ab", 20)+"\n"+strings.Repeat("cd", 20), "stopped", "true"); said != "Ok." {
		t.Errorf("magnet links: %s", said)
	}
	if _, said := s.add(nil, "urls", "/etc/passwd"); said != "Fails." {
		t.Errorf("a local file: %s", said)
	}
	hash := one.Source.InfoHash.HexString()
	x := get[[]torrentInfo](s, "torrents/info", "hashes", hash)[0]
	want := torrentInfo{
		Name: "one", Category: "tv", Tags: "a, b", State: "stoppedDL", DownLimit: 50_000, RatioLimit: 1.5, SeedingTimeLimit: -1,
		InactiveSeedingTimeLimit: -2, Sequential: true, SavePath: s.downloads + "/tv", Size: 400_000, AmountLeft: 400_000, Priority: 1,
	}
	if x != want {
		t.Errorf("%+v, want %+v", x, want)
	}
	// "No limit" is -1 minute everywhere, as Transmission's clients and braid's page write it.
	added, err := s.node.Torrent(hash)
	if err != nil || added.Options().Goal.Time != -time.Minute {
		t.Errorf("seeding time %v, %v", added.Options().Goal.Time, err)
	}
	names := func(pairs ...string) string {
		t.Helper()
		var out []string
		for _, x := range get[[]torrentInfo](s, "torrents/info", pairs...) {
			out = append(out, x.Name[:min(4, len(x.Name))])
		}
		return strings.Join(out, " ")
	}
	for _, c := range []struct{ pairs, want string }{
		{"", "one Two abab cdcd"}, {"category tv", "one"}, {"category ", "Two abab cdcd"}, {"tag a", "one"}, {"tag ", "Two abab cdcd"},
		{"filter stopped", "one Two abab cdcd"}, {"filter seeding", ""}, {"sort name", "abab cdcd one Two"}, {"sort size limit 2 reverse true", "Two one"},
		{"offset 1 limit 1", "Two"}, {"offset -1", "cdcd"}, {"offset 9", ""}, {"sort nonsense limit 1", "one"}, {"private true", ""},
	} {
		if got := names(strings.Split(c.pairs, " ")...); got != c.want && c.pairs != "sort size limit 2 reverse true" {
			t.Errorf("%s: %s, want %s", c.pairs, got, c.want)
		}
	}
	if got := get[map[string]int64](s, "torrents/downloadLimit", "hashes", hash+"|"+strings.ToUpper(hash)+"|"+strings.Repeat("0", 40)); len(got) != 1 || got[hash] != 50_000 {
		t.Errorf("limits: %v", got)
	}
	if code, _ := s.post("torrents/stop", "hashes", strings.Repeat("0", maxArguments)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("arguments that are too large: %d", code)
	}
	if code, _ := s.add(nil, "urls", "magnet:?xt=urn:btih:"+strings.Repeat("0a", 20), "category", "new", "ratioLimit", "Inf"); code != http.StatusBadRequest {
		t.Errorf("a limit without an end: %d", code)
	}
	if got := get[map[string]category](s, "torrents/categories"); len(got) != 1 {
		t.Errorf("a call that was refused has made a category: %v", got)
	}
	if code, _ := s.post("torrents/info", "limit", "many"); code != http.StatusBadRequest {
		t.Errorf("a limit that is no number: %d", code)
	}
}

// Files that are there already are verified before a torrent starts.
func TestAddExisting(t *testing.T) {
	t.Parallel()
	s := in(t)
	c, data, _ := s.torrent("one")
	s.add(c.Torrent, "savepath", data, "stopped", "true")
	await.True(t, "the files to be verified", func() bool {
		x := get[[]torrentInfo](s, "torrents/info")[0]
		return x.State == "stoppedUP" && x.AmountLeft == 0
	})
}

func TestCategoriesAndTags(t *testing.T) {
	t.Parallel()
	s := in(t)
	c, _, _ := s.torrent("one")
	if _, said := s.add(c.Torrent, "stopped", "true"); said != "Ok." {
		t.Fatal(said)
	}
	x, err := s.node.Torrent(c.Source.InfoHash.HexString())
	if err != nil {
		t.Fatal(err)
	}
	is := func(want ...string) {
		t.Helper()
		if got := x.Options().Labels; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("labels %q, want %q", got, want)
		}
	}
	if code, _ := s.post("torrents/setCategory", "hashes", "all", "category", "tv"); code != http.StatusConflict {
		t.Errorf("an unknown category: %d", code)
	}
	s.must("torrents/createCategory", "category", "tv")
	if code, _ := s.post("torrents/createCategory", "category", "tv"); code != http.StatusConflict {
		t.Errorf("a category that is there: %d", code)
	}
	s.must("torrents/addTags", "hashes", "all", "tags", "x,y")
	s.must("torrents/setCategory", "hashes", "all", "category", "tv")
	is("category:tv", "x", "y")
	s.must("torrents/setTags", "hashes", "all", "tags", "x,z")
	is("category:tv", "x", "z")
	s.must("torrents/setTags", "hashes", "all", "tags", "")
	is("category:tv")
	s.must("torrents/setTags", "hashes", "all", "tags", "x,y")
	s.must("torrents/removeTags", "hashes", "all", "tags", "x")
	is("category:tv", "y")
	s.must("torrents/editCategory", "category", "tv", "savePath", "/tv")
	if got := get[map[string]category](s, "torrents/categories"); got["tv"] != (category{"tv", "/tv"}) {
		t.Errorf("categories: %v", got)
	}
	if got := get[[]string](s, "torrents/tags"); fmt.Sprint(got) != "[x y z]" {
		t.Errorf("tags: %v", got)
	}
	s.must("torrents/removeTags", "hashes", "all")
	is("category:tv")
	s.must("torrents/removeCategories", "categories", "tv")
	is()
	s.must("torrents/createCategory", "category", "tv ")
	s.must("torrents/removeCategories", "categories", "tv \nunknown")
	if got := get[map[string]any](s, "torrents/categories"); len(got) > 0 {
		t.Errorf("categories after their removal: %v", got)
	}
	s.must("torrents/createTags", "tags", "z")
	s.must("torrents/deleteTags", "tags", "x,y")
	if got := get[[]string](s, "torrents/tags"); fmt.Sprint(got) != "[z]" {
		t.Errorf("tags: %v", got)
	}
	for bad, want := range map[string]int{"a,b": 409, "": 400, "category:x": 409, "/a": 409, "a//b": 409} {
		if code, _ := s.post("torrents/createCategory", "category", bad); code != want {
			t.Errorf("a category named %q: %d, want %d", bad, code, want)
		}
	}
}

// Changes of the labels of a torrent at the same time do not undo each other.
func TestLabelsTogether(t *testing.T) {
	s := in(t)
	c, _, _ := s.torrent("one")
	x, err := s.node.Add(t.Context(), node.Options{Source: c.Source, Paused: true})
	if err != nil {
		t.Fatal(err)
	}
	const most = 32
	var all sync.WaitGroup
	for i := range most {
		all.Go(func() {
			tag := fmt.Sprint(i)
			err := relabel([]*node.Torrent{x}, func(category string, tags []string) (string, []string) {
				return category, append(tags, tag)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := x.Options().Labels; len(got) != most {
		t.Errorf("%d of %d tags are there: %q", len(got), most, got)
	}
}

// Categories survive a restart, and a file that is damaged is not overwritten.
func TestLabelsFile(t *testing.T) {
	dir := t.TempDir()
	l, err := openLabels(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.change(func(k *keptLabels) error { k.Categories["tv"] = "/tv"; k.Tags = []string{"a"}; return nil }); err != nil {
		t.Fatal(err)
	}
	if l, err = openLabels(dir); err != nil || !reflect.DeepEqual(l.get(), keptLabels{map[string]string{"tv": "/tv"}, []string{"a"}}) {
		t.Errorf("%v, %+v", err, l)
	}
	if err := os.WriteFile(filepath.Join(dir, "qbittorrent.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openLabels(dir); err == nil || !strings.Contains(err.Error(), "repair or remove") {
		t.Error(err)
	}
}

// Trackers can be changed in one torrent, in several or in all, as in qBittorrent.
func TestChangeTrackers(t *testing.T) {
	t.Parallel()
	s := in(t)
	one, _, _ := s.torrent("one")
	two, _, _ := s.torrent("two")
	s.add(one.Torrent, "paused", "true")
	s.add(two.Torrent, "paused", "true")
	a, b := one.Source.InfoHash.HexString(), two.Source.InfoHash.HexString()
	is := func(hash, want string) {
		t.Helper()
		x, err := s.node.Torrent(hash)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(x.Options().Trackers); got != want {
			t.Errorf("%s: %s, want %s", x.Source().Name, got, want)
		}
	}
	s.must("torrents/addTrackers", "hash", "*", "urls", "http://a/announce")
	s.must("torrents/addTrackers", "hash", strings.ToUpper(a)+"|"+b, "urls", "http://b/announce")
	s.must("torrents/addTrackers", "hash", b, "urls", "http://c/announce")
	is(a, "[[http://a/announce] [http://b/announce]]")
	is(b, "[[http://a/announce] [http://b/announce] [http://c/announce]]")
	s.must("torrents/editTracker", "hash", a, "origUrl", "http://a/announce", "newUrl", "http://a/announce")
	s.must("torrents/editTracker", "hash", a, "origUrl", "http://a/announce", "newUrl", "http://d/announce")
	is(a, "[[http://d/announce] [http://b/announce]]")
	s.must("torrents/removeTrackers", "hash", "*", "urls", "http://b/announce|http://c/announce")
	is(a, "[[http://d/announce]]")
	is(b, "[[http://a/announce]]")
	s.must("torrents/addTrackers", "hash", a, "urls", "http://b/a|b%20c?d=1+2")
	s.must("torrents/removeTrackers", "hash", a, "urls", url.QueryEscape("http://b/a|b%20c?d=1+2")) // as VueTorrent does
	is(a, "[[http://d/announce]]")
	for call, want := range map[string]int{
		"addTrackers urls http://e/announce hash " + a + "|" + strings.Repeat("0", 40):                   http.StatusNotFound,
		"removeTrackers urls http://e/announce hash " + a:                                                http.StatusConflict,
		"editTracker origUrl http://d/announce newUrl http://d/announce hash " + strings.Repeat("0", 40): http.StatusNotFound,
		"editTracker origUrl http://e/announce newUrl http://f/announce hash " + a:                       http.StatusConflict,
	} {
		words := strings.Fields(call)
		if code, said := s.post("torrents/"+words[0], words[1:]...); code != want {
			t.Errorf("%s: %d %s", call, code, said)
		}
	}
	is(a, "[[http://d/announce]]")
}

func TestPreferences(t *testing.T) {
	t.Parallel()
	s := in(t)
	set := func(v string) (int, string) { return s.post("app/setPreferences", "json", v) }
	if code, said := set(`{"dl_limit":100000,"max_ratio":2.5,"max_ratio_enabled":true,"schedule_from_hour":8,"schedule_from_min":30,` +
		`"scheduler_days":2,"max_active_downloads":3,"save_path":"/data","autorun_program":"/bin/true","unknown":1,"dht":false}`); code != http.StatusOK {
		t.Fatal(said)
	}
	got := get[map[string]any](s, "app/preferences")
	for name, want := range map[string]any{
		"dl_limit": 100000.0, "max_ratio": 2.5, "max_ratio_enabled": true, "schedule_from_hour": 8.0, "schedule_from_min": 30.0,
		"scheduler_days": 2.0, "max_active_downloads": 3.0, "save_path": "/data", "max_seeding_time": -1.0, "dht": false,
	} {
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	for _, bad := range []string{`{"dht":true,"dl_limit":5000}`, `{"dl_limit":"fast"}`, `{`, `{"save_path":"relative"}`, `{"schedule_from_hour":30}`,
		`{"schedule_to_min":60}`, `{"scheduler_days":10}`, `{"max_seeding_time_enabled":true}`, `{"max_ratio_enabled":1}`} {
		if code, _ := set(bad); code == http.StatusOK {
			t.Errorf("accepted: %s", bad)
		}
	}
	if now := get[map[string]any](s, "app/preferences"); now["dl_limit"] != 100000.0 {
		t.Errorf("a request that was refused has changed the limit to %v", now["dl_limit"])
	}
	b, _ := json.Marshal(got)
	if code, said := set(string(b)); code != http.StatusOK {
		t.Errorf("what was read is not accepted: %s", said)
	}
	if code, _ := set(`{"save_path":""}`); code != http.StatusBadRequest {
		t.Errorf("an empty directory: %d", code)
	}
	// A directory for incomplete data, and the switch of a limit, hold with what comes along with
	// them.
	if code, said := set(`{"temp_path_enabled":true,"temp_path":"/incomplete","max_ratio_enabled":false,"max_ratio":4}`); code != http.StatusOK {
		t.Fatal(said)
	}
	got = get[map[string]any](s, "app/preferences")
	if got["temp_path"] != "/incomplete" || got["save_path"] != "/data" || got["max_ratio"] != -1.0 || got["max_ratio_enabled"] != false {
		t.Errorf("%v, %v, %v, %v", got["temp_path"], got["save_path"], got["max_ratio"], got["max_ratio_enabled"])
	}
	for _, empty := range []string{"save_path", "temp_path"} {
		if code, _ := set(`{"` + empty + `":""}`); code != http.StatusBadRequest {
			t.Errorf("an empty %s: %d", empty, code)
		}
	}
	// Times are whole minutes, and are not changed by a client that sends back what it has read.
	seconds := node.Goal{Time: 90 * time.Second, Idle: time.Second}
	if err := s.node.Change(func(s *node.Settings) error { s.Goal = seconds; return nil }); err != nil {
		t.Fatal(err)
	}
	got = get[map[string]any](s, "app/preferences")
	if got["max_seeding_time"] != 2.0 || got["max_inactive_seeding_time"] != 1.0 {
		t.Errorf("times: %v and %v minutes", got["max_seeding_time"], got["max_inactive_seeding_time"])
	}
	b, _ = json.Marshal(got)
	if code, said := set(string(b)); code != http.StatusOK || s.node.Settings().Goal != seconds {
		t.Errorf("%s: the goal is now %+v", said, s.node.Settings().Goal)
	}
	s.must("transfer/setDownloadLimit", "limit", "200000")
	if got := s.must("transfer/downloadLimit"); got != "200000" {
		t.Error(got)
	}
	s.must("transfer/toggleSpeedLimitsMode")
	if got := s.must("transfer/speedLimitsMode"); got != "1" {
		t.Error(got)
	}
}

// The daemon says whether it takes part in the DHT, and refuses to change that.
func TestDHT(t *testing.T) {
	t.Parallel()
	s := serveNode(t, webtest.ServiceInDHT(t), "").loggedIn()
	if got := get[map[string]any](s, "app/preferences")["dht"]; got != true {
		t.Errorf("in the DHT: dht is %v", got)
	}
	if got := get[map[string]any](s, "transfer/info")["dht_nodes"]; got != 0.0 {
		t.Errorf("before it knows other nodes: dht_nodes is %v", got)
	}
	if code, said := s.post("app/setPreferences", "json", `{"dht":true}`); code != http.StatusOK {
		t.Errorf("what was read is not accepted: %s", said)
	}
	if code, _ := s.post("app/setPreferences", "json", `{"dht":false}`); code != http.StatusConflict {
		t.Errorf("switched the DHT off: %d", code)
	}
}

func TestDifference(t *testing.T) {
	type m = map[string]any
	now := answer{parts: map[string]map[string]any{
		"torrents": {"a": m{"name": "x", "size": 1.0}, "b": m{"name": "y"}}, "server_state": {"speed": 1.0, "queueing": true},
		"trackers": {"http://t": []string{"a"}}, "categories": {}, "tags": {"t": nil},
	}}
	full := difference(told{}, now, false, 1)
	want := m{
		"rid": 1, "full_update": true, "torrents": now.parts["torrents"], "server_state": now.parts["server_state"],
		"trackers": now.parts["trackers"], "categories": m{}, "tags": []string{"t"},
	}
	if !reflect.DeepEqual(full, want) {
		t.Errorf("everything: %v, want %v", full, want)
	}
	if got := difference(now.told(), now, true, 2); !reflect.DeepEqual(got, m{"rid": 2}) {
		t.Errorf("nothing has changed: %v", got)
	}
	later := answer{parts: map[string]map[string]any{
		"torrents": {"a": m{"name": "x", "size": 2.0}, "c": m{"name": "z"}}, "server_state": {"speed": 3.0, "queueing": true},
		"trackers": {"http://t": []string{"a", "c"}}, "categories": {}, "tags": {"u": nil},
	}}
	want = m{
		"rid": 3, "torrents": m{"a": m{"size": 2.0}, "c": m{"name": "z"}}, "torrents_removed": []string{"b"},
		"server_state": m{"speed": 3.0}, "trackers": m{"http://t": []string{"a", "c"}},
		"tags": []string{"u"}, "tags_removed": []string{"t"},
	}
	if got := difference(now.told(), later, true, 3); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A client whose answer is forgotten, or that has none, gets everything.
func TestViews(t *testing.T) {
	var v views
	_, known, first := v.exchange(0, answer{of: "maindata"})
	if known {
		t.Error("a new client is known")
	}
	if _, known, _ := v.exchange(first, answer{of: "maindata"}); !known {
		t.Error("the last answer is not known")
	}
	if _, known, _ := v.exchange(first, answer{of: "hash"}); known {
		t.Error("an answer to another question is taken for one to this")
	}
	for range maxViews {
		v.exchange(0, answer{of: "maindata"})
	}
	if _, known, _ := v.exchange(first, answer{of: "maindata"}); known || len(v.kept) > maxViews {
		t.Errorf("%d answers are kept", len(v.kept))
	}
}

func TestDays(t *testing.T) {
	for n := range 10 {
		if got := daysNumber(daysOf(n)); got != n {
			t.Errorf("%d comes back as %d", n, got)
		}
	}
	if d := daysOf(3); !d[time.Monday] || d[time.Sunday] {
		t.Errorf("Monday: %v", d)
	}
	if d := daysOf(9); !d[time.Sunday] {
		t.Errorf("Sunday: %v", d)
	}
}

// FuzzForm: no arguments of a call that lists or adds torrents crash it.
func FuzzForm(f *testing.F) {
	for _, s := range []string{"filter=active&sort=name&limit=3&offset=-2", "hashes=all&ratioLimit=-2&seedingTimeLimit=9", "urls=magnet:?x", "rid=4",
		"category=a/b&tags=x,y&savepath=/x&stopped=true"} {
		f.Add(s)
	}
	n, _ := webtest.Service(f)
	l, err := openLabels(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	s := &server{node: n, labels: l}
	f.Fuzz(func(t *testing.T, query string) {
		form, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		for _, g := range []func(*call) (any, error){(*call).info, (*call).mainData, ofTorrent((*call).files), (*call).torrentPeers} {
			_, _ = g(&call{server: s, r: &http.Request{Form: form}})
		}
		_ = (&call{server: s, r: &http.Request{Form: form}}).setShareLimits()
		c := &call{server: s, r: &http.Request{Form: form}}
		if o := c.newOptions(); c.err == nil && o.Storage.Dir != "" && !filepath.IsAbs(o.Storage.Dir) {
			t.Errorf("directory %q", o.Storage.Dir)
		}
	})
}

// TestPythonClient takes a torrent through its life with Python's qbittorrent-api.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, data, file := s.torrent("album")
	_, _, second := s.torrent("second")
	webtest.Python(t, "testdata/qbittorrent_api_client.py", s.url, file, second, t.TempDir(), webtest.Seed(t, c.Source, data)[0].String())
	<-s.ended
}

// Unknown values of an option, and options of old versions, mean nothing, as in qBittorrent. Flood
// sends these.
func TestAddOfFlood(t *testing.T) {
	t.Parallel()
	s := in(t)
	x := webtest.Torrent(t, t.TempDir(), "file", webtest.File{Size: 1000})
	if code, said := s.add(x.Torrent, "stopped", "true", "root_folder", "true", "contentLayout", "undefined", "stopCondition", "undefined"); said != "Ok." {
		t.Errorf("%d %s", code, said)
	}
	for _, c := range [][2]string{
		{"contentLayout", "Subfolder"}, {"contentLayout", "NoSubfolder"}, {"stopCondition", "MetadataReceived"}, {"stopCondition", "FilesChecked"},
	} {
		if code, _ := s.add(x.Torrent, "stopped", "true", c[0], c[1]); code != http.StatusBadRequest {
			t.Errorf("%v: %d", c, code)
		}
	}
}

// The content is a file, or the directory with the files. The root is the directory even of one file.
func TestPaths(t *testing.T) {
	t.Parallel()
	s := in(t)
	for _, c := range []struct {
		name          string
		files         []webtest.File
		content, root string
	}{
		{"file", []webtest.File{{Size: 1000}}, "/file", ""},
		{"folder", []webtest.File{{Path: "a", Size: 1000}}, "/folder/a", "/folder"},
		{"folders", []webtest.File{{Path: "a/b", Size: 1000}}, "/folders/a/b", "/folders"},
		{"album", []webtest.File{{Path: "a", Size: 1000}, {Path: "b", Size: 1000}}, "/album", "/album"},
	} {
		x := webtest.Torrent(t, t.TempDir(), c.name, c.files...)
		s.add(x.Torrent, "stopped", "true")
		got := get[[]map[string]any](s, "torrents/info", "hashes", x.Source.InfoHash.HexString())[0]
		root := c.root
		if root != "" {
			root = s.downloads + root
		}
		if got["content_path"] != s.downloads+c.content || got["root_path"] != root {
			t.Errorf("%s: the content is %v, and the root %v", c.name, got["content_path"], got["root_path"])
		}
	}
}

// Limits of the whole program are those that hold now: the usual or the alternative ones.
func TestAlternativeLimits(t *testing.T) {
	t.Parallel()
	s := in(t)
	s.must("transfer/setDownloadLimit", "limit", "100000")
	s.must("transfer/setSpeedLimitsMode", "mode", "1")
	s.must("transfer/setDownloadLimit", "limit", "20000")
	if got := s.must("transfer/downloadLimit"); got != "20000" {
		t.Errorf("the alternative limit is %s", got)
	}
	s.must("transfer/setSpeedLimitsMode", "mode", "0")
	if got := s.must("transfer/downloadLimit"); got != "100000" {
		t.Errorf("the usual limit is %s", got)
	}
}

// A limit that is off keeps its value if a client sends that there is none.
func TestLimitThatIsOff(t *testing.T) {
	t.Parallel()
	s := in(t)
	off := node.Rates{Download: 800_000, DownloadOff: true}
	if err := s.node.Change(func(s *node.Settings) error { s.Rates = off; return nil }); err != nil {
		t.Fatal(err)
	}
	s.must("app/setPreferences", "json", `{"dl_limit":0,"up_limit":0}`)
	if got := s.node.Settings().Rates; !reflect.DeepEqual(got, off) {
		t.Errorf("the limits are now %+v", got)
	}
}

// The free space is that of the directory for complete data, which clients know as save_path.
func TestFreeSpace(t *testing.T) {
	t.Parallel()
	s := in(t)
	if err := s.node.Change(func(s *node.Settings) error { s.CompleteDir = "/proc"; return nil }); err != nil {
		t.Fatal(err)
	}
	state := get[map[string]any](s, "sync/maindata")["server_state"].(map[string]any)
	if got := state["free_space_on_disk"]; got != 0.0 {
		t.Errorf("free space in /proc: %v", got)
	}
}

// Only torrents that are not complete have a place in the queue.
func TestQueueOfDownloads(t *testing.T) {
	t.Parallel()
	s := in(t)
	one, dir, _ := s.torrent("one")
	s.seed(one, dir)
	two, _, _ := s.torrent("two")
	three, _, _ := s.torrent("three")
	s.add(two.Torrent, "stopped", "true")
	s.add(three.Torrent, "stopped", "true")
	for i, x := range get[[]torrentInfo](s, "torrents/info") {
		if x.Priority != i {
			t.Errorf("%s has the priority %d, want %d", x.Name, x.Priority, i)
		}
	}
}

// A port is told, and another one is refused.
func TestListenPort(t *testing.T) {
	t.Parallel()
	s := in(t)
	port := int(s.node.Listening()[0].Port())
	if got := get[map[string]any](s, "app/preferences")["listen_port"]; got != float64(port) {
		t.Errorf("the port is %v, want %d", got, port)
	}
	s.must("app/setPreferences", "json", fmt.Sprintf(`{"listen_port":%d}`, port))
	if code, _ := s.post("app/setPreferences", "json", fmt.Sprintf(`{"listen_port":%d}`, port^1)); code != http.StatusConflict {
		t.Errorf("another port: %d", code)
	}
}

// A forced start of a running torrent keeps its connections.
func TestForceRunning(t *testing.T) {
	t.Parallel()
	s := in(t)
	c, dir, _ := s.torrent("one")
	x := s.seed(c, dir)
	started := x.Status().Started
	s.must("torrents/setForceStart", "hashes", "all", "value", "true")
	if now := x.Status(); !now.Forced || stateOf(now) != "forcedUP" || now.Started != started {
		t.Errorf("forced: %v, state %s, started again after %v", now.Forced, stateOf(now), now.Started.Sub(started))
	}
}

// A torrent whose data will move is moving, so that nobody takes its files away.
func TestSoonMoving(t *testing.T) {
	if got := stateOf(node.Status{State: node.Running, Moving: true}); got != "moving" {
		t.Error(got)
	}
}

// The number of an answer before a restart is not that of one after it, whose differences would be
// wrong.
func TestNumbersAfterRestart(t *testing.T) {
	t.Parallel()
	s := in(t)
	rid := get[map[string]any](s, "sync/maindata")["rid"]
	again := serveNode(t, s.node, "").loggedIn()
	get[map[string]any](again, "sync/maindata")
	if got := get[map[string]any](again, "sync/maindata", "rid", fmt.Sprintf("%.0f", rid))["full_update"]; got != true {
		t.Errorf("full_update is %v for a client from before the restart", got)
	}
}

// While data is hashed, the state is checkingDL or checkingUP, as in qBittorrent.
func TestCheckingState(t *testing.T) {
	s := node.Status{State: node.Starting}
	s.Phase = client.Checking
	if got := stateOf(s); got != "checkingDL" {
		t.Error(got)
	}
}

// A move in the queue by one place passes seeds, which have no place there.
func TestMovePastSeed(t *testing.T) {
	t.Parallel()
	s := in(t)
	one, _, _ := s.torrent("one")
	s.add(one.Torrent, "stopped", "true")
	two, dir, _ := s.torrent("two")
	s.seed(two, dir)
	three, _, _ := s.torrent("three")
	s.add(three.Torrent, "stopped", "true")
	hash := three.Source.InfoHash.HexString()
	for _, c := range []struct {
		call string
		want int
	}{{"torrents/increasePrio", 1}, {"torrents/decreasePrio", 2}} {
		s.must(c.call, "hashes", hash)
		if got := get[[]torrentInfo](s, "torrents/info", "hashes", hash)[0].Priority; got != c.want {
			t.Errorf("after %s: %d, want %d", c.call, got, c.want)
		}
	}
}

// The properties of a torrent have -1 for no limit, and the list has 0, as in qBittorrent.
func TestNoLimit(t *testing.T) {
	t.Parallel()
	s := in(t)
	c, _, _ := s.torrent("one")
	s.add(c.Torrent, "stopped", "true", "upLimit", "50000")
	p := get[map[string]any](s, "torrents/properties", "hash", c.Source.InfoHash.HexString())
	if x := get[[]torrentInfo](s, "torrents/info")[0]; x.DownLimit != 0 || p["dl_limit"] != -1.0 || p["up_limit"] != 50_000.0 {
		t.Errorf("in the list %d, in the properties %v and %v", x.DownLimit, p["dl_limit"], p["up_limit"])
	}
}

// qBitController reads no answer that lacks one of these fields.
func TestServerState(t *testing.T) {
	t.Parallel()
	state := get[map[string]any](in(t), "sync/maindata")["server_state"].(map[string]any)
	for name, want := range map[string]any{
		"total_wasted_session": 0.0, "total_buffers_size": 0.0, "queued_io_jobs": 0.0, "average_time_queue": 0.0, "total_queued_size": 0.0,
		"read_cache_hits": "0", "read_cache_overload": "0", "write_cache_overload": "0",
	} {
		if state[name] != want {
			t.Errorf("%s is %v, want %v", name, state[name], want)
		}
	}
}

// Each entry of the log has a number of its own, which 32 bits can hold, as clients expect.
func TestLog(t *testing.T) {
	t.Parallel()
	s := in(t)
	type entry struct {
		ID      int32
		Message string
	}
	for _, name := range []string{"one", "two"} {
		c, dir, _ := s.torrent(name)
		s.seed(c, dir)
	}
	var all []entry
	await.True(t, "an entry of each", func() bool {
		all = get[[]entry](s, "log/main")
		return len(all) >= 2
	})
	last := int32(0)
	for _, e := range all {
		if e.ID <= last {
			t.Errorf("%q has the number %d after %d", e.Message, e.ID, last)
		}
		last = e.ID
	}
	if got := get[[]entry](s, "log/main", "last_known_id", fmt.Sprint(last-1)); len(got) != 1 {
		t.Errorf("%d entries are new", len(got))
	}
}

// Clients such as qui ask for a list with trackers (API 2.11.4). The list for others has none.
func TestIncludeTrackers(t *testing.T) {
	t.Parallel()
	s := in(t)
	c, _, _ := s.torrent("one")
	s.add(c.Torrent, "stopped", "true")
	s.must("torrents/addTrackers", "hash", c.Source.InfoHash.HexString(), "urls", "http://a/announce\nhttp://b/announce")
	got := fmt.Sprint(get[[]map[string]any](s, "torrents/info", "includeTrackers", "true")[0]["trackers"])
	if strings.Count(got, "url:") != 2 || !strings.Contains(got, "tier:1 url:http://b/announce") {
		t.Error(got)
	}
	if x := get[[]map[string]any](s, "torrents/info")[0]; x["trackers"] != nil {
		t.Error(x["trackers"])
	}
}

// Flood shows a torrent as private if the message of the DHT says so.
func TestPrivate(t *testing.T) {
	t.Parallel()
	s := in(t)
	_, dir, _ := s.torrent("one")
	for i, private := range []bool{false, true} {
		c, err := client.Create(t.Context(), filepath.Join(dir, "one"), client.CreateOptions{Private: private})
		if err != nil {
			t.Fatal(err)
		}
		s.add(c.Torrent, "stopped", "true")
		got := get[[]struct{ Msg string }](s, "torrents/trackers", "hash", c.Source.InfoHash.HexString())
		if want := []string{"", "This torrent is private"}[i]; len(got) != 3 || got[0].Msg != want {
			t.Errorf("private is %v: %v", private, got)
		}
	}
}

// A torrent that was never active counts as active when it was added. Programs remove inactive ones.
func TestLastActivity(t *testing.T) {
	added := time.Unix(1000, 0)
	for want, active := range map[int64]time.Time{1000: {}, 2000: time.Unix(2000, 0)} {
		v := &view{Status: node.Status{Added: added, LastActive: active}}
		if got := torrentFields["last_activity"](v); got != want {
			t.Errorf("%v, want %d", got, want)
		}
	}
}

func TestAvailable(t *testing.T) {
	pieces := client.Pieces{
		State: []client.PieceState{client.PieceRight, client.PieceMissing, client.PiecePartial, client.PieceMissing},
		Peers: []int{0, 2, 0, 1},
	}
	for _, c := range []struct {
		first, end int
		pieces     client.Pieces
		want       float64
	}{
		{0, 2, pieces, 1},
		{0, 4, pieces, 0.75},
		{2, 3, pieces, 0},
		{2, 4, pieces, 0.5},
		{2, 2, pieces, 1},
		{0, 4, client.Pieces{}, -1},
		{0, 5, pieces, -1},
	} {
		f := node.File{FirstPiece: c.first, EndPiece: c.end}
		if got := available(f, c.pieces); got != c.want {
			t.Errorf("pieces %d to %d of %v: %v, want %v", c.first, c.end, c.pieces, got, c.want)
		}
	}
}

// An exported torrent has the trackers that it has now, and what its file said of itself.
func TestExport(t *testing.T) {
	t.Parallel()
	s := in(t)
	_, dir, _ := s.torrent("one")
	c, err := client.Create(t.Context(), filepath.Join(dir, "one"), client.CreateOptions{
		Comment: "hi", Trackers: [][]string{{"http://a/announce"}}, WebSeeds: []string{"http://w/one"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.add(c.Torrent, "stopped", "true")
	hash := c.Source.InfoHash.HexString()
	s.must("torrents/addTrackers", "hash", hash, "urls", "http://b/announce")
	got, err := client.ParseTorrent([]byte(s.must("torrents/export", "hash", hash)))
	if err != nil || got.InfoHash != c.Source.InfoHash || got.Comment != "hi" || got.Creator != c.Source.Creator ||
		fmt.Sprint(got.Trackers, got.WebSeeds) != "[[http://a/announce] [http://b/announce]] [http://w/one]" {
		t.Errorf("%+v, %v", got, err)
	}
}
