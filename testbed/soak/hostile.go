package soak

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/anacrolix/torrent/bencode"
	pp "github.com/anacrolix/torrent/peer_protocol"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/snet"
	snetpath "github.com/scionproto/scion/pkg/snet/path"

	"braid/pathsel"
	"braid/scionnet"
	"braid/testbed"
	"braid/tracker/wire"
)

// Hostile peers speak BitTorrent by hand, on ordinary connections.

// greet exchanges handshakes, as a peer that supports all extensions (BEP 3, 6, 10).
func greet(c net.Conn, t torrent) error {
	b := append([]byte("\x13BitTorrent protocol"), 0, 0, 0, 0, 0, 0x10, 0, 0x04)
	b = append(b, t.source.InfoHash[:]...)
	b = fmt.Appendf(b, "-XX0000-%012x", rand.Uint64()&0xffff_ffff_ffff)
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 68))
	return err
}

// count counts an action. If hostile peers achieve nothing, the run shows nothing.
func (r *run) count(what string) {
	r.locked(func() { r.result.Hostile[what]++ })
}

func message(t pp.MessageType) []byte { return pp.Message{Type: t}.MustMarshalBinary() }

// neighbour starts a hostile peer that claims to have all pieces. It returns its address.
func (r *run) neighbour(ctx context.Context, d Download, t torrent) (string, func(), error) {
	var accept func() (net.Conn, error)
	var at string
	var end func() error
	if d.TCP {
		l, err := net.Listen("tcp", r.onIP(hostile, 0))
		if err != nil {
			return "", nil, err
		}
		accept, at, end = l.Accept, l.Addr().String(), l.Close
	} else {
		e, err := r.attacker.Listen(ctx, scionnet.ListenConfig{})
		if err != nil {
			return "", nil, err
		}
		accept, at, end = func() (net.Conn, error) { return e.Accept(ctx) }, e.Addr().String(), e.Close
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer context.AfterFunc(ctx, func() { c.Close() })()
				defer c.Close()
				_ = r.serveBadly(ctx, c, d.Neighbour, t) // the download may end it in any way
			})
		}
	})
	return at, func() { cancel(); _ = end(); work.Wait() }, nil
}

// serveBadly treats a connection as that kind of neighbour does, until it ends.
func (r *run) serveBadly(ctx context.Context, c net.Conn, n Neighbour, t torrent) error {
	if err := greet(c, t); err != nil {
		return err
	}
	if _, err := c.Write(append(message(pp.HaveAll), message(pp.Unchoke)...)); err != nil {
		return err
	}
	if n == Raving {
		return flood(ctx, c, message(pp.HaveAll))
	}
	in := pp.Decoder{R: bufio.NewReader(c), MaxLength: 1 << 20} // without a pool, since nobody sends us pieces
	for asked := 1; ; {
		var m pp.Message
		if err := in.Decode(&m); err != nil {
			return err
		}
		if m.Type != pp.Request || m.Keepalive || n == Mute {
			continue
		}
		begin := int64(m.Index)*t.source.Layout.PieceLength + int64(m.Begin)
		if begin < 0 || int64(m.Length) > 16<<10 || begin+int64(m.Length) > int64(len(t.content)) {
			return fmt.Errorf("request %v", m)
		}
		asked++
		block := bytes.Clone(t.content[begin : begin+int64(m.Length)])
		if n == Corrupt {
			block[0] ^= 1
			r.count("wrong blocks")
		} else if asked%20 == 0 {
			r.count("dropped requests")
			continue
		}
		b := pp.Message{Type: pp.Piece, Index: m.Index, Begin: m.Begin, Piece: block}.MustMarshalBinary()
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}

// flood repeats a message and reads nothing. It writes a few megabytes a second, which is
// noticeable but leaves processor time to the others.
func flood(ctx context.Context, c net.Conn, m []byte) error {
	many := bytes.Repeat(m, 1+(32<<10)/len(m))
	for testbed.Sleep(ctx, 10*time.Millisecond) == nil {
		if _, err := c.Write(many); err != nil {
			return err
		}
	}
	return nil
}

// attack opens connections to the seeders, and abuses each of them. The seeders may end them.
func (r *run) attack(ctx context.Context, f Fault) error {
	e, err := r.attacker.Listen(ctx, scionnet.ListenConfig{})
	if err != nil {
		return err
	}
	defer e.Close()
	var work sync.WaitGroup
	defer work.Wait()
	n := 2 + int(f.Strength*6)
	if f.Kind == Silence {
		n = 20 + int(f.Strength*200)
	}
	for i := range n {
		work.Go(func() {
			for testbed.Sleep(ctx, 300*time.Millisecond) == nil { // again after each disconnect
				c, err := r.approach(ctx, e, i)
				if err != nil {
					continue
				}
				r.count("connections")
				stop := context.AfterFunc(ctx, func() { c.Close() })
				r.abuse(ctx, c, f, i)
				stop()
				c.Close()
			}
		})
	}
	return nil
}

// approach connects to one of the seeders, over SCION or TCP.
func (r *run) approach(ctx context.Context, e *scionnet.Endpoint, i int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	at := r.seederAddrs(i%2 == 0)[i/2%2]
	if i%2 == 0 {
		return new(net.Dialer).DialContext(ctx, "tcp", at)
	}
	remote, err := scionnet.ParseAddr(at)
	if err != nil {
		return nil, err
	}
	paths, err := r.attacker.Paths(ctx, remote.IA)
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("paths: %w", err)
	}
	return e.Dial(ctx, remote, paths[i%len(paths)], nil)
}

// abuse attacks a seeder over the nth connection.
func (r *run) abuse(ctx context.Context, c net.Conn, f Fault, i int) {
	t := r.torrents[i%len(r.torrents)]
	if f.Kind == Silence && i%4 < 2 { // not even a handshake
		_, _ = io.Copy(io.Discard, c)
		return
	}
	if greet(c, t) != nil {
		return
	}
	switch f.Kind {
	case Silence:
		_, _ = io.Copy(io.Discard, c)
	case HaveFlood:
		_ = flood(ctx, c, message(pp.HaveAll))
	case MetadataFlood: // BEP 9
		hello, _ := bencode.Marshal(map[string]any{"m": map[string]any{"ut_metadata": 1}})
		offer := pp.Message{Type: pp.Extended, ExtendedID: pp.HandshakeExtendedID, ExtendedPayload: hello}
		_, _ = c.Write(offer.MustMarshalBinary())
		var all []byte
		for id := range pp.ExtensionNumber(8) { // the other side may have chosen any of these numbers
			all = append(all, pp.MetadataExtensionRequestMsg(id+1, 0).MustMarshalBinary()...)
		}
		_ = flood(ctx, c, all)
	case RequestFlood:
		_, _ = c.Write(message(pp.Interested))
		var all []byte
		for n := range pp.Integer(64) {
			all = append(all, pp.Message{Type: pp.Request, Begin: n % 4 << 14, Length: 16 << 10}.MustMarshalBinary()...)
		}
		_ = flood(ctx, c, all)
	case Garbage:
		b := make([]byte, 64<<10)
		rand.NewChaCha8([32]byte{byte(i), byte(f.Strength * 255)}).Read(b)
		_ = flood(ctx, c, b)
	}
}

// forge sends SCMP errors from the hostile AS to hosts in the first two ASes. The errors quote
// packets between these ASes that nobody has sent.
func (r *run) forge(ctx context.Context, f Fault) error {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: r.network.HostIP(hostile).AsSlice()})
	if err != nil {
		return err
	}
	defer c.Close()
	for n := 0; testbed.Sleep(ctx, 20*time.Millisecond) == nil; n++ {
		victims := []string{r.seederAddrs(false)[0]}
		r.locked(func() {
			for p := range r.downloading {
				victims = append(victims, p.listen...)
			}
		})
		victim, err := scionnet.ParseAddr(victims[n%len(victims)])
		if err != nil {
			continue // on TCP
		}
		other := pathsel.IA(home)
		if victim.IA == home {
			other = abroad
		}
		there := r.ways[testbed.Pair{Src: hostile, Dst: victim.IA}]
		over := r.ways[testbed.Pair{Src: victim.IA, Dst: other}]
		if len(there) == 0 || len(over) == 0 {
			return fmt.Errorf("no paths to send over or to quote")
		}
		way, lie := there[n%len(there)], over[n/3%len(over)]
		packet := func(from, to scionnet.Addr, raw []byte, payload snet.Payload) []byte {
			p := snet.Packet{PacketInfo: snet.PacketInfo{
				Source:      snet.SCIONAddress{IA: addr.IA(from.IA), Host: addr.HostIP(from.Host)},
				Destination: snet.SCIONAddress{IA: addr.IA(to.IA), Host: addr.HostIP(to.Host)},
				Path:        snetpath.SCION{Raw: bytes.Clone(raw)}, Payload: payload,
			}}
			if err = p.Serialize(); err != nil {
				return nil
			}
			return p.Bytes
		}
		peer := scionnet.Addr{IA: other, Host: r.network.HostIP(other), Port: seederPort}
		quote := packet(victim, peer, lie.Raw, snet.UDPPayload{
			SrcPort: victim.Port, DstPort: peer.Port, Payload: make([]byte, 1200),
		})
		var m snet.Payload = snet.SCMPPacketTooBig{MTU: 1, Payload: quote}
		if at := lie.Interfaces[n%len(lie.Interfaces)]; f.Kind == ForgedDown {
			m = snet.SCMPExternalInterfaceDown{IA: addr.IA(at.IA), Interface: at.ID, Payload: quote}
		}
		us := scionnet.Addr{IA: hostile, Host: r.network.HostIP(hostile)}
		if b := packet(us, victim, way.Raw, m); err == nil {
			_, err = c.WriteToUDPAddrPort(b, way.Router)
		}
		if err != nil {
			return fmt.Errorf("send a forged message: %w", err)
		}
		r.count("forged messages")
	}
	return nil
}

// joinSwarms announces one host to as many swarms as possible.
func (r *run) joinSwarms(ctx context.Context) {
	ask := http.Client{Timeout: 5 * time.Second}
	defer ask.CloseIdleConnections()
	for testbed.Sleep(ctx, 5*time.Millisecond) == nil {
		a := wire.Announce{Port: seederPort, Compact: true, NumWant: wire.NoCount}
		for i := range a.InfoHash {
			a.InfoHash[i] = byte(rand.Uint32())
		}
		copy(a.PeerID[:], a.InfoHash[:])
		to := "http://" + r.onIP(home, trackerPort) + "/announce?" + a.Query()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
		if err != nil {
			panic(err) // a URL of ours
		}
		if reply, err := ask.Do(req); err == nil { // else the tracker is down, which may be the plan
			_, _ = io.Copy(io.Discard, reply.Body)
			reply.Body.Close()
			r.count("joined swarms")
		}
	}
}
