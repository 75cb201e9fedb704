package v1

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Client uses the interface of a daemon. Its methods may be called from many goroutines.
type Client struct {
	http     *http.Client
	base     string
	password string
}

// ErrNoDaemon says that nobody answers at the address.
var ErrNoDaemon = errors.New("no braid daemon answers")

// StatusError is an answer that is an error.
type StatusError struct {
	Status int
	Text   string
}

func (e *StatusError) Error() string { return e.Text }

// NewClient returns a client for unix:PATH, host:port, or an http or https URL. password is empty
// if the daemon needs none.
func NewClient(address, password string) *Client {
	c := &Client{http: &http.Client{}, base: address, password: password}
	switch path, unix := strings.CutPrefix(address, "unix:"); {
	case unix:
		c.base = "http://braid"
		c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}
	case !strings.Contains(address, "://"):
		c.base = "http://" + address
	}
	c.base = strings.TrimSuffix(c.base, "/") + Prefix
	return c
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// send sends a request. The caller closes the body of the answer.
func (c *Client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return c.ask(r)
}

// ask sends a request. An answer that is an error is a StatusError.
func (c *Client) ask(r *http.Request) (*http.Response, error) {
	if c.password != "" {
		r.SetBasicAuth("braid", c.password)
	}
	answer, err := c.http.Do(r)
	if e, ok := errors.AsType[*url.Error](err); ok {
		if r.Context().Err() != nil {
			return nil, r.Context().Err()
		}
		return nil, fmt.Errorf("%w: %w", ErrNoDaemon, e.Err)
	}
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 {
		defer answer.Body.Close()
		return nil, errorOf(answer)
	}
	return answer, nil
}

// errorOf makes an error of an answer. The answer is a Problem, or a text or page that another
// program has sent.
func errorOf(r *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	var p Problem
	text := strings.TrimSpace(string(b))
	if json.Unmarshal(b, &p) != nil && !strings.HasPrefix(text, "<") {
		p.Error = text
	}
	otherwise := "the server answers " + r.Status + "; is it a braid daemon?"
	return &StatusError{r.StatusCode, cmp.Or(p.Error, otherwise)}
}

// call sends a request and reads the answer.
func call[Out any](
	ctx context.Context, c *Client, method, path string, in any,
) (out Out, err error) {
	r, err := c.send(ctx, method, path, in)
	if err != nil {
		return out, err
	}
	defer r.Body.Close()
	if r.StatusCode == http.StatusNoContent {
		return out, nil
	}
	if err := json.NewDecoder(r.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("%s %s: the daemon's answer cannot be read: %w", method, path, err)
	}
	return out, nil
}

func do(ctx context.Context, c *Client, method, path string, in any) error {
	_, err := call[none](ctx, c, method, path, in)
	return err
}

func at(infoHash, path string) string { return "/torrents/" + url.PathEscape(infoHash) + path }

// List returns all torrents, with these keys only if some are named.
func (c *Client) List(ctx context.Context, fields ...string) ([]Torrent, error) {
	return call[[]Torrent](ctx, c, "GET", "/torrents?fields="+strings.Join(fields, ","), nil)
}

// Show returns a torrent with its settings.
func (c *Client) Show(ctx context.Context, infoHash string) (TorrentDetail, error) {
	return call[TorrentDetail](ctx, c, "GET", at(infoHash, ""), nil)
}

// Add adds a torrent.
func (c *Client) Add(ctx context.Context, in AddTorrent) (Added, error) {
	return call[Added](ctx, c, "POST", "/torrents", in)
}

// Set changes settings of a torrent.
func (c *Client) Set(ctx context.Context, infoHash string, in Change) error {
	return do(ctx, c, "PATCH", at(infoHash, ""), in)
}

// Remove removes a torrent and, if that is wanted, its data.
func (c *Client) Remove(ctx context.Context, infoHash string, data bool) error {
	return do(ctx, c, "DELETE", at(infoHash, "?data="+strconv.FormatBool(data)), nil)
}

// Pause pauses a torrent.
func (c *Client) Pause(ctx context.Context, infoHash string) error {
	return do(ctx, c, "POST", at(infoHash, "/pause"), nil)
}

// Resume resumes a torrent.
func (c *Client) Resume(ctx context.Context, infoHash string, in Resume) error {
	return do(ctx, c, "POST", at(infoHash, "/resume"), in)
}

// Move moves a torrent to another directory.
func (c *Client) Move(ctx context.Context, infoHash string, in Move) error {
	return do(ctx, c, "POST", at(infoHash, "/move"), in)
}

// Rename renames a file or directory of a torrent.
func (c *Client) Rename(ctx context.Context, infoHash string, in Rename) error {
	return do(ctx, c, "POST", at(infoHash, "/rename"), in)
}

// AddPeers names peers to a torrent.
func (c *Client) AddPeers(ctx context.Context, infoHash string, in AddPeers) error {
	return do(ctx, c, "POST", at(infoHash, "/peers"), in)
}

// Files lists the files of a torrent.
func (c *Client) Files(ctx context.Context, infoHash string) ([]File, error) {
	return call[[]File](ctx, c, "GET", at(infoHash, "/files"), nil)
}

// Paths lists the paths to the peers of a torrent.
func (c *Client) Paths(ctx context.Context, infoHash string) ([]Path, error) {
	return call[[]Path](ctx, c, "GET", at(infoHash, "/paths"), nil)
}

// Trackers lists the trackers of a torrent.
func (c *Client) Trackers(ctx context.Context, infoHash string) ([]Tracker, error) {
	return call[[]Tracker](ctx, c, "GET", at(infoHash, "/trackers"), nil)
}

// SetPassword sets the password for TCP, or takes it away with an empty one.
func (c *Client) SetPassword(ctx context.Context, password string) error {
	return do(ctx, c, "PUT", "/password", Password{password})
}

// Event is one server-sent event.
type Event struct {
	ID, Name string
	Data     []byte // JSON of the type that the name stands for
}

// Decode reads the event's data into the type of its name, as in streamed: *Snapshot, for example.
// It returns nil if a newer daemon has sent an event that this program does not know.
func (e Event) Decode() (any, error) {
	for _, s := range streamed {
		if s.name == e.Name {
			v := reflect.New(s.of).Interface()
			return v, json.Unmarshal(e.Data, v)
		}
	}
	return nil, nil
}

// reconnectAfter is the pause before a stream that has broken is opened again.
const reconnectAfter = time.Second

// Events calls each for all events or, if last is not empty, for those after the event with that
// id. It returns when the context ends or each returns an error. If the stream breaks, Events opens
// it again and continues, and calls gone whenever no daemon answers. It returns an error of the
// first connection.
func (c *Client) Events(
	ctx context.Context, last string, each func(Event) error, gone func(),
) error {
	connected := false
	for {
		r, err := http.NewRequestWithContext(ctx, "GET", c.base+"/events", nil)
		if err != nil {
			return err
		}
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		err = c.stream(r, func(e Event) error {
			connected, last = true, e.ID
			return each(e)
		})
		switch {
		case connected && errors.Is(err, ErrNoDaemon):
			gone()
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reconnectAfter):
		}
	}
}

// stream calls each for the events of one connection. It returns nil when the connection breaks.
func (c *Client) stream(r *http.Request, each func(Event) error) error {
	answer, err := c.ask(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return readEvents(answer.Body, each)
}

// maxEvent bounds a line in bytes. A snapshot of ten thousand torrents has about ten megabytes.
const maxEvent = 64 << 20

// readEvents returns nil when the stream breaks, and the function's error otherwise.
func readEvents(in io.Reader, each func(Event) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxEvent)
	var e Event
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "id":
			e.ID = value
		case "event":
			e.Name = value
		case "data":
			e.Data = []byte(value)
		case "":
			if e.Data == nil {
				continue
			}
			if err := each(e); err != nil {
				return err
			}
			e = Event{}
		}
	}
	return nil
}
