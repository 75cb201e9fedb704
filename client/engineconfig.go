package client

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/anacrolix/torrent"
	"github.com/anacrolix/torrent/metainfo"
	"github.com/anacrolix/torrent/storage"
	"golang.org/x/time/rate"
)

// maxConns is more than the connections that one torrent can have: those that it opens, and all
// that the transports accept (see inboundQuota). If it were less, the engine would refuse new
// connections for a minute instead of ending an idle one.
const maxConns = maxDialled + maxTransports*maxAccepted

// maxTransports is the number of transports of a session: SCION, TCP or QUIC on IP, and WebRTC.
const maxTransports = 3

// engineConfig makes the engine's configuration. The engine must not find peers, announce itself or
// listen, so all of that is off. Its limits of connections are high, since this package decides
// which connections are opened.
func engineConfig(log *slog.Logger) *torrent.ClientConfig {
	c := torrent.NewDefaultClientConfig()
	c.Slogger = slog.New(quiet{log.Handler()})

	c.NoDHT = true
	c.DisablePEX = true // would tell addresses that only we understand
	c.DisableTrackers = true
	c.DisableWebtorrent = true
	c.DisableWebseeds = true
	c.NoDefaultPortForwarding = true
	c.LocalServiceDiscovery = nil
	c.DisableTCP = true // its own listeners and dialers; ours are added
	c.DisableUTP = true
	c.DialForPeerConns = false
	c.AcceptPeerConnections = true
	c.ListenPort = 0

	c.DefaultStorage = noStorage{} // every torrent brings its own
	c.Seed = true                  // a session ends only when its user says so
	// Obfuscation ends below the engine, in package wire.
	c.HeaderObfuscationPolicy = torrent.HeaderObfuscationPolicy{RequirePreferred: true}
	// The engine makes a map of this size for each torrent; anacrolix.Add then allows maxConns.
	c.EstablishedConnsPerTorrent = 1
	c.HalfOpenConnsPerTorrent = maxDialled
	c.TotalHalfOpenConns = 4 * maxDialled
	c.TorrentPeersHighWater = 4 * MaxPeers * DefaultMaxPaths
	c.DialRateLimiter = rate.NewLimiter(rate.Inf, 1)
	c.NominalDialTimeout = 15 * time.Second
	c.MinDialTimeout = 10 * time.Second // for paths around the world that lose a packet or two
	c.HandshakesTimeout = 15 * time.Second
	c.DropDuplicatePeerIds = false // all connections of a peer, over several paths, have one ID
	c.PieceHashersPerTorrent = runtime.GOMAXPROCS(0)
	return c
}

type noStorage struct{}

func (noStorage) OpenTorrent(
	context.Context, *metainfo.Info, metainfo.Hash,
) (storage.TorrentImpl, error) {
	return storage.TorrentImpl{}, errors.New("torrent without a store")
}

// quiet logs all messages of the engine at debug level. The transfer itself logs what users need to
// know.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(a []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(a)} }
func (q quiet) WithGroup(name string) slog.Handler   { return quiet{q.Handler.WithGroup(name)} }
