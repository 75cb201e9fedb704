package scenario

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"braid/pathsel"
	"braid/testbed"
)

// samplesFile holds all that was seen of a run: JSON objects, one a line, those of each source in the
// order of time. A peer on a busy machine may be heard late.
const samplesFile = "samples.jsonl"

// glanceEvery is the time between two looks at links, processes and flows. Memory is read from the kernel's page tables,
// which is not free.
const glanceEvery = 500 * time.Millisecond

// line is one object of samples.jsonl. Kind says what it is about: peer (Event is the peer's own, with what each of its
// paths has carried, its round trip and its losses), link, process, traffic, path (one that a leecher could use, as it was
// at the start) or event (something that the scenario does).
type line struct {
	T    float64 `json:"t"` // seconds after the start of the run
	Kind string  `json:"kind"`
	// What is the peer, process, flow, or kind of event.
	What  string          `json:"what,omitempty"`
	At    string          `json:"at,omitempty"` // an interface; of events also a peer or a flow
	Event json.RawMessage `json:"event,omitempty"`

	// A path, from a leecher (What) to a seed (To): the interfaces on the way there, and what part of a full packet is payload.
	To          string              `json:"to,omitempty"`
	Fingerprint pathsel.Fingerprint `json:"fingerprint,omitempty"`
	Interfaces  []pathsel.Interface `json:"interfaces,omitempty"`
	Share       float64             `json:"share,omitempty"`

	Change *testbed.LinkChange `json:"change,omitempty"`
	// Bytes so far of a link's direction or of a flow's payload, and their rate since the sample before.
	Bytes   int64   `json:"bytes,omitempty"`
	MbitS   float64 `json:"mbit_s,omitempty"`
	Packets uint64  `json:"packets,omitempty"`
	// Dropped packets by a full queue, by loss, by a link that is down; Late ones are the emulator's fault.
	DroppedQueue uint64  `json:"dropped_queue,omitempty"`
	DroppedLoss  uint64  `json:"dropped_loss,omitempty"`
	DroppedDown  uint64  `json:"dropped_down,omitempty"`
	Late         uint64  `json:"late,omitempty"`
	QueueBytes   int     `json:"queue_bytes,omitempty"`
	CPU          float64 `json:"cpu_s,omitempty"` // so far
	Cores        float64 `json:"cores,omitempty"` // CPU time for each second since the sample before
	RSS          int64   `json:"rss_bytes,omitempty"`
	PSS          int64   `json:"pss_bytes,omitempty"`
}

// Line is one object of samples.jsonl, for who reads them.
type Line = line

// ReadSamples gives each object of a samples.jsonl to a function, which may end the reading by an error.
func ReadSamples(r io.Reader, each func(Line) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine+1024)
	for n := 1; lines.Scan(); n++ {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("read samples: line %d: %w", n, err)
		}
		if err := each(l); err != nil {
			return fmt.Errorf("read samples: line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read samples: %w", err)
	}
	return nil
}

type sampleWriter struct {
	begun time.Time
	file  *os.File
	buf   *bufio.Writer
	json  *json.Encoder
	err   error // the first
	// before is the last sample of each link, flow and process.
	before map[[2]string]line
}

func newSampleWriter(name string, begun time.Time) (*sampleWriter, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("write samples: %w", err)
	}
	w := &sampleWriter{before: map[[2]string]line{}, begun: begun, file: f, buf: bufio.NewWriterSize(f, 1<<16)}
	w.json = json.NewEncoder(w.buf)
	return w, nil
}

func (w *sampleWriter) write(l line) { w.writeAt(time.Now(), l) }

func (w *sampleWriter) writeAt(at time.Time, l line) {
	l.T = seconds(at.Sub(w.begun).Round(time.Microsecond))
	if l.Kind == "link" || l.Kind == "process" || l.Kind == "traffic" {
		key := [2]string{l.Kind, l.What + l.At}
		if b, ok := w.before[key]; ok && l.T > b.T {
			l.MbitS, l.Cores = float64(l.Bytes-b.Bytes)*8/1e6/(l.T-b.T), (l.CPU-b.CPU)/(l.T-b.T)
		}
		w.before[key] = l
	}
	if err := w.json.Encode(l); w.err == nil && err != nil {
		w.err = fmt.Errorf("write samples: %w", err)
	}
}

func (w *sampleWriter) event(p *process, m message) {
	w.writeAt(m.at, line{Kind: "peer", What: p.peer.Name, Event: m.line})
}

func (w *sampleWriter) glance(s testbed.Status, peers []*process) {
	now := time.Now()
	for _, l := range s.Links {
		for _, e := range []testbed.LinkEndStatus{l.A, l.B} {
			k := e.Counters
			w.writeAt(now, line{
				Kind: "link", At: e.Interface.String(), Bytes: int64(k.Bytes), Packets: k.Packets, DroppedQueue: k.DroppedQueue,
				DroppedLoss: k.DroppedLoss, DroppedDown: k.DroppedDown, Late: k.Late, QueueBytes: k.QueueBytes,
			})
		}
	}
	for _, p := range s.Processes {
		w.writeAt(now, line{Kind: "process", What: p.IA.String() + " " + p.Name, CPU: p.CPU, RSS: p.RSS, PSS: p.PSS})
	}
	usage := func(name string, pid int) {
		u := testbed.UsageOf(pid)
		w.writeAt(now, line{Kind: "process", What: name, CPU: u.CPU, RSS: u.RSS, PSS: u.PSS})
	}
	for _, p := range peers {
		if !p.ended {
			usage(p.peer.Name, p.cmd.Process.Pid)
		}
	}
	usage("runner", os.Getpid())
}

func (w *sampleWriter) close() error {
	err := errors.Join(w.err, w.buf.Flush(), w.file.Close())
	if err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	return nil
}

// maxPieces bounds the pieces of a torrent that are followed.
const maxPieces = 1 << 20

// recorder gathers what a leecher says of itself, in its own time.
type recorder struct {
	// base is when its transfer began, as its own clock tells: what it says is under way for a moment, sometimes for
	// longer, so the earliest that its messages suggest is right.
	base    time.Time
	samples []sample // t is the transfer's
	choices []choice
	// handshakes of paths in seconds, the first of each.
	handshakes map[pathsel.Fingerprint]float64
	fetched    int64 // of all torrents
	complete   bool
	wasted     int64 // of one torrent
	pieces     []pieceSample

	torrents map[string]sample // the last of each, by info hash
	finished map[string]bool
	wanted   int // torrents
}

func newRecorder(torrents int) *recorder {
	return &recorder{handshakes: map[pathsel.Fingerprint]float64{}, torrents: map[string]sample{}, finished: map[string]bool{}, wanted: torrents}
}

func (r *recorder) add(m message) {
	t := m.T
	if m.Event == "done" {
		t = m.Seconds
	}
	if base := m.at.Add(-time.Duration(t * float64(time.Second))); r.base.IsZero() || base.Before(r.base) {
		r.base = base
	}
	switch m.Event {
	case "progress", "done":
		if r.complete {
			return // it serves
		}
		s := sample{t, m.Fetched, map[pathsel.Fingerprint]uint64{}}
		for _, p := range m.Paths {
			s.paths[p.Fingerprint] += p.BytesRead
			if p.Handshake > 0 && r.handshakes[p.Fingerprint] == 0 {
				r.handshakes[p.Fingerprint] = p.Handshake / 1e3
			}
		}
		r.torrents[m.InfoHash] = s
		r.wasted = max(r.wasted, m.Wasted)
		if m.Event == "done" {
			r.finished[m.InfoHash] = true
		}
		r.samples = append(r.samples, r.sum(t))
		r.fetched = r.samples[len(r.samples)-1].bytes
		r.complete = len(r.finished) >= r.wanted
	case "piece":
		if m.Piece >= 0 && m.Piece < maxPieces {
			r.pieces = append(r.pieces, pieceSample{m.T, m.InfoHash, m.Piece})
		}
	default:
		if m.Fingerprint != "" {
			r.choices = append(r.choices, choice{t, pathsel.Key{Peer: m.Peer, Path: m.Fingerprint, Conn: m.Conn}, m.Event})
		}
	}
}

// sum is all torrents together.
func (r *recorder) sum(t float64) sample {
	if len(r.torrents) == 1 {
		for _, s := range r.torrents {
			return s
		}
	}
	all := sample{t, 0, map[pathsel.Fingerprint]uint64{}}
	if n := len(r.samples); n > 0 {
		all.t = max(t, r.samples[n-1].t) // torrents were added one after another
	}
	for _, s := range r.torrents {
		all.bytes += s.bytes
		for f, n := range s.paths {
			all.paths[f] += n
		}
	}
	return all
}
