package node

import (
	"errors"
	"time"

	"braid/client"
	"braid/node/event"
)

// These functions turn the client's values into the objects of --json.

const mega = 1e6

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// NewReady returns the event of a session that listens at these addresses.
func NewReady(listen []client.Peer) event.Ready {
	out := event.Ready{Event: "ready", Listen: []string{}}
	for _, p := range listen {
		out.Listen = append(out.Listen, p.String())
	}
	return out
}

// NewProgress returns the event for the progress of a torrent.
func NewProgress(s client.Source, p client.Progress) event.Progress {
	return event.Progress{
		Event:      "progress",
		Torrent:    p.Name,
		InfoHash:   s.InfoHash.HexString(),
		Phase:      string(p.Phase),
		T:          p.Since.Seconds(),
		Bytes:      p.Have,
		Total:      p.Total,
		Pieces:     p.Pieces,
		PiecesDone: p.Done,
		Checked:    p.Checked,
		Fetched:    p.Fetched,
		Sent:       p.Sent,
		MbitS:      p.ReadRate / mega,
		UpMbitS:    p.WriteRate / mega,
		Wasted:     p.Wasted,
		Dropped:    p.Dropped,
		Waiting:    p.Waiting,
		Cause:      NewCause(p.Cause),
		Paths:      newPaths(p.Paths),
	}
}

// newDone is the event of a complete download with the progress p, which includes earlier runs. run
// is that of the last one.
func newDone(s client.Source, p, run client.Progress) event.Done {
	return event.Done{
		Event:        "done",
		Torrent:      p.Name,
		InfoHash:     s.InfoHash.HexString(),
		Seconds:      p.Since.Seconds(),
		Bytes:        p.Total,
		Fetched:      run.Fetched,
		PayloadMbitS: float64(run.Fetched) * 8 / mega / run.Since.Seconds(),
		Wasted:       p.Wasted,
		Dropped:      p.Dropped,
		Paths:        newPaths(p.Paths),
	}
}

// NewFailed returns the event for an error that ends a torrent. Without name and hash it is the
// error that ends a command.
func NewFailed(torrent, infoHash string, err error) event.Failed {
	return event.Failed{
		Event:    "failed",
		Torrent:  torrent,
		InfoHash: infoHash,
		Error:    err.Error(),
		Cause:    causeOf(err),
	}
}

// newCauseChange says why a torrent receives no data. If c is nil, it receives data again.
func newCauseChange(s client.Source, c *client.Cause, since time.Duration) event.CauseChange {
	return event.CauseChange{
		Event:    "cause",
		Torrent:  s.Name,
		InfoHash: s.InfoHash.HexString(),
		T:        since.Seconds(),
		Cause:    NewCause(c),
	}
}

// newPathStep is a step in the life of a path-level peer.
func newPathStep(s client.Source, e client.PathEvent, now time.Time) event.PathStep {
	return event.PathStep{
		Event: e.Name, InfoHash: s.InfoHash.HexString(), T: e.Since.Seconds(),
		Peer: e.Key.Peer, Fingerprint: e.Key.Path, Reason: e.Reason, Time: now,
	}
}

// newPiece says that a piece was verified.
func newPiece(s client.Source, p client.VerifiedPiece) event.Piece {
	return event.Piece{
		Event:    "piece",
		InfoHash: s.InfoHash.HexString(),
		T:        p.Since.Seconds(),
		Piece:    p.Index,
	}
}

// NewCause converts the cause why no data comes. It returns nil if c is nil: data comes, or the
// cause is unknown.
func NewCause(c *client.Cause) *event.Cause {
	if c == nil {
		return nil
	}
	out := &event.Cause{Kind: string(c.Kind), Text: c.Text, Peer: c.Peer}
	for _, b := range c.Down {
		j := event.Break{Interface: b.Interface.String()}
		if b.By != 0 {
			j.By = b.By.String()
		}
		out.Down = append(out.Down, j)
	}
	return out
}

// causeOf returns the cause of a failed transfer or command, or nil if it is unknown.
func causeOf(err error) *event.Cause {
	if stopped, ok := errors.AsType[*client.StoppedError](err); ok {
		return NewCause(stopped.Cause)
	}
	if c, ok := client.CauseOf(err); ok {
		return NewCause(&c)
	}
	return nil
}

func newPaths(paths []client.PathProgress) []event.Path {
	out := make([]event.Path, 0, len(paths)) // [] rather than null
	for _, p := range paths {
		e := event.Path{
			Peer:          p.Peer,
			Source:        string(p.Source),
			Fingerprint:   p.Path.Fingerprint,
			Transport:     p.Transport,
			Accepted:      p.Accepted,
			Hops:          p.Path.Hops(),
			State:         p.State.String(),
			RTT:           ms(p.RTT),
			MinRTT:        ms(p.MinRTT),
			Handshake:     ms(p.Handshake),
			BytesRead:     p.BytesRead,
			BytesSent:     p.BytesWritten,
			MbitS:         p.ReadRate / mega,
			UpMbitS:       p.WriteRate / mega,
			PacketsSent:   p.PacketsSent,
			PacketsLost:   p.PacketsLost,
			Failures:      p.Failures,
			Congestion:    p.Congestion.State,
			Window:        p.Window,
			DeliveryMbitS: 8 * p.DeliveryRate / mega,
			PacingMbitS:   8 * p.PacingRate / mega,
		}
		if p.Err != nil {
			e.Error = p.Err.Error()
		}
		out = append(out, e)
	}
	return out
}
