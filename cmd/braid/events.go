package main

import (
	"errors"
	"time"

	"braid/client"
	"braid/pathsel"
)

// The events of --json.

type readyEvent struct {
	Event  string        `json:"event"`
	Listen []client.Peer `json:"listen"`
}

type progressEvent struct {
	Event    string       `json:"event"`
	Torrent  string       `json:"torrent"`
	InfoHash string       `json:"info_hash"`
	Phase    client.Phase `json:"phase"`
	// T is in seconds since the transfer began.
	T float64 `json:"t"`
	// Bytes of Total are on disk; Fetched payload came in this run, Sent payload went out.
	Bytes        int64       `json:"bytes"`
	Total        int64       `json:"total"`
	Pieces       int         `json:"pieces"`                  // that are wanted
	Done         int         `json:"pieces_done"`             // and verified
	Checked      int64       `json:"checked_bytes,omitempty"` // hashed, while Phase is "checking"
	Fetched      int64       `json:"fetched_bytes"`
	Sent         int64       `json:"sent_bytes"`
	MbitS        float64     `json:"mbit_s"`
	UpMbitS      float64     `json:"up_mbit_s"`
	WastedBytes  int64       `json:"wasted_bytes"`
	DroppedPiece int64       `json:"dropped_pieces"`
	Waiting      string      `json:"waiting,omitempty"` // no path is left: what happens next
	Cause        *causeJSON  `json:"cause,omitempty"`   // why no data comes
	Paths        []pathEvent `json:"paths"`
}

type doneEvent struct {
	Event    string  `json:"event"`
	Torrent  string  `json:"torrent"`
	InfoHash string  `json:"info_hash"`
	Seconds  float64 `json:"seconds"`
	// Bytes are the torrent's; Fetched of them came in this run, which the rate is about.
	Bytes        int64       `json:"bytes"`
	Fetched      int64       `json:"fetched_bytes"`
	PayloadMbitS float64     `json:"payload_mbit_s"`
	WastedBytes  int64       `json:"wasted_bytes"`
	DroppedPiece int64       `json:"dropped_pieces"`
	Paths        []pathEvent `json:"paths"`
}

// causeEvent tells why no data comes, or, with no cause, that some does again.
type causeEvent struct {
	Event    string     `json:"event"`
	Torrent  string     `json:"torrent"`
	InfoHash string     `json:"info_hash"`
	T        float64    `json:"t"`
	Cause    *causeJSON `json:"cause"` // null: data comes again
}

// failedEvent is the last one of a torrent that has failed, or of a command that has before there was one.
type failedEvent struct {
	Event    string     `json:"event"`
	Torrent  string     `json:"torrent,omitempty"`
	InfoHash string     `json:"info_hash,omitempty"`
	Error    string     `json:"error"`
	Cause    *causeJSON `json:"cause,omitempty"`
}

// causeJSON is a client.Cause.
type causeJSON struct {
	Kind client.CauseKind `json:"kind"`
	Text string           `json:"text"`
	Peer string           `json:"peer,omitempty"` // or the tracker's URL, or a name
	Down []breakJSON      `json:"down,omitempty"` // where paths end, if that is the cause
}

type breakJSON struct {
	Interface string `json:"interface"`
	By        string `json:"by,omitempty"` // the AS whose router says so; without it, nothing comes back from there
}

func newCauseJSON(c *client.Cause) *causeJSON {
	if c == nil {
		return nil
	}
	out := &causeJSON{Kind: c.Kind, Text: c.Text, Peer: c.Peer}
	for _, b := range c.Down {
		j := breakJSON{Interface: b.Interface.String()}
		if b.By != 0 {
			j.By = b.By.String()
		}
		out.Down = append(out.Down, j)
	}
	return out
}

// causeOf is the cause of a failed transfer or command, if it is known.
func causeOf(err error) *causeJSON {
	if stopped := (*client.StoppedError)(nil); errors.As(err, &stopped) {
		return newCauseJSON(stopped.Cause)
	}
	if c, ok := client.CauseOf(err); ok {
		return newCauseJSON(&c)
	}
	return nil
}

// choiceEvent is a step in the life of a path-level peer: its Event is path-selected, path-opened, path-parked,
// path-probed, path-returned, path-closed or path-failed.
type choiceEvent struct {
	Event       string              `json:"event"`
	InfoHash    string              `json:"info_hash"`
	T           float64             `json:"t"`
	Peer        pathsel.PeerID      `json:"peer"`
	Fingerprint pathsel.Fingerprint `json:"fingerprint"`
	Conn        int                 `json:"conn,omitempty"` // beyond 0: one more connection on the same path
	Reason      string              `json:"reason"`
}

// pieceEvent tells of a piece that was verified.
type pieceEvent struct {
	Event    string  `json:"event"`
	InfoHash string  `json:"info_hash"`
	T        float64 `json:"t"`
	Piece    int     `json:"piece"`
}

type pathEvent struct {
	Peer        string              `json:"peer"`
	Fingerprint pathsel.Fingerprint `json:"fingerprint"`
	Name        string              `json:"name,omitempty"` // as on a terminal, 111#1 > 110#1; in the file of --status
	Conn        int                 `json:"conn,omitempty"`
	Transport   string              `json:"transport"`
	Accepted    bool                `json:"accepted,omitempty"` // the peer connected to us
	Hops        int                 `json:"hops"`
	State       string              `json:"state"`
	RTT         float64             `json:"rtt_ms"`
	MinRTT      float64             `json:"min_rtt_ms"`
	Handshake   float64             `json:"handshake_ms"`
	BytesRead   uint64              `json:"bytes_read"`
	BytesSent   uint64              `json:"bytes_written"`
	MbitS       float64             `json:"mbit_s"`
	UpMbitS     float64             `json:"up_mbit_s"`
	PacketsSent uint64              `json:"packets_sent"`
	PacketsLost uint64              `json:"packets_lost"`
	// What the congestion controller of this side has measured and decided; bytes for the window. TCP has no state.
	Congestion    string  `json:"congestion,omitempty"`
	Window        int     `json:"window,omitempty"`
	DeliveryMbitS float64 `json:"delivery_mbit_s,omitempty"`
	PacingMbitS   float64 `json:"pacing_mbit_s,omitempty"`
	Failures      int     `json:"failures,omitempty"`
	Error         string  `json:"error,omitempty"`
}

const mega = 1e6

func newPathEvents(paths []client.PathProgress) []pathEvent {
	out := make([]pathEvent, 0, len(paths)) // [] rather than null
	for _, p := range paths {
		e := pathEvent{
			Peer: p.Peer, Fingerprint: p.Path.Fingerprint, Conn: p.Conn, Transport: p.Transport, Accepted: p.Accepted,
			Hops: p.Path.Hops(), State: p.State.String(),
			RTT: ms(p.RTT), MinRTT: ms(p.MinRTT), Handshake: ms(p.Handshake),
			BytesRead: p.BytesRead, BytesSent: p.BytesWritten, MbitS: p.ReadRate / mega, UpMbitS: p.WriteRate / mega,
			PacketsSent: p.PacketsSent, PacketsLost: p.PacketsLost, Failures: p.Failures,
			Congestion: p.Congestion.State, Window: p.Window, DeliveryMbitS: 8 * p.DeliveryRate / mega, PacingMbitS: 8 * p.PacingRate / mega,
		}
		if p.Err != nil {
			e.Error = p.Err.Error()
		}
		out = append(out, e)
	}
	return out
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func newProgressEvent(name string, s client.Source, p client.Progress) progressEvent {
	return progressEvent{
		Event: name, Torrent: p.Name, InfoHash: s.InfoHash.HexString(), Phase: p.Phase, T: p.Since.Seconds(),
		Bytes: p.Have, Total: p.Total, Pieces: p.Pieces, Done: p.Done, Checked: p.Checked, Fetched: p.Fetched, Sent: p.Sent, MbitS: p.ReadRate / mega, UpMbitS: p.WriteRate / mega,
		WastedBytes: p.Wasted, DroppedPiece: p.Dropped, Waiting: p.Waiting, Cause: newCauseJSON(p.Cause), Paths: newPathEvents(p.Paths),
	}
}

func newDoneEvent(s client.Source, p client.Progress) doneEvent {
	return doneEvent{
		Event: "done", Torrent: p.Name, InfoHash: s.InfoHash.HexString(), Seconds: p.Since.Seconds(),
		Bytes: p.Total, Fetched: p.Fetched, PayloadMbitS: float64(p.Fetched) * 8 / mega / p.Since.Seconds(),
		WastedBytes: p.Wasted, DroppedPiece: p.Dropped, Paths: newPathEvents(p.Paths),
	}
}
