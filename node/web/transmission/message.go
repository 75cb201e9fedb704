package transmission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// maxBatch bounds the requests in one body.
const maxBatch = 100

// request is one call. Names are in snake_case, whatever the client has sent.
type request struct {
	dialect dialect
	method  string
	args    arguments
	id      json.RawMessage // of JSON-RPC; nil: a notification, which gets no answer
	tag     json.RawMessage // of the classic dialect; nil: none
	err     error           // why it cannot be carried out
}

// arguments are the arguments of a method, by their names in snake_case.
type arguments map[string]json.RawMessage

// code is an error code of JSON-RPC with its message: negative ones are of its specification,
// positive ones are Transmission's.
type code struct {
	number  int
	message string
}

var (
	parseError       = code{-32700, "Parse error"}
	invalidRequest   = code{-32600, "Invalid Request"}
	methodNotFound   = code{-32601, "Method not found"}
	invalidParams    = code{-32602, "Invalid params"}
	internalError    = code{-32603, "Internal error"}
	setAnnounceList  = code{1, "error setting announce list"}
	invalidTrackers  = code{2, "Invalid tracker list"}
	pathNotAbsolute  = code{3, "path is not absolute"}
	unrecognizedInfo = code{4, "unrecognized info"}
	systemError      = code{5, "system error"}
	fileOutOfRange   = code{6, "file index out of range"}
	httpError        = code{8, "HTTP error from backend service"}
	corruptTorrent   = code{9, "invalid or corrupt torrent file"}
)

// failure is an error with its code.
type failure struct {
	code code
	error
}

func (f *failure) Unwrap() error { return f.error }

func fail(c code, format string, args ...any) error {
	return &failure{c, fmt.Errorf(format, args...)}
}

// parse reads a body: one request of either dialect, or a batch of JSON-RPC. Requests that are
// wrong have their err set.
func parse(body []byte) (requests []request, batch bool) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '[' {
		return []request{parseOne(body)}, false
	}
	var all []json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return []request{broken(jsonrpc, fail(parseError, "the request is not JSON: %w",
			err))}, false
	}
	if len(all) == 0 || len(all) > maxBatch {
		return []request{broken(jsonrpc, fail(invalidRequest, "a batch holds 1 to %d requests",
			maxBatch))}, false
	}
	for _, b := range all {
		r := parseOne(b)
		if r.dialect != jsonrpc {
			r = broken(jsonrpc, fail(invalidRequest, "a batch holds requests of JSON-RPC 2.0 only"))
		}
		requests = append(requests, r)
	}
	return requests, true
}

// broken returns a request that cannot be read. In JSON-RPC, its answer has the id null.
func broken(d dialect, err error) request {
	r := request{dialect: d, err: err}
	if d == jsonrpc {
		r.id = json.RawMessage("null")
	}
	return r
}

func parseOne(b []byte) request {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil || m == nil {
		if !json.Valid(b) {
			return broken(classic, fail(parseError, "the request is not JSON"))
		}
		return broken(classic, fail(invalidRequest, "the request is not a JSON object"))
	}
	if version, ok := m["jsonrpc"]; ok {
		return parseJSONRPC(m, version)
	}
	r := request{dialect: classic, tag: m["tag"]}
	if len(r.tag) > 0 && !isNumber(r.tag) {
		r.tag = nil
	}
	r.method, r.args, r.err = readCall(m["method"], m["arguments"])
	return r
}

func parseJSONRPC(m map[string]json.RawMessage, version json.RawMessage) request {
	var v string
	if json.Unmarshal(version, &v) != nil || v != "2.0" {
		return broken(jsonrpc, fail(invalidRequest, `"jsonrpc" must be "2.0"`))
	}
	r := request{dialect: jsonrpc}
	if id, ok := m["id"]; ok {
		if !isNumber(id) && id[0] != '"' && string(id) != "null" {
			return broken(jsonrpc, fail(invalidRequest, `"id" must be a string, a number or null`))
		}
		r.id = id
	}
	r.method, r.args, r.err = readCall(m["method"], m["params"])
	if f, ok := errors.AsType[*failure](r.err); ok && f.code == invalidRequest && r.id == nil {
		r.id = json.RawMessage("null") // only a valid request without an id is a notification
	}
	return r
}

func isNumber(b json.RawMessage) bool {
	var n float64
	return len(b) > 0 && b[0] != 'n' && json.Unmarshal(b, &n) == nil
}

// readCall reads the name and the arguments of a method.
func readCall(method, args json.RawMessage) (name string, out arguments, err error) {
	if json.Unmarshal(method, &name) != nil || name == "" {
		return "", nil, fail(invalidRequest, "the request names no method")
	}
	name = canonical(name)
	if len(args) == 0 || string(args) == "null" {
		return name, nil, nil
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(args, &m) != nil {
		return name, nil, fail(invalidParams, "the arguments of %q are not an object", name)
	}
	out = make(arguments, len(m))
	for k, v := range m {
		out[canonical(k)] = v
	}
	return name, out, nil
}

// answer returns the object that a client gets for a request, or nil for a notification.
func (r request) answer(result any, err error) any {
	if r.dialect == jsonrpc {
		return r.answerJSONRPC(result, err)
	}
	type reply struct {
		Arguments any             `json:"arguments"`
		Result    string          `json:"result"`
		Tag       json.RawMessage `json:"tag,omitempty"`
	}
	out := reply{Arguments: result, Result: "success", Tag: r.tag}
	if err != nil {
		out.Result = err.Error()
	}
	if result == nil {
		out.Arguments = struct{}{}
	}
	return out
}

func (r request) answerJSONRPC(result any, err error) any {
	type data struct {
		Error  string `json:"error_string"`
		Result any    `json:"result,omitempty"`
	}
	type problem struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    data   `json:"data"`
	}
	type reply struct {
		Version string          `json:"jsonrpc"`
		Result  any             `json:"result,omitempty"`
		Error   *problem        `json:"error,omitempty"`
		ID      json.RawMessage `json:"id"`
	}
	if r.id == nil {
		return nil
	}
	out := reply{Version: "2.0", Result: result, ID: r.id}
	if result == nil {
		out.Result = struct{}{}
	}
	if err != nil {
		c := internalError
		if f, ok := errors.AsType[*failure](err); ok {
			c = f.code
		}
		out.Result = nil
		out.Error = &problem{c.number, c.message, data{err.Error(), result}}
	}
	return out
}
