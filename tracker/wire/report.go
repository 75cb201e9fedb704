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
	// Interfaces of the path, as in pathsel.Path, from the AS of the reporting peer to that of
	// another peer.
	Interfaces []pathsel.Interface
	// RTT is the shortest round trip, in whole microseconds; 0: unknown.
	RTT time.Duration
	// Rate is the payload received over the path in bytes per second, while data could flow; 0:
	// unknown.
	Rate int64
	// Sent counts the packets that the peer sent on the path, Lost those of them that were lost.
	Sent, Lost int64
	// Age is the time since the measurement, in whole seconds.
	Age time.Duration
}

// Src is the first AS of the path.
func (r *PathReport) Src() pathsel.IA { return r.Interfaces[0].IA }

// Dst is the last AS of the path.
func (r *PathReport) Dst() pathsel.IA { return r.Interfaces[len(r.Interfaces)-1].IA }

const (
	// MaxReports is the number of paths in one announce. A peer seldom uses more between two
	// announces.
	MaxReports = 32
	// MaxReportBody bounds the body of an announce in bytes: MaxReports of the longest paths.
	MaxReportBody = 24 << 10
	// MaxInterfaces of a path: 32 links. SCION allows more hops than anybody has seen.
	MaxInterfaces = 64
	// InterfaceLen is the length of an interface on the wire in bytes: ISD-AS (8), interface ID
	// (2).
	InterfaceLen = 10

	// Bounds of a report: the longest round trip and age, and the highest rate in bytes per second.
	MaxReportRTT  = time.Minute
	MaxReportAge  = 24 * time.Hour
	MaxReportRate = 1 << 40
	maxPackets    = 1 << 48

	// ReportsRefused begins the reason of a Failure that concerns the reports.
	ReportsRefused = "path reports"

	// MaxHintASes and MaxHints bound the hints in an answer: ASes, and paths to each of them. The
	// most are 43 kB.
	MaxHintASes, MaxHints = 64, 16
	fingerprintLen        = 32
	rateLen               = 8
)

// AppendReports writes the body of an announce with reports.
func AppendReports(b []byte, reports []PathReport) []byte {
	b = append(appendString(append(b, 'd'), "paths"), 'l')
	for _, r := range reports {
		b = appendKnown(append(b, 'd'), "age", seconds(r.Age))
		b = appendText(b, "if", AppendInterfaces(nil, r.Interfaces))
		b = appendKnown(b, "lost", r.Lost)
		b = appendKnown(b, "rate", r.Rate)
		b = appendKnown(b, "rtt", r.RTT.Microseconds())
		b = append(appendKnown(b, "sent", r.Sent), 'e')
	}
	return append(b, 'e', 'e')
}

// appendKnown is appendCount, and leaves out 0, which stands for an unknown value.
func appendKnown(b []byte, key string, n int64) []byte {
	if n == 0 {
		return b
	}
	return appendCount(b, key, n)
}

// ParseReports reads the body of an announce with reports. It refuses all of them if one is
// impossible.
func ParseReports(body []byte) ([]PathReport, error) {
	if len(body) > MaxReportBody {
		return nil, refusef(ReportsRefused+": more than %d bytes", MaxReportBody)
	}
	var out []PathReport
	d := newDecoder(body)
	err := d.Dict(func(key []byte) error {
		if string(key) != "paths" {
			return d.Skip()
		}
		return d.List(func() error {
			if len(out) == MaxReports {
				return fmt.Errorf("more than %d paths", MaxReports)
			}
			r, err := d.report()
			out = append(out, r)
			return err
		})
	})
	if rest := d.Rest(); err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after the end", len(rest))
	}
	if err != nil {
		return nil, refusef(ReportsRefused+": %v", err)
	}
	return out, nil
}

func (d *decoder) report() (r PathReport, err error) {
	err = d.Dict(func(key []byte) (err error) {
		switch string(key) {
		case "if":
			var v []byte
			if v, err = d.Bytes(); err == nil {
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
			err = d.Skip()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", printable(key), err)
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
	n, err := d.Number()
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

// ParseInterfaces reads the interfaces of a path: links between different ASes, each of which
// begins where the one before ended. No AS occurs twice.
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

// Order is how a tracker chooses the peers of an answer.
type Order uint8

// The orders: at random, the nearest first, half of each.
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

// appendHints writes two dictionaries. Under each ISD-AS (8 bytes), "path hints" has the
// fingerprints of paths to it (32 bytes each), best first, and "path rates" the rates of the same
// paths (8 bytes each).
func appendHints(b []byte, h pathsel.Hints) []byte {
	paths, rates := []byte{'d'}, []byte{'d'}
	for _, ia := range slices.Sorted(maps.Keys(h)) {
		key := string(binary.BigEndian.AppendUint64(nil, uint64(ia)))
		var p, r []byte
		for _, x := range h[ia] {
			if raw, err := hex.DecodeString(string(x.Path)); err == nil && len(raw) == fingerprintLen {
				p = append(p, raw...)
				r = binary.BigEndian.AppendUint64(r, uint64(min(x.Rate, MaxReportRate)))
			}
		}
		paths, rates = appendText(paths, key, p), appendText(rates, key, r)
	}
	b = append(append(appendString(b, "path hints"), paths...), 'e')
	return append(append(appendString(b, "path rates"), rates...), 'e')
}

// hints reads "path hints". It skips entries that it cannot use, since hints are optional.
func (d *decoder) hints() (pathsel.Hints, error) {
	out := pathsel.Hints{}
	err := d.Dict(func(key []byte) error {
		v, err := d.Bytes()
		if err != nil || len(key) != 8 || len(v)%fingerprintLen != 0 || len(v) == 0 || len(out) == MaxHintASes {
			return err
		}
		var paths []pathsel.Hint
		for ; len(v) > 0 && len(paths) < MaxHints; v = v[fingerprintLen:] {
			paths = append(paths, pathsel.Hint{Path: pathsel.Fingerprint(hex.EncodeToString(v[:fingerprintLen]))})
		}
		out[pathsel.IA(binary.BigEndian.Uint64(key))] = paths
		return nil
	})
	return out, err
}

// rates reads "path rates", which comes after "path hints", and adds each rate to the hint for the
// same path. It ignores rates of other paths, and impossible values.
func (d *decoder) rates(of pathsel.Hints) error {
	return d.Dict(func(key []byte) error {
		v, err := d.Bytes()
		if err != nil || len(key) != 8 {
			return err
		}
		paths := of[pathsel.IA(binary.BigEndian.Uint64(key))]
		for i := range paths[:min(len(paths), len(v)/rateLen)] {
			if rate := binary.BigEndian.Uint64(v[i*rateLen:]); rate <= MaxReportRate {
				paths[i].Rate = float64(rate)
			}
		}
		return nil
	})
}
