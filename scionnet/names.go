package scionnet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names finds the SCION addresses of a name: in files like /etc/scion/hosts, then in DNS.
//
// A line of such a file has an address and names of the host; a comment begins with #:
//
//	1-ff00:0:110,[10.0.0.1]  tracker.example tracker
//
// In DNS they are TXT records, in either of two common forms. A name may have several records:
//
//	scion=1-ff00:0:110,10.0.0.1
//	scion=v1;[1-ff00:0:110,10.0.0.1],[1-ff00:0:111,fd00::1]
type Names struct {
	// Hosts are the files. The first one that has a name wins; missing files are skipped.
	Hosts []string
	// DNS is the host:port of a server; empty stands for the system's servers.
	DNS string
}

const (
	hostsName = "hosts"
	// maxNamed bounds the addresses of one name.
	maxNamed = 8
	// maxName and maxLabel are DNS limits (RFC 1035).
	maxName, maxLabel = 253, 63
)

// Names are the names that a host with this configuration can look up: in the file hosts of its
// directory, then in /etc/scion/hosts.
func (c Config) Names() Names {
	n := Names{DNS: c.DNS}
	for _, dir := range []string{c.ConfigDir, defaultConfigDir} {
		if file := filepath.Join(dir, hostsName); dir != "" && !slices.Contains(n.Hosts, file) {
			n.Hosts = append(n.Hosts, file)
		}
	}
	return n
}

// IsName tells whether s can be the name of a host. An IP address is not a name.
func IsName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > maxName {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
				return false
			}
		}
		last = label
	}
	return strings.Trim(last, "0123456789") != ""
}

// Lookup returns the addresses of the name, with that port. Without an error there is at least one.
func (n Names) Lookup(ctx context.Context, name string, port uint16) ([]Addr, error) {
	if !IsName(name) {
		return nil, fmt.Errorf("%q is not the name of a host", name)
	}
	found, err := n.inHosts(name)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		if found, err = n.inDNS(ctx, name); err != nil {
			return nil, &NameError{Name: name, Hosts: n.Hosts, Err: err}
		}
	}
	for i := range found {
		found[i].Port = port
	}
	return found, nil
}

// NameError says that no SCION address is known for a name.
type NameError struct {
	Name  string
	Hosts []string // files without the name
	Err   error    // the answer of DNS
}

func (e *NameError) Error() string {
	return fmt.Sprintf("find the SCION address of %s: it is not in %s, and DNS says: %v",
		e.Name, strings.Join(e.Hosts, " or "), e.Err)
}

func (e *NameError) Unwrap() error { return e.Err }

func (n Names) inHosts(name string) ([]Addr, error) {
	for _, file := range n.Hosts {
		f, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", name, err)
		}
		found, err := readHosts(f, name)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("look up %s in %s: %w", name, file, err)
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

// readHosts finds the addresses of a name in a hosts file. It skips other lines, since such a file
// may also list IP addresses.
func readHosts(r io.Reader, name string) ([]Addr, error) {
	var out []Addr
	name = strings.TrimSuffix(name, ".")
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		same := func(s string) bool { return strings.EqualFold(strings.TrimSuffix(s, "."), name) }
		if len(fields) < 2 || !slices.ContainsFunc(fields[1:], same) {
			continue
		}
		if a, err := ParseHost(fields[0]); err == nil && len(out) < maxNamed {
			out = append(out, a)
		}
	}
	return out, lines.Err()
}

func (n Names) inDNS(ctx context.Context, name string) ([]Addr, error) {
	r := net.DefaultResolver
	if n.DNS != "" {
		r = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, n.DNS)
		}}
	}
	records, err := r.LookupTXT(ctx, name)
	if err != nil {
		return nil, err
	}
	var out []Addr
	for _, text := range records {
		out = append(out, parseTXT(text)...)
	}
	if len(out) == 0 {
		return nil, errors.New("no TXT record of the form scion=ISD-AS,host")
	}
	return out[:min(len(out), maxNamed)], nil
}

// parseTXT reads the addresses in a TXT record and skips everything else.
func parseTXT(text string) (out []Addr) {
	text, ok := strings.CutPrefix(text, "scion=")
	if !ok {
		return nil
	}
	if list, ok := strings.CutPrefix(text, "v1;"); ok {
		for s := range strings.SplitSeq(list, "]") {
			if s, ok := strings.CutPrefix(strings.TrimLeft(s, ", "), "["); ok {
				if a, err := ParseHost(s); err == nil {
					out = append(out, a)
				}
			}
		}
		return out
	}
	if a, err := ParseHost(strings.TrimSpace(text)); err == nil {
		out = append(out, a)
	}
	return out
}

// ParseHost reads an address on SCION without a port, such as 1-ff00:0:110,10.0.0.1. The host or
// the whole may stand in brackets.
func ParseHost(s string) (Addr, error) {
	s = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	ia, host, ok := strings.Cut(s, ",")
	if !ok {
		return Addr{}, fmt.Errorf("%q: want ISD-AS,host", s)
	}
	return parseHost(ia, strings.Trim(host, "[]"))
}
