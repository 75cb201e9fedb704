package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// Signal is a message of WebTorrent's tracker protocol: JSON in WebSocket messages, in both
// directions. Peers announce with offers of WebRTC connections (RFC 8829). The tracker relays each
// offer to another peer, and that peer's answer back. It has no BEP; ../PROTOCOL.md describes it.
type Signal struct {
	// Scrape asks for, or answers with, Counts of torrents. All other messages are announces.
	Scrape bool
	Counts []Counts

	InfoHash InfoHash // not of a scrape
	// PeerID is the sender's; in a relayed offer or answer that of the peer it comes from. ToPeer
	// is the peer that an answer is for. Both are zero if they are missing.
	PeerID, ToPeer PeerID

	// The fields of an announce by a peer.
	Event                      Event
	Uploaded, Downloaded, Left int64   // Left: NoCount is unknown
	Offers                     []Offer // at most MaxOffers
	// Offer is relayed by the tracker, Answer goes both ways. Both are empty if they are missing.
	Offer, Answer Offer

	// The fields of an answer by the tracker. Interval is 0 if it is missing, in whole seconds.
	Interval             time.Duration
	Complete, Incomplete int64
	Failure, Warning     string
}

// Offer is the description of one end of a connection (RFC 8866), with the ID that its maker has
// given the offer: any bytes.
type Offer struct {
	ID  string
	SDP string
}

const (
	// MaxSignal bounds a message in bytes: MaxOffers descriptions of usual size.
	MaxSignal = 64 << 10
	// MaxOffers is the number of offers in an announce. WebTorrent sends 5.
	MaxOffers = 10
	// maxSDP bounds a description in bytes. One of a data channel takes about 500 bytes, and 100
	// for each address.
	maxSDP = 16 << 10
	// maxOfferID bounds an offer's ID in bytes. WebTorrent's has 20.
	maxOfferID = 64
)

// latin are bytes in JSON (ISO 8859-1, so to speak): a string with one character from U+0000 to
// U+00FF for each byte.
type latin []byte

func (b latin) String() string {
	r := make([]rune, len(b))
	for i, c := range b {
		r[i] = rune(c)
	}
	return string(r)
}

// latinOf reads what String writes.
func latinOf(s string) (b latin, err error) {
	for _, r := range s {
		if r > 0xff {
			return nil, errNotLatin
		}
		b = append(b, byte(r))
	}
	return b, nil
}

func (b latin) MarshalJSON() ([]byte, error) { return json.Marshal(b.String()) }

var errNotLatin = errors.New("want a string of characters up to U+00FF, one for each byte")

func (b *latin) UnmarshalJSON(j []byte) (err error) {
	var s string // null leaves it empty
	if json.Unmarshal(j, &s) != nil {
		return errNotLatin
	}
	*b, err = latinOf(s)
	return err
}

func (b latin) fill(to []byte, name string) error {
	if len(b) != len(to) {
		return refusef("%s: want %d bytes", name, len(to))
	}
	copy(to, b)
	return nil
}

// latins are one latin or a list of them.
type latins []latin

func (b *latins) UnmarshalJSON(j []byte) error {
	if len(j) > 0 && j[0] == '[' {
		return json.Unmarshal(j, (*[]latin)(b))
	}
	var one latin
	if err := json.Unmarshal(j, &one); err != nil {
		return err
	}
	if *b = nil; one != nil {
		*b = latins{one}
	}
	return nil
}

func (b latins) MarshalJSON() ([]byte, error) {
	if len(b) == 1 {
		return json.Marshal(b[0])
	}
	return json.Marshal([]latin(b))
}

// amount is a number of JavaScript. What is missing, null or no number of bytes is NoCount.
type amount int64

func (a *amount) UnmarshalJSON(j []byte) error {
	var f float64
	*a = NoCount
	if err := json.Unmarshal(j, &f); err == nil && string(j) != "null" && f >= 0 && f <= math.MaxInt64/2 {
		*a = amount(f)
	}
	return nil
}

type sdpJSON struct {
	Type string `json:"type"`
	SDP  string `json:"sdp"`
}

type offerJSON struct {
	Offer sdpJSON `json:"offer"`
	ID    latin   `json:"offer_id"`
}

type countsJSON struct {
	Complete   amount `json:"complete"`
	Incomplete amount `json:"incomplete"`
	Downloaded amount `json:"downloaded"`
}

type signalJSON struct {
	Action     string                `json:"action"`
	InfoHash   latins                `json:"info_hash,omitempty"`
	PeerID     latin                 `json:"peer_id,omitempty"`
	ToPeer     latin                 `json:"to_peer_id,omitempty"`
	Event      string                `json:"event,omitempty"`
	NumWant    *int                  `json:"numwant,omitempty"`
	Uploaded   *amount               `json:"uploaded,omitempty"`
	Downloaded *amount               `json:"downloaded,omitempty"`
	Left       *amount               `json:"left,omitempty"`
	Offers     []offerJSON           `json:"offers,omitempty"`
	Offer      *sdpJSON              `json:"offer,omitempty"`
	Answer     *sdpJSON              `json:"answer,omitempty"`
	OfferID    latin                 `json:"offer_id,omitempty"`
	Interval   *amount               `json:"interval,omitempty"`
	Complete   *amount               `json:"complete,omitempty"`
	Incomplete *amount               `json:"incomplete,omitempty"`
	Failure    string                `json:"failure reason,omitempty"`
	Warning    string                `json:"warning message,omitempty"`
	Files      map[string]countsJSON `json:"files,omitempty"`
}

// ParseSignal reads a message of a peer or a tracker. Errors are a *Failure.
func ParseSignal(b []byte) (Signal, error) {
	if len(b) > MaxSignal {
		return Signal{}, refusef("a message of more than %d bytes", MaxSignal)
	}
	var j signalJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return Signal{}, refusef("malformed message: %v", err)
	}
	s := Signal{
		Uploaded: j.Uploaded.or(0), Downloaded: j.Downloaded.or(0), Left: j.Left.or(NoCount),
		Complete: j.Complete.or(0), Incomplete: j.Incomplete.or(0),
		Interval: time.Duration(min(j.Interval.or(0), seconds(maxInterval))) * time.Second,
		Failure:  printable(j.Failure), Warning: printable(j.Warning),
	}
	switch j.Action {
	case "announce", "": // some trackers leave it out of a refusal
	case "scrape":
		return s, s.parseScrape(&j)
	default:
		return Signal{}, refusef("action: want announce or scrape")
	}
	if len(j.InfoHash) != 1 {
		if s.Failure != "" {
			return s, nil
		}
		return Signal{}, refusef("info_hash: want one")
	}
	err := s.Event.read(j.Event, "update") // as some clients call a periodic one
	if err == nil {
		err = j.InfoHash[0].fill(s.InfoHash[:], "info_hash")
	}
	if err == nil && j.PeerID != nil {
		err = j.PeerID.fill(s.PeerID[:], "peer_id")
	}
	if err == nil && j.ToPeer != nil {
		err = j.ToPeer.fill(s.ToPeer[:], "to_peer_id")
	}
	if err == nil {
		err = s.parseOffers(&j)
	}
	if err != nil {
		return Signal{}, err
	}
	return s, nil
}

func (a *amount) or(missing int64) int64 {
	if a == nil || *a == NoCount {
		return missing
	}
	return int64(*a)
}

func (s *Signal) parseOffers(j *signalJSON) (err error) {
	if len(j.Offers) > MaxOffers {
		return refusef("offers: want at most %d", MaxOffers)
	}
	for _, o := range j.Offers {
		x, err := parseOffer("offer", o.Offer, o.ID)
		if err != nil {
			return err
		}
		s.Offers = append(s.Offers, x)
	}
	if j.Offer != nil {
		if s.Offer, err = parseOffer("offer", *j.Offer, j.OfferID); err != nil {
			return err
		}
	}
	if j.Answer != nil {
		s.Answer, err = parseOffer("answer", *j.Answer, j.OfferID)
	}
	return err
}

func parseOffer(kind string, d sdpJSON, id latin) (Offer, error) {
	switch {
	case d.Type != kind:
		return Offer{}, refusef("%s: its type is not %s", kind, kind)
	case d.SDP == "" || len(d.SDP) > maxSDP:
		return Offer{}, refusef("%s: want a description of at most %d bytes", kind, maxSDP)
	case len(id) == 0 || len(id) > maxOfferID:
		return Offer{}, refusef("offer_id: want 1 to %d bytes", maxOfferID)
	}
	return Offer{ID: string(id), SDP: d.SDP}, nil
}

// parseScrape reads a request, whose Counts are those of no peers, or an answer.
func (s *Signal) parseScrape(j *signalJSON) error {
	s.Scrape = true
	if len(j.InfoHash) > MaxScrape || len(j.Files) > MaxScrape {
		return refusef("a scrape of more than %d torrents", MaxScrape)
	}
	for _, h := range j.InfoHash {
		c := Counts{}
		if err := h.fill(c.InfoHash[:], "info_hash"); err != nil {
			return err
		}
		s.Counts = append(s.Counts, c)
	}
	for name, f := range j.Files {
		h, _ := latinOf(name) // other names have a wrong length
		c := Counts{Complete: f.Complete.or(0), Incomplete: f.Incomplete.or(0), Downloaded: f.Downloaded.or(0)}
		if err := h.fill(c.InfoHash[:], "files"); err != nil {
			return err
		}
		s.Counts = append(s.Counts, c)
	}
	return nil
}

// Request is the message as a peer sends it.
func (s *Signal) Request() []byte {
	j := s.common()
	if s.Scrape {
		for _, c := range s.Counts {
			j.InfoHash = append(j.InfoHash, c.InfoHash[:])
		}
		return encode(j)
	}
	if s.Answer.SDP == "" {
		j.Event, j.NumWant = s.Event.String(), new(int)
		*j.NumWant = len(s.Offers)
		j.Uploaded, j.Downloaded, j.Left = amountOf(s.Uploaded), amountOf(s.Downloaded), amountOf(s.Left)
	}
	for _, o := range s.Offers {
		j.Offers = append(j.Offers, offerJSON{sdpJSON{"offer", o.SDP}, latin(o.ID)})
	}
	return encode(j)
}

// Reply is the message as a tracker sends it.
func (s *Signal) Reply() []byte {
	j := s.common()
	if s.Scrape {
		j.Files = map[string]countsJSON{}
		for _, c := range s.Counts {
			counts := countsJSON{amount(c.Complete), amount(c.Incomplete), amount(c.Downloaded)}
			j.Files[latin(c.InfoHash[:]).String()] = counts
		}
		return encode(j)
	}
	if s.Interval > 0 {
		j.Interval = amountOf(seconds(s.Interval))
		j.Complete, j.Incomplete = amountOf(s.Complete), amountOf(s.Incomplete)
	}
	return encode(j)
}

// common are the fields that messages of both sides have.
func (s *Signal) common() *signalJSON {
	j := &signalJSON{Action: "announce", Failure: s.Failure, Warning: s.Warning}
	if s.Scrape {
		j.Action = "scrape"
		return j
	}
	if s.InfoHash != (InfoHash{}) {
		j.InfoHash = latins{s.InfoHash[:]}
	}
	if s.PeerID != (PeerID{}) {
		j.PeerID = s.PeerID[:]
	}
	if s.ToPeer != (PeerID{}) {
		j.ToPeer = s.ToPeer[:]
	}
	if s.Offer.SDP != "" {
		j.Offer, j.OfferID = &sdpJSON{"offer", s.Offer.SDP}, latin(s.Offer.ID)
	}
	if s.Answer.SDP != "" {
		j.Answer, j.OfferID = &sdpJSON{"answer", s.Answer.SDP}, latin(s.Answer.ID)
	}
	return j
}

func amountOf(n int64) *amount {
	if n == NoCount {
		return nil
	}
	return (*amount)(&n)
}

func encode(j *signalJSON) []byte {
	b, err := json.Marshal(j)
	if err != nil {
		panic(fmt.Errorf("a message that JSON lacks: %w", err)) // there is none
	}
	return b
}
