package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"braid/scionnet"
)

// Action of a UDP packet (BEP 15).
type Action uint32

const (
	Connect      Action = 0
	AnnounceUDP  Action = 1
	ScrapeUDP    Action = 2
	ErrorUDP     Action = 3
	udpMagic            = 0x41727101980
	udpConnect          = 16
	udpAnnounce         = 98
	udpScrapeMin        = 16 + 20
)

const (
	// MaxUDP is the size of the largest packet sent: what fits the Internet without fragments.
	MaxUDP = 1400
	// MaxUDPRequest is the size of the largest packet taken: a scrape of as many torrents as BEP 15
	// allows.
	MaxUDPRequest = 16 + 20*MaxScrape
)

// MaxUDPPeers is how many peers fit into an answer.
func MaxUDPPeers(v6 bool) int {
	if v6 {
		return (MaxUDP - 20) / 18
	}
	return (MaxUDP - 20) / 6
}

// UDPRequest is a packet to a tracker.
type UDPRequest struct {
	Action      Action
	Connection  uint64 // ID of the connection; 0 in Connect
	Transaction uint32
	Announce    Announce   // of AnnounceUDP
	Hashes      []InfoHash // of ScrapeUDP
	// URLData is the path and query of the announce URL, if the peer sent them (BEP 41).
	URLData string
}

// ErrNotTracker marks a packet that is no request to a tracker. It deserves no answer.
var ErrNotTracker = errors.New("not a packet for a tracker")

// ParseUDP reads a packet to a tracker. Its errors are ErrNotTracker, or a *Failure to answer the
// request with.
func ParseUDP(b []byte) (UDPRequest, error) {
	if len(b) < udpConnect || len(b) > MaxUDPRequest {
		return UDPRequest{}, ErrNotTracker
	}
	be := binary.BigEndian
	r := UDPRequest{Connection: be.Uint64(b), Action: Action(be.Uint32(b[8:])), Transaction: be.Uint32(b[12:])}
	switch r.Action {
	case Connect:
		if r.Connection != udpMagic {
			return UDPRequest{}, ErrNotTracker
		}
		r.Connection = 0
		return r, nil
	case AnnounceUDP:
		if len(b) < udpAnnounce {
			return UDPRequest{}, ErrNotTracker
		}
		return r, r.parseAnnounce(b)
	case ScrapeUDP:
		n := (len(b) - 16) / 20
		if len(b) < udpScrapeMin || len(b) != 16+20*n {
			return UDPRequest{}, ErrNotTracker
		}
		for b = b[16:]; len(b) > 0; b = b[20:] {
			r.Hashes = append(r.Hashes, InfoHash(b[:20]))
		}
		return r, nil
	}
	return UDPRequest{}, ErrNotTracker
}

func (r *UDPRequest) parseAnnounce(b []byte) error {
	be := binary.BigEndian
	a := &r.Announce
	a.InfoHash, a.PeerID = InfoHash(b[16:36]), PeerID(b[36:56])
	a.Downloaded, a.Left, a.Uploaded = int64(be.Uint64(b[56:])), int64(be.Uint64(b[64:])), int64(be.Uint64(b[72:]))
	event := be.Uint32(b[80:])
	// b[84:88] is an address that the peer claims. It is ignored.
	a.Key = udpKey(be.Uint32(b[88:]))
	a.NumWant = int(int32(be.Uint32(b[92:])))
	a.Port = be.Uint16(b[96:])
	a.Compact = true
	if a.Left < 0 {
		a.Left = NoCount
	}
	if a.NumWant < 0 {
		a.NumWant = NoCount
	}
	if a.Downloaded < 0 || a.Uploaded < 0 {
		return refusef("uploaded, downloaded: want a number of bytes")
	}
	if event > uint32(Paused) {
		return refusef("event: want 0 to 4")
	}
	a.Event = Event(event)
	return r.parseOptions(b[udpAnnounce:])
}

// parseOptions reads the options after an announce (BEP 41). Some clients pad with zeros, which end
// the options.
func (r *UDPRequest) parseOptions(b []byte) error {
	const end, nop, urlData = 0, 1, 2
	for len(b) > 0 && b[0] != end {
		if b[0] == nop {
			b = b[1:]
			continue
		}
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return refusef("an option is cut off")
		}
		if b[0] == urlData {
			r.URLData += string(b[2 : 2+int(b[1])])
		}
		b = b[2+int(b[1]):]
	}
	return nil
}

// Append writes the packet.
func (r *UDPRequest) Append(b []byte) []byte {
	be := binary.BigEndian
	connection := r.Connection
	if r.Action == Connect {
		connection = udpMagic
	}
	b = be.AppendUint32(be.AppendUint32(be.AppendUint64(b, connection), uint32(r.Action)), r.Transaction)
	switch r.Action {
	case AnnounceUDP:
		a := &r.Announce
		b = append(append(b, a.InfoHash[:]...), a.PeerID[:]...)
		for _, n := range []int64{a.Downloaded, a.Left, a.Uploaded} {
			b = be.AppendUint64(b, uint64(n))
		}
		key, _ := strconv.ParseUint(a.Key, 16, 32) // other keys have no form in BEP 15
		b = be.AppendUint32(be.AppendUint32(be.AppendUint32(b, uint32(a.Event)), 0), uint32(key))
		b = be.AppendUint16(be.AppendUint32(b, uint32(int32(a.NumWant))), a.Port)
		for s := r.URLData; s != ""; {
			n := min(len(s), 255)
			b = append(append(b, 2, byte(n)), s[:n]...)
			s = s[n:]
		}
	case ScrapeUDP:
		for _, h := range r.Hashes {
			b = append(b, h[:]...)
		}
	}
	return b
}

func appendHeader(b []byte, a Action, transaction uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, uint32(a)), transaction)
}

// AppendConnectUDP writes the answer to a Connect.
func AppendConnectUDP(b []byte, transaction uint32, connection uint64) []byte {
	return binary.BigEndian.AppendUint64(appendHeader(b, Connect, transaction), connection)
}

// AppendUDP writes the answer to an announce over IPv6 or IPv4, with peers of that kind only.
func (a *Answer) AppendUDP(b []byte, transaction uint32, v6 bool) []byte {
	be := binary.BigEndian
	b = appendHeader(b, AnnounceUDP, transaction)
	b = be.AppendUint32(b, uint32(seconds(a.Interval)))
	b = be.AppendUint32(be.AppendUint32(b, uint32(a.Incomplete)), uint32(a.Complete))
	n := MaxUDPPeers(v6)
	for i := range a.Peers {
		if p := &a.Peers[i].Addr; !p.IsSCION() && p.Host.Is6() == v6 && n > 0 {
			b = p.AppendCompact(b)
			n--
		}
	}
	return b
}

// AppendScrapeUDP writes the answer to a scrape. The counts are in the order of the request.
func AppendScrapeUDP(b []byte, transaction uint32, counts []Counts) []byte {
	be := binary.BigEndian
	b = appendHeader(b, ScrapeUDP, transaction)
	for _, c := range counts {
		b = be.AppendUint32(be.AppendUint32(b, uint32(c.Complete)), uint32(c.Downloaded))
		b = be.AppendUint32(b, uint32(c.Incomplete))
	}
	return b
}

// AppendUDP writes the refusal.
func (f *Failure) AppendUDP(b []byte, transaction uint32) []byte {
	return append(appendHeader(b, ErrorUDP, transaction), f.Reason...)
}

// UDPAnswer is a packet from a tracker.
type UDPAnswer struct {
	Action      Action
	Transaction uint32
	Connection  uint64   // of Connect
	Answer      Answer   // of AnnounceUDP
	Counts      []Counts // of ScrapeUDP, in the order of the request
	Failure     *Failure // of ErrorUDP
}

// ParseUDPAnswer reads a packet from a tracker on IPv6 or IPv4.
func ParseUDPAnswer(b []byte, v6 bool) (UDPAnswer, error) {
	be := binary.BigEndian
	if len(b) < 8 {
		return UDPAnswer{}, fmt.Errorf("packet of %d bytes", len(b))
	}
	a := UDPAnswer{Action: Action(be.Uint32(b)), Transaction: be.Uint32(b[4:])}
	b = b[8:]
	switch a.Action {
	case Connect:
		if len(b) < 8 {
			return UDPAnswer{}, errors.New("connect: the packet is cut off")
		}
		a.Connection = be.Uint64(b)
		return a, nil
	case AnnounceUDP:
		if len(b) < 12 {
			return UDPAnswer{}, errors.New("announce: the packet is cut off")
		}
		a.Answer.Interval = min(time.Duration(be.Uint32(b))*time.Second, maxInterval)
		a.Answer.Incomplete, a.Answer.Complete = int64(be.Uint32(b[4:])), int64(be.Uint32(b[8:]))
		f := scionnet.IP4
		if v6 {
			f = scionnet.IP6
		}
		b = b[12:]
		var err error
		a.Answer.Peers, err = parseCompact(nil, b[:len(b)-len(b)%f.Size()], f)
		return a, err
	case ScrapeUDP:
		for ; len(b) >= 12; b = b[12:] {
			a.Counts = append(a.Counts, Counts{
				Complete: int64(be.Uint32(b)), Downloaded: int64(be.Uint32(b[4:])), Incomplete: int64(be.Uint32(b[8:])),
			})
		}
		return a, nil
	case ErrorUDP:
		a.Failure = &Failure{Reason: printable(b)}
		return a, nil
	}
	return UDPAnswer{}, fmt.Errorf("unknown action %d", a.Action)
}
