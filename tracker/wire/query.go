package wire

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
)

// ParseAnnounce reads the query of an announce URL, without the question mark. It ignores unknown
// parameters, and ip, ipv4 and ipv6 too, since the connection shows a peer's address. The texts in
// the Announce share memory with the query.
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
			if v == "-1" { // some clients send it for a magnet link
				return nil
			}
			return count(&a.Left, name, v)
		case "event":
			return a.Event.read(v, "empty")
		case "numwant":
			n, err := strconv.ParseInt(v, 10, 32)
			if err != nil || n < NoCount {
				return refusef("numwant: want a number of peers")
			}
			a.NumWant = int(n)
		case "peers":
			a.Peers, err = ParseOrder(v)
			return err
		}
		return a.set(name, v)
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

// parameter is the name of a parameter, and where its value is.
type parameter[T any] struct {
	name  string
	value *T
}

// switches are the parameters that are 1 or missing.
func (a *Announce) switches() [5]parameter[bool] {
	return [...]parameter[bool]{
		{"compact", &a.Compact}, {"no_peer_id", &a.NoPeerID}, {"scion", &a.SCION},
		{"hints", &a.Hints}, {"fellow", &a.Fellow},
	}
}

// texts are the parameters that are short texts or missing.
func (a *Announce) texts() [3]parameter[string] {
	return [...]parameter[string]{{"key", &a.Key}, {"trackerid", &a.TrackerID}, {"passkey", &a.Passkey}}
}

// set sets a switch or a text. It ignores other names.
func (a *Announce) set(name, v string) error {
	for _, x := range a.switches() {
		if x.name == name {
			*x.value = v == "1"
		}
	}
	for _, x := range a.texts() {
		if x.name == name {
			return token(x.value, name, v)
		}
	}
	return nil
}

// canonicalKey turns a key of hexadecimal digits, as most are, into its form over UDP.
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

// Query writes what ParseAnnounce reads.
func (a *Announce) Query() string {
	q := "info_hash=" + escape(string(a.InfoHash[:])) +
		"&peer_id=" + escape(string(a.PeerID[:])) +
		"&port=" + strconv.Itoa(int(a.Port)) +
		"&uploaded=" + strconv.FormatInt(a.Uploaded, 10) +
		"&downloaded=" + strconv.FormatInt(a.Downloaded, 10)
	if a.Left == NoCount {
		// Some trackers would read a missing left as 0, which means a seed.
		q += "&left=-1"
	} else {
		q += "&left=" + strconv.FormatInt(a.Left, 10)
	}
	set := func(name, value string, is bool) {
		if is {
			q += "&" + name + "=" + escape(value)
		}
	}
	set("event", a.Event.String(), a.Event != Periodic)
	for _, x := range a.texts() {
		set(x.name, *x.value, *x.value != "")
	}
	set("peers", a.Peers.String(), a.Peers != Random)
	set("numwant", strconv.Itoa(a.NumWant), a.NumWant != NoCount)
	for _, x := range a.switches() {
		set(x.name, "1", *x.value)
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
	for p := range strings.SplitSeq(query, "&") {
		name, raw, _ := strings.Cut(p, "=")
		if err := f(name, raw); err != nil {
			return err
		}
	}
	return nil
}

// once is fill for a parameter that may occur only once.
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

// fill decodes a percent-encoded value of len(to) bytes.
func fill(to []byte, name, raw string) error {
	v, err := unescape(raw)
	if err != nil {
		return refusef("%s: %v", name, err)
	}
	if len(v) != len(to) {
		return refusef("%s: %d bytes, want %d", name, len(v), len(to))
	}
	copy(to, v)
	return nil
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

// token stores a value that is short enough to keep.
func token(to *string, name, v string) error {
	if len(v) > maxToken {
		return refusef("%s: longer than %d bytes", name, maxToken)
	}
	*to = v
	return nil
}

// escape writes a blank as %20, since some trackers read a plus sign as a plus sign.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// unescape undoes percent-encoding. Its error does not quote the value.
func unescape(s string) (string, error) {
	v, err := url.QueryUnescape(s)
	if err != nil {
		return "", errEncoding
	}
	return v, nil
}
