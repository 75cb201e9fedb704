package wire

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ParseAnnounce reads the query of an announce URL, without the question mark. Parameters that it does not know are
// passed over; so are ip, ipv4 and ipv6: a peer's address is taken from its connection.
func ParseAnnounce(query string) (Announce, error) {
	a := Announce{Left: NoCount, NumWant: NoCount}
	var hash, id, port bool
	err := eachParameter(query, func(name, raw string) error {
		v, err := unescape(raw)
		if err != nil {
			return refusef("%s: %v", name, err)
		}
		switch name {
		case "info_hash":
			return once(&hash, name, a.InfoHash[:], v)
		case "peer_id":
			return once(&id, name, a.PeerID[:], v)
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

func udpKey(n uint32) string { return fmt.Sprintf("%08X", n) }

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
		v, err := unescape(raw)
		if err != nil {
			return refusef("info_hash: %v", err)
		}
		if len(hashes) == MaxScrape {
			return refusef("more than %d info hashes", MaxScrape)
		}
		var h InfoHash
		if len(v) != len(h) {
			return refusef("info_hash: %d bytes, want %d", len(v), len(h))
		}
		copy(h[:], v)
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

func once(seen *bool, name string, to []byte, v string) error {
	if *seen {
		return refusef("%s is given twice", name)
	}
	if len(v) != len(to) {
		return refusef("%s: %d bytes, want %d", name, len(v), len(to))
	}
	*seen = true
	copy(to, v)
	return nil
}

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
	// A copy: the value would hold on to the whole request.
	*to = strings.Clone(v)
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
		return "", fmt.Errorf("wrong percent-encoding")
	}
	return v, nil
}
