package client

import (
	"context"
	"io"
	"iter"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"
	pp "github.com/anacrolix/torrent/peer_protocol"
	"github.com/anacrolix/torrent/storage"
)

// engineClient is what a session uses of the BitTorrent engine.
type engineClient interface {
	// Add begins a torrent. Its data goes to the store; failed is called if a write fails.
	Add(hash metainfo.Hash, name string, s storage.ClientImpl, failed func(error)) engineTorrent
	// BadPeerIPs are the hosts that have sent wrong data: see engineAddr.
	BadPeerIPs() []string
	PeerID() torrent.PeerID
	Close() []error
}

// engineTorrent is what a transfer uses of the BitTorrent engine. It is small so that a test can
// stand in for the engine in simulated time.
type engineTorrent interface {
	Name() string
	SetInfoBytes([]byte) error
	Described() <-chan struct{}      // closed once it knows what is in the torrent
	Size() (pieces int, bytes int64) // 0 until then
	Bytes() (have, missing int64)    // 0 until then
	Stats() torrent.TorrentStats
	PieceState(piece int) torrent.PieceState
	PieceStateRuns() torrent.PieceStateRuns
	Completed() <-chan struct{} // closed if all pieces are verified, until one is found wrong
	SetPriority(piece int, p torrent.PiecePriority)
	DownloadAll() // all pieces with the same priority
	Pause(bool)   // while true, it requests no data
	Verify(ctx context.Context, piece int) error
	Connect(engineAddr) // dials an offer
	Reader() engineReader
	ReadPiece(piece int, b []byte, off int64) (int, error) // from the store
	Drop()
}

// engineConn is what a transfer uses of the engine's connections.
type engineConn interface {
	Stats() torrent.PeerStats
	Pieces() pieceSet // that the peer has
	Name() string     // of its software, as the peer says
	TakesPort() bool  // the peer has a node in a DHT (BEP 5)
	// WriteExtendedMessage sends a message of an extension (BEP 10).
	WriteExtendedMessage(pp.ExtensionName, []byte) error
}

type pieceSet interface {
	Iterate(each func(piece uint32) (more bool))
	Contains(piece uint32) bool
}

// anacrolix is the real engine.
type anacrolix struct {
	*torrent.Client
	mostConns int // of each torrent
}

func (a anacrolix) Add(
	hash metainfo.Hash, name string, s storage.ClientImpl, onWriteError func(error),
) engineTorrent {
	t, _ := a.AddTorrentOpt(torrent.AddTorrentOpts{InfoHash: hash, Storage: s})
	t.SetMaxEstablishedConns(a.mostConns)
	t.SetDisplayName(name)
	t.SetOnWriteChunkError(onWriteError)
	return anacrolixTorrent{t}
}

// engineReader is what a FileReader uses of the engine: it waits for data that is missing, and has
// that requested first.
type engineReader interface {
	io.ReadSeekCloser
	SetContext(context.Context)
	SetReadahead(int64)
}

type anacrolixTorrent struct{ *torrent.Torrent }

func (t anacrolixTorrent) Described() <-chan struct{} { return t.GotInfo() }
func (t anacrolixTorrent) Completed() <-chan struct{} { return t.Complete().On() }

func (t anacrolixTorrent) Size() (pieces int, bytes int64) {
	if t.Info() == nil {
		return 0, 0
	}
	return t.NumPieces(), t.Length()
}

func (t anacrolixTorrent) Bytes() (have, missing int64) {
	if t.Info() == nil {
		return 0, 0
	}
	missing = t.BytesMissing() // the engine goes over all missing pieces
	return t.Length() - missing, missing
}

func (t anacrolixTorrent) SetPriority(piece int, p torrent.PiecePriority) {
	t.Piece(piece).SetPriority(p)
}

func (t anacrolixTorrent) Pause(paused bool) {
	if paused {
		t.DisallowDataDownload()
	} else {
		t.AllowDataDownload()
	}
}

func (t anacrolixTorrent) Verify(ctx context.Context, piece int) error {
	return t.Piece(piece).VerifyDataContext(ctx)
}

func (t anacrolixTorrent) Reader() engineReader { return t.NewReader() }

func (t anacrolixTorrent) ReadPiece(piece int, b []byte, off int64) (int, error) {
	return t.Piece(piece).Storage().ReadAt(b, off)
}

func (t anacrolixTorrent) Connect(at engineAddr) {
	t.AddPeers([]torrent.PeerInfo{{Addr: at, Source: torrent.PeerSourceDirect}})
}

type anacrolixConn struct{ *torrent.PeerConn }

func (c anacrolixConn) Pieces() pieceSet { return c.PeerPieces() }

func (c anacrolixConn) Name() string {
	name, _ := c.PeerClientName.Load().(string)
	return name
}

func (c anacrolixConn) TakesPort() bool { return c.PeerExtensionBytes.SupportsDHT() }

// isComplete tells whether a piece is on disk and verified.
func isComplete(t engineTorrent, piece int) bool { return isRight(t.PieceState(piece)) }

func isRight(s torrent.PieceState) bool { return s.Ok && s.Complete }

// pieceStates are the states of the pieces, one by one.
func pieceStates(runs torrent.PieceStateRuns) iter.Seq2[int, torrent.PieceState] {
	return func(yield func(int, torrent.PieceState) bool) {
		i := 0
		for _, run := range runs {
			for range run.Length {
				if !yield(i, run.PieceState) {
					return
				}
				i++
			}
		}
	}
}

func isHashing(t engineTorrent) bool {
	for _, r := range t.PieceStateRuns() {
		if r.Hashing || r.QueuedForHash {
			return true
		}
	}
	return false
}
