package v1

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"braid/node"
	"braid/node/event"
	"braid/pathsel"
	"braid/units/lists"
)

const (
	// maxRing and maxRingBytes bound the messages that are kept for readers that were away. The
	// rows of a thousand busy torrents are a megabyte.
	maxRing      = 4096
	maxRingBytes = 16 << 20
	// maxReaders bounds the streams: each is a connection and a goroutine.
	maxReaders  = 64
	sampleEvery = time.Second
	// aliveEvery bounds the silence on a stream. Proxies and browsers give up silent streams.
	aliveEvery = 15 * time.Second
	// writePatience is how long a reader may take for maxWrite bytes. Without parts, a large
	// snapshot would not get through a slow line, and the reader would begin again for ever.
	writePatience = 30 * time.Second
	maxWrite      = 64 << 10
	// maxBacklog bounds the node's events that wait for the hub.
	maxBacklog = 4096
)

// streamed has the events of GET /events.
var streamed = []struct {
	name string
	of   reflect.Type
}{
	{"snapshot", reflect.TypeFor[Snapshot]()},
	{"torrents", reflect.TypeFor[TorrentsChanged]()},
	{"totals", reflect.TypeFor[Totals]()},
	{"decision", reflect.TypeFor[Decision]()},
	{"log", reflect.TypeFor[LogEntry]()},
	{"settings", reflect.TypeFor[Settings]()},
	{"policy", reflect.TypeFor[Policy]()},
}

// hub puts all changes into one order, and keeps the newest ones. A reader has a position in this
// order and no buffer. If it is too slow, or was away, it continues from its position. If later
// messages are forgotten by then, it begins with a snapshot again.
//
// The hub looks at torrents only while there are readers.
type hub struct {
	api     *API
	epoch   string          // a part of all ids that other processes do not have
	open    context.Context // ends when the API is closed
	stop    context.CancelFunc
	events  *node.Subscription
	running sync.WaitGroup
	readers chan struct{} // a semaphore: it holds one for each reader

	sampling sync.Mutex // held while the torrents are looked at

	mu     sync.Mutex
	ring   []message // with consecutive ids
	bytes  int
	next   int64           // id of the next message
	wake   chan struct{}   // closed at the next message
	rows   map[string]*row // each torrent, as of the last look
	order  []string
	totals []byte
}

// row is a torrent and its JSON.
type row struct {
	torrent Torrent
	json    json.RawMessage
}

type message struct {
	name string
	data []byte
}

func newHub(a *API) *hub {
	h := &hub{
		api: a, epoch: rand.Text()[:8], next: 1, wake: make(chan struct{}),
		rows: map[string]*row{}, events: a.Node.Subscribe(maxBacklog),
		readers: make(chan struct{}, maxReaders),
	}
	h.open, h.stop = context.WithCancel(context.Background())
	a.Journal.tell(func(e LogEntry) { h.put("log", e) })
	h.running.Go(h.takeAll)
	h.running.Go(h.sampleWhileRead)
	return h
}

func (h *hub) close() {
	h.stop()
	h.events.Close()
	h.running.Wait()
}

// takeAll takes the node's events.
func (h *hub) takeAll() {
	for {
		e, err := h.events.Next(h.open)
		if err != nil {
			return
		}
		h.take(e)
	}
}

// sampleWhileRead looks at the torrents while there are readers.
func (h *hub) sampleWhileRead() {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-h.open.Done():
			return
		}
		if len(h.readers) > 0 {
			h.sample()
		}
	}
}

// take puts an event of the node into the stream, or as an entry into the journal.
func (h *hub) take(e any) {
	log := h.api.Journal.add
	switch e := e.(type) {
	case event.PathStep:
		at := pathsel.Key{Peer: e.Peer, Path: e.Fingerprint}
		mark := node.Mark{Time: e.Time, Event: e.Event, Reason: e.Reason}
		h.put("decision", newDecision(e.InfoHash, at, mark))
	case event.Done:
		log(entryOf(e.InfoHash, "info", fmt.Sprintf("%s is complete: %d bytes received in %.0f s",
			e.Torrent, e.Fetched, e.Seconds)))
	case event.Failed:
		log(entryOf(e.InfoHash, "error", fmt.Sprintf("%s has failed: %s", e.Torrent, e.Error)))
	case event.Served:
		log(entryOf(e.InfoHash, "info",
			fmt.Sprintf("%s is not served any longer: %s", e.Torrent, e.Reason)))
	case event.InTheWay:
		log(entryOf("",
			"warning", fmt.Sprintf("%s was in the way: it is deleted, or now %s", e.Path, e.Aside)))
	case event.Changed:
		if e.Event == "settings" {
			s := h.api.Node.Settings()
			h.put("settings", newSettings(s))
			h.put("policy", newWholePolicy(s))
			return
		}
		log(entryOf(e.InfoHash, "info", fmt.Sprintf("%s was %s", e.Torrent, e.Event)))
	case event.Missed:
		log(entryOf("", "warning", fmt.Sprintf("%d events came too fast and are lost", e.Events)))
	}
}

// put adds a message for all readers.
func (h *hub) put(name string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.append(message{name, b})
}

// append adds a message. The caller holds mu.
func (h *hub) append(m message) {
	h.ring = append(h.ring, m)
	h.bytes += len(m.data)
	h.next++
	for len(h.ring) > maxRing || h.bytes > maxRingBytes && len(h.ring) > 1 {
		h.bytes -= len(h.ring[0].data)
		h.ring[0] = message{}
		h.ring = h.ring[1:]
	}
	close(h.wake)
	h.wake = make(chan struct{})
}

// sample looks at all torrents, and adds messages about the changes since the last look.
func (h *hub) sample() {
	h.sampling.Lock()
	defer h.sampling.Unlock()
	all, ever := h.api.rows()
	rows := make(map[string]*row, len(all))
	order := make([]string, 0, len(all))
	changed, removed := []json.RawMessage{}, []string{}
	for i, t := range all {
		r := h.rows[t.InfoHash]
		if r == nil || !reflect.DeepEqual(&r.torrent, &all[i]) { // to encode all takes longer
			b, err := json.Marshal(t)
			if err != nil {
				continue
			}
			r = &row{t, b}
			changed = append(changed, b)
		}
		rows[t.InfoHash] = r
		order = append(order, t.InfoHash)
	}
	totals, _ := json.Marshal(h.api.sum(all, ever)) // of numbers only
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hash := range h.order {
		if rows[hash] == nil {
			removed = append(removed, hash)
		}
	}
	h.rows, h.order = rows, order
	if len(changed)+len(removed) > 0 {
		b, err := json.Marshal(map[string]any{"changed": changed, "removed": removed})
		if err == nil {
			h.append(message{"torrents", b})
		}
	}
	if !bytes.Equal(h.totals, totals) {
		h.totals = totals
		h.append(message{"totals", totals})
	}
}

// snapshot returns the torrents and totals, with the id of the last message before it.
func (h *hub) snapshot() (b []byte, last int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := lists.Map(h.order, func(hash string) json.RawMessage { return h.rows[hash].json })
	b, _ = json.Marshal(map[string]any{"totals": json.RawMessage(h.totals), "torrents": all}) // valid JSON already
	return b, h.next - 1
}

// after returns the messages after an id, and a channel that is closed at the next one. ok is false
// if some of them are forgotten.
func (h *hub) after(last int64) (all []message, wake <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.next - int64(len(h.ring))
	if last < first-1 || last >= h.next {
		return nil, h.wake, false
	}
	return append([]message{}, h.ring[last-first+1:]...), h.wake, true
}

// enter tells whether there is room for another reader, who leaves at the end.
func (h *hub) enter() bool {
	select {
	case h.readers <- struct{}{}:
		return true
	default:
		return false
	}
}

func (h *hub) leave() { <-h.readers }

// lastSeen returns the last id that a reader has seen, or -1 if it has seen none of this process.
func (h *hub) lastSeen(r *http.Request) int64 {
	id := cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("last_event_id"))
	number, ok := strings.CutPrefix(id, h.epoch+"-")
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil {
		return -1
	}
	return n
}

// events streams events until the reader has gone or is no longer allowed, or the API is closed.
func (a *API) events(w http.ResponseWriter, r *http.Request) error {
	h := a.hub
	if !h.enter() {
		return fault{http.StatusServiceUnavailable,
			fmt.Errorf("more than %d readers of events: try again later", maxReaders)}
	}
	defer h.leave()
	out := stream{w, http.NewResponseController(w), h.epoch}
	_ = out.control.SetReadDeadline(time.Time{}) // the server's timeout for bodies would end it
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx
	h.sample()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	last := h.lastSeen(r)
	for h.open.Err() == nil {
		all, wake, ok := h.after(last)
		if a.Access.Allowed(r) != nil { // its session has ended, or the password is another one
			return nil
		}
		if !ok {
			b, at := h.snapshot()
			if last = at; out.send(last, message{"snapshot", b}) != nil {
				return nil
			}
			continue
		}
		for _, m := range all {
			if last++; out.send(last, m) != nil {
				return nil
			}
		}
		if out.control.Flush() != nil {
			return nil
		}
		select {
		case <-wake:
		case <-alive.C:
			if out.write(":\n\n") != nil { // a comment
				return nil
			}
		case <-h.open.Done():
		case <-r.Context().Done():
			return nil
		}
	}
	return nil
}

// stream writes server-sent events (HTML Living Standard, section 9.2). JSON has no line breaks.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	epoch   string
}

func (s stream) send(id int64, m message) error {
	return s.write("id: %s-%d\nevent: %s\ndata: %s\n\n", s.epoch, id, m.name, m.data)
}

func (s stream) write(format string, args ...any) error {
	for part := range slices.Chunk(fmt.Appendf(nil, format, args...), maxWrite) {
		_ = s.control.SetWriteDeadline(time.Now().Add(writePatience))
		if _, err := s.w.Write(part); err != nil {
			return err
		}
	}
	return nil
}
