// Package event holds the JSON objects that braid prints with --json, one a line, and writes to the
// file of --status. Package node writes them. Scenarios, reports and tests read them with Parse.
//
// The JSON tags are a contract with other programs: a field may be added, but never renamed or
// removed. Rates are in Mbit/s, sizes in bytes, and times in seconds unless the tag ends in _ms.
package event

import (
	"encoding/json"
	"fmt"
	"time"

	"braid/pathsel"
)

// Ready says that a process accepts connections at these addresses.
type Ready struct {
	Event  string   `json:"event"` // ready
	Listen []string `json:"listen"`
	// API are the addresses at which a daemon answers: unix:PATH or host:port.
	API []string `json:"api,omitempty"`
	// HTTP are the addresses at which it serves files: host:port or ISD-AS,[host]:port.
	HTTP []string `json:"http,omitempty"`
	// Trackers are the announce URLs of a gateway.
	Trackers []string `json:"trackers,omitempty"`
	// Item is the key under which a node of the DHT publishes nodes on SCION (braid dht --publish).
	Item string `json:"item,omitempty"`
}

// Line has the line that braid get needs to fetch the files of braid send. With --watch there is an
// event for each state of the files, always with the same line.
type Line struct {
	Event    string   `json:"event"` // line
	Line     string   `json:"line"`  // for braid get; it contains the key
	Torrent  string   `json:"torrent"`
	InfoHash string   `json:"info_hash"`
	Bytes    int64    `json:"bytes"`
	Files    int      `json:"files"`
	Peers    []string `json:"peers"` // the addresses in the line
}

// Progress is the state of one torrent.
type Progress struct {
	Event    string `json:"event"` // progress
	Torrent  string `json:"torrent"`
	InfoHash string `json:"info_hash"`
	// Phase is metadata, checking, downloading, complete or failed.
	Phase string  `json:"phase"`
	T     float64 `json:"t"` // since the torrent was added
	// Bytes of Total are on disk. Fetched and Sent count the payload of this run.
	Bytes      int64 `json:"bytes"`
	Total      int64 `json:"total"`
	Pieces     int   `json:"pieces"`      // wanted
	PiecesDone int   `json:"pieces_done"` // wanted and verified
	// Checked counts the hashed bytes while Phase is checking.
	Checked int64   `json:"checked_bytes,omitempty"`
	Fetched int64   `json:"fetched_bytes"`
	Sent    int64   `json:"sent_bytes"`
	MbitS   float64 `json:"mbit_s"`
	UpMbitS float64 `json:"up_mbit_s"`
	Wasted  int64   `json:"wasted_bytes"`
	Dropped int64   `json:"dropped_pieces"`
	// Waiting says what happens next if no path is left or the disk is full.
	Waiting string `json:"waiting,omitempty"`
	Cause   *Cause `json:"cause,omitempty"` // why no data comes
	Paths   []Path `json:"paths"`
}

// Done says that a download is complete.
type Done struct {
	Event    string  `json:"event"` // done
	Torrent  string  `json:"torrent"`
	InfoHash string  `json:"info_hash"`
	Seconds  float64 `json:"seconds"` // since the torrent was added
	Bytes    int64   `json:"bytes"`   // size of the wanted data
	// Fetched bytes came in this run; PayloadMbitS is their mean rate.
	Fetched      int64   `json:"fetched_bytes"`
	PayloadMbitS float64 `json:"payload_mbit_s"`
	Wasted       int64   `json:"wasted_bytes"`
	Dropped      int64   `json:"dropped_pieces"`
	Paths        []Path  `json:"paths"`
	// Again says that it was complete before, and that the last run has received nothing.
	Again bool `json:"-"`
}

// CauseChange says why no data comes or, with a nil Cause, that data comes again.
type CauseChange struct {
	Event    string  `json:"event"` // cause
	Torrent  string  `json:"torrent"`
	InfoHash string  `json:"info_hash"`
	T        float64 `json:"t"` // since the torrent was added
	Cause    *Cause  `json:"cause"`
}

// Failed is the last event of a torrent that has failed. Without a torrent, the command has failed.
type Failed struct {
	Event    string `json:"event"` // failed
	Torrent  string `json:"torrent,omitempty"`
	InfoHash string `json:"info_hash,omitempty"`
	Error    string `json:"error"`
	Cause    *Cause `json:"cause,omitempty"`
}

// Cause is why no data comes.
type Cause struct {
	Kind string  `json:"kind"` // such as path-down
	Text string  `json:"text"`
	Peer string  `json:"peer,omitempty"` // address of a peer, URL of a tracker, or a name
	Down []Break `json:"down,omitempty"` // where paths end, if that is the cause
}

// Break is an interface at which packets stop.
type Break struct {
	Interface string `json:"interface"`
	// By is the AS whose router reports it. Without it, packets vanish beyond the interface.
	By string `json:"by,omitempty"`
}

// PathStep is a step in the life of a path-level peer.
type PathStep struct {
	// Event is path-selected, path-opened, path-parked, path-probed, path-returned, path-closed or
	// path-failed.
	Event       string              `json:"event"`
	InfoHash    string              `json:"info_hash"`
	T           float64             `json:"t"` // since the torrent was added
	Peer        pathsel.PeerID      `json:"peer"`
	Fingerprint pathsel.Fingerprint `json:"fingerprint"`
	// Conn is always 0: braid opens one connection on a path.
	Conn   int       `json:"conn,omitempty"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"-"` // of the step
}

// Piece says that a piece was verified.
type Piece struct {
	Event    string  `json:"event"` // piece
	InfoHash string  `json:"info_hash"`
	T        float64 `json:"t"` // since the torrent was added
	Piece    int     `json:"piece"`
}

// Served says that a torrent has reached its seeding goal and is not served any longer.
type Served struct {
	Event    string  `json:"event"` // served
	Torrent  string  `json:"torrent"`
	InfoHash string  `json:"info_hash"`
	Sent     int64   `json:"sent_bytes"`
	Ratio    float64 `json:"ratio"`
	Reason   string  `json:"reason"`
}

// InTheWay says that a download has renamed or deleted an existing file with the same name.
type InTheWay struct {
	Event string `json:"event"` // in-the-way
	Path  string `json:"path"`
	Aside string `json:"aside,omitempty"` // its new name; empty: it was deleted
}

// Files lists the files of a torrent.
type Files struct {
	Event   string `json:"event"` // files
	Torrent string `json:"torrent"`
	Files   []File `json:"files"`
}

// File is a file of a torrent.
type File struct {
	Number   int    `json:"number"` // from 1
	Path     string `json:"path"`
	Length   int64  `json:"length"`
	Priority string `json:"priority"` // skip, low, normal or high
}

// Exported says that files were written from a database.
type Exported struct {
	Event string `json:"event"` // exported
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// Missed says that a reader of the event stream was too slow, and that its oldest events were
// dropped.
type Missed struct {
	Event  string `json:"event"` // missed
	Events int    `json:"events"`
}

// Changed says what has happened to a torrent. Without a torrent, the settings have changed.
type Changed struct {
	// Event is added, removed, paused, resumed, queued, moved, renamed (its files), limited (its
	// rates), changed (other options), or settings.
	Event    string `json:"event"`
	Torrent  string `json:"torrent"`
	InfoHash string `json:"info_hash"`
}

// Mirror says what braid mirror has done with a torrent. Without a torrent, it is about the list.
type Mirror struct {
	Event string `json:"event"` // mirror
	// Action is added, kept, removed, left-out or failed; without a torrent looked or failed.
	Action   string `json:"action"`
	Torrent  string `json:"torrent,omitempty"`
	InfoHash string `json:"info_hash,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
	Dir      string `json:"dir,omitempty"`    // of the data, if it was added
	Reason   string `json:"reason,omitempty"` // without a torrent, what the list contains
}

// DHT is the state of a program's nodes in DHTs.
type DHT struct {
	Event    string    `json:"event"` // dht
	Networks []DHTNode `json:"networks"`
}

// DHTNode is the node in the DHT of one network. Its counters begin with the process.
type DHTNode struct {
	Network string `json:"network"` // ip4, ip6 or scion
	Listen  string `json:"listen"`
	ID      string `json:"id"`
	// Nodes counts the nodes in the table. ByAS counts them by ISD-AS, or on IP by /24 or /48.
	Nodes int            `json:"nodes"`
	ByAS  map[string]int `json:"nodes_by_as"`
	// Entries that the node stores for others.
	Torrents int `json:"stored_torrents"`
	Peers    int `json:"stored_peers"`
	Items    int `json:"stored_items"`
	// Queries counts received queries, of which Refused got an error. Dropped messages were above a
	// limit.
	Queries int `json:"queries"`
	Refused int `json:"refused"`
	Dropped int `json:"dropped"`
	// Asked counts sent queries. They got Answers, or ended in Timeouts.
	Asked    int `json:"asked"`
	Answers  int `json:"answers"`
	Timeouts int `json:"timeouts"`
	Searches int `json:"searches"`
	// Bytes of messages, without the headers of UDP and SCION.
	ReceivedBytes int `json:"received_bytes"`
	SentBytes     int `json:"sent_bytes"`
}

// Gateway is the state of a gateway. Its counters begin with the process; bytes are those on
// connections with peers.
type Gateway struct {
	Event     string `json:"event"` // gateway
	Allowed   int    `json:"allowed"`
	Joined    int    `json:"joined"`
	Cached    int64  `json:"cached_bytes"` // the size of the torrents in the cache
	FromSCION uint64 `json:"from_scion_bytes"`
	ToSCION   uint64 `json:"to_scion_bytes"`
	FromIP    uint64 `json:"from_ip_bytes"`
	ToIP      uint64 `json:"to_ip_bytes"`
	// Hits counts clients' announces for torrents that were completely in the cache. Misses counts
	// the others.
	Hits    uint64  `json:"hits"`
	Misses  uint64  `json:"misses"`
	HitRate float64 `json:"hit_rate"`
	Fellows int     `json:"fellows"` // that answer
}

// Path is one path-level peer: the totals of all its connections so far, and the state of the
// connection that is open.
type Path struct {
	Peer string `json:"peer"`
	// Source of the address: named, tracker, dht, pex, lsd, earlier (from an earlier run) or
	// incoming.
	Source      string              `json:"source,omitempty"`
	Fingerprint pathsel.Fingerprint `json:"fingerprint"`
	Name        string              `json:"name,omitempty"` // such as 111#1 > 110#1; only in Status
	// Conn is always 0: braid opens one connection on a path.
	Conn        int     `json:"conn,omitempty"`
	Transport   string  `json:"transport"`
	Accepted    bool    `json:"accepted,omitempty"` // the peer connected to us
	Hops        int     `json:"hops"`
	State       string  `json:"state"`
	RTT         float64 `json:"rtt_ms"`
	MinRTT      float64 `json:"min_rtt_ms"`
	Handshake   float64 `json:"handshake_ms"`
	BytesRead   uint64  `json:"bytes_read"`
	BytesSent   uint64  `json:"bytes_written"`
	MbitS       float64 `json:"mbit_s"`
	UpMbitS     float64 `json:"up_mbit_s"`
	PacketsSent uint64  `json:"packets_sent"`
	PacketsLost uint64  `json:"packets_lost"`
	// The state of this side's congestion controller; its window is in bytes. TCP reports no state.
	Congestion    string  `json:"congestion,omitempty"`
	Window        int     `json:"window,omitempty"`
	DeliveryMbitS float64 `json:"delivery_mbit_s,omitempty"`
	PacingMbitS   float64 `json:"pacing_mbit_s,omitempty"`
	Failures      int     `json:"failures,omitempty"`
	Error         string  `json:"error,omitempty"` // why the last connection was refused or lost
}

// Status is the content of the file of --status.
type Status struct {
	Process  int        `json:"process"`
	Time     time.Time  `json:"time"`
	Torrents []Progress `json:"torrents"`
}

// Parse reads one line. The result is a pointer to one of the event types above, or nil if the
// line is a JSON object whose event is unknown: newer versions may print more.
func Parse(line []byte) (any, error) {
	var head struct {
		Event string `json:"event"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, fmt.Errorf("read an event: %w", err)
	}
	newEvent := kinds[head.Event]
	if newEvent == nil {
		return nil, nil
	}
	e := newEvent()
	if err := json.Unmarshal(line, e); err != nil {
		return nil, fmt.Errorf("read the event %q: %w", head.Event, err)
	}
	return e, nil
}

func kind[T any]() any { return new(T) }

// kinds maps the name of an event to a function that makes its value.
var kinds = map[string]func() any{
	"ready": kind[Ready], "line": kind[Line], "progress": kind[Progress], "done": kind[Done],
	"cause": kind[CauseChange], "failed": kind[Failed], "piece": kind[Piece], "served": kind[Served],
	"in-the-way": kind[InTheWay], "files": kind[Files], "exported": kind[Exported],
	"missed": kind[Missed],
	"mirror": kind[Mirror], "dht": kind[DHT], "gateway": kind[Gateway],

	"added": kind[Changed], "removed": kind[Changed], "paused": kind[Changed], "resumed": kind[Changed],
	"queued": kind[Changed], "moved": kind[Changed], "renamed": kind[Changed], "limited": kind[Changed],
	"changed": kind[Changed], "settings": kind[Changed],

	"path-selected": kind[PathStep], "path-opened": kind[PathStep], "path-parked": kind[PathStep],
	"path-probed": kind[PathStep], "path-returned": kind[PathStep], "path-closed": kind[PathStep],
	"path-failed": kind[PathStep],
}
