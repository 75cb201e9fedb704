package scenario

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"braid/testbed"
)

// samplesFile has all samples of a run as JSON objects, one a line. Samples of one source are in the
// order of time, but a peer on a busy machine may be heard late.
const samplesFile = "samples.jsonl"

// glanceEvery is the time between two looks at links, processes and flows. Reading memory from the
// kernel's page tables costs processor time.
const glanceEvery = 500 * time.Millisecond

// Line is one object of samples.jsonl. Its Kind is one of:
//
//	peer     Event is an event of the peer What, as [event.Parse] reads it
//	link     counters of the direction that the interface At sends
//	process  what the process What used
//	machine  what all programs used
//	traffic  payload that the flow What delivered
//	path     a way of payload to What (a peer, or a flow's name) from the peer To
//	event    What the scenario did, and At which interface, peer or flow
type Line struct {
	T     float64         `json:"t"` // seconds after the start of the run
	Kind  string          `json:"kind"`
	What  string          `json:"what,omitempty"`
	At    string          `json:"at,omitempty"`
	Event json.RawMessage `json:"event,omitempty"`

	To    string `json:"to,omitempty"`
	route        // of a path; of the event pause, Interfaces are the router's

	Change *testbed.LinkChange `json:"change,omitempty"`
	// Bytes so far of a link's direction or of a flow's payload, and their rate since the sample
	// before.
	Bytes   int64   `json:"bytes,omitempty"`
	MbitS   float64 `json:"mbit_s,omitempty"`
	Packets uint64  `json:"packets,omitempty"`
	// Packets dropped by a full queue, by loss, and by a link that is down. Late packets are the
	// emulator's fault.
	DroppedQueue uint64 `json:"dropped_queue,omitempty"`
	DroppedLoss  uint64 `json:"dropped_loss,omitempty"`
	DroppedDown  uint64 `json:"dropped_down,omitempty"`
	Late         uint64 `json:"late,omitempty"`
	QueueBytes   int    `json:"queue_bytes,omitempty"`
	BFD          *int   `json:"bfd_transitions,omitempty"` // at the start and at the end of the run

	CPU    float64 `json:"cpu_s,omitempty"`     // processor time so far
	AllCPU float64 `json:"all_cpu_s,omitempty"` // of a machine: with idle time
	// RealTime says that the run's processes get a processor before all ordinary programs.
	RealTime bool    `json:"real_time,omitempty"`
	Cores    float64 `json:"cores,omitempty"` // processor time per second since the sample before
	RSS      int64   `json:"rss_bytes,omitempty"`
	PSS      int64   `json:"pss_bytes,omitempty"`

	said any // Event, once it is parsed
}

// ReadSamples calls a function for each object of a samples.jsonl, until it returns an error.
func ReadSamples(r io.Reader, each func(Line) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, testbed.MaxLine+1024) // an event and what is around it
	for n := 1; lines.Scan(); n++ {
		var l Line
		err := json.Unmarshal(lines.Bytes(), &l)
		if err == nil {
			err = each(l)
		}
		if err != nil {
			return fmt.Errorf("read samples: line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read samples: %w", err)
	}
	return nil
}

// sampleWriter writes the samples of a run, and folds them into its record.
type sampleWriter struct {
	fold   *fold
	begun  time.Time
	file   *os.File
	buf    *bufio.Writer
	json   *json.Encoder
	err    error              // the first
	before map[[2]string]Line // the last sample of each link, flow and process
}

func newSampleWriter(name string, s Scenario, begun time.Time) (*sampleWriter, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("write samples: %w", err)
	}
	w := &sampleWriter{
		fold: newFold(s), before: map[[2]string]Line{}, begun: begun,
		file: f, buf: bufio.NewWriterSize(f, 1<<16),
	}
	w.json = json.NewEncoder(w.buf)
	return w, nil
}

func (w *sampleWriter) write(l Line) { w.writeAt(time.Now(), l) }

func (w *sampleWriter) writeAt(at time.Time, l Line) {
	l.T = at.Sub(w.begun).Round(time.Microsecond).Seconds()
	if l.Kind == "link" || l.Kind == "process" || l.Kind == "traffic" {
		key := [2]string{l.Kind, l.What + l.At}
		if b, ok := w.before[key]; ok && l.T > b.T {
			l.MbitS, l.Cores = float64(l.Bytes-b.Bytes)*8/1e6/(l.T-b.T), (l.CPU-b.CPU)/(l.T-b.T)
		}
		w.before[key] = l
	}
	if err := errors.Join(w.json.Encode(l), w.fold.add(l)); w.err == nil && err != nil {
		w.err = fmt.Errorf("write samples: %w", err)
	}
}

// event writes what the scenario does at a place.
func (w *sampleWriter) event(what, at string) { w.write(Line{Kind: "event", What: what, At: at}) }

// glance writes the counters of links, processes and the machine at this moment.
func (w *sampleWriter) glance(s testbed.Status, peers []*process) {
	now := time.Now()
	for _, l := range s.Links {
		for _, e := range []testbed.LinkEndStatus{l.A, l.B} {
			k := e.Counters
			x := Line{
				Kind: "link", At: e.Interface.String(), Bytes: int64(k.Bytes), Packets: k.Packets,
				DroppedQueue: k.DroppedQueue, DroppedLoss: k.DroppedLoss, DroppedDown: k.DroppedDown,
				Late: k.Late, QueueBytes: k.QueueBytes,
			}
			if e.State == "up" || e.State == "down" {
				x.BFD = &e.BFDTransitions
			}
			w.writeAt(now, x)
		}
	}
	for _, p := range s.Processes {
		w.writeAt(now, Line{Kind: "process", What: p.IA.String() + " " + p.Name, CPU: p.CPU, RSS: p.RSS, PSS: p.PSS})
	}
	usage := func(name string, pid int) {
		if u := testbed.UsageOf(pid); u != (testbed.Usage{}) { // else it has just ended
			w.writeAt(now, Line{Kind: "process", What: name, CPU: u.CPU, RSS: u.RSS, PSS: u.PSS})
		}
	}
	for _, p := range peers {
		if !p.ended {
			usage(p.peer.Name, p.cmd.Process.Pid)
		}
	}
	usage(runnerName, os.Getpid())
	busy, all := machineCPU()
	w.writeAt(now, Line{Kind: "machine", CPU: busy, AllCPU: all, RealTime: realTime()})
}

func (w *sampleWriter) close() error {
	err := errors.Join(w.err, w.buf.Flush(), w.file.Close())
	if err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	return nil
}
