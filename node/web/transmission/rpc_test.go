package transmission

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/node"
	"braid/node/web/webtest"
	"braid/storage"
	"braid/units/await"
)

// Without the session id nothing is carried out, whatever the method of HTTP; the answer names it.
func TestSessionID(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
		r, _ := http.NewRequest(method, s.url+"/transmission/rpc", strings.NewReader(`{"method":"session-close"}`))
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusConflict || len(res.Header.Get(sessionHeader)) < 20 || res.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: status %d, headers %v", method, res.StatusCode, res.Header)
		}
	}
	select {
	case <-s.ended:
		t.Error("a request without session id was carried out")
	default:
	}
	s.post(`{"method":"session-get"}`)
	for _, c := range []struct {
		method, body string
		want         int
	}{
		{http.MethodGet, "", http.StatusMethodNotAllowed},
		{http.MethodPut, "{}", http.StatusMethodNotAllowed},
		{http.MethodPost, `{"jsonrpc":"2.0","method":"session_get"}`, http.StatusNoContent},
		{http.MethodPost, `nonsense`, http.StatusOK},
	} {
		r, _ := http.NewRequest(c.method, s.url+"/transmission/rpc", strings.NewReader(c.body))
		r.Header.Set(sessionHeader, s.session)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%s %s: status %d, want %d", c.method, c.body, res.StatusCode, c.want)
		}
	}
}

// Both dialects have every field, with the same values.
func TestDialects(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, _, _ := s.torrent("album")
	s.add(c, map[string]any{"labels": []string{"x"}, "trackers": nil})
	s.must("torrent-set", map[string]any{"ids": 1, "trackerList": "http://127.0.0.1:1/announce\n\nudp://127.0.0.1:2"})
	s.must("torrent-add", map[string]any{"filename": "magnet:?xt=urn:btih:" + strings.Repeat("ab", 20) + "&dn=later", "paused": true})
	var old, now []string
	for _, f := range torrentFields {
		old, now = append(old, f.name), append(now, canonical(f.name))
	}
	first := s.must("torrent-get", map[string]any{"fields": old})["torrents"].([]any)
	q, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "torrent_get", "params": map[string]any{"fields": now}})
	_, answer := s.post(string(q))
	var reply struct {
		Result struct{ Torrents []map[string]any }
		Error  any
	}
	if err := json.Unmarshal(answer, &reply); err != nil || reply.Error != nil || len(reply.Result.Torrents) != 2 || len(first) != 2 {
		t.Fatalf("%v: %s", err, answer)
	}
	for i, second := range reply.Result.Torrents {
		a := snakeKeys(first[i])
		if len(second) != len(torrentFields) || !reflect.DeepEqual(a, snakeKeys(any(second))) {
			t.Errorf("torrent %d: classic %v\nJSON-RPC %v", i, a, second)
		}
		for k, v := range second {
			if v == nil {
				t.Errorf("torrent %d: %s is null", i, k)
			}
		}
	}
	for _, c := range []struct {
		field string
		want  any
	}{
		{"name", "album"}, {"totalSize", 450_000.0}, {"pieceCount", 14.0}, {"file-count", 3.0}, {"status", 0.0}, {"labels", []any{"x"}},
		{"downloadDir", s.downloads}, {"isPrivate", false}, {"comment", "a comment"}, {"primary-mime-type", "video/x-matroska"},
		{"pieces", "AAA="}, {"percentDone", 0.0}, {"hashString", c2hash(c)}, {"queuePosition", 0.0}, {"metadataPercentComplete", 1.0},
		{"error", 0.0}, {"uploadRatio", 0.0}, {"seedRatioMode", 0.0},
	} {
		if got := s.field(1, c.field); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s is %v, want %v", c.field, got, c.want)
		}
	}
	trackers := s.field(1, "trackers").([]any)
	want := map[string]any{"id": 1.0, "tier": 1.0, "announce": "udp://127.0.0.1:2", "scrape": "", "sitename": "0"}
	if len(trackers) != 2 || trackers[0].(map[string]any)["scrape"] != "http://127.0.0.1:1/scrape" || !reflect.DeepEqual(trackers[1], any(want)) {
		t.Errorf("trackers: %v", trackers)
	}
	if got := s.field(2, "metadataPercentComplete"); got != 0.0 {
		t.Errorf("metadata of a magnet link: %v", got)
	}

	all := s.must("session-get", nil)
	_, answer = s.post(`{"jsonrpc":"2.0","id":1,"method":"session_get"}`)
	var session struct{ Result map[string]any }
	if err := json.Unmarshal(answer, &session); err != nil {
		t.Fatal(err)
	}
	delete(all, "download-dir-free-space")
	delete(session.Result, "download_dir_free_space")
	if !reflect.DeepEqual(snakeKeys(any(all)), snakeKeys(any(session.Result))) {
		t.Errorf("session: classic %v\nJSON-RPC %v", all, session.Result)
	}
}

func c2hash(c client.Created) string { return c.Source.InfoHash.HexString() }

// snakeKeys spells all names in a JSON value in snake_case.
func snakeKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[canonical(k)] = snakeKeys(x)
		}
		return out
	case []any:
		out := []any{}
		for _, x := range v {
			out = append(out, snakeKeys(x))
		}
		return out
	}
	return v
}

func TestJSONRPC(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, c := range []struct{ body, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"torrent_get","params":{"fields":["id"]}}`, `{"jsonrpc":"2.0","result":{"torrents":[]},"id":1}`},
		{`{"jsonrpc":"2.0","id":1,"method":"torrent_get"}`, `{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params",` +
			`"data":{"error_string":"the request must list the \"fields\" that it wants"}},"id":1}`},
		{`{"jsonrpc":"2.0","id":1,"method":"dance"}`, `{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found",` +
			`"data":{"error_string":"there is no method \"dance\""}},"id":1}`},
		{`{"jsonrpc":"2.0","id":1,"method":"torrent_set_location","params":{"location":"here"}}`, `{"jsonrpc":"2.0","error":{"code":3,` +
			`"message":"path is not absolute","data":{"error_string":"the directory \"here\" is not an absolute path"}},"id":1}`},
		{`{"jsonrpc":"2.0","id":1,"method":"torrent_add","params":{"metainfo":"bm9uc2Vuc2U="}}`, `"code":9`},
		{`{"jsonrpc":"2.0","id":1,"method":"torrent_add","params":{"filename":"gopher://x"}}`, `"code":4`},
		{`{"jsonrpc":"2.0","id":1,"method":"torrent_add","params":{"filename":"http://127.0.0.1:1/x.torrent"}}`, `"code":8`},
		{`{"jsonrpc":"2.0","id":1,"method":"port_test"}`, `"error_string":"braid has no service that tests its port from outside"`},
		{`{"jsonrpc":"2.0","id":1,"method":"group_get"}`, `{"jsonrpc":"2.0","result":{"group":[]},"id":1}`},
		{`[{"jsonrpc":"2.0","id":1,"method":"group_get"},{"jsonrpc":"2.0","method":"group_get"},{"jsonrpc":"2.0","id":"b","method":"torrent_stop"}]`,
			`[{"jsonrpc":"2.0","result":{"group":[]},"id":1},{"jsonrpc":"2.0","result":{},"id":"b"}]`},
		{`[{"jsonrpc":"2.0","method":"group_get"}]`, ``},
	} {
		if _, got := s.post(c.body); !strings.Contains(string(got), c.want) || c.want == "" && len(got) > 0 {
			t.Errorf("%s: %s, want %s", c.body, got, c.want)
		}
	}
}

func TestTableAndRecent(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, name := range []string{"one", "two"} {
		c, _, _ := s.torrent(name)
		s.add(c, nil)
	}
	rows := s.must("torrent-get", map[string]any{"format": "table", "fields": []string{"id", "hashString", "id", "nonsense", "name"}, "ids": []int{2, 7}})
	all := rows["torrents"].([]any)
	if len(all) != 2 || fmt.Sprint(all[0]) != "[id hashString name]" || all[1].([]any)[2] != "two" {
		t.Errorf("table: %v", all)
	}
	recent := func() (ids []any, removed []any) {
		t.Helper()
		out := s.must("torrent-get", map[string]any{"fields": []string{"id"}, "ids": "recently-active"})
		for _, x := range out["torrents"].([]any) {
			ids = append(ids, x.(map[string]any)["id"])
		}
		return ids, out["removed"].([]any)
	}
	if ids, removed := recent(); len(ids) != 2 || len(removed) != 0 {
		t.Errorf("new torrents: %v, removed %v", ids, removed)
	}
	s.must("torrent-remove", map[string]any{"ids": []int{1}})
	if ids, removed := recent(); fmt.Sprint(ids) != "[2]" || fmt.Sprint(removed) != "[1]" {
		t.Errorf("after a removal: %v, removed %v", ids, removed)
	}
	if got := s.must("torrent-get", map[string]any{"fields": []string{"id"}, "ids": []int{}})["torrents"].([]any); len(got) != 0 {
		t.Errorf("an empty list chooses %v", got)
	}
}

// A torrent counts as recent for a minute after a change, and then no longer.
func TestRecent(t *testing.T) {
	var m memory
	now := time.Unix(1e9, 0)
	n, _ := webtest.Service(t)
	c := webtest.Torrent(t, t.TempDir(), "one", webtest.File{Size: 1000})
	s := &service{T: t, node: n}
	x := s.addPaused(c)
	is := func(after time.Duration, want bool) {
		t.Helper()
		now = now.Add(after)
		m.look(n.Torrents, now)
		if got := m.recent(n.Statuses(), now)[x.Number()]; got != want {
			t.Errorf("recent: %t, want %t", got, want)
		}
	}
	is(0, true)
	is(59*time.Second, true)
	is(2*time.Second, false)
	s.label(x, "new")
	is(time.Second, true)
	is(61*time.Second, false)
}

// A torrent that another request sees while this one lists the torrents does not count as removed.
func TestLooksTogether(t *testing.T) {
	var m memory
	now := time.Unix(1e9, 0)
	n, _ := webtest.Service(t)
	s, c := &service{T: t, node: n}, webtest.Torrent(t, t.TempDir(), "one", webtest.File{Size: 1000})
	m.look(func() []*node.Torrent {
		all := n.Torrents()
		s.addPaused(c)
		if m.mu.TryLock() { // another look waits for this one
			m.mu.Unlock()
			m.look(n.Torrents, now)
		}
		return all
	}, now)
	m.look(n.Torrents, now)
	if m.look(n.Torrents, now); len(m.gone()) > 0 {
		t.Errorf("torrents %v are removed, but none was", m.gone())
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, _, file := s.torrent("album")
	place := t.TempDir()
	id := s.add(c, map[string]any{
		"download-dir": place, "labels": []string{"a"}, "bandwidthPriority": 1, "peer-limit": 9,
		"files-unwanted": []int{0}, "priority-high": []int{1}, "priority-low": []int{2},
	})
	for field, want := range map[string]any{
		"downloadDir": place, "labels": []any{"a"}, "bandwidthPriority": 1.0, "peer-limit": 9.0,
		"wanted": []any{0.0, 1.0, 1.0}, "priorities": []any{0.0, 1.0, -1.0}, "status": 0.0,
	} {
		if got := s.field(id, field); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	again := s.must("torrent-add", map[string]any{"filename": file})
	if x, ok := again["torrent-duplicate"].(map[string]any); !ok || x["id"] != id || x["name"] != "album" {
		t.Errorf("a duplicate: %v", again)
	}
	s.must("torrent-remove", map[string]any{"ids": id})

	// By URL, from a server that demands a cookie.
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if x, err := r.Cookie("pass"); err != nil || x.Value != "yes" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		_, _ = w.Write(c.Torrent)
	}))
	defer web.Close()
	if _, result := s.ask("torrent-add", map[string]any{"filename": web.URL}); !strings.Contains(result, "403") {
		t.Errorf("without a cookie: %s", result)
	}
	s.must("torrent-add", map[string]any{"filename": web.URL, "cookies": "uid=1; pass=yes", "paused": true})

	for _, bad := range []map[string]any{
		{}, {"filename": ""}, {"filename": "relative.torrent"}, {"filename": filepath.Join(s.downloads, "none.torrent")},
		{"metainfo": "%"}, {"filename": "magnet:?xt=nonsense"}, {"filename": file, "download-dir": "relative"}, {"filename": file, "labels": 7},
	} {
		if _, result := s.ask("torrent-add", bad); result == "success" {
			t.Errorf("added: %v", bad)
		}
	}
	// If a part of the request is impossible, nothing is added.
	other, _, _ := s.torrent("other")
	before := len(s.node.Torrents())
	if _, result := s.ask("torrent-add", map[string]any{"metainfo": encode(other), "files-unwanted": []int{3}}); !strings.Contains(result, "no file 3") {
		t.Errorf("a file that is not there: %s", result)
	}
	if n := len(s.node.Torrents()); n != before {
		t.Errorf("%d torrents, before %d", n, before)
	}
	// A bare info hash is a magnet link.
	got := s.must("torrent-add", map[string]any{"filename": strings.Repeat("0A", 20), "paused": true})
	if x, ok := got["torrent-added"].(map[string]any); !ok || x["hashString"] != strings.Repeat("0a", 20) {
		t.Errorf("a bare hash: %v", got)
	}
}

// Files that are there already are verified before a torrent starts, also those of a magnet link
// whose description an earlier download has kept.
func TestAddExisting(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for i, name := range []string{"album", "other"} {
		c, data, _ := s.torrent(name)
		args := map[string]any{"metainfo": encode(c), "paused": true, "download-dir": data}
		if i == 1 {
			kept := storage.KeptTorrent(data, c.Source.InfoHash)
			if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o755), os.WriteFile(kept, c.Torrent, 0o644)); err != nil {
				t.Fatal(err)
			}
			delete(args, "metainfo")
			args["filename"] = c.Source.Magnet()
		}
		s.must("torrent-add", args)
		await.True(t, "the files to be verified", func() bool {
			return s.field(i+1, "percentDone") == 1.0 && s.field(i+1, "status") == float64(stopped)
		})
	}
}

func TestSessionSet(t *testing.T) {
	t.Parallel()
	s := serve(t)
	all := func(names ...string) (out []any) {
		for _, n := range names {
			out = append(out, s.setting(n))
		}
		return out
	}
	is := func(names string, want ...any) {
		t.Helper()
		if got := all(strings.Fields(names)...); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", names, got, want)
		}
	}
	// A limit that is off keeps its value.
	s.must("session-set", map[string]any{"speed-limit-down": 500, "speed-limit-down-enabled": true, "seedRatioLimit": 2, "seedRatioLimited": true})
	s.must("session-set", map[string]any{"speed-limit-down-enabled": false, "seedRatioLimited": false, "download-queue-size": 3})
	is("speed-limit-down speed-limit-down-enabled seedRatioLimit seedRatioLimited download-queue-size download-queue-enabled",
		500.0, false, 2.0, false, 3.0, false)
	s.must("session-set", map[string]any{"speed-limit-down-enabled": true, "seedRatioLimited": true, "download-queue-enabled": true})
	is("speed-limit-down speed-limit-down-enabled seedRatioLimit seedRatioLimited download-queue-size download-queue-enabled",
		500.0, true, 2.0, true, 3.0, true)
	// All of a request, or nothing.
	for _, bad := range []map[string]any{
		{"speed-limit-down": 700, "dht-enabled": true}, {"speed-limit-down": 700, "utp-enabled": 1}, {"speed-limit-down": -1},
		{"speed-limit-down": "fast"}, {"speed-limit-up-enabled": true, "speed-limit-up": 0}, {"download-dir": "relative", "speed-limit-down": 700},
		{"alt-speed-time-begin": 1440}, {"alt-speed-time-day": 128}, {"incomplete-dir-enabled": true}, {"script-torrent-done-enabled": true},
		{"default-trackers": "nonsense"}, {"seedRatioLimit": -2, "seedRatioLimited": true},
	} {
		if _, result := s.ask("session-set", bad); result == "success" {
			t.Errorf("accepted: %v", bad)
		}
	}
	is("speed-limit-down download-dir", 500.0, s.downloads)
	// What a client has read, it may write.
	got := s.must("session-get", nil)
	s.must("session-set", got)
	if after := s.must("session-get", nil); !reflect.DeepEqual(without(got, "download-dir-free-space"), without(after, "download-dir-free-space")) {
		t.Errorf("%v, want %v", after, got)
	}
	// The directory of incomplete data.
	s.must("session-set", map[string]any{"incomplete-dir": "/part", "incomplete-dir-enabled": true})
	is("download-dir incomplete-dir incomplete-dir-enabled", s.downloads, "/part", true)
	if x := s.node.Settings(); x.Dir != "/part" || x.CompleteDir != s.downloads {
		t.Errorf("directories of the node: %+v", x)
	}
	s.must("session-set", map[string]any{"download-dir": "/other"})
	s.must("session-set", map[string]any{"incomplete-dir-enabled": false})
	is("download-dir incomplete-dir incomplete-dir-enabled", "/other", "/part", false)
	s.must("session-set", map[string]any{"default-trackers": "http://127.0.0.1:1/announce\n\nudp://127.0.0.1:2"})
	is("default-trackers", "http://127.0.0.1:1/announce\nudp://127.0.0.1:2")
}

// The daemon says whether it takes part in the DHT, and refuses to change that.
func TestDHT(t *testing.T) {
	t.Parallel()
	s := serveNode(t, webtest.ServiceInDHT(t), "")
	if got := s.setting("dht-enabled"); got != true {
		t.Errorf("in the DHT: dht-enabled is %v", got)
	}
	s.must("session-set", map[string]any{"dht-enabled": true})
	if _, result := s.ask("session-set", map[string]any{"dht-enabled": false}); result == "success" {
		t.Error("switched the DHT off")
	}
}

func without(m map[string]any, name string) map[string]any { delete(m, name); return m }

// The trackers of a torrent that names one of them twice can be changed.
func TestRepeatedTracker(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, _, _ := s.torrent("album")
	magnet := "magnet:?xt=urn:btih:" + c2hash(c) + strings.Repeat("&tr=udp://127.0.0.1:1", 2) + "&tr=udp://127.0.0.1:2"
	s.must("torrent-add", map[string]any{"filename": magnet, "paused": true})
	s.must("torrent-set", map[string]any{"ids": 1, "trackerAdd": []string{"udp://127.0.0.1:3"}})
	want := "udp://127.0.0.1:1\n\nudp://127.0.0.1:2\n\nudp://127.0.0.1:3\n"
	if got := s.field(1, "trackerList"); got != want {
		t.Errorf("the trackers are %q", got)
	}
}

func TestTorrentSet(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, _, _ := s.torrent("album")
	s.add(c, nil)
	set := func(args map[string]any) string {
		args["ids"] = 1
		_, result := s.ask("torrent-set", args)
		return result
	}
	for _, x := range []struct {
		args map[string]any
		want map[string]any // fields after it
	}{
		{map[string]any{"downloadLimit": 100}, map[string]any{"downloadLimit": 100.0, "downloadLimited": false}},
		{map[string]any{"downloadLimited": true}, map[string]any{"downloadLimit": 100.0, "downloadLimited": true}},
		{map[string]any{"downloadLimited": false}, map[string]any{"downloadLimit": 100.0, "downloadLimited": false}},
		{map[string]any{"uploadLimit": 20, "uploadLimited": true}, map[string]any{"uploadLimit": 20.0, "uploadLimited": true, "downloadLimited": false}},
		{map[string]any{"seedRatioLimit": 3, "seedRatioMode": 1}, map[string]any{"seedRatioLimit": 3.0, "seedRatioMode": 1.0, "seedIdleMode": 0.0}},
		{map[string]any{"seedRatioMode": 0}, map[string]any{"seedRatioLimit": 3.0, "seedRatioMode": 0.0}},
		{map[string]any{"seedRatioMode": 1}, map[string]any{"seedRatioLimit": 3.0, "seedRatioMode": 1.0}},
		{map[string]any{"seedIdleLimit": 45, "seedIdleMode": 1}, map[string]any{"seedIdleLimit": 45.0, "seedIdleMode": 1.0, "seedRatioMode": 1.0}},
		{map[string]any{"seedIdleMode": 2}, map[string]any{"seedIdleLimit": 45.0, "seedIdleMode": 2.0}},
		{map[string]any{"seedRatioLimit": 0, "seedRatioMode": 1}, map[string]any{"seedRatioLimit": 1e-9, "seedRatioMode": 1.0}},
		{map[string]any{"seedIdleLimit": 0, "seedIdleMode": 1}, map[string]any{"seedIdleMode": 1.0}},
		{map[string]any{"sequential_download": true}, map[string]any{"sequential_download": true}},
		{map[string]any{"files-unwanted": []int{0, 1}}, map[string]any{"wanted": []any{0.0, 0.0, 1.0}, "sizeWhenDone": nil}},
		{map[string]any{"files-wanted": []int{}}, map[string]any{"wanted": []any{1.0, 1.0, 1.0}}},
		{map[string]any{"priority-high": []int{}}, map[string]any{"priorities": []any{1.0, 1.0, 1.0}}},
		{map[string]any{"trackerAdd": []string{"http://127.0.0.1:1/announce", "udp://127.0.0.1:2"}},
			map[string]any{"trackerList": "http://127.0.0.1:1/announce\n\nudp://127.0.0.1:2\n"}},
		{map[string]any{"trackerReplace": []any{0, "http://127.0.0.1:3/announce"}},
			map[string]any{"trackerList": "http://127.0.0.1:3/announce\n\nudp://127.0.0.1:2\n"}},
		{map[string]any{"trackerReplace": []any{[]any{1, "udp://127.0.0.1:4"}}, "trackerRemove": []int{0}},
			map[string]any{"trackerList": "udp://127.0.0.1:4\n"}},
		{map[string]any{"trackerList": "http://127.0.0.1:1/a\nhttp://127.0.0.1:2/a\n\n\nudp://127.0.0.1:3"},
			map[string]any{"trackerList": "http://127.0.0.1:1/a\nhttp://127.0.0.1:2/a\n\nudp://127.0.0.1:3\n"}},
		{map[string]any{"labels": []string{}}, map[string]any{"labels": []any{}}},
	} {
		if result := set(x.args); result != "success" {
			t.Errorf("%v: %s", x.args, result)
		}
		for field, want := range x.want {
			if got := s.field(1, field); want != nil && !reflect.DeepEqual(got, want) {
				t.Errorf("after %v: %s is %v, want %v", x.args, field, got, want)
			}
		}
	}
	var many []string
	for i := range 257 {
		many = append(many, fmt.Sprintf("udp://127.0.0.1:%d", 1000+i))
	}
	for _, bad := range []map[string]any{
		{"trackerAdd": many}, {"trackerList": strings.Join(many, "\n")},
		{"bandwidthPriority": 2}, {"seedRatioMode": 3}, {"downloadLimit": 0, "downloadLimited": true}, {"downloadLimit": -1}, {"peer-limit": -1},
		{"trackerAdd": []string{"udp://127.0.0.1:3"}}, {"trackerAdd": []string{"nonsense"}}, {"trackerRemove": []int{9}},
		{"trackerReplace": []any{0}}, {"trackerReplace": []any{"x", "udp://127.0.0.1:3"}}, {"files-wanted": []int{3}}, {"files-wanted": []int{-1}},
		{"labels": []string{"a,b"}}, {"location": "relative"}, {"group": "fast"}, {"sequential_download_from_piece": 3},
	} {
		if set(bad) == "success" {
			t.Errorf("accepted: %v", bad)
		}
	}
}

// The queue and free space, which transmission-remote 3.00 has no options for.
func TestQueue(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, name := range []string{"one", "two", "three"} {
		c, _, _ := s.torrent(name)
		s.add(c, nil)
	}
	positions := func() string {
		return fmt.Sprint(s.field(1, "queuePosition"), s.field(2, "queuePosition"), s.field(3, "queuePosition"))
	}
	for _, x := range []struct {
		method string
		ids    []int
		want   string
	}{
		{"queue-move-top", []int{3}, "1 2 0"}, {"queue-move-down", []int{3}, "0 2 1"}, {"queue-move-bottom", []int{1}, "2 1 0"},
		{"queue-move-up", []int{1, 2}, "1 0 2"},
	} {
		s.must(x.method, map[string]any{"ids": x.ids})
		if got := positions(); got != x.want {
			t.Errorf("%s %v: positions %s, want %s", x.method, x.ids, got, x.want)
		}
	}
	s.must("torrent-set", map[string]any{"ids": 3, "queuePosition": 0})
	if got := positions(); got != "2 1 0" {
		t.Errorf("positions %s", got)
	}
	if out := s.must("torrent-rename-path", map[string]any{"ids": []int{1}, "path": "one", "name": "uno"}); out["path"] != "one" || out["name"] != "uno" || out["id"] != 1.0 {
		t.Errorf("renamed: %v", out)
	}
	if got := s.field(1, "name"); got != "uno" {
		t.Errorf("its name is %v", got)
	}
	for _, args := range []map[string]any{
		{"ids": []int{1}, "path": "one", "name": "two"}, {"ids": []int{1, 2}, "path": "uno", "name": "x"}, {"ids": []int{1}, "path": "uno"},
		{"ids": []int{1}, "path": "uno", "name": "a/b"}, {"ids": []int{1}, "path": "uno", "name": ".."}, {"ids": []int{1}, "path": "uno", "name": ""},
	} {
		if _, result := s.ask("torrent-rename-path", args); result == "success" || s.field(1, "name") != "uno" {
			t.Errorf("renamed by %v: %s", args, result)
		}
	}
	free := s.must("free-space", map[string]any{"path": s.downloads})
	if free["path"] != s.downloads || free["size-bytes"].(float64) <= 0 || free["total_size"].(float64) < free["size-bytes"].(float64) {
		t.Errorf("free space: %v", free)
	}
}

// TestPythonClient calls every method of Python's transmission-rpc.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	s := serve(t)
	_, dir, file := s.torrent("album")
	_, _, second := s.torrent("second")
	webtest.Python(t, "testdata/transmission_rpc_client.py", strings.TrimPrefix(s.url, "http://127.0.0.1:"), file, second, dir, t.TempDir())
}

// The documents list what braid lacks, and nothing else.
func TestDocumentOfLacks(t *testing.T) {
	b, err := os.ReadFile("../../../docs/rpc.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sessionSettings {
		listed := strings.Contains(string(b), "| `"+canonical(s.name)+"` |")
		if listed != (s.lacks != "") {
			t.Errorf("docs/rpc.md lists %s: %t; braid lacks it: %t (%s)", s.name, listed, s.lacks != "", s.lacks)
		}
	}
}

// Of each tier, one tracker is used, and the others are backups, also of a torrent that has not run.
func TestBackupTrackers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, _, _ := s.torrent("album")
	id := s.add(c, nil)
	s.must("torrent-set", map[string]any{"ids": id, "trackerList": "http://127.0.0.1:1/a\nhttp://127.0.0.1:1/b\n\nhttp://127.0.0.1:1/c"})
	var got []any
	for _, x := range s.field(id, "trackerStats").([]any) {
		got = append(got, x.(map[string]any)["isBackup"])
	}
	if fmt.Sprint(got) != "[false true false]" {
		t.Errorf("backups: %v", got)
	}
}

// An empty list of files means all files to torrent-set, and none to torrent-add.
func TestAddWithEmptyLists(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, _, _ := s.torrent("album")
	id := s.add(c, map[string]any{"files-unwanted": []int{}, "priority-low": []int{}})
	if wanted, p := s.field(id, "wanted"), s.field(id, "priorities"); fmt.Sprint(wanted, p) != "[1 1 1] [0 0 0]" {
		t.Errorf("wanted %v, priorities %v", wanted, p)
	}
}

// Numbers of kB/s and minutes are whole, since many clients read nothing else. A client that sends
// back what it has read changes nothing.
func TestWholeNumbers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, _, _ := s.torrent("album")
	x := s.addPaused(c)
	rates := node.Rates{Upload: 500_000, Download: 10_000}
	if err := errors.Join(s.node.Change(func(s *node.Settings) error {
		s.Rates, s.Alternative.Rates = rates, rates
		s.Goal.Idle, s.Queue.Stalled = 90*time.Second, 30*time.Second
		return nil
	}), x.Change(func(o *node.Options) error { o.Rates = rates; return nil })); err != nil {
		t.Fatal(err)
	}
	numbers := func() string {
		s := s.node.Settings()
		return fmt.Sprint(s.Rates, s.Alternative.Rates, s.Goal, s.Queue)
	}
	before := numbers()
	for name, want := range map[string]float64{
		"speed-limit-down": 1, "speed-limit-up": 63, "alt-speed-down": 1, "alt-speed-up": 63, "idle-seeding-limit": 2, "queue-stalled-minutes": 1,
	} {
		if got := s.setting(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	s.must("session-set", s.must("session-get", nil))
	if now := numbers(); now != before {
		t.Errorf("now %s, before %s", now, before)
	}
	down, up := s.field(1, "downloadLimit"), s.field(1, "uploadLimit")
	if down != 1.0 || up != 63.0 {
		t.Errorf("the torrent's limits are %v and %v", down, up)
	}
	s.must("torrent-set", map[string]any{"ids": 1, "downloadLimit": down, "uploadLimit": up})
	if got := x.Options().Rates; !reflect.DeepEqual(got, rates) {
		t.Errorf("the torrent's limits are now %+v", got)
	}
}

// A torrent that was added to a directory of its own stays there when it is complete. Sonarr looks
// for its torrents by their directories.
func TestOwnDirectory(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, data, _ := s.torrent("album")
	s.must("session-set", map[string]any{"incomplete-dir": t.TempDir(), "incomplete-dir-enabled": true})
	place := t.TempDir()
	s.add(c, map[string]any{"download-dir": place})
	x, err := s.node.Torrent(c2hash(c))
	if err != nil {
		t.Fatal(err)
	}
	s.must("torrent-start", nil)
	await.True(t, "the start", func() bool { return x.State() == node.Running })
	x.AddPeers(webtest.Seed(t, c.Source, data)...)
	<-x.Done()
	if now := x.Status(); now.Moving || now.Storage.Dir != place {
		t.Errorf("it is in %s, moving: %v", now.Storage.Dir, now.Moving)
	}
}

// The space is that of the nearest directory that is there.
func TestFreeSpaceOfNone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if got := s.must("free-space", map[string]any{"path": filepath.Join(t.TempDir(), "a", "b")})["size-bytes"]; got.(float64) <= 0 {
		t.Errorf("free space: %v", got)
	}
}

// Data that moves, or will soon, is not complete to clients: Sonarr would take files that then go.
func TestMovingIsNotSeeding(t *testing.T) {
	for _, c := range []node.State{node.Running, node.Moving, node.Paused} {
		if got := (&view{Status: node.Status{State: c, Moving: true}}).state(); got != verifying {
			t.Errorf("%s: %d", c, got)
		}
	}
}
