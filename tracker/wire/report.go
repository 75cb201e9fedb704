package wire

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"braid/pathsel"
)

// PathReport is what a peer has measured of one path since its last report.
type PathReport struct {
	// Interfaces of the path, as in pathsel.Path, from the AS of the peer that reports to that of another peer.
	Interfaces []pathsel.Interface
	// RTT is the shortest round trip, in whole microseconds; 0: not known.
	RTT time.Duration
	// Rate is the payload that came over the path in bytes per second, in the time in which some could flow; 0: not known.
	Rate int64
	// Sent are packets that the peer has sent on the path, Lost those of them that did not arrive.
	Sent, Lost int64
	// Age is how long ago it was measured, in whole seconds.
	Age time.Duration
}

// Src is the AS that the path begins in.
func (r *PathReport) Src() pathsel.IA { return r.Interfaces[0].IA }

// Dst is the AS that it leads to.
func (r *PathReport) Dst() pathsel.IA { return r.Interfaces[len(r.Interfaces)-1].IA }

const (
	// MaxReports is the number of paths in one announce. What a peer has used since its last one is seldom more.
	MaxReports = 32
	// MaxReportBody bounds them in bytes: as many of the longest paths.
	MaxReportBody = 24 << 10
	// MaxInterfaces of a path: 32 links. SCION allows more hops than anybody has seen.
	MaxInterfaces = 64
	// InterfaceLen is an interface on the wire in bytes: ISD-AS (8), interface ID (2).
	InterfaceLen = 10

	// MaxReportRTT and MaxReportAge are the longest round trip and age in a report, MaxReportRate the highest rate in bytes per
	// second.
	MaxReportRTT  = time.Minute
	MaxReportAge  = 24 * time.Hour
	MaxReportRate = 1 << 40
	maxPackets    = 1 << 48

	// ReportsRefused is how the reason of a refusal begins that is about the reports.
	ReportsRefused = "path reports"

	// MaxHintASes and MaxHints bound the hints in an answer: ASes, and paths to each of them. With all it has 36 kB.
	MaxHintASes, MaxHints = 64, 16
	fingerprintLen        = 32
)

// AppendReports writes the body of an announce with reports.
func AppendReports(b []byte, reports []PathReport) []byte {
	b = append(appendString(append(b, 'd'), "paths"), 'l')
	for _, r := range reports {
		b = append(b, 'd')
		for _, f := range []struct {
			key   string
			value int64
		}{{"age", seconds(r.Age)}, {"if", 0}, {"lost", r.Lost}, {"rate", r.Rate}, {"rtt", r.RTT.Microseconds()}, {"sent", r.Sent}} {
			switch {
			case f.key == "if":
				b = appendString(appendString(b, f.key), string(AppendInterfaces(nil, r.Interfaces)))
			case f.value != 0:
				b = appendCount(b, f.key, f.value)
			}
		}
		b = append(b, 'e')
	}
	return append(b, 'e', 'e')
}

// ParseReports reads the body of an announce with reports. A report that cannot be true is a refusal of all.
func ParseReports(body []byte) ([]PathReport, error) {
	if len(body) > MaxReportBody {
		return nil, refusef(ReportsRefused+": more than %d bytes", MaxReportBody)
	}
	var out []PathReport
	d := decoder{b: body}
	err := d.dict(func(key string) error {
		if key != "paths" {
			return d.skip()
		}
		return d.each('l', func() error {
			if len(out) == MaxReports {
				return fmt.Errorf("more than %d paths", MaxReports)
			}
			r, err := d.report()
			out = append(out, r)
			return err
		})
	})
	if err == nil && len(d.b) > 0 {
		err = fmt.Errorf("%d bytes after the end", len(d.b))
	}
	if err != nil {
		return nil, refusef(ReportsRefused+": %v", err)
	}
	return out, nil
}

func (d *decoder) report() (r PathReport, err error) {
	err = d.dict(func(key string) error {
		var err error
		switch key {
		case "if":
			var v []byte
			if v, err = d.bytes(); err == nil {
				r.Interfaces, err = ParseInterfaces(v)
			}
		case "rtt":
			r.RTT, err = d.within(MaxReportRTT, time.Microsecond)
		case "age":
			r.Age, err = d.within(MaxReportAge, time.Second)
		case "rate":
			r.Rate, err = d.upTo(MaxReportRate)
		case "sent":
			r.Sent, err = d.upTo(maxPackets)
		case "lost":
			r.Lost, err = d.upTo(maxPackets)
		default:
			err = d.skip()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", printable([]byte(key)), err)
		}
		return nil
	})
	switch {
	case err != nil:
	case r.Interfaces == nil:
		err = fmt.Errorf("a path without its interfaces (if)")
	case r.Lost > r.Sent:
		err = fmt.Errorf("%d of %d packets lost", r.Lost, r.Sent)
	}
	return r, err
}

func (d *decoder) upTo(most int64) (int64, error) {
	n, err := d.integer()
	if err == nil && (n < 0 || n > most) {
		err = fmt.Errorf("%d: want from 0 to %d", n, most)
	}
	return n, err
}

func (d *decoder) within(most, unit time.Duration) (time.Duration, error) {
	n, err := d.upTo(int64(most / unit))
	return time.Duration(n) * unit, err
}

// AppendInterfaces writes what ParseInterfaces reads.
func AppendInterfaces(b []byte, path []pathsel.Interface) []byte {
	for _, i := range path {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(b, uint64(i.IA)), uint16(i.ID))
	}
	return b
}

// ParseInterfaces reads a sequence that a path may have: links between different ASes, of which each begins where the
// one before has ended, and no AS twice.
func ParseInterfaces(v []byte) ([]pathsel.Interface, error) {
	n := len(v) / InterfaceLen
	if len(v)%InterfaceLen != 0 || n == 0 || n%2 != 0 || n > MaxInterfaces {
		return nil, fmt.Errorf("%d bytes: want 1 to %d links of %d bytes", len(v), MaxInterfaces/2, 2*InterfaceLen)
	}
	out := make([]pathsel.Interface, n)
	visited := make([]pathsel.IA, 0, n/2+1)
	for i := range out {
		p := v[i*InterfaceLen:]
		x := pathsel.Interface{IA: pathsel.IA(binary.BigEndian.Uint64(p)), ID: uint64(binary.BigEndian.Uint16(p[8:]))}
		switch {
		case x.IA.ISD() == 0 || x.IA.AS() == 0 || x.ID == 0:
			return nil, fmt.Errorf("interface %s is a wildcard", x)
		case i%2 == 0 && i > 0:
			if x.IA != out[i-1].IA {
				return nil, fmt.Errorf("the path jumps from %s to %s", out[i-1].IA, x.IA)
			}
		case slices.Contains(visited, x.IA):
			return nil, fmt.Errorf("the path visits %s twice", x.IA)
		default:
			visited = append(visited, x.IA)
		}
		out[i] = x
	}
	return out, nil
}

// Order is how a tracker chooses peers for one that asks.
type Order uint8

// The orders: by chance, the nearest first, half and half.
const (
	Random Order = iota
	Nearest
	Mixed
)

var orderNames = [...]string{"random", "nearest", "mixed"}

func (o Order) String() string { return orderNames[o] }

// ParseOrder reads the name of an order.
func ParseOrder(s string) (Order, error) {
	i := slices.Index(orderNames[:], s)
	if i < 0 {
		return 0, refusef("peers: want random, nearest or mixed")
	}
	return Order(i), nil
}

// appendHints writes a dictionary: under each ISD-AS (8 bytes) the fingerprints of paths to it (32 bytes each), best first.
func appendHints(b []byte, h pathsel.Hints) []byte {
	b = append(b, 'd')
	for _, ia := range slices.Sorted(maps.Keys(h)) {
		var v []byte
		for _, f := range h[ia] {
			if raw, err := hex.DecodeString(string(f)); err == nil && len(raw) == fingerprintLen {
				v = append(v, raw...)
			}
		}
		b = appendString(b, string(binary.BigEndian.AppendUint64(nil, uint64(ia))))
		b = appendString(b, string(v))
	}
	return append(b, 'e')
}

// hints reads what appendHints writes. What it cannot use it passes over: a hint is only that.
func (d *decoder) hints() (pathsel.Hints, error) {
	out := pathsel.Hints{}
	err := d.dict(func(key string) error {
		v, err := d.bytes()
		if err != nil || len(key) != 8 || len(v)%fingerprintLen != 0 || len(v) == 0 || len(out) == MaxHintASes {
			return err
		}
		ia := pathsel.IA(binary.BigEndian.Uint64([]byte(key)))
		var paths []pathsel.Fingerprint
		for ; len(v) > 0 && len(paths) < MaxHints; v = v[fingerprintLen:] {
			paths = append(paths, pathsel.Fingerprint(hex.EncodeToString(v[:fingerprintLen])))
		}
		out[ia] = paths
		return nil
	})
	return out, err
}
