// Package webseed lets an HTTP server that has a torrent's files (BEP 19) take part as a peer.
//
//	engine ──BitTorrent──► Conn: "I have everything", requests ──ranges──► HTTP server
//
// A Conn is a BitTorrent connection in memory. Behind it, runs of neighbouring blocks that the
// engine requests become HTTP requests, a few at a time. So a web seed is chosen, measured,
// limited, parked and blamed like any other peer, and over SCION each path is a Conn of its own.
//
//	conn.go      the BitTorrent side: messages, the queue of requests, what is sent back
//	fetch.go     takes runs from the queue and fetches them
//	request.go   HTTP requests, and what a server may answer
//
// The server may be hostile: it may lie about sizes, send too much, too little, too slowly or
// nothing, and be busy for ever. The hashes of the pieces show wrong data, as with every peer. The
// caller's http.Client decides which hosts may be contacted.
package webseed

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"braid/storage"
)

// Config describes a connection to a web seed.
type Config struct {
	// URL is that of the torrent: of its only file, or of a directory with it.
	URL      *url.URL
	InfoHash [20]byte
	Layout   storage.Layout
	// Lacks has for each file (storage.File) whether the server lacks it, as far as that is known.
	// The connections to a server share it; nil: there is only one connection.
	Lacks *sync.Map
	// Client follows redirects only to where they may lead.
	Client *http.Client
}

const (
	// parallel is how many HTTP requests are under way at a time. With one, the path would be idle
	// for a round trip after each.
	parallel = 4
	// maxRun is how many bytes one request fetches at most. A run that is too long keeps blocks
	// from other peers.
	maxRun = 1 << 20
	// maxShort is how many answers to a run may end early. A server that sends 4 KiB at a time is of
	// use, one that sends single bytes is not.
	maxShort = maxRun >> 12
	// maxQueue is more than the engine ever has outstanding on a connection.
	maxQueue = 4096
	// maxBlock is more than any client requests at once; the engine requests 16 KiB.
	maxBlock = 128 << 10
	// headerPatience is how long a server may take to begin its answer, blockPatience for each
	// block. A server at 1 kB/s is of no use.
	headerPatience, blockPatience = 20 * time.Second, 20 * time.Second
	// lacksFor is how long a server is not asked for files that it lacks. Mirrors get files late.
	lacksFor = 15 * time.Minute
	// When a connection is opened, a server that lacks files is asked for others: for surveyTime, or
	// until maxMissed files are found missing before one is there.
	surveyTime, maxMissed = 3 * time.Second, 4
	// maxFailures in a row end the connection.
	maxFailures = 4
	// firstPause and maxPause bound how long a server is left alone after a failure.
	firstPause, maxPause = time.Second, 2 * time.Minute
)

// Check finds URLs that cannot be of a web seed.
func Check(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("scheme %q: want http, https or scion", u.Scheme)
	}
	if u.Hostname() == "" {
		return fmt.Errorf("URL %q has no host", u)
	}
	return nil
}

// fileURL is where a file is: BEP 19. A URL without a slash at its end is that of a torrent's only
// file. The URL keeps its escapes, since an escaped slash separates nothing. A plus in the name of a
// file is escaped, since some servers, such as S3, take it for a space.
func fileURL(base *url.URL, l storage.Layout, f storage.File) string {
	u := *base
	single := len(l.Files) == 1 && f.Path == l.Name
	if !single || strings.HasSuffix(u.Path, "/") || u.Path == "" {
		file := strings.ReplaceAll((&url.URL{Path: f.Path}).EscapedPath(), "+", "%2B")
		u.RawPath = strings.TrimSuffix(u.EscapedPath(), "/") + "/" + file
		u.Path = strings.TrimSuffix(u.Path, "/") + "/" + f.Path
	}
	return u.String()
}

// Open asks the server for the first byte of a file, and returns a connection if it seems to have
// the file. The connection ends when the server turns out to lack another file; the next one says
// that it has only the pieces without that file. The context bounds the opening only.
func Open(ctx context.Context, cfg Config) (*Conn, error) {
	c := newConn(cfg)
	defer context.AfterFunc(ctx, c.cancel)()
	if err := c.probe(); err != nil {
		c.cancel()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	c.begin()
	return c, nil
}
