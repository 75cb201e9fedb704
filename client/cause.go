package client

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"braid/pathsel"
	"braid/scionnet"
)

// Why a transfer makes no progress: diagnose is a function from the evidence about peers, paths and
// trackers to a cause.

// CauseKind names a cause. The values are part of the output of braid.
type CauseKind string

const (
	// PeerSilent: paths to the peer are alive, or it is reached without SCION, and it does not
	// answer.
	PeerSilent CauseKind = "peer-silent"
	// PeerRefuses: the peer ends each connection.
	PeerRefuses CauseKind = "peer-refuses"
	// PathDown: packets do not reach the peer's AS.
	PathDown CauseKind = "path-down"
	// NotAllowed: the user's policy allows none of the paths.
	NotAllowed CauseKind = "no-path-allowed"
	// ControlUnreachable: the SCION daemon or the control service of this AS does not answer.
	ControlUnreachable CauseKind = "control-unreachable"
	// ASUnknown: the control service answers that it knows no path to the AS.
	ASUnknown CauseKind = "as-unknown"
	// NameUnknown: no address is known for a name.
	NameUnknown CauseKind = "name-unknown"
	// TrackerFailed: no tracker has answered.
	TrackerFailed CauseKind = "tracker-failed"
	// NobodyThere: trackers have answered, and know no other peer. Or there is no tracker, and no
	// peer has connected.
	NobodyThere CauseKind = "nobody-there"
	// PiecesMissing: peers are connected, and none has a missing piece.
	PiecesMissing CauseKind = "pieces-missing"
	// MetadataMissing: peers are connected, and none has sent the description of a magnet link.
	MetadataMissing CauseKind = "metadata-missing"
	// Choked: peers with missing pieces are connected, and serve others now.
	Choked CauseKind = "choked"
	// NoData: peers are connected and serve us, and no data comes.
	NoData CauseKind = "no-data"
	// DiskFull: there is no room for the data.
	DiskFull CauseKind = "disk-full"
	// DiskBusy: there is room, but the disk does not take the data as fast as it arrives.
	DiskBusy CauseKind = "disk-busy"
)

// Cause is why a transfer makes no progress.
type Cause struct {
	Kind CauseKind
	Text string // a sentence without a full stop
	// Peer is the address or URL that the cause is about; empty if it is about none.
	Peer string
	// Down are the interfaces at which paths end, of PathDown.
	Down []Break
}

// Break is where packets along a path end.
type Break struct {
	Interface pathsel.Interface
	// By is the AS whose router has said so; 0 if no router behind the interface answers.
	By pathsel.IA
}

// evidence is what is known about a transfer that makes no progress.
type evidence struct {
	DiskFull  bool
	DiskBusy  bool // blocks wait in memory until the disk has taken earlier ones
	Connected connectedPeers
	Targets   []target // peers that are not connected, and trackers
	WebSeeds  int      // the torrent's web seeds, if braid can use none of them
}

// connectedPeers is what is known of the peers that are connected.
type connectedPeers struct {
	Peers    int
	Metadata bool // it is known what is in the torrent
	Missing  int  // wanted pieces that are not complete
	Offered  int  // missing pieces that a connected peer has
	Serving  int  // peers that serve us
}

// target is a peer or a tracker that should answer, and what is known of the way to it.
type target struct {
	Name     string // address or URL
	Tracker  bool
	At       scionnet.Addr // zero: it is on IP, or its address is not known
	Answered bool          // it is a tracker, and has answered the last announce
	// Err is why the last attempt or the last lookup of paths has failed; nil while the first one
	// is under way.
	Err     error
	Refused bool // the peer has answered, and ended the connection
	Banned  bool
	examination
}

// examination is what was found out about the way to a target; zero: it was not examined.
type examination struct {
	Examined bool
	Control  error // the control plane does not answer
	Lookup   error // why no paths were found
	Unsent   error // why no packet could be sent
	Paths    []pathsel.Path
	Traces   []scionnet.Trace // of each path
	HostUp   bool             // the host answers an echo request
}

// diagnose finds the cause why there is no progress; nil if it is not known yet.
func diagnose(e evidence) *Cause {
	if e.DiskFull {
		return &Cause{Kind: DiskFull, Text: fullMessage}
	}
	if e.DiskBusy {
		return &Cause{Kind: DiskBusy, Text: busyMessage}
	}
	best, others := mostHopeful(e.Targets)
	if e.Connected.Peers > 0 {
		c := e.Connected.cause()
		aboutPeer := best != nil && best.Kind != NobodyThere && best.Kind != TrackerFailed
		if c.Kind == PiecesMissing && aboutPeer {
			c.Text += "; " + best.Text
			c.Peer, c.Down = best.Peer, best.Down
		}
		return &c
	}
	if best != nil && others > 0 {
		best.Text += fmt.Sprintf(" (and %d more)", others)
	}
	if best != nil && best.Kind == NobodyThere && e.WebSeeds > 0 {
		seeds := plural(e.WebSeeds, "web seed", "web seeds")
		best.Text += "; braid cannot use the " + seeds + " of the torrent"
	}
	return best
}

func (c connectedPeers) cause() Cause {
	who := plural(c.Peers, "peer is", "peers are") + " connected"
	switch {
	case !c.Metadata:
		none := ", and none has told yet what is in the torrent"
		return Cause{Kind: MetadataMissing, Text: who + none}
	case c.Offered == 0 && c.Missing > 0:
		missing := plural(c.Missing, "missing piece", "missing pieces")
		return Cause{Kind: PiecesMissing, Text: who + ", and none has any of the " + missing}
	case c.Serving == 0:
		return Cause{Kind: Choked, Text: who + ", and none serves this download now"}
	}
	return Cause{Kind: NoData, Text: who + ", but no data has come for a while"}
}

// hope orders causes, beginning with the one that is nearest to a connection. Causes of peers come
// before causes of trackers: more peers would not help if the known ones cannot be reached.
var hope = []CauseKind{
	PeerRefuses, PeerSilent, PathDown, NotAllowed, ASUnknown, NameUnknown, ControlUnreachable,
	NobodyThere, TrackerFailed,
}

// mostHopeful is the cause of the target that is nearest to a connection, and how many other
// targets have a cause of the same kind.
func mostHopeful(targets []target) (best *Cause, others int) {
	peers := slices.ContainsFunc(targets, func(t target) bool { return !t.Tracker })
	bestRank := len(hope)
	for _, t := range targets {
		if t.Tracker && peers {
			continue
		}
		c, ok := t.cause()
		if !ok {
			continue
		}
		switch rank := slices.Index(hope, c.Kind); {
		case rank < bestRank:
			best, bestRank, others = &c, rank, 0
		case rank == bestRank:
			others++
		}
	}
	if best == nil && len(targets) == 0 {
		best = &Cause{Kind: NobodyThere, Text: "no peer is known, and none has connected"}
	}
	return best, others
}

// cause is why the target is not connected. It returns false if that is not known yet.
func (t target) cause() (Cause, bool) {
	name, ia := t.Name, t.At.IA
	if t.Tracker {
		name = "the tracker " + t.Name
	}
	of := func(k CauseKind, format string, args ...any) (Cause, bool) {
		return Cause{Kind: k, Text: fmt.Sprintf(format, args...), Peer: t.Name}, true
	}
	if t.Tracker && t.Answered {
		return of(NobodyThere, "%s has answered, and names nobody else who has this torrent", name)
	}
	if c, ok := CauseOf(t.Err); ok {
		c.Peer = t.Name
		return c, true
	}
	refused, forbidden := errors.AsType[*pathsel.RefusedError](t.Err)
	switch {
	case t.Banned:
		return of(PeerRefuses, "%s is banned: it has sent wrong data", name)
	case t.Refused:
		return of(PeerRefuses, "%s ends each connection; it may not have this torrent", name)
	case t.At.IA == 0:
		kind := PeerSilent
		if t.Tracker {
			kind = TrackerFailed
		}
		if t.Err != nil {
			return of(kind, "%s does not answer: %s", name, short(t.Err))
		}
		return of(kind, "%s has not answered yet", name)
	case t.Tracker && forbidden:
		return of(NotAllowed, "the path policy keeps braid from %s: %v", name, refused)
	case !t.Examined:
		return Cause{}, false
	case t.Control != nil:
		return of(ControlUnreachable, "paths to %s cannot be looked up: %v", ia, t.Control)
	case t.Unsent != nil:
		return of(PathDown, "this host cannot send to AS %s: %v; "+
			"if its address has changed, start braid again", ia, t.Unsent)
	case len(t.Paths) == 0 && t.Err == nil:
		return of(ASUnknown, "the control service has not told any path to AS %s yet", ia)
	case len(t.Paths) == 0 && forbidden:
		return of(NotAllowed, "the path policy leaves no path: %v", refused)
	case len(t.Paths) == 0:
		return of(ASUnknown, "the control service knows no path to AS %s: "+
			"there is no such AS, or it is cut off", ia)
	}
	alive := 0
	for i, r := range t.Traces {
		if r.Alive(t.Paths[i]) {
			alive++
		}
	}
	paths := alivePaths(alive, len(t.Paths), ia)
	switch {
	case alive == 0:
		c := Cause{Kind: PathDown, Peer: t.Name, Down: breaks(t.Paths, t.Traces)}
		c.Text = "no packet gets to AS " + ia.String() + ": " + breaksText(c.Down)
		return c, true
	case t.Tracker:
		return of(TrackerFailed, "%s, but %s does not answer", paths, name)
	case t.HostUp:
		return of(PeerSilent,
			"%s and the host of %s is up, but nothing answers at that port", paths, name)
	}
	return of(PeerSilent, "%s, but the peer %s does not answer", paths, name)
}

func alivePaths(alive, paths int, ia pathsel.IA) string {
	switch {
	case alive < paths:
		return fmt.Sprintf("%d of %d paths to AS %s work", alive, paths, ia)
	case paths == 1:
		return fmt.Sprintf("the path to AS %s works", ia)
	}
	return fmt.Sprintf("all %d paths to AS %s work", paths, ia)
}

// CauseOf is the cause that follows from an error alone.
func CauseOf(err error) (Cause, bool) {
	if name, ok := errors.AsType[*scionnet.NameError](err); ok {
		text := fmt.Sprintf("the name %s is unknown: it is not in %s, and DNS says: %s",
			name.Name, strings.Join(name.Hosts, " or "), short(name.Err))
		return Cause{Kind: NameUnknown, Peer: name.Name, Text: text}, true
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		text := fmt.Sprintf("the name %s is unknown: DNS says: %s", dns.Name, dns.Err)
		return Cause{Kind: NameUnknown, Peer: dns.Name, Text: text}, true
	}
	if errors.Is(err, scionnet.ErrNoControl) {
		text := "no path can be looked up: " + err.Error()
		return Cause{Kind: ControlUnreachable, Text: text}, true
	}
	return Cause{}, false
}

// short is the system's message about a failed connection, without the address.
func short(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err.Error()
	}
	return err.Error()
}

// breaks are the places where packets along the paths end, each once.
func breaks(paths []pathsel.Path, traces []scionnet.Trace) (out []Break) {
	for i, r := range traces {
		b := Break{Interface: r.Down, By: r.Down.IA}
		if r.Down.IA == 0 {
			if len(paths[i].Interfaces) == 0 {
				continue
			}
			b.Interface = paths[i].Interfaces[r.Answered] // in range, since the path is not alive
		}
		if !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	return out
}

// shownBreaks is how many breaks a text names.
const shownBreaks = 4

func breaksText(all []Break) string {
	var parts []string
	for _, b := range all[:min(len(all), shownBreaks)] {
		if b.By != 0 {
			parts = append(parts, fmt.Sprintf("interface %s is down, says its router", b.Interface))
		} else {
			parts = append(parts, fmt.Sprintf("interface %s does not answer", b.Interface))
		}
	}
	if n := len(all) - shownBreaks; n > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(parts, "; ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

const busyMessage = "what has arrived waits in memory until the disk has taken what came before"

const fullMessage = "the disk is full: make room; the download goes on by itself, " +
	"and what is there is served meanwhile"
