package v1

import (
	"time"

	"braid/node/event"
	"braid/pathsel"
)

// The JSON objects of the API. A field may be added, but never renamed or removed. Rates are in
// Mbit/s (10^6 bits per second), sizes in bytes, times in seconds unless the name ends in _ms.
// Moments are in RFC 3339. openapi.yaml is generated from these types and their comments.

// Session describes the daemon.
type Session struct {
	Name    string    `json:"name"`    // braid
	Version string    `json:"version"` // release, commit and Go version
	Started time.Time `json:"started"`
	ISDAS   string    `json:"isd_as,omitempty"` // the local AS; absent without SCION
	Listen  []string  `json:"listen"`           // addresses at which peers may connect
	API     []string  `json:"api"`              // addresses at which this interface answers
	// HasPassword says that a password is needed on TCP.
	HasPassword bool `json:"has_password"`
	// FreeBytes is the room in the default directory; -1 if it is unknown.
	FreeBytes int64 `json:"free_bytes"`
}

// Totals are sums over all torrents.
type Totals struct {
	Torrents     int            `json:"torrents"`
	States       map[string]int `json:"states"`        // number of torrents in each state
	FetchedBytes int64          `json:"fetched_bytes"` // payload since the torrents were added
	SentBytes    int64          `json:"sent_bytes"`
	DownMbitS    float64        `json:"down_mbit_s"`
	UpMbitS      float64        `json:"up_mbit_s"`
	// Peers with a connection that carries data. A peer counts once for each torrent.
	Peers int `json:"peers"`
	Paths int `json:"paths"` // connections that carry data
	// Alternative says that the schedule's alternative rates apply now.
	Alternative bool `json:"alternative"`
}

// Torrent is one torrent, as a row of a list shows it.
type Torrent struct {
	InfoHash string `json:"info_hash"` // 40 hexadecimal digits
	Number   int    `json:"number"`    // a short name for people; stays the same while the daemon runs
	Name     string `json:"name"`
	// State is starting, queued, metadata (a magnet link whose files are not known yet), checking,
	// downloading, seeding, paused, served (it has reached its goal), moving or failed.
	State string `json:"state"`
	Error string `json:"error,omitempty"` // why it has failed
	// Waiting says what happens next if no path is left or the disk is full.
	Waiting   string       `json:"waiting,omitempty"`
	Cause     *event.Cause `json:"cause,omitempty"` // why no data comes
	SizeBytes int64        `json:"size_bytes"`      // of the wanted data; 0 while it is unknown
	HaveBytes int64        `json:"have_bytes"`      // of the wanted data, verified or about to be
	// CheckedBytes were hashed so far, while State is checking.
	CheckedBytes int64   `json:"checked_bytes"`
	FetchedBytes int64   `json:"fetched_bytes"` // payload received since the torrent was added
	SentBytes    int64   `json:"sent_bytes"`
	WastedBytes  int64   `json:"wasted_bytes"` // payload that was of no use
	Ratio        float64 `json:"ratio"`        // of sent to wanted bytes
	DownMbitS    float64 `json:"down_mbit_s"`
	UpMbitS      float64 `json:"up_mbit_s"`
	// LeftS is the time until it is complete, at the current rate; absent if unknown.
	LeftS         *float64   `json:"left_s,omitempty"`
	Peers         int        `json:"peers"`          // with a connection that carries data
	Paths         int        `json:"paths"`          // connections that carry data
	Priority      string     `json:"priority"`       // low, normal or high
	QueuePosition int        `json:"queue_position"` // from 0
	Labels        []string   `json:"labels"`
	Directory     string     `json:"directory"` // where its data is
	Magnet        bool       `json:"magnet"`    // its files are not known yet
	Added         time.Time  `json:"added"`
	Completed     *time.Time `json:"completed,omitempty"`
}

// TorrentDetail is a torrent with its settings and all that does not change.
type TorrentDetail struct {
	Torrent
	Settings   TorrentSettings `json:"settings"`
	MagnetLink string          `json:"magnet_link"`
	Comment    string          `json:"comment"`
	// Creator is the program that has made the .torrent file.
	Creator     string    `json:"creator"`
	Created     time.Time `json:"created,omitzero"` // when that was; absent if unknown
	Private     bool      `json:"private"`
	PieceLength int64     `json:"piece_length_bytes"` // 0 while it is unknown
	Pieces      int       `json:"pieces"`             // wanted
	PiecesDone  int       `json:"pieces_done"`        // wanted and verified
	Dropped     int64     `json:"dropped_pieces"`     // pieces that were wrong
	FileCount   int       `json:"file_count"`
	Storage     string    `json:"storage"` // file, mmap or bolt
	WebSeeds    []string  `json:"web_seeds"`
	// PeerSources counts the connected peers by the source of their address, as in Peer.
	PeerSources map[string]int `json:"peer_sources"`
}

// TorrentSettings are the settings of one torrent.
type TorrentSettings struct {
	// Sequential downloads pieces in the order of the data. Otherwise rare pieces come first.
	Sequential bool   `json:"sequential"`
	Limits     Limits `json:"limits"`
	// HonourGlobal says that the limits of all torrents together apply to it, too.
	HonourGlobal bool `json:"honour_global"`
	Goal         Goal `json:"goal"`
	PeerLimit    int  `json:"peer_limit"` // most connected peers; 0: no limit of its own
	// Trackers are tiers of announce URLs. Keys of private trackers are not hidden.
	Trackers [][]string `json:"trackers"`
	Policy   PathPolicy `json:"policy"` // in addition to the one of all torrents
}

// Limits bound rates; 0 is no limit.
type Limits struct {
	UploadMbitS   float64     `json:"upload_mbit_s"`
	DownloadMbitS float64     `json:"download_mbit_s"`
	Paths         []PathLimit `json:"paths"` // for paths with a matching interface
}

// PathLimit bounds all connections together, in each direction, whose path has a matching
// interface.
type PathLimit struct {
	Pattern string  `json:"pattern"` // ISD, ISD-AS or ISD-AS#interface; 0 is any
	MbitS   float64 `json:"mbit_s"`
}

// Goal says when to stop serving a complete torrent: when the first of its parts is reached. If a
// part of a torrent's goal is 0, that of Settings holds; if it is below 0, there is no such limit.
// In Settings, 0 means no limit.
type Goal struct {
	Ratio float64 `json:"ratio"`  // of sent payload to the size of the wanted data
	TimeS float64 `json:"time_s"` // of serving it complete, in all its runs
	IdleS float64 `json:"idle_s"` // without sending anything
}

// AddTorrent adds a torrent. It needs either Source or Torrent. Alternatively, a multipart form has
// the .torrent file in its part "torrent", and this object in its part "options".
type AddTorrent struct {
	// Source is a magnet link, or the http or https URL of a .torrent file.
	Source  string `json:"source,omitempty"`
	Torrent []byte `json:"torrent,omitempty"` // content of a .torrent file in base64
	// Directory is an absolute path for the data. Absent: the default directory.
	Directory string `json:"directory,omitempty"`
	Name      string `json:"name,omitempty"` // for users; absent: the torrent's own
	Paused    bool   `json:"paused,omitempty"`
	// Complete says that all data is there. It is checked and served, and nothing is written.
	Complete   bool     `json:"complete,omitempty"`
	Labels     []string `json:"labels,omitempty"`
	Priority   string   `json:"priority,omitempty"` // low, normal (the default) or high
	Select     []string `json:"select,omitempty"`   // patterns of the wanted files; none: all
	Sequential bool     `json:"sequential,omitempty"`
	// Peers are addresses to try, in addition to those that trackers name.
	Peers []string `json:"peers,omitempty"`
	// Trackers are announce URLs in addition to those of the torrent.
	Trackers []string `json:"trackers,omitempty"`
	// WebSeeds are URLs of servers with the data, in addition to those of the torrent.
	WebSeeds []string `json:"web_seeds,omitempty"`
	Limits   *Limits  `json:"limits,omitempty"`
	Goal     *Goal    `json:"goal,omitempty"`
}

// Added says which torrent was added.
type Added struct {
	InfoHash string `json:"info_hash"`
	Name     string `json:"name"`
	Existed  bool   `json:"existed"` // the daemon had it already, and nothing was changed
}

// Change changes the settings of a torrent. Absent settings stay.
type Change struct {
	// Name is shown to users; empty: the torrent's own name. Files keep their names.
	Name     *string   `json:"name,omitempty"`
	Labels   *[]string `json:"labels,omitempty"`
	Priority *string   `json:"priority,omitempty"` // low, normal or high
	// Files maps the number of a file, from 1, to skip, low, normal or high.
	Files        map[string]string `json:"files,omitempty"`
	Sequential   *bool             `json:"sequential,omitempty"`
	Limits       *Limits           `json:"limits,omitempty"`
	HonourGlobal *bool             `json:"honour_global,omitempty"`
	Goal         *Goal             `json:"goal,omitempty"`
	Trackers     *[][]string       `json:"trackers,omitempty"` // tiers of announce URLs
	PeerLimit    *int              `json:"peer_limit,omitempty"`
	Policy       *PathPolicy       `json:"policy,omitempty"`
	// QueuePosition counts from 0. A number beyond the queue is its end.
	QueuePosition *int `json:"queue_position,omitempty"`
}

// Resume says how a torrent is resumed.
type Resume struct {
	Now bool `json:"now,omitempty"` // without waiting in the queue
}

// Move moves a torrent's data, in the background.
type Move struct {
	Directory string `json:"directory"` // absolute
	// Data says that the data is moved, too. Otherwise it must be in Directory already.
	Data bool `json:"data"`
}

// Rename gives another path to a file of a torrent, or to a directory with all its files. Files on
// disk are renamed, and nothing is overwritten. Without From, the name changes that all paths begin
// with.
type Rename struct {
	From string `json:"from,omitempty"` // as in the list of files, or a directory of them
	To   string `json:"to"`             // the whole new path, with slashes
}

// AddPeers gives a torrent addresses of peers.
type AddPeers struct {
	Peers []string `json:"peers"` // ISD-AS,[host]:port, or host:port
}

// File is a file of a torrent.
type File struct {
	Number    int    `json:"number"` // from 1
	Path      string `json:"path"`   // with slashes, below the torrent's directory
	SizeBytes int64  `json:"size_bytes"`
	HaveBytes int64  `json:"have_bytes"` // in verified pieces
	Priority  string `json:"priority"`   // skip, low, normal or high
}

// Pieces says which pieces are on disk.
type Pieces struct {
	Count       int   `json:"count"`
	LengthBytes int64 `json:"length_bytes"`
	Done        int   `json:"done"` // verified
	// Have has a bit for each piece, the first piece in the highest bit of the first byte; in
	// base64.
	Have []byte `json:"have"`
	// Available has a byte for each piece: the number of connected peers that have it, at most 255;
	// in base64. It is empty if that is unknown.
	Available []byte `json:"available"`
	// Partial has a bit for each piece, as Have: some of its blocks are on disk; in base64.
	Partial []byte `json:"partial"`
}

// Peer is one connected address-level peer with the sums of its connections.
type Peer struct {
	Address string `json:"address"` // ISD-AS,[host]:port, or host:port
	ISDAS   string `json:"isd_as,omitempty"`
	// Source of the address: named, tracker, dht, pex, lsd, earlier (from an earlier run) or
	// incoming.
	Source       string  `json:"source"`
	Client       string  `json:"client,omitempty"` // as the peer names its program
	Have         float64 `json:"have"`             // part of the torrent that the peer has, from 0 to 1
	Incoming     bool    `json:"incoming"`         // the peer connected to us
	Transport    string  `json:"transport"`
	ActivePaths  int     `json:"active_paths"` // its open connections
	DownMbitS    float64 `json:"down_mbit_s"`
	UpMbitS      float64 `json:"up_mbit_s"`
	ReadBytes    uint64  `json:"read_bytes"`
	WrittenBytes uint64  `json:"written_bytes"`
	Share        float64 `json:"share"`           // of the data that these peers have sent, 0 to 1
	Interested   bool    `json:"interested"`      // we want data from it
	Choked       bool    `json:"choked"`          // it serves us on none of its connections
	PeerWants    bool    `json:"peer_interested"` // it wants data from us
	Held         bool    `json:"held"`            // we serve it on none of its connections
	Requests     int     `json:"outstanding_requests"`
}

// Path is one path-level peer: the totals of all its connections so far, and the state of the
// connection that is open.
type Path struct {
	// ID names the path-level peer among those of the torrent.
	ID     string `json:"id"`
	Peer   string `json:"peer"`
	Source string `json:"source"` // of its address, as in Peer
	// Fingerprint is empty if the transport has none, or if it is not known yet.
	Fingerprint pathsel.Fingerprint `json:"fingerprint"`
	// Conn is always 0: braid opens one connection on a path.
	Conn      int    `json:"conn"`
	Transport string `json:"transport"`
	Incoming  bool   `json:"incoming"` // the peer connected to us
	// Hops has one entry for each AS, in the order of travel. It is empty on IP.
	Hops []Hop `json:"hops"`
	// State is idle, opening, active, parked, probing or failed.
	State  string `json:"state"`
	Reason string `json:"reason"` // of the selector's last decision about it
	// ReasonSince is when that was; absent if nothing was decided yet.
	ReasonSince time.Time `json:"reason_since,omitzero"`
	// Refused is the clause of the policy that forbids the path; Reason then explains it. Absent:
	// the path is allowed.
	Refused     string  `json:"refused,omitempty"`
	Error       string  `json:"error,omitempty"`
	DownMbitS   float64 `json:"down_mbit_s"`
	UpMbitS     float64 `json:"up_mbit_s"`
	RTTMs       float64 `json:"rtt_ms"`
	MinRTTMs    float64 `json:"min_rtt_ms"`
	HandshakeMs float64 `json:"handshake_ms"`
	Loss        float64 `json:"loss"` // part of our packets that was lost, from 0 to 1
	PacketsSent uint64  `json:"packets_sent"`
	PacketsLost uint64  `json:"packets_lost"`
	MTUBytes    int     `json:"mtu_bytes"` // of SCION packets, as announced; 0: unknown
	// Share of the bytes that all connections of the torrent have read, from 0 to 1.
	Share float64 `json:"share"`
	// Expiry is when the path expires; it is refreshed before. Absent if unknown, and for the path
	// inside one AS, which never expires.
	Expiry time.Time `json:"expiry,omitzero"`
	// AnnouncedLatencyMs is the sum of the announced one-way latencies. It is a lower bound unless
	// AnnouncedLatencyKnown.
	AnnouncedLatencyMs    float64 `json:"announced_latency_ms"`
	AnnouncedLatencyKnown bool    `json:"announced_latency_known"`
	// MeasuredLatencyMs is half of the smallest round-trip time; 0: not measured.
	MeasuredLatencyMs float64 `json:"measured_latency_ms"`
	// AnnouncedBandwidthMbitS is 0 if no AS has announced one.
	AnnouncedBandwidthMbitS float64 `json:"announced_bandwidth_mbit_s"`
	// MeasuredBandwidthMbitS is the rate of useful payload while the connection was in use; 0: not
	// measured.
	MeasuredBandwidthMbitS float64 `json:"measured_bandwidth_mbit_s"`
	ReadBytes              uint64  `json:"read_bytes"`
	WrittenBytes           uint64  `json:"written_bytes"`
	Failures               int     `json:"failures"`
	Congestion             string  `json:"congestion"` // state of the congestion controller
	WindowBytes            int     `json:"window_bytes"`
}

// Hop is an AS of a path.
type Hop struct {
	ISDAS   string `json:"isd_as"`
	Ingress uint64 `json:"ingress"` // interface at which the path enters the AS; 0 at its start
	Egress  uint64 `json:"egress"`  // interface at which the path leaves the AS; 0 at its end
}

// History is the rate of each path of a torrent over the last ten minutes, with the selector's
// decisions.
type History struct {
	StepS float64   `json:"step_s"` // time from one sample to the next
	End   time.Time `json:"end"`    // of the last sample
	// Paths that have carried data, or about which the selector has decided.
	Paths     []PathHistory `json:"paths"`
	Decisions []Decision    `json:"decisions"` // oldest first
}

// PathHistory is the rate of one path-level peer over time. The last sample of all paths is at
// History.End.
type PathHistory struct {
	ID          string              `json:"id"` // as in Path
	Peer        string              `json:"peer"`
	Fingerprint pathsel.Fingerprint `json:"fingerprint"`
	Conn        int                 `json:"conn"`
	Hops        []Hop               `json:"hops"`        // empty if the path is not known any longer
	DownMbitS   []float64           `json:"down_mbit_s"` // oldest first
	UpMbitS     []float64           `json:"up_mbit_s"`
}

// Decision is a step in the life of a path-level peer, with the selector's reason.
type Decision struct {
	Time time.Time `json:"time"`
	// Event is path-selected, path-opened, path-parked, path-probed, path-returned, path-closed or
	// path-failed.
	Event       string              `json:"event"`
	InfoHash    string              `json:"info_hash"`
	PathID      string              `json:"path_id"`
	Peer        string              `json:"peer"`
	Fingerprint pathsel.Fingerprint `json:"fingerprint"`
	Conn        int                 `json:"conn"`
	Reason      string              `json:"reason"`
}

// Map is the part of the SCION network that the torrents use.
type Map struct {
	Local string    `json:"local"` // the local AS; empty without SCION
	ASes  []MapAS   `json:"ases"`
	Links []MapLink `json:"links"`
}

// MapAS is an AS on a path of a torrent.
type MapAS struct {
	ISDAS     string  `json:"isd_as"`
	Peers     int     `json:"peers"` // peers in this AS
	Paths     int     `json:"paths"` // paths through or to it
	DownMbitS float64 `json:"down_mbit_s"`
	UpMbitS   float64 `json:"up_mbit_s"`
}

// MapLink is a link between two ASes. Its ends are ordered so that A is nearer to the local AS on
// the first path that uses the link.
type MapLink struct {
	A           string  `json:"a"` // interface ISD-AS#ID
	B           string  `json:"b"`
	Paths       int     `json:"paths"`        // known paths that use it
	ActivePaths int     `json:"active_paths"` // of them, those that carry data
	DownMbitS   float64 `json:"down_mbit_s"`  // what we receive over it
	UpMbitS     float64 `json:"up_mbit_s"`
	Forbidden   bool    `json:"forbidden"` // by the policy of all torrents
	// LimitMbitS is the lowest limit that applies; 0: none.
	LimitMbitS float64  `json:"limit_mbit_s"`
	Torrents   []string `json:"torrents"` // info hashes
}

// PathPolicy says over which paths connections may be opened.
type PathPolicy struct {
	// Sequence is a regular expression over hops, as in the scion tools; empty: any.
	Sequence string `json:"sequence"`
	ACL      string `json:"acl"` // such as "- 1-ff00:0:110#2, +"; empty: any
	// Preference lists latency, bandwidth, hops and mtu, the most important first.
	Preference   []string `json:"preference"`
	MaxLatencyMs float64  `json:"max_latency_ms"` // longest announced one-way latency; 0: any
	MinMTUBytes  int      `json:"min_mtu_bytes"`  // smallest SCION MTU; 0: any
}

// Policy is the policy of all torrents: which paths may be used, and limits for them.
type Policy struct {
	PathPolicy
	Limits []PathLimit `json:"limits"`
}

// PreviewPolicy asks which paths would remain. Forbid and Limit come on top of Policy, or of the
// policy that applies now if Policy is absent.
type PreviewPolicy struct {
	Policy *Policy     `json:"policy,omitempty"`
	Forbid []string    `json:"forbid,omitempty"` // interfaces or ASes: ISD, ISD-AS or ISD-AS#interface
	Limit  []PathLimit `json:"limit,omitempty"`
}

// PolicyPreview is the answer: what would apply, and what that means for the known paths.
type PolicyPreview struct {
	Policy       Policy               `json:"policy"` // PUT it to apply it
	Destinations []PreviewDestination `json:"destinations"`
}

// PreviewDestination is an AS with peers.
type PreviewDestination struct {
	ISDAS     string        `json:"isd_as"`
	Remaining int           `json:"remaining"` // paths that are allowed
	Paths     []PreviewPath `json:"paths"`
}

// PreviewPath is a known path to the AS.
type PreviewPath struct {
	Fingerprint pathsel.Fingerprint `json:"fingerprint"`
	Hops        []Hop               `json:"hops"`
	Allowed     bool                `json:"allowed"`
	Clause      string              `json:"clause,omitempty"` // which part of the policy forbids it
	Reason      string              `json:"reason,omitempty"`
	// LimitMbitS is the lowest limit that applies; 0: none.
	LimitMbitS float64 `json:"limit_mbit_s"`
}

// Tracker is a tracker of a torrent.
type Tracker struct {
	Tier int    `json:"tier"` // from 0; -1 if it is in none, such as a sibling on another network
	URL  string `json:"url"`  // keys of private trackers are hidden
	// State is waiting (it was not asked yet), working or failed.
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	// The fields below are absent if unknown.
	LastAt   time.Time `json:"last_announce,omitzero"`
	NextAt   time.Time `json:"next_announce,omitzero"` // or earlier, if there are too few peers
	Seeders  *int64    `json:"seeders,omitempty"`      // in the swarm, by the last answer
	Leechers *int64    `json:"leechers,omitempty"`
	Peers    *int      `json:"peers,omitempty"` // in the last answer
	Warning  string    `json:"warning,omitempty"`
}

// LogEntry is something that has happened.
type LogEntry struct {
	Time     time.Time `json:"time"`
	Level    string    `json:"level"` // debug, info, warning or error
	InfoHash string    `json:"info_hash,omitempty"`
	Text     string    `json:"text"`
}

// Settings are the settings for all torrents.
type Settings struct {
	Limits      Limits   `json:"limits"`
	Alternative Limits   `json:"alternative"` // limits while the schedule or Always says so
	Schedule    Schedule `json:"schedule"`
	// ActiveDownloads and ActiveSeeds bound how many torrents run at a time; 0: all.
	ActiveDownloads int `json:"active_downloads"`
	ActiveSeeds     int `json:"active_seeds"`
	// Directory is an absolute path for the data of torrents that name no directory.
	Directory string `json:"directory"`
	// CompleteDir is a directory to which complete data in Directory is moved; empty: it stays.
	CompleteDir string `json:"complete_directory"`
	// Script is a program that runs when a torrent is complete; empty: none.
	Script string `json:"completion_script"`
	// WatchDir is a directory whose new .torrent files are added; empty: none.
	WatchDir string `json:"watch_directory"`
	// Watched says what happens to these files afterwards: keep, delete or rename (to .added).
	Watched string     `json:"watched_files"`
	Policy  PathPolicy `json:"policy"`
	Goal    Goal       `json:"goal"` // for torrents without a goal of their own
	// AddPaused says that added torrents wait until they are resumed.
	AddPaused bool `json:"add_paused"`
	// PeerExchange exchanges addresses of peers with connected peers, except for private torrents.
	PeerExchange bool `json:"peer_exchange"`
	// LocalDiscovery announces torrents to the local network, and finds peers there, except for
	// private torrents.
	LocalDiscovery bool `json:"local_discovery"`
}

// Schedule says when the alternative rates apply.
type Schedule struct {
	Always  bool     `json:"always"`  // they apply now, whatever the time
	Enabled bool     `json:"enabled"` // they apply at the times below
	Begin   string   `json:"begin"`   // local time HH:MM
	End     string   `json:"end"`     // local time HH:MM; before Begin: on the next day
	Days    []string `json:"days"`    // mon, tue, wed, thu, fri, sat, sun: the days on which Begin is
}

// ChangeSettings changes settings. Absent settings stay.
type ChangeSettings struct {
	Limits          *Limits     `json:"limits,omitempty"`
	Alternative     *Limits     `json:"alternative,omitempty"`
	Schedule        *Schedule   `json:"schedule,omitempty"`
	ActiveDownloads *int        `json:"active_downloads,omitempty"`
	ActiveSeeds     *int        `json:"active_seeds,omitempty"`
	Directory       *string     `json:"directory,omitempty"`
	CompleteDir     *string     `json:"complete_directory,omitempty"`
	Script          *string     `json:"completion_script,omitempty"`
	WatchDir        *string     `json:"watch_directory,omitempty"`
	Watched         *string     `json:"watched_files,omitempty"`
	Policy          *PathPolicy `json:"policy,omitempty"`
	Goal            *Goal       `json:"goal,omitempty"`
	AddPaused       *bool       `json:"add_paused,omitempty"`
	PeerExchange    *bool       `json:"peer_exchange,omitempty"`
	LocalDiscovery  *bool       `json:"local_discovery,omitempty"`
}

// Snapshot is the first event of a stream. Later events change it.
type Snapshot struct {
	Totals   Totals    `json:"totals"`
	Torrents []Torrent `json:"torrents"`
}

// TorrentsChanged is the event "torrents": changed and new rows, and removed torrents.
type TorrentsChanged struct {
	Changed []Torrent `json:"changed"`
	Removed []string  `json:"removed"` // info hashes
}

// Password is the password for TCP.
type Password struct {
	Password string `json:"password"`
}

// Problem is the body of every answer that is an error.
type Problem struct {
	Error string `json:"error"` // what is wrong, and what to do
}
