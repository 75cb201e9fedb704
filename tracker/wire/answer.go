package wire

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Append writes the answer to the announce over HTTP. SCION peers go where clients that do not know them do not look.
func (a *Answer) Append(b []byte, to *Announce) []byte {
	b = append(b, 'd')
	b = appendCount(b, "complete", a.Complete)
	if a.External.IsValid() {
		b = appendString(b, "external ip")
		b = append(strconv.AppendInt(b, int64(a.External.BitLen()/8), 10), ':')
		b = appendHost(b, a.External)
	}
	b = appendCount(b, "incomplete", a.Incomplete)
	b = appendCount(b, "interval", seconds(a.Interval))
	b = appendCount(b, "min interval", seconds(a.MinInterval))
	if len(a.Hints) > 0 {
		b = appendHints(appendString(b, "path hints"), a.Hints)
	}
	if a.Reports > 0 {
		b = appendCount(b, "path reports", int64(a.Reports))
	}
	if to.Compact {
		b = a.appendCompact(b, to.SCION)
	} else {
		b = appendString(b, "peers")
		b = a.appendDicts(b, to.NoPeerID, false)
		if to.SCION {
			b = appendString(b, "peers_scion")
			b = a.appendDicts(b, to.NoPeerID, true)
		}
	}
	if len(a.Siblings) > 0 && to.SCION {
		b = append(appendString(b, "siblings"), 'l')
		for _, s := range a.Siblings {
			b = appendString(b, s)
		}
		b = append(b, 'e')
	}
	if a.TrackerID != "" {
		b = appendString(appendString(b, "tracker id"), a.TrackerID)
	}
	if a.Warning != "" {
		b = appendString(appendString(b, "warning message"), a.Warning)
	}
	return append(b, 'e')
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// compactKinds are the keys of compact peers, in their order in an answer.
var compactKinds = [...]struct {
	key     string
	scion   bool
	hostLen int
}{{"peers", false, 4}, {"peers6", false, 16}, {"peers_scion4", true, 4}, {"peers_scion6", true, 16}}

// compactKind is the place of the address in compactKinds.
func (a *Addr) compactKind() (k int) {
	if !a.Host.Is4() {
		k = 1
	}
	if a.IsSCION() {
		k += 2
	}
	return k
}

func (a *Answer) appendCompact(b []byte, scion bool) []byte {
	var there [len(compactKinds)]int
	for i := range a.Peers {
		there[a.Peers[i].Addr.compactKind()]++
	}
	for kind, k := range compactKinds {
		n, size := there[kind], k.hostLen+2
		if k.scion {
			size += 8
		}
		if k.scion && !scion || n == 0 && k.key != "peers" { // clients expect that one
			continue
		}
		b = appendString(b, k.key)
		b = append(strconv.AppendInt(b, int64(n*size), 10), ':')
		for i := range a.Peers {
			if p := &a.Peers[i].Addr; p.compactKind() == kind {
				b = p.appendCompact(b)
			}
		}
	}
	return b
}

func (a *Answer) appendDicts(b []byte, noID, scion bool) []byte {
	b = append(b, 'l')
	for i := range a.Peers {
		p := &a.Peers[i]
		if p.Addr.IsSCION() != scion {
			continue
		}
		b = appendString(append(b, 'd'), "ip")
		b = appendString(b, p.Addr.host())
		if !noID {
			b = appendString(appendString(b, "peer id"), string(p.ID[:]))
		}
		b = append(appendCount(b, "port", int64(p.Addr.Port)), 'e')
	}
	return append(b, 'e')
}

// Append writes the refusal.
func (f *Failure) Append(b []byte) []byte {
	b = appendString(append(b, 'd'), "failure reason")
	b = appendString(b, f.Reason)
	switch {
	case f.RetryIn == Never:
		b = appendString(appendString(b, "retry in"), "never")
	case f.RetryIn > 0: // in minutes
		b = appendCount(b, "retry in", max(1, int64((f.RetryIn+time.Minute-1)/time.Minute)))
	}
	return append(b, 'e')
}

// maxInterval bounds what a tracker may ask for. With a longer one a swarm would lose us.
const maxInterval = 24 * time.Hour

// ParseAnswer reads a tracker's answer over HTTP. A refusal is a *Failure.
func ParseAnswer(b []byte) (Answer, error) {
	a, f, err := parseAnswer(b)
	switch {
	case err != nil:
		return Answer{}, fmt.Errorf("malformed answer: %w", err)
	case f != nil:
		return Answer{}, f
	}
	return a, nil
}

func parseAnswer(b []byte) (a Answer, f *Failure, err error) {
	var retry time.Duration
	d := decoder{b: b}
	err = d.dict(func(key string) error {
		for _, k := range compactKinds {
			if c, err := d.peek(); key == k.key && err == nil && c != 'l' {
				v, err := d.bytes()
				if err != nil {
					return err
				}
				a.Peers, err = parseCompact(a.Peers, v, k.scion, k.hostLen)
				return err
			}
		}
		var err error
		switch key {
		case "peers", "peers6", "peers_scion":
			return a.parseDicts(&d)
		case "failure reason":
			v, e := d.bytes()
			f, err = &Failure{Reason: printable(v)}, e
		case "retry in":
			retry, err = d.retryIn()
		case "warning message":
			v, e := d.bytes()
			a.Warning, err = printable(v), e
		case "tracker id":
			v, e := d.bytes()
			if err = e; len(v) <= maxToken {
				a.TrackerID = string(v)
			}
		case "external ip":
			v, e := d.bytes()
			err = e
			a.External, _ = netip.AddrFromSlice(v)
		case "interval":
			a.Interval, err = d.interval()
		case "min interval":
			a.MinInterval, err = d.interval()
		case "complete":
			a.Complete, err = d.integer()
		case "incomplete":
			a.Incomplete, err = d.integer()
		case "siblings":
			a.Siblings, err = d.siblings()
		case "path hints":
			a.Hints, err = d.hints()
		case "path reports":
			n, e := d.integer()
			a.Reports, err = int(min(max(n, 0), MaxReports)), e
		default:
			err = d.skip()
		}
		return err
	})
	if f != nil {
		f.RetryIn = retry
	}
	return a, f, err
}

func (d *decoder) interval() (time.Duration, error) {
	n, err := d.integer()
	return time.Duration(min(max(n, 0), seconds(maxInterval))) * time.Second, err
}

// siblings passes over what is too long or too many.
func (d *decoder) siblings() (out []string, err error) {
	if c, err := d.peek(); err != nil || c != 'l' {
		return nil, d.skip()
	}
	err = d.each('l', func() error {
		if c, err := d.peek(); err != nil || c < '0' || c > '9' {
			return d.skip()
		}
		v, err := d.bytes()
		if err == nil && len(v) <= MaxSibling && len(out) < MaxSiblings {
			out = append(out, string(v))
		}
		return err
	})
	return out, err
}

func (d *decoder) retryIn() (time.Duration, error) {
	if c, err := d.peek(); err == nil && c == 'i' {
		n, err := d.integer()
		return time.Duration(min(max(n, 0), int64(maxInterval/time.Minute))) * time.Minute, err
	}
	v, err := d.bytes()
	if string(v) == "never" {
		return Never, err
	}
	return 0, err
}

func (a *Answer) parseDicts(d *decoder) error {
	return d.each('l', func() error {
		var host string
		var port int64
		var id PeerID
		err := d.dict(func(key string) error {
			var err error
			switch key {
			case "ip":
				v, e := d.bytes()
				if err = e; len(v) <= 2*maxToken {
					host = string(v)
				}
			case "port":
				port, err = d.integer()
			case "peer id":
				v, e := d.bytes()
				if err = e; len(v) == len(id) {
					copy(id[:], v)
				}
			default:
				err = d.skip()
			}
			return err
		})
		if err != nil {
			return err
		}
		// Host names and nonsense are passed over: trackers hand on what strangers say.
		addr, err := parseHost(host)
		if err == nil && port > 0 && port < 1<<16 && len(a.Peers) < maxPeers {
			addr.Port = uint16(port)
			a.Peers = append(a.Peers, Peer{ID: id, Addr: addr})
		}
		return nil
	})
}

// printable makes a stranger's words fit for a log or a terminal.
func printable(b []byte) string {
	const longest = 200
	s := strings.ToValidUTF8(string(b[:min(len(b), longest)]), "?")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// AppendScrape writes the answer to a scrape over HTTP (BEP 48). The counts are sorted by info hash, in place.
func AppendScrape(b []byte, counts []Counts, minInterval time.Duration) []byte {
	slices.SortFunc(counts, func(x, y Counts) int { return bytes.Compare(x.InfoHash[:], y.InfoHash[:]) })
	counts = slices.CompactFunc(counts, func(x, y Counts) bool { return x.InfoHash == y.InfoHash })
	b = append(appendString(append(b, 'd'), "files"), 'd')
	for _, c := range counts {
		b = append(appendString(b, string(c.InfoHash[:])), 'd')
		b = appendCount(b, "complete", c.Complete)
		b = appendCount(b, "downloaded", c.Downloaded)
		b = appendCount(b, "downloaders", c.Downloaders)
		b = append(appendCount(b, "incomplete", c.Incomplete), 'e')
	}
	b = append(appendString(append(b, 'e'), "flags"), 'd')
	return append(appendCount(b, "min_request_interval", seconds(minInterval)), 'e', 'e')
}

// ParseScrapeAnswer reads what AppendScrape writes, and other trackers' answers.
func ParseScrapeAnswer(b []byte) ([]Counts, error) {
	var out []Counts
	var f *Failure
	d := decoder{b: b}
	err := d.dict(func(key string) error {
		switch key {
		case "failure reason":
			v, err := d.bytes()
			f = &Failure{Reason: printable(v)}
			return err
		case "files":
			return d.dict(func(hash string) error {
				var c Counts
				if len(hash) != len(c.InfoHash) || len(out) == MaxScrape {
					return d.skip()
				}
				copy(c.InfoHash[:], hash)
				err := d.dict(func(key string) (err error) {
					switch key {
					case "complete":
						c.Complete, err = d.integer()
					case "incomplete":
						c.Incomplete, err = d.integer()
					case "downloaded":
						c.Downloaded, err = d.integer()
					case "downloaders":
						c.Downloaders, err = d.integer()
					default:
						err = d.skip()
					}
					return err
				})
				out = append(out, c)
				return err
			})
		}
		return d.skip()
	})
	if err != nil {
		return nil, fmt.Errorf("malformed scrape answer: %w", err)
	}
	if f != nil {
		return nil, f
	}
	return out, nil
}
