package wire

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ParseAnnounce reads the query of an announce URL, without the question mark. Parameters that it does not know are
// passed over; so are ip, ipv4 and ipv6: a peer's address is taken from its connection. Texts in what it returns are parts of the query.
func ParseAnnounce(query string) (Announce, error) {
	a := Announce{Left: NoCount, NumWant: NoCount}
	var hash, id, port bool
	err := eachParameter(query, func(name, raw string) error {
		switch name {
		case "info_hash":
			return once(&hash, name, a.InfoHash[:], raw)
		case "peer_id":
			return once(&id, name, a.PeerID[:], raw)
		}
		v, err := unescape(raw)
		if err != nil {
			return refusef("%s: %v", name, err)
		}
		switch name {
		case "port":
			n, err := strconv.ParseUint(v, 10, 16)
			if err != nil {
				return refusef("port: want a number from 0 to 65535")
			}
			a.Port, port = uint16(n), true
		case "uploaded":
			return count(&a.Uploaded, name, v)
		case "downloaded":
			return count(&a.Downloaded, name, v)
		case "left":
			if v == "-1" { // some clients say so of a magnet link
				return nil
			}
			return count(&a.Left, name, v)
		case "event":
			e := slices.Index(eventNames[:], v)
			if e < 0 && v != "empty" {
				return refusef("event: want started, completed, stopped, paused or nothing")
			}
			a.Event = Event(max(e, 0))
		case "numwant":
			n, err := strconv.ParseInt(v, 10, 32)
			if err != nil || n < NoCount {
				return refusef("numwant: want a number of peers")
			}
			a.NumWant = int(n)
		case "compact":
			a.Compact = v == "1"
		case "no_peer_id":
			a.NoPeerID = v == "1"
		case "scion":
			a.SCION = v == "1"
		case "peers":
			a.Peers, err = ParseOrder(v)
			return err
		case "hints":
			a.Hints = v == "1"
		case "key":
			return token(&a.Key, name, v)
		case "trackerid":
			return token(&a.TrackerID, name, v)
		case "passkey":
			return token(&a.Passkey, name, v)
		}
		return nil
	})
	switch {
	case err != nil:
		return Announce{}, err
	case !hash:
		return Announce{}, refusef("info_hash is missing")
	case !id:
		return Announce{}, refusef("peer_id is missing")
	case !port:
		return Announce{}, refusef("port is missing")
	}
	a.Key = canonicalKey(a.Key)
	return a, nil
}

// canonicalKey gives a key that is a number in hexadecimal digits, as most are, the form that it has over UDP.
func canonicalKey(k string) string {
	if len(k) == 0 || len(k) > 8 {
		return k
	}
	n, err := strconv.ParseUint(k, 16, 32)
	if err != nil {
		return k
	}
	return udpKey(uint32(n))
}

func udpKey(n uint32) string {
	var b [8]byte
	for i := range b {
		b[i] = "0123456789ABCDEF"[n>>(28-4*i)&15]
	}
	return string(b[:])
}

// Query is what ParseAnnounce reads.
func (a *Announce) Query() string {
	q := "info_hash=" + escape(string(a.InfoHash[:])) +
		"&peer_id=" + escape(string(a.PeerID[:])) +
		"&port=" + strconv.Itoa(int(a.Port)) +
		"&uploaded=" + strconv.FormatInt(a.Uploaded, 10) +
		"&downloaded=" + strconv.FormatInt(a.Downloaded, 10)
	if a.Left == NoCount {
		// Trackers that do not know better would take a missing left for 0, which is a seed.
		q += "&left=-1"
	} else {
		q += "&left=" + strconv.FormatInt(a.Left, 10)
	}
	for _, p := range []struct{ name, value string }{
		{"event", a.Event.String()}, {"key", a.Key}, {"trackerid", a.TrackerID}, {"passkey", a.Passkey},
	} {
		if p.value != "" {
			q += "&" + p.name + "=" + escape(p.value)
		}
	}
	if a.Peers != Random {
		q += "&peers=" + a.Peers.String()
	}
	if a.NumWant != NoCount {
		q += "&numwant=" + strconv.Itoa(a.NumWant)
	}
	for _, p := range []struct {
		name string
		is   bool
	}{{"compact", a.Compact}, {"no_peer_id", a.NoPeerID}, {"scion", a.SCION}, {"hints", a.Hints}} {
		if p.is {
			q += "&" + p.name + "=1"
		}
	}
	return q
}

// ParseScrape reads the query of a scrape URL: the info hashes, and the passkey if there is one.
func ParseScrape(query string) (hashes []InfoHash, passkey string, err error) {
	err = eachParameter(query, func(name, raw string) error {
		switch name {
		case "passkey":
			v, err := unescape(raw)
			if err != nil {
				return refusef("passkey: %v", err)
			}
			return token(&passkey, name, v)
		case "info_hash":
		default:
			return nil
		}
		if len(hashes) == MaxScrape {
			return refusef("more than %d info hashes", MaxScrape)
		}
		var h InfoHash
		if err := fill(h[:], name, raw); err != nil {
			return err
		}
		hashes = append(hashes, h)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	if len(hashes) == 0 {
		return nil, "", refusef("info_hash is missing: this tracker does not list its torrents")
	}
	return hashes, passkey, nil
}

func eachParameter(query string, f func(name, raw string) error) error {
	if len(query) > maxQuery {
		return refusef("the query is longer than %d bytes", maxQuery)
	}
	for query != "" {
		var p string
		p, query, _ = strings.Cut(query, "&")
		name, raw, _ := strings.Cut(p, "=")
		if err := f(name, raw); err != nil {
			return err
		}
	}
	return nil
}

func once(seen *bool, name string, to []byte, raw string) error {
	if err := fill(to, name, raw); err != nil {
		return err
	}
	if *seen {
		return refusef("%s is given twice", name)
	}
	*seen = true
	return nil
}

// fill undoes the percent-encoding of a value that is as long as there is room. Hashes are in every request, and most of
// their bytes are encoded.
func fill(to []byte, name, raw string) error {
	n := 0
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch c {
		case '+':
			c = ' '
		case '%':
			if i+2 >= len(raw) || !isHex(raw[i+1]) || !isHex(raw[i+2]) {
				return refusef("%s: %v", name, errEncoding)
			}
			c = unhex(raw[i+1])<<4 | unhex(raw[i+2])
			i += 2
		}
		if n < len(to) {
			to[n] = c
		}
		n++
	}
	if n != len(to) {
		return refusef("%s: %d bytes, want %d", name, n, len(to))
	}
	return nil
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// unhex is what a hexadecimal digit stands for.
func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return (c | 0x20) - 'a' + 10
}

var errEncoding = errors.New("wrong percent-encoding")

func count(to *int64, name, v string) error {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		return refusef("%s: want a number of bytes", name)
	}
	*to = n
	return nil
}

func token(to *string, name, v string) error {
	if len(v) > maxToken {
		return refusef("%s: longer than %d bytes", name, maxToken)
	}
	*to = v
	return nil
}

// escape writes a blank as %20: trackers that do not know forms would take a plus sign for what it is.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// unescape undoes percent-encoding. Unlike net/url's it does not allocate where there is nothing to undo.
func unescape(s string) (string, error) {
	if !strings.ContainsAny(s, "%+") {
		return s, nil
	}
	v, err := url.QueryUnescape(s)
	if err != nil {
		return "", errEncoding
	}
	return v, nil
}
