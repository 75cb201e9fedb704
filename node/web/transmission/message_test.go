package transmission

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"braid/node"
)

func TestNames(t *testing.T) {
	for classicName, want := range map[string]string{
		"hashString":           "hash_string",
		"lastAnnounceTimedOut": "last_announce_timed_out",
		"isUTP":                "is_utp",
		"id":                   "id",
		"peer-limit":           "peer_limit",
		"sequential_download":  "sequential_download",
	} {
		if got := classic.key(classicName); got != classicName {
			t.Errorf("classic name of %s: %s", classicName, got)
		}
		if got := jsonrpc.key(classicName); got != want {
			t.Errorf("JSON-RPC name of %s: %s, want %s", classicName, got, want)
		}
		for _, spelled := range []string{classicName, want} {
			if got := canonical(spelled); got != want {
				t.Errorf("canonical(%s) = %s, want %s", spelled, got, want)
			}
		}
	}
}

// TestEveryNameIsUnderstood: a client may send any name that it has received.
func TestEveryNameIsUnderstood(t *testing.T) {
	for _, f := range torrentFields {
		if name := canonical(f.name); canonical(name) != name {
			t.Errorf("%s comes back as %s", name, canonical(name))
		}
	}
	seen := map[string]bool{}
	for _, s := range sessionSettings {
		name := canonical(s.name)
		if canonical(name) != name || seen[name] {
			t.Errorf("%s comes back as %s (again: %t)", name, canonical(name), seen[name])
		}
		seen[name] = true
	}
}

func codeOf(err error) code {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.code
	}
	return code{}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		body   string
		method string
		args   string // names
		code   code
		answer string // to the result {"x":1} or the error
	}{
		{`{"method":"torrent-get","arguments":{"ids":[1],"downloadDir":1},"tag":7}`, "torrent_get", "download_dir ids", code{},
			`{"arguments":{"x":1},"result":"success","tag":7}`},
		{`{"method":"session-get"}`, "session_get", "", code{}, `{"arguments":{"x":1},"result":"success"}`},
		{`{"method":"session-get","arguments":null,"tag":"x"}`, "session_get", "", code{}, `{"arguments":{"x":1},"result":"success"}`},
		{`{"method":7}`, "", "", invalidRequest, `{"arguments":{},"result":"the request names no method"}`},
		{`{"method":"session-get","arguments":[1]}`, "session_get", "", invalidParams,
			`{"arguments":{},"result":"the arguments of \"session_get\" are not an object"}`},
		{`{`, "", "", parseError, `{"arguments":{},"result":"the request is not JSON"}`},
		{``, "", "", parseError, `{"arguments":{},"result":"the request is not JSON"}`},
		{`"x"`, "", "", invalidRequest, `{"arguments":{},"result":"the request is not a JSON object"}`},
		{`null`, "", "", invalidRequest, `{"arguments":{},"result":"the request is not a JSON object"}`},

		{`{"jsonrpc":"2.0","method":"torrent_get","params":{"ids":[1]},"id":"a"}`, "torrent_get", "ids", code{},
			`{"jsonrpc":"2.0","result":{"x":1},"id":"a"}`},
		{`{"jsonrpc":"2.0","method":"torrent-get","id":1.5}`, "torrent_get", "", code{}, `{"jsonrpc":"2.0","result":{"x":1},"id":1.5}`},
		{`{"jsonrpc":"2.0","method":"torrent_get","id":null}`, "torrent_get", "", code{}, `{"jsonrpc":"2.0","result":{"x":1},"id":null}`},
		{`{"jsonrpc":"2.0","method":"torrent_stop"}`, "torrent_stop", "", code{}, `null`},
		{`{"jsonrpc":"2.0","method":"x","params":3}`, "x", "", invalidParams, `null`},
		{`{"jsonrpc":"1.0","method":"x","id":1}`, "", "", invalidRequest,
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request","data":{"error_string":"\"jsonrpc\" must be \"2.0\""}},"id":null}`},
		{`{"jsonrpc":"2.0","method":"x","id":{}}`, "", "", invalidRequest,
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request","data":{"error_string":"\"id\" must be a string, a number or null"}},"id":null}`},
		{`{"jsonrpc":"2.0","foo":1}`, "", "", invalidRequest,
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request","data":{"error_string":"the request names no method"}},"id":null}`},
		{`[]`, "", "", invalidRequest,
			`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request","data":{"error_string":"a batch holds 1 to 100 requests"}},"id":null}`},
		{`[1`, "", "", parseError,
			`{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error","data":{"error_string":"the request is not JSON: unexpected end of JSON input"}},"id":null}`},
	} {
		all, batch := parse([]byte(c.body))
		if len(all) != 1 || batch {
			t.Errorf("%s: %d requests, batch: %t", c.body, len(all), batch)
			continue
		}
		r := all[0]
		var names []string
		for k := range r.args {
			names = append(names, k)
		}
		if r.method != c.method || len(names) != len(strings.Fields(c.args)) || codeOf(r.err) != c.code {
			t.Errorf("%s: method %q, arguments %v, error %v", c.body, r.method, names, r.err)
		}
		for _, n := range strings.Fields(c.args) {
			if _, ok := r.args[n]; !ok {
				t.Errorf("%s: no argument %s", c.body, n)
			}
		}
		var result any = map[string]any{"x": 1}
		if r.err != nil {
			result = nil
		}
		if got, _ := json.Marshal(r.answer(result, r.err)); string(got) != c.answer {
			t.Errorf("%s: answer %s, want %s", c.body, got, c.answer)
		}
	}
}

func TestParseBatch(t *testing.T) {
	all, batch := parse([]byte(`[{"jsonrpc":"2.0","method":"a","id":1},{"jsonrpc":"2.0","method":"b"},{"method":"c"},1]`))
	if !batch || len(all) != 4 {
		t.Fatalf("%d requests, batch: %t", len(all), batch)
	}
	if all[0].method != "a" || all[0].err != nil || string(all[0].id) != "1" {
		t.Errorf("the first one: %+v", all[0])
	}
	if all[1].answer(nil, nil) != nil {
		t.Error("a notification is answered")
	}
	for _, r := range all[2:] {
		if codeOf(r.err) != invalidRequest || string(r.id) != "null" || r.dialect != jsonrpc {
			t.Errorf("what does not belong into a batch: %+v", r)
		}
	}
	many := "[" + strings.Repeat(`{"jsonrpc":"2.0","method":"a","id":1},`, maxBatch) + `{"jsonrpc":"2.0","method":"a","id":1}]`
	if all, batch := parse([]byte(many)); batch || len(all) != 1 || codeOf(all[0].err) != invalidRequest {
		t.Errorf("a batch that is too long: %d requests", len(all))
	}
}

func TestIDs(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	for _, c := range []struct {
		json                 string
		one, hashed, all, ok bool // chooses torrent 1; that with the hash; all; it is valid
	}{
		{``, true, true, true, true},
		{`1`, true, false, false, true},
		{`[1,2]`, true, false, false, true},
		{`[1,"` + hash + `"]`, true, true, false, true},
		{`"` + strings.ToUpper(hash) + `"`, false, true, false, true},
		{`"recently-active"`, false, false, false, true},
		{`"recently_active"`, false, false, false, true},
		{`[]`, false, false, false, true}, // not all: a mistake must not remove everything
		{`null`, false, false, false, false},
		{`"all"`, false, false, false, false},
		{`[1.5]`, false, false, false, false},
		{`[[1]]`, false, false, false, false},
		{`{}`, false, false, false, false},
		{`true`, false, false, false, false},
	} {
		r := &reader{args: arguments{}}
		if c.json != "" {
			r.args["ids"] = json.RawMessage(c.json)
		}
		s := r.ids()
		if ok := r.err == nil; ok != c.ok {
			t.Errorf("%s: %v", c.json, r.err)
		} else if ok && (s.has(1, "") != c.one || s.has(0, hash) != c.hashed || s.all != c.all) {
			t.Errorf("%s: %+v", c.json, s)
		}
	}
}

func TestReader(t *testing.T) {
	for _, c := range []struct {
		json string
		read func(*reader) bool
		ok   bool
	}{
		{`true`, func(r *reader) bool { return *r.flag("x") }, true},
		{`1`, func(r *reader) bool { return *r.flag("x") }, true},
		{`0`, func(r *reader) bool { return !*r.flag("x") }, true},
		{`"true"`, func(r *reader) bool { return r.flag("x") == nil }, false},
		{`null`, func(r *reader) bool { return r.flag("x") == nil }, false},
		{`3.0`, func(r *reader) bool { return *r.whole("x") == 3 }, true},
		{`3.5`, func(r *reader) bool { return r.whole("x") == nil }, false},
		{`1e300`, func(r *reader) bool { return r.whole("x") == nil }, false},
		{`3.5`, func(r *reader) bool { return *r.real("x") == 3.5 }, true},
		{`[1,2.0]`, func(r *reader) bool { return (*r.wholes("x"))[1] == 2 }, true},
		{`[]`, func(r *reader) bool { return len(*r.wholes("x")) == 0 }, true},
		{`["a"]`, func(r *reader) bool { return r.wholes("x") == nil }, false},
		{`["a"]`, func(r *reader) bool { return (*r.texts("x"))[0] == "a" }, true},
		{`5`, func(r *reader) bool { return r.text("x") == nil }, false},
	} {
		r := &reader{args: arguments{"x": json.RawMessage(c.json)}}
		if !c.read(r) || (r.err == nil) != c.ok || r.err != nil && codeOf(r.err) != invalidParams {
			t.Errorf("%s: error %v", c.json, r.err)
		}
	}
	if r := (&reader{}); r.flag("x") != nil || r.err != nil {
		t.Error("an argument that is missing is an error")
	}
}

// FuzzRequest: no body makes the parser or the readers of arguments fail, and the answer to a wrong
// one is JSON.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"method":"torrent-set","arguments":{"ids":[1],"trackerReplace":[0,"http://a/announce"]},"tag":1}`,
		`{"method":"torrent-set","arguments":{"trackerReplace":[[0,"udp://a:1"]],"trackerList":"http://a/x\n\nudp://b:2"}}`,
		`[{"jsonrpc":"2.0","method":"torrent_set","params":{"files_wanted":[],"priority_high":[0,1]},"id":null}]`,
		`{"jsonrpc":"2.0","method":"session_set","params":{"seed_ratio_mode":2,"seed_idle_limit":1e9},"id":"x"}`,
		`{"method":"torrent-add","arguments":{"filename":"magnet:?xt=urn:btih:0123456789abcdef0123456789abcdef01234567"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		all, _ := parse(body)
		if len(all) > maxBatch {
			t.Fatalf("%d requests", len(all))
		}
		for _, r := range all {
			c := &call{reader: &reader{args: r.args}}
			ids := c.ids()
			if c.err == nil && (ids.has(-1, "") && !ids.named[-1] && !ids.all) {
				t.Error("a torrent is chosen that was not named")
			}
			var o node.Options
			if c.edit(&o, values{}, true); c.err == nil && len(o.Selection.Priorities) > 0 {
				t.Error("files of a torrent without files are changed")
			}
			if _, err := json.Marshal(r.answer(nil, r.err)); err != nil {
				t.Error(err)
			}
		}
	})
}
