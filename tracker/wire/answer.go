package wire

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"braid/scionnet"
)

// Append writes the answer to the announce over HTTP. SCION peers have keys of their own, which
// other clients ignore.
func (a *Answer) Append(b []byte, to *Announce) []byte {
	b = append(b, 'd')
	b = appendCount(b, "complete", a.Complete)
	if a.External.IsValid() {
		b = appendString(b, "external ip")
		b = appendHost(b, a.External)
	}
	b = appendCount(b, "incomplete", a.Incomplete)
	b = appendCount(b, "interval", seconds(a.Interval))
	b = appendCount(b, "min interval", seconds(a.MinInterval))
	if len(a.Hints) > 0 {
		b = appendHints(b, a.Hints)
	}
	if a.Reports > 0 {
		b = appendCount(b, "path reports", int64(a.Reports))
	}
	if to.Compact {
		b = a.appendCompact(b, to.SCION)
	} else {
		b = a.appendDicts(appendString(b, "peers"), to.NoPeerID, false)
		if to.SCION {
			b = a.appendDicts(appendString(b, "peers_scion"), to.NoPeerID, true)
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
		b = appendText(b, "tracker id", a.TrackerID)
	}
	if a.Warning != "" {
		b = appendText(b, "warning message", a.Warning)
	}
	return append(b, 'e')
}

// appendHost writes a host as a string of 4 or 16 bytes.
func appendHost(b []byte, host netip.Addr) []byte {
	v := host.As16()
	if host.Is4() {
		return appendString(b, v[12:])
	}
	return appendString(b, v[:])
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// peerKeys are the keys of compact peers in an answer.
var peerKeys = [scionnet.Families]string{"peers", "peers6", "peers_scion4", "peers_scion6"}

func (a *Answer) appendCompact(b []byte, scion bool) []byte {
	var counts [scionnet.Families]int
	for i := range a.Peers {
		counts[a.Peers[i].Addr.Family()]++
	}
	for i, key := range peerKeys {
		f := scionnet.Family(i)
		// Clients expect "peers", even if empty.
		if f >= scionnet.SCION4 && !scion || counts[f] == 0 && f != scionnet.IP4 {
			continue
		}
		b = appendString(b, key)
		b = append(strconv.AppendInt(b, int64(counts[f]*f.Size()), 10), ':')
		for i := range a.Peers {
			if p := &a.Peers[i].Addr; p.Family() == f {
				b = p.AppendCompact(b)
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
		b = appendText(append(b, 'd'), "ip", hostOf(p.Addr))
		if !noID {
			b = appendText(b, "peer id", p.ID[:])
		}
		b = append(appendCount(b, "port", int64(p.Addr.Port)), 'e')
	}
	return append(b, 'e')
}

// Append writes the refusal.
func (f *Failure) Append(b []byte) []byte {
	b = appendText(append(b, 'd'), "failure reason", f.Reason)
	switch {
	case f.RetryIn == Never:
		b = appendText(b, "retry in", "never")
	case f.RetryIn > 0: // in minutes
		b = appendCount(b, "retry in", max(1, int64((f.RetryIn+time.Minute-1)/time.Minute)))
	}
	return append(b, 'e')
}

// maxInterval bounds the interval that a tracker may ask for. After a longer one it would have
// forgotten us.
const maxInterval = 24 * time.Hour

// ParseAnswer reads a tracker's answer over HTTP. The error of a refusal is a *Failure.
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
	d := newDecoder(b)
	err = d.Dict(func(key []byte) (err error) {
		if f := slices.Index(peerKeys[:], string(key)); f >= 0 && d.Kind() != 'l' {
			v, err := d.Bytes()
			if err != nil {
				return err
			}
			a.Peers, err = parseCompact(a.Peers, v, scionnet.Family(f))
			return err
		}
		switch string(key) {
		case "peers", "peers6", "peers_scion":
			return a.parseDicts(d)
		case "failure reason":
			f = &Failure{}
			f.Reason, err = d.message()
		case "retry in":
			retry, err = d.retryIn()
		case "warning message":
			a.Warning, err = d.message()
		case "tracker id":
			a.TrackerID, err = d.short(maxToken)
		case "external ip":
			v, e := d.Bytes()
			err = e
			a.External, _ = netip.AddrFromSlice(v)
		case "interval":
			a.Interval, err = d.upToInterval(time.Second)
		case "min interval":
			a.MinInterval, err = d.upToInterval(time.Second)
		case "complete":
			a.Complete, err = d.cut(math.MaxInt64)
		case "incomplete":
			a.Incomplete, err = d.cut(math.MaxInt64)
		case "siblings":
			a.Siblings, err = d.siblings()
		case "path hints":
			a.Hints, err = d.hints()
		case "path rates":
			err = d.rates(a.Hints)
		case "path reports":
			n, e := d.cut(MaxReports)
			a.Reports, err = int(n), e
		default:
			err = d.Skip()
		}
		return err
	})
	if f != nil {
		f.RetryIn = retry
	}
	return a, f, err
}

// cut reads a number, and cuts it to the range from 0 to most.
func (d *decoder) cut(most int64) (int64, error) {
	n, err := d.Number()
	return min(max(n, 0), most), err
}

// upToInterval is cut for a time in the unit, with maxInterval as the most.
func (d *decoder) upToInterval(unit time.Duration) (time.Duration, error) {
	n, err := d.cut(int64(maxInterval / unit))
	return time.Duration(n) * unit, err
}

// siblings reads a list of addresses. It skips long ones, and those beyond the first few.
func (d *decoder) siblings() (out []string, err error) {
	if d.Kind() != 'l' {
		return nil, d.Skip()
	}
	err = d.List(func() error {
		if d.Kind() != '0' {
			return d.Skip()
		}
		v, err := d.Bytes()
		if err == nil && len(v) <= MaxSibling && len(out) < MaxSiblings {
			out = append(out, string(v))
		}
		return err
	})
	return out, err
}

func (d *decoder) retryIn() (time.Duration, error) {
	if d.Kind() != '0' {
		return d.upToInterval(time.Minute)
	}
	v, err := d.Bytes()
	if string(v) == "never" {
		return Never, err
	}
	return 0, err
}

func (a *Answer) parseDicts(d *decoder) error {
	return d.List(func() error {
		var host, id string
		var port int64
		err := d.Dict(func(key []byte) (err error) {
			switch string(key) {
			case "ip":
				host, err = d.short(2 * maxToken)
			case "port":
				port, err = d.Number()
			case "peer id":
				id, err = d.short(len(PeerID{}))
			default:
				err = d.Skip()
			}
			return err
		})
		if err != nil {
			return err
		}
		// Host names and nonsense are left out: trackers pass on what strangers say.
		addr, err := parseHost(host)
		addr.Port = uint16(port)
		if err == nil && port > 0 && port < 1<<16 && addr.Dialable() && len(a.Peers) < maxPeers {
			p := Peer{Addr: addr}
			if len(id) == len(p.ID) {
				copy(p.ID[:], id)
			}
			a.Peers = append(a.Peers, p)
		}
		return nil
	})
}

// printable makes a stranger's words fit for a log or a terminal.
func printable[S string | []byte](b S) string {
	const longest = 200
	s := strings.ToValidUTF8(string(b[:min(len(b), longest)]), "?")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// AppendScrape writes the answer to a scrape over HTTP (BEP 48). It sorts the counts by info hash,
// in place.
func AppendScrape(b []byte, counts []Counts, minInterval time.Duration) []byte {
	slices.SortFunc(counts, func(x, y Counts) int { return bytes.Compare(x.InfoHash[:], y.InfoHash[:]) })
	counts = slices.CompactFunc(counts, func(x, y Counts) bool { return x.InfoHash == y.InfoHash })
	b = append(appendString(append(b, 'd'), "files"), 'd')
	for _, c := range counts {
		b = append(appendString(b, c.InfoHash[:]), 'd')
		b = appendCount(b, "complete", c.Complete)
		b = appendCount(b, "downloaded", c.Downloaded)
		b = appendCount(b, "downloaders", c.Downloaders)
		b = append(appendCount(b, "incomplete", c.Incomplete), 'e')
	}
	b = append(appendString(append(b, 'e'), "flags"), 'd')
	return append(appendCount(b, "min_request_interval", seconds(minInterval)), 'e', 'e')
}
