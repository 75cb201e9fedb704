package pathsel

import (
	"fmt"
	"strconv"
	"strings"
)

// IA is an ISD-AS number: 16 bits of ISD, then 48 bits of AS. The zero value is a wildcard and
// never the address of a host.
type IA uint64

const (
	asBits   = 48
	maxAS    = 1<<asBits - 1
	maxBGPAS = 1<<32 - 1
)

// ISD returns the isolation domain.
func (ia IA) ISD() uint16 { return uint16(ia >> asBits) }

// AS returns the AS number without the ISD.
func (ia IA) AS() uint64 { return uint64(ia) & maxAS }

// String writes the ISD in decimal, and the AS as SCION tools do: in decimal up to 2^32-1,
// otherwise as three groups of hexadecimal digits (1-64512, 1-ff00:0:110).
func (ia IA) String() string {
	as := ia.AS()
	if as <= maxBGPAS {
		return fmt.Sprintf("%d-%d", ia.ISD(), as)
	}
	return fmt.Sprintf("%d-%x:%x:%x", ia.ISD(), as>>32, as>>16&0xffff, as&0xffff)
}

// MarshalText returns the same text as String.
func (ia IA) MarshalText() ([]byte, error) { return []byte(ia.String()), nil }

// UnmarshalText accepts the texts that ParseIA accepts.
func (ia *IA) UnmarshalText(b []byte) error {
	v, err := ParseIA(string(b))
	if err == nil {
		*ia = v
	}
	return err
}

// ParseIA reads "1-ff00:0:110" or "1-64512".
func ParseIA(s string) (IA, error) {
	isd, as, ok := strings.Cut(s, "-")
	if !ok {
		return 0, fmt.Errorf("ISD-AS %q: want ISD-AS such as 1-ff00:0:110", s)
	}
	i, err := strconv.ParseUint(isd, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("ISD-AS %q: ISD must be a number from 0 to 65535", s)
	}
	a, err := parseAS(as)
	if err != nil {
		return 0, fmt.Errorf("ISD-AS %q: %w", s, err)
	}
	return IA(i<<asBits | a), nil
}

func parseAS(s string) (uint64, error) {
	groups := strings.Split(s, ":")
	if len(groups) == 1 {
		v, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return 0, fmt.Errorf("AS %q: want a number below 2^32 "+
				"or three groups such as ff00:0:110", s)
		}
		return v, nil
	}
	if len(groups) != 3 {
		return 0, fmt.Errorf("AS %q: want three groups of hexadecimal digits such as ff00:0:110", s)
	}
	var as uint64
	for _, g := range groups {
		v, err := strconv.ParseUint(g, 16, 16)
		if err != nil || len(g) > 4 {
			return 0, fmt.Errorf("AS %q: group %q is not 1 to 4 hexadecimal digits", s, g)
		}
		as = as<<16 | v
	}
	return as, nil
}

// Interface is one end of a link between ASes: an AS and the interface ID in it. ID 0 is a
// wildcard.
type Interface struct {
	IA IA     `json:"isd_as"`
	ID uint64 `json:"interface"`
}

// String writes ISD-AS#ID, as the SCION tools do.
func (i Interface) String() string { return i.IA.String() + "#" + strconv.FormatUint(i.ID, 10) }

// ParseInterface reads "1-ff00:0:110#1".
func ParseInterface(s string) (Interface, error) {
	ia, id, ok := strings.Cut(s, "#")
	if !ok {
		return Interface{}, fmt.Errorf("interface %q: want ISD-AS#ID such as 1-ff00:0:110#1", s)
	}
	v, err := ParseIA(ia)
	if err != nil {
		return Interface{}, fmt.Errorf("interface %q: %w", s, err)
	}
	n, err := strconv.ParseUint(id, 10, 16)
	if err != nil {
		return Interface{}, fmt.Errorf("interface %q: ID must be a number from 0 to 65535", s)
	}
	return Interface{IA: v, ID: n}, nil
}
