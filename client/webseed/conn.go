package webseed

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	pp "github.com/anacrolix/torrent/peer_protocol"
)

// Conn is a BitTorrent connection to a peer that has all pieces, except those with files that the
// server lacks. Close ends it and all HTTP requests.
type Conn struct {
	net.Conn                  // the engine's end
	FirstAnswer time.Duration // how long the server took for it

	ours   net.Conn
	cfg    Config
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	mu       sync.Mutex
	changed  sync.Cond
	queue    []block // requests that no fetcher has taken, the oldest first
	runs     map[*run]struct{}
	out      [][]byte // messages for the engine
	blocks   int      // of them, those with data
	choked   bool     // the server is left alone for a while
	failures int      // in a row
	ranged   bool     // the server sends ranges
	err      error    // why the connection has ended
}

// block is a request of the engine.
type block struct {
	pp.RequestSpec
	at int64 // offset in the torrent's data
}

func newConn(cfg Config) *Conn {
	cfg.Lacks = cmp.Or(cfg.Lacks, &sync.Map{})
	c := &Conn{cfg: cfg, runs: map[*run]struct{}{}}
	c.changed.L = &c.mu
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// begin starts the goroutines, which end with the connection.
func (c *Conn) begin() {
	c.Conn, c.ours = net.Pipe()
	context.AfterFunc(c.ctx, func() {
		c.ours.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})
	go c.read()
	go c.write()
	n := parallel
	if !c.ranged {
		n = 1
	}
	for range n {
		go c.fetchRuns()
	}
}

// Err says why the connection has ended; nil if it has not, or if our side has closed it.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.cancel()
	return c.Conn.Close()
}

func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err == nil && c.ctx.Err() == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.cancel()
}

var errProtocol = errors.New("a message that a web seed does not understand")

// maxMessage is more than a bitfield of all pieces that a torrent can have, in bytes.
const maxMessage = 1 << 20

func (c *Conn) read() {
	in := pp.Decoder{R: bufio.NewReader(c.ours), MaxLength: maxMessage}
	err := c.greet(in.R)
	for err == nil {
		var m pp.Message
		if err = in.Decode(&m); err == nil && !m.Keepalive {
			err = c.hear(m)
		}
	}
	c.fail(err)
}

// greet answers the handshake (BEP 3), with the fast extension (BEP 6).
func (c *Conn) greet(r io.Reader) error {
	var theirs [68]byte
	if _, err := io.ReadFull(r, theirs[:]); err != nil {
		return err
	}
	if [20]byte(theirs[28:48]) != c.cfg.InfoHash {
		return errProtocol
	}
	mine := []byte("\x13BitTorrent protocol\x00\x00\x00\x00\x00\x00\x00\x04")
	mine = append(append(mine, c.cfg.InfoHash[:]...), "-BW0000-"...)
	id := make([]byte, 12)
	_, _ = rand.Read(id) // never fails
	pieces := message(pp.HaveAll)
	if has := c.pieces(); slices.Contains(has, false) {
		pieces = pp.Message{Type: pp.Bitfield, Bitfield: has}.MustMarshalBinary()
		again := time.AfterFunc(lacksFor, func() { c.cfg.Lacks.Clear(); c.fail(errLacks) })
		context.AfterFunc(c.ctx, func() { again.Stop() })
	}
	c.send(append(mine, id...), pieces, message(pp.Unchoke))
	return nil
}

// pieces tells which pieces the server has.
func (c *Conn) pieces() []bool {
	l := c.cfg.Layout
	has := slices.Repeat([]bool{true}, l.Pieces())
	for _, f := range l.Files {
		if c.lacks(f) {
			begin, end := l.FilePieces(f)
			clear(has[begin:end])
		}
	}
	return has
}

func message(kind pp.MessageType) []byte { return pp.Message{Type: kind}.MustMarshalBinary() }

func (c *Conn) hear(m pp.Message) error {
	if m.Type != pp.Request && m.Type != pp.Cancel {
		return nil
	}
	b := block{RequestSpec: m.RequestSpec()}
	l := c.cfg.Layout
	if int64(b.Index) >= int64(l.Pieces()) {
		return errProtocol
	}
	from, size := l.PieceRange(int(b.Index))
	if b.Length == 0 || b.Length > maxBlock || int64(b.Begin)+int64(b.Length) > size {
		return errProtocol
	}
	if b.at = from + int64(b.Begin); m.Type == pp.Cancel {
		c.take(b)
		return nil
	}
	return c.add(b)
}

func (c *Conn) add(b block) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.choked {
		c.sendLocked(b.reject())
		return nil
	}
	if i := c.queued(b.at); i >= 0 { // the same block, or one of another length
		c.sendLocked(c.queue[i].reject())
		c.queue[i] = b
		return nil
	}
	if len(c.queue) >= maxQueue {
		return fmt.Errorf("more than %d requests: %w", maxQueue, errProtocol)
	}
	c.queue = append(c.queue, b)
	c.changed.Broadcast()
	return nil
}

// queued is the place in the queue of the request for that offset; -1 if there is none.
func (c *Conn) queued(at int64) int {
	return slices.IndexFunc(c.queue, func(b block) bool { return b.at == at })
}

func (c *Conn) take(b block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.queue, b); i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
		c.sendLocked(b.reject())
		return
	}
	for r := range c.runs {
		if r.drop(b) {
			c.sendLocked(b.reject())
		}
	}
}

func (b block) reject() []byte {
	m := pp.Message{Type: pp.Reject, Index: b.Index, Begin: b.Begin, Length: b.Length}
	return m.MustMarshalBinary()
}

// answerHead is the length of what comes before the data of a block.
const answerHead = 13

// answer is the message with the block, whose data is still to be filled in.
func (b block) answer() []byte {
	m := make([]byte, answerHead+b.Length)
	copy(m, pp.Message{Type: pp.Piece, Index: b.Index, Begin: b.Begin}.MustMarshalBinary())
	binary.BigEndian.PutUint32(m, answerHead-4+uint32(b.Length))
	return m
}

// send has messages written to the engine.
func (c *Conn) send(messages ...[]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendLocked(messages...)
}

func (c *Conn) sendLocked(messages ...[]byte) {
	c.out = append(c.out, messages...)
	c.changed.Broadcast()
}

// maxBlocks is how many blocks wait for the engine to read them. Then the server has to wait, too.
const maxBlocks = 16

// deliver sends a block of a run, unless the engine has taken the request back.
func (c *Conn) deliver(r *run, b block, answer []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.blocks >= maxBlocks && c.ctx.Err() == nil {
		c.changed.Wait()
	}
	if !r.drop(b) {
		return
	}
	c.blocks++
	c.sendLocked(answer)
}

func (c *Conn) write() {
	for {
		c.mu.Lock()
		for len(c.out) == 0 && c.ctx.Err() == nil {
			c.changed.Wait()
		}
		out, blocks := c.out, c.blocks
		c.out, c.blocks = nil, 0
		c.mu.Unlock()
		if blocks > 0 {
			c.changed.Broadcast()
		}
		buffers := net.Buffers(out)
		if _, err := buffers.WriteTo(c.ours); err != nil || c.ctx.Err() != nil {
			c.cancel()
			return
		}
	}
}
