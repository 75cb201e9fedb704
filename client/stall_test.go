package client

import (
	"encoding/binary"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"
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
			src, data, at := seedForgetfully(t, 32<<20, f)
			fullDownload(t, src, data, at)
		})
	}
}
