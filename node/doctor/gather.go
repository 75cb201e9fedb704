package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/scionproto/scion/pkg/scrypto/cppki"

	"braid/pathsel"
	"braid/scionnet"
	"braid/storage"
	"braid/tracker"
	"braid/units/lists"
)

// Options say what to look at.
type Options struct {
	SCION scionnet.Config
	// OwnDir is braid's own configuration. Beside a daemon, TRCs are read there if SCION.ConfigDir
	// has none; empty: none.
	OwnDir string
	// Target is an ISD-AS, a host ISD-AS,[host], a port of one, or a name with or without a port;
	// empty: none.
	Target  string
	Port    uint16 // to listen on; 0: any
	Tracker string // URL; empty: none
	Dir     string // of downloads; empty: none
	// Now is the clock; nil is that of the system.
	Now func() time.Time
}

const (
	// stepFor bounds the answer to one question.
	stepFor = 2 * time.Second
	// maxCores and maxProbed bound the core ASes and the paths to each that are probed.
	maxCores, maxProbed = 3, 16
	// maxDialled bounds the paths over which a connection is tried.
	maxDialled = 4
	// maxServed bounds the TRCs of the ISD that are compared with those of the control service.
	maxServed = 16
	// maxFiles and maxFile bound what is read of certs/.
	maxFiles, maxFile = 256, 1 << 20
	// dispatcherPort is where a dispatcher listens.
	dispatcherPort = 30041
)

// Gather collects facts. It takes some seconds if nobody answers. A failed check is a fact. Gather
// returns an error only if the options are wrong.
func Gather(ctx context.Context, o Options) (Facts, error) {
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	f := Facts{
		Now:       now(),
		ConfigDir: o.SCION.ConfigDir,
		Daemon:    o.SCION.Daemon,
		LocalIP:   o.SCION.LocalIP,
		Port:      o.Port,
	}
	target, name, err := parseTarget(o.Target)
	if err != nil {
		return f, err
	}
	if f.Name = name; name != "" {
		target, f.NameErr = lookup(ctx, o.SCION.Names(), name, target.Port)
	}
	f.Target = target
	own := scionnet.OwnAddrs()
	f.ForeignIP = f.LocalIP.IsValid() && !f.LocalIP.IsLoopback() &&
		len(own) > 0 && !slices.Contains(own, f.LocalIP)
	roots := readTRCs(f.ConfigDir)
	if f.Daemon != "" && len(roots) == 0 && o.OwnDir != "" {
		if own := readTRCs(o.OwnDir); len(own) > 0 {
			f.ConfigDir, roots = o.OwnDir, own
		}
	}
	f.TRCs = roots.validities()
	f.Certs = readCertificates(f.ConfigDir)
	f.lookAtSystem(o.Dir)
	var tracked tracker.URL
	if o.Tracker != "" {
		if tracked, err = tracker.ParseURL(o.Tracker); err != nil {
			return f, err
		}
		f.Tracker = &Tracker{URL: tracked.Hide(o.Tracker)}
	}
	h, err := scionnet.Open(ctx, o.SCION)
	if err != nil {
		f.OpenErr = err
		if f.Tracker != nil {
			f.Tracker.Err = ask(ctx, nil, tracked)
		}
		return f, nil
	}
	defer h.Close()
	f.IA, f.LocalIP = h.IA(), h.LocalIP()
	f.From, f.To = h.Ports()
	f.lookAtHost(ctx, h, roots)
	var work sync.WaitGroup
	if f.Tracker != nil {
		work.Go(func() { f.Tracker.Err = ask(ctx, h, tracked) })
	}
	for i := range f.Core {
		work.Go(func() { f.Core[i].look(ctx, h) })
	}
	if target != nil {
		work.Go(func() { target.look(ctx, h) })
	}
	work.Wait()
	return f, nil
}

// parseTarget reads Options.Target. If it is a name, the host is not known yet.
func parseTarget(s string) (r *Reach, name string, err error) {
	if s == "" {
		return nil, "", nil
	}
	r = &Reach{To: s}
	if ia, err := pathsel.ParseIA(s); err == nil && ia.ISD() != 0 && ia.AS() != 0 {
		r.IA = ia
		return r, "", nil
	}
	if a, err := scionnet.ParseAddr(s); err == nil {
		r.IA, r.Host, r.Port = a.IA, a.Host, a.Port
		return r, "", nil
	}
	name, port, _ := strings.Cut(s, ":")
	if scionnet.IsName(name) {
		p, err := strconv.ParseUint("0"+port, 10, 16)
		if err == nil {
			r.Port = uint16(p)
			return r, name, nil
		}
	}
	return nil, "", fmt.Errorf("%q is neither an ISD-AS, nor ISD-AS,[host]:port, nor the name of a host", s)
}

func lookup(
	ctx context.Context, names scionnet.Names, name string, port uint16,
) (*Reach, error) {
	ctx, cancel := context.WithTimeout(ctx, stepFor)
	defer cancel()
	found, err := names.Lookup(ctx, name, port)
	if err != nil {
		return nil, err
	}
	a := found[0]
	return &Reach{To: a.String(), IA: a.IA, Host: a.Host, Port: a.Port}, nil
}

// files returns the files with an ending in a directory below configDir. It leaves out large ones.
func files(configDir, below, ending string) (names []string, texts [][]byte) {
	if configDir == "" {
		return nil, nil
	}
	in := os.DirFS(filepath.Join(configDir, below))
	found, _ := fs.Glob(in, "*"+ending)
	for _, name := range found[:min(len(found), maxFiles)] {
		info, err := fs.Stat(in, name)
		if err != nil || info.Size() > maxFile || !info.Mode().IsRegular() {
			continue
		}
		if b, err := fs.ReadFile(in, name); err == nil {
			names, texts = append(names, name), append(texts, b)
		}
	}
	return names, texts
}

// readCertificates reads the AS's certificates, which only hosts with services of the AS have.
func readCertificates(dir string) (out []Validity) {
	names, texts := files(dir, filepath.Join("crypto", "as"), ".pem")
	for i, b := range texts {
		v := Validity{Name: names[i]}
		block, _ := pem.Decode(b)
		if block == nil {
			v.Err = errors.New("it is not a PEM file")
		} else if c, err := x509.ParseCertificate(block.Bytes); err != nil {
			v.Err = err
		} else {
			v.From, v.To = c.NotBefore, c.NotAfter
		}
		out = append(out, v)
	}
	return out
}

// lookAtSystem collects the facts that do not need SCION.
func (f *Facts) lookAtSystem(dir string) {
	if b, err := os.ReadFile("/proc/sys/net/core/rmem_max"); err == nil {
		f.Buffer, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	f.Offload = offload()
	if dir == "" {
		return
	}
	f.Dir = dir
	test, err := os.CreateTemp(dir, ".braid-doctor-*")
	if err != nil {
		f.DirErr = fmt.Errorf("write to %s: %w", dir, errors.Unwrap(err))
		return
	}
	test.Close()
	os.Remove(test.Name())
	f.Free, _, f.FreeErr = storage.DiskSpace(dir)
}

// lookAtHost looks at this host's ports, and at the AS's services and routers.
func (f *Facts) lookAtHost(ctx context.Context, h *scionnet.Host, roots trcs) {
	ctx, cancel := context.WithTimeout(ctx, 2*stepFor)
	defer cancel()
	if f.Port != 0 && f.Port >= f.From && f.Port <= f.To {
		c, err := net.ListenUDP("udp",
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.LocalIP, f.Port)))
		if f.PortErr = err; err == nil {
			c.Close()
		}
	}
	at := netip.AddrPortFrom(f.LocalIP, dispatcherPort)
	if c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err == nil {
		c.Close()
	} else {
		f.Dispatcher = !f.ForeignIP
	}
	var work sync.WaitGroup
	work.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, stepFor)
		defer cancel()
		f.Control = h.CheckControl(ctx)
	})
	work.Go(func() { f.Routers, f.RoutersErr = h.AskRouters(ctx) })
	var newest *cppki.TRC
	work.Go(func() { newest = roots.compare(ctx, h) })
	work.Wait()
	f.TRCs = roots.validities()
	f.Core = lists.Map(coresOf(newest, f.IA), func(ia pathsel.IA) Reach {
		return Reach{To: ia.String(), IA: ia}
	})
}

// look finds out how far packets get.
func (r *Reach) look(ctx context.Context, h *scionnet.Host) {
	ctx, cancel := context.WithTimeout(ctx, 4*stepFor)
	defer cancel()
	if r.Paths, r.Err = h.Paths(ctx, r.IA); r.Err != nil {
		return
	}
	r.Paths = r.Paths[:min(len(r.Paths), maxProbed)]
	var work sync.WaitGroup
	probe := func(f func(context.Context)) {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, stepFor)
			defer cancel()
			f(ctx)
		})
	}
	probe(func(ctx context.Context) { r.Traces, _ = h.Trace(ctx, r.IA, r.Paths) })
	if r.Host.IsValid() {
		probe(func(ctx context.Context) { r.Echo, _ = h.Probe(ctx, r.IA, r.Host, r.Paths) })
	}
	if r.Host.IsValid() && r.Port != 0 {
		work.Go(func() { r.connect(ctx, h) })
	}
	work.Wait()
}

// connect connects to the port. A path with a smaller MTU than announced shows in the handshake.
func (r *Reach) connect(ctx context.Context, h *scionnet.Host) {
	ctx, cancel := context.WithTimeout(ctx, 2*stepFor)
	defer cancel()
	e, err := h.Listen(ctx, scionnet.ListenConfig{})
	if err != nil {
		r.Dial = err
		return
	}
	defer e.Close()
	to := scionnet.Addr{IA: r.IA, Host: r.Host, Port: r.Port}
	paths := r.Paths[:min(len(r.Paths), maxDialled)]
	errs := make([]error, len(paths))
	r.Carried = make([]int, len(paths))
	var work sync.WaitGroup
	for i, p := range paths {
		work.Go(func() {
			c, err := e.Dial(ctx, to, p, nil)
			if errs[i] = err; err == nil {
				r.Carried[i] = h.MTUOf(to, p)
				c.Abort()
			}
		})
	}
	work.Wait()
	if i := slices.Index(errs, nil); i < 0 && len(errs) > 0 {
		r.Dial = errs[0]
	}
}

// ask sends a request to a tracker. Every answer shows that it works.
func ask(ctx context.Context, h *scionnet.Host, u tracker.URL) error {
	ctx, cancel := context.WithTimeout(ctx, 2*stepFor)
	defer cancel()
	if u.Scheme() == "udp" {
		return askUDP(ctx, u.Request("").Host)
	}
	client := http.DefaultClient
	if at, ok := u.SCION(); ok {
		if h == nil {
			return errors.New("SCION does not work on this host")
		}
		port, err := h.OpenHTTP(ctx, 0)
		if err != nil {
			return err
		}
		defer port.Close()
		t := port.ClientOf(at, u.Name())
		defer t.Close()
		client = &http.Client{Transport: t}
	}
	to := u.Request("")
	to.Scheme = strings.Replace(to.Scheme, "ws", "http", 1) // a WebSocket begins as HTTP
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(req)
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // without the URL, which may have a key
		}
		return err
	}
	return answer.Body.Close()
}

// askUDP asks for a connection ID (BEP 15).
func askUDP(ctx context.Context, host string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", host)
	if err != nil {
		return err
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	_ = c.SetDeadline(end)
	request := []byte{0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, 0, 0, 0, 0, 'b', 'r', 'd', 'r'}
	if _, err := c.Write(request); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := c.Read(answer)
	if err == nil && (n < 16 || string(answer[4:8]) != "brdr") {
		err = errors.New("it does not speak the UDP tracker protocol")
	}
	return err
}
