package client

import (
	"encoding/binary"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"braid/storage"
	"braid/units/await"
)

// forgetful seeds a file of which it sends each block once in a number of requests not at all.
type forgetful struct {
	data   []byte
	length int // of a piece
	fast   bool
	every  int           // the request that it forgets
	reject bool          // it rejects those
	slow   bool          // it sends a byte of those each second
	pause  time.Duration // before each block
	behind func(net.Conn, Source) (net.Conn, error)
}

func (f forgetful) serve(c net.Conn, src Source) {
	hello := greeting(src, "-XX0001-forgetful")
	hello[25], hello[27] = 0, 0
	if f.fast {
		hello[27] = 4
	}
	field := make([]byte, (src.Layout.Pieces()+7)/8)
	for i := range src.Layout.Pieces() {
		field[i/8] |= 0x80 >> (i % 8)
	}
	if f.behind != nil {
		var err error
		if c, err = f.behind(c, src); err != nil {
			return
		}
	}
	p := newRaw(c)
	if _, err := p.handshake(hello); err != nil {
		return
	}
	p.send(raw(msgBitfield, field...), unchoke)
	for n := 1; ; n++ {
		m, err := p.next()
		if err != nil {
			return
		}
		if m[0] != msgRequest {
			n--
			continue
		}
		i, begin, length := int(binary.BigEndian.Uint32(m[1:])), int(binary.BigEndian.Uint32(m[5:])), int(binary.BigEndian.Uint32(m[9:]))
		switch {
		case n%f.every > 0:
			time.Sleep(f.pause)
			at := i*f.length + begin
			p.send(raw(msgPiece, slices.Concat(u32(uint32(i), uint32(begin)), f.data[at:at+length])...))
		case f.slow:
			m := raw(msgPiece, slices.Concat(u32(uint32(i), uint32(begin)), make([]byte, length))...)
			for i := range m {
				if _, err := c.Write(m[i : i+1]); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		case f.reject:
			p.send(raw(msgReject, m[1:]...))
		}
	}
}

// seedForgetfully listens and seeds a file of that size.
func seedForgetfully(t *testing.T, size int, f forgetful) (src Source, data string, at Peer) {
	data = t.TempDir()
	writeRandom(t, filepath.Join(data, "file"), size)
	f.length = 32 << 10
	src = makeTorrent(t, filepath.Join(data, "file"), CreateOptions{PieceLength: int64(f.length)}).Source
	f.data = readFile(t, filepath.Join(data, "file"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f.serve(c, src) }()
		}
	}()
	return src, data, mustPeer(t, l.Addr().String())
}

// A download from a single seed ends, whatever requests the seed forgets or rejects.
func TestForgetfulSeed(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]forgetful{
		"forgets one of a thousand":                         {fast: true, every: 1000},
		"forgets one of a thousand, without fast extension": {every: 1000},
		"rejects every 64th":                                {fast: true, every: 64, reject: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				data := filepath.Join(dir, "file")
				writeRandom(t, data, 20<<20) // 1280 requests
				f.data, f.length = readFile(t, data), 32<<10
				src := makeTorrent(t, data, CreateOptions{PieceLength: int64(f.length)}).Source
				simulateDownload(t, src, dir, simulated{peers: map[string]func(net.Conn){
					"10.0.0.1:1": func(c net.Conn) { f.serve(c, src) },
				}})
			})
		})
	}
}

func TestStallCause(t *testing.T) {
	for _, tt := range []struct {
		s    stall
		says string // empty: this is no stall
	}{
		{stall{DiskBusy: true, Limited: true, Requested: 3}, ""},
		{stall{Serving: 1, DiskBusy: true, Limited: true, Arriving: true, Requested: 3}, "the disk"},
		{stall{Serving: 1, Limited: true, Requested: 3}, ""},
		{stall{Serving: 1, Arriving: true, Requested: 3}, ""},
		{stall{Serving: 2}, "nothing is requested"},
		{stall{Serving: 2, Requested: 1}, "1 block is requested"},
		{stall{Serving: 2, Requested: 3}, "3 blocks are requested"},
	} {
		if got := tt.s.cause(); got == "" && tt.says != "" || !strings.Contains(got, tt.says) || tt.says == "" && got != "" {
			t.Errorf("%+v: %q, want %q", tt.s, got, tt.says)
		}
	}
}

// warnings passes each warning on.
type warnings chan string

func (w warnings) Write(b []byte) (int, error) {
	select {
	case w <- string(b):
	default: // enough were seen
	}
	return len(b), nil
}

// A peer that unchokes us and never sends a block is named in the log as the cause of a stall.
func TestStallIsLogged(t *testing.T) {
	t.Parallel()
	src, _, at := seedForgetfully(t, 1<<20, forgetful{every: 1})
	said := make(warnings, 100)
	s, err := New(t.Context(), Config{Logger: slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	store, err := storage.Open(storage.KindFile, t.TempDir(), testLog(t), storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(src, store, Options{Peers: []Peer{at}}); err != nil {
		t.Fatal(err)
	}
	for {
		line := await.Value(t, "the warning", said)
		if strings.Contains(line, "stands still") && strings.Contains(line, "requested, and none arrives") {
			return
		}
	}
}
