package client

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"braid/units/await"
)

// rawPeer speaks the protocol as the test will have it.
type rawPeer struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// greeting is a handshake with the bits for extended messages, the fast extension, a DHT and BEP
// 52.
func greeting(src Source, id string) []byte {
	h := []byte(protocolName)
	h = append(h, 0, 0, 0, 0, 0, 0x10, 0, 0x15)
	h = append(h, src.InfoHash.Bytes()...)
	return append(h, fmt.Sprintf("%-20.20s", id)...)
}

// meet dials and gets as far as both handshakes. It may be refused while a connection before it is
// ending.
func meet(t *testing.T, src Source, addr string) *rawPeer {
	t.Helper()
	var p *rawPeer
	await.Success(t, "a handshake", func() error {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		p, err = tryGreet(t, src, c)
		return err
	})
	return p
}

func greet(t *testing.T, src Source, c net.Conn) *rawPeer {
	t.Helper()
	p, err := tryGreet(t, src, c)
	if err != nil {
		t.Fatalf("no handshake: %v", err)
	}
	return p
}

func tryGreet(t *testing.T, src Source, c net.Conn) (*rawPeer, error) {
	_ = c.SetDeadline(await.Deadline(t)) // fails only when closed
	p := newRaw(c)
	p.t = t
	_, err := p.handshake(greeting(src, "-XX0001-"+fmt.Sprint(rand.Uint64())))
	return p, err
}

func newRaw(c net.Conn) *rawPeer { return &rawPeer{conn: c, in: bufio.NewReader(c)} }

// handshake sends one and returns the other side's.
func (p *rawPeer) handshake(b []byte) ([]byte, error) {
	p.send(b)
	theirs := make([]byte, handshakeSize)
	_, err := io.ReadFull(p.in, theirs)
	return theirs, err
}

// send may fail: the other side may have hung up.
func (p *rawPeer) send(messages ...[]byte) { _, _ = p.conn.Write(slices.Concat(messages...)) }

// next is the next message with its type, without its length.
func (p *rawPeer) next() ([]byte, error) {
	for {
		head := make([]byte, 4)
		if _, err := io.ReadFull(p.in, head); err != nil {
			return nil, err
		}
		if n := binary.BigEndian.Uint32(head); n > 0 {
			b := make([]byte, n)
			_, err := io.ReadFull(p.in, b)
			return b, err
		}
	}
}

// dropped reads until the connection ends.
func (p *rawPeer) dropped() {
	p.t.Helper()
	for {
		if _, err := p.next(); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() { //nolint:errorlint // as the connection returns it
				p.t.Error("the connection goes on")
			}
			return
		}
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func hostileSeed(t *testing.T) (Source, *Session, string) {
	t.Helper()
	data := t.TempDir()
	writeRandom(t, filepath.Join(data, "file"), 600_000)
	src := makeTorrent(t, filepath.Join(data, "file"), CreateOptions{PieceLength: 16 << 10}).Source
	return src, seed(t, src, data), data
}

// A peer that asks for metadata and does not read has few answers waiting for it; who reads gets
// each.
func TestMetadataFlood(t *testing.T) {
	src, s, _ := hostileSeed(t)
	p := meet(t, src, s.Listening()[0].String())
	const asked = 5000
	go p.send(extended(0, extendedHello), bytes.Repeat(extended(1, askMetadata), asked))
	got := 0
	for got < asked {
		m, err := p.next()
		if err != nil {
			t.Fatalf("after %d answers of %d: %v", got, asked, err)
		}
		if m[0] == msgExtended && bytes.HasPrefix(m[2:], []byte("d8:msg_typei1e")) {
			got++
		}
	}
}

// Whoever says what no peer has a reason to say is dropped, and nobody who has one is.
func TestPeersAreDroppedForWhatTheySay(t *testing.T) {
	src, s, _ := hostileSeed(t)
	pieces := src.Layout.Pieces()
	field := raw(msgBitfield, make([]byte, (pieces+7)/8)...)
	for name, says := range map[string][]byte{
		"short bitfield":       raw(msgBitfield, 0),
		"long bitfield":        raw(msgBitfield, make([]byte, (pieces+7)/8+1)...),
		"has all, then none":   slices.Concat(raw(msgHaveAll), raw(msgHaveNone)),
		"has one, then none":   slices.Concat(raw(msgHave, u32(0)...), raw(msgHaveNone)),
		"has all for ever":     slices.Concat(field, bytes.Repeat(raw(msgHaveAll), 20)),
		"a long request":       encode(msgRequest, block{0, 0, 128<<10 + 1}),
		"chokes and unchokes":  bytes.Repeat(slices.Concat(choke, unchoke), 100),
		"greets for ever":      bytes.Repeat(extended(0, extendedHello), 20),
		"metadata unasked":     extended(1, "d8:msg_typei2e5:piecei0ee"),
		"piece unasked":        raw(msgPiece, make([]byte, 8+100)...),
		"not one's turn":       {0, 0, 0, 2, msgChoke, 0},
		"a type that is not":   raw(99),
		"longer than a reader": append(u32(1<<30), msgChoke),
	} {
		t.Run(name, func(t *testing.T) {
			p := meet(t, src, s.Listening()[0].String())
			p.t = t
			go p.send(says)
			p.dropped()
		})
	}
}

// fullDownload shows that a session still serves others.
func fullDownload(t *testing.T, src Source, data string, peers ...Peer) {
	t.Helper()
	out := t.TempDir()
	store := openStore(t, out)
	tr, err := openSession(t, Config{}).Add(src, store, Options{Peers: peers})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, tr)
	tr.Close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, src, data, out)
}

// strange is what a peer may say that is wrong in itself, or out of place.
func strange(pieces uint32) [][]byte {
	const most = 1<<32 - 1
	out := [][]byte{
		raw(msgHave, u32(pieces)...), raw(msgHave, u32(most)...), raw(msgHave, u32(1<<31)...), raw(msgHave), raw(msgHave, 1),
		raw(msgBitfield), raw(msgBitfield, bytes.Repeat([]byte{0xff}, 60_000)...),
		slices.Concat(raw(msgHaveAll), raw(msgHave, u32(0)...), raw(msgHaveNone), raw(msgHave, u32(0)...), raw(msgHaveNone), raw(msgBitfield, 0xff)),
		slices.Concat(raw(msgHaveNone), raw(msgHave, u32(1)...), raw(msgHave, u32(1)...), raw(msgHaveAll)),
		raw(msgHaveAll, 1), raw(msgSuggest, u32(most)...), raw(msgSuggest), raw(msgAllowedFast, u32(most)...), raw(msgAllowedFast),
		raw(9, 0, 0), raw(9, 0xff, 0xff), raw(9),
		extended(0, ""), extended(0, "i1e"), extended(0, "d"), extended(0, "d1:md11:ut_metadatai-1eee"),
		extended(0, "d1:md0:i300eee"), extended(0, "d13:metadata_sizei-1ee"), extended(0, "d13:metadata_sizei99999999999999999999ee"),
		extended(0, "d13:metadata_sizei16777216e4:reqqi-5ee"), extended(0, "d4:reqqi9223372036854775807ee"),
		extended(0, "d4:ipv41:a4:ipv61:b6:yourip0:1:pi-1ee"), extended(0, "d1:v"+fmt.Sprint(50_000)+":"+strings.Repeat("\x1b", 50_000)+"e"),
		extended(0, strings.Repeat("l", 60_000)), extended(0, strings.Repeat("d1:a", 15_000)),
		extended(1, ""), extended(1, "d8:msg_typei0e5:piecei-1ee"), extended(1, "d8:msg_typei0e5:piecei9223372036854775807ee"),
		extended(1, "d8:msg_typei1e5:piecei0e10:total_sizei-9223372036854775808ee"), extended(1, "d8:msg_typei0ee"), extended(1, "de"),
		extended(1, "d8:msg_typei7ee"), extended(2, "d5:added6:abcdefe"), extended(2, "d5:added5:abcdee"), extended(3, "\x00\x01abcdef"), extended(255, "de"),
		raw(msgExtended), raw(msgHashRequest, make([]byte, 48)...), raw(msgHashRequest, bytes.Repeat([]byte{0xff}, 48)...), raw(msgHashRequest),
		raw(msgHashes, make([]byte, 48+33)...), raw(msgHashes, make([]byte, 48)...), raw(msgHashReject, make([]byte, 48)...), raw(msgHashReject),
		raw(200), raw(255, make([]byte, 1000)...), u32(most), u32(0, 0, 0, 0),
		raw(msgPiece), raw(msgPiece, u32(0, 0)...), raw(msgPiece, make([]byte, 8+60_000)...), raw(msgPiece, append(u32(most, most), 1)...),
	}
	for _, kind := range []byte{msgRequest, msgCancel, msgReject} {
		out = append(out, raw(kind), raw(kind, u32(0, 0)...), slices.Concat(interested, encode(kind, block{0, 0, 0})))
		for _, b := range []block{
			{pieces, 0, 16 << 10}, {most, most, most}, {0, most, 16 << 10}, {0, most - 100, 101}, {0, 0, most}, {0, 1, 16 << 10}, {1 << 31, 0, 1},
		} {
			out = append(out, encode(kind, b), slices.Concat(interested, encode(kind, b, b)))
		}
	}
	return out
}

// Nothing that a peer says ends a seed's process, or keeps it from serving others.
func TestStrangeMessagesToASeed(t *testing.T) {
	src, s, data := hostileSeed(t)
	for _, says := range strange(uint32(src.Layout.Pieces())) {
		for _, before := range [][]byte{nil, slices.Concat(extended(0, extendedHello), raw(msgHaveNone), interested, unchoke)} {
			p := meet(t, src, s.Listening()[0].String())
			go p.send(before, says, raw(200)) // the end
			p.dropped()
			p.conn.Close()
		}
	}
	fullDownload(t, src, data, s.Listening()...)
}

// Nor does it end a download, whose description it may not have yet.
func TestStrangeMessagesToALeecher(t *testing.T) {
	src, s, data := hostileSeed(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	magnet, err := ParseMagnet(src.Magnet())
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]Source{"magnet": magnet, "torrent": src} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			store := openStore(t, out)
			leecher := openSession(t, Config{Listen: []Peer{mustPeer(t, "127.0.0.1:0")}})
			tr, err := leecher.Add(from, store, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, says := range strange(uint32(src.Layout.Pieces())) {
				p := meet(t, src, leecher.Listening()[0].String())
				go p.send(extended(0, "d1:md11:ut_metadatai3ee13:metadata_sizei20000ee"), raw(msgHaveAll), unchoke, says, raw(200))
				p.dropped()
				p.conn.Close()
			}
			tr.AddPeers(s.Listening()...)
			wait(t, tr)
			tr.Close()
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			sameFiles(t, src, data, out)
		})
	}
}
