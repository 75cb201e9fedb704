package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/logging"
	"github.com/pion/webrtc/v4"

	"braid/client/wire"
	"braid/pathsel"
	"braid/scionnet"
)

// WebRTCConfig says how connections over WebRTC are made. Peers of this kind are mostly in
// browsers.
type WebRTCConfig struct {
	// ICE are the servers that tell us our address or relay packets, in the order of preference:
	// stun:HOST:PORT, or turn:USER:PASSWORD@HOST:PORT. No other servers are asked.
	ICE []string
	// Local reveals this host's addresses on local networks to peers, and allows packets to peers'
	// addresses on local networks.
	Local bool
}

const (
	// maxRTCPending bounds the connections that are being made. Each takes a socket for each
	// address of the host.
	maxRTCPending = 128
	// maxRTCReady bounds the connections that wait until a transfer dials them. That takes
	// milliseconds, unless the transfer has enough peers.
	maxRTCReady = 128
	// rtcPatience is how long making a connection may take: an offer waits for a peer that answers
	// it, and then the ends look for a way to each other.
	rtcPatience = time.Minute
	// A peer may offer another connection while its last one is being made: it may have given up.
	// All peers together may do so repeatsMost times at once, and once more in each repeatsEvery.
	// Each offer of 1.6 kB has us send a hundred packets to addresses that the peer chooses.
	repeatsMost, repeatsEvery = maxRTCPending, time.Second
	// gatherPatience is how long an ICE server may take to answer.
	gatherPatience = 5 * time.Second
)

// WebRTC is the transport for connections over WebRTC data channels. Nobody can dial such a peer:
// each end needs a description of the other, which a third party has to carry, such as a tracker.
// So the connection exists before the engine knows the peer, and Dial only hands it out.
type WebRTC struct {
	onIP
	api     *webrtc.API
	servers []webrtc.ICEServer
	local   bool
	workers sync.WaitGroup
	now     func() time.Time

	mu      sync.Mutex
	pending map[*rtcEnd]struct{} // not connected yet
	repeats wire.Allowance       // offers of peers that have a pending one
	ready   map[Peer]*rtcWire    // connected by our offer, not dialled yet
	names   map[string]*rtcWire  // connected, by the peer's name
	ended   bool                 // Close waits for workers
}

var _ Transport = (*WebRTC)(nil)

var (
	errRTCFull  = errors.New("too many WebRTC connections are being made")
	errRTCTwice = errors.New("there is a WebRTC connection to this peer")
	errRTCOften = errors.New("peers offer WebRTC connections again and again")
	errRTCGone  = errors.New("the WebRTC connection has ended; only the peer can offer another one")
)

func openWebRTC(cfg WebRTCConfig) (*WebRTC, error) {
	t := &WebRTC{
		onIP: newOnIP(""), local: cfg.Local, now: time.Now,
		pending: map[*rtcEnd]struct{}{}, ready: map[Peer]*rtcWire{}, names: map[string]*rtcWire{},
	}
	for _, text := range cfg.ICE {
		s, err := ParseICE(text)
		if err != nil {
			return nil, err
		}
		t.servers = append(t.servers, s)
	}
	noLogs := &logging.DefaultLoggerFactory{
		Writer: io.Discard, DefaultLogLevel: logging.LogLevelDisabled,
	}
	s := webrtc.SettingEngine{LoggerFactory: noLogs}
	s.DetachDataChannels()
	s.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4, webrtc.NetworkTypeUDP6})
	s.SetIncludeLoopbackCandidate(cfg.Local)
	s.SetICETimeouts(5*time.Second, 15*time.Second, 2*time.Second)
	s.DisableActiveTCP(true)
	s.EnableSCTPZeroChecksum(true) // DTLS protects the packets
	// Without audio and video, codecs and their measurements are not needed.
	t.api = webrtc.NewAPI(webrtc.WithSettingEngine(s),
		webrtc.WithMediaEngine(&webrtc.MediaEngine{}),
		webrtc.WithInterceptorRegistry(&interceptor.Registry{}))
	return t, nil
}

// ParseICE reads the URL of an ICE server: see WebRTCConfig.
func ParseICE(text string) (webrtc.ICEServer, error) {
	bad := fmt.Errorf("ICE server %q: want stun:HOST:PORT, or turn:USER:PASSWORD@HOST:PORT", text)
	scheme, rest, _ := strings.Cut(text, ":")
	var s webrtc.ICEServer
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, password, _ := strings.Cut(rest[:i], ":")
		s.Username, rest = user, rest[i+1:]
		s.Credential = password
	}
	host := strings.SplitN(rest, "?", 2)[0]
	u, err := url.Parse("x://" + host)
	switch {
	case err != nil || u.Hostname() == "" || u.Path != "":
		return s, bad
	case scheme == "stun" && s.Username == "":
	case (scheme == "turn" || scheme == "turns") && s.Username != "":
	default:
		return s, bad
	}
	s.URLs = []string{scheme + ":" + rest}
	return s, nil
}

// rtcEnd is our end of a connection that is being made.
type rtcEnd struct {
	transport *WebRTC
	pc        *webrtc.PeerConnection
	channel   sync.Once // for the only channel that is used
	began     time.Time
	expiry    *time.Timer
	wire      *rtcWire       // once it is connected
	name      string         // of the peer; empty until it is known
	opened    func(*rtcWire) // is called once, with the connection
}

// begin makes an end that is closed if it is not connected in time.
func (t *WebRTC) begin(name string, opened func(*rtcWire)) (*rtcEnd, error) {
	e := &rtcEnd{transport: t, began: time.Now(), name: name, opened: opened}
	t.mu.Lock()
	defer t.mu.Unlock()
	for x := range t.pending {
		if name == "" || x.name != name {
			continue
		}
		if !t.repeats.Spend(t.now(), repeatsMost, repeatsEvery) {
			return nil, errRTCOften
		}
		x.closeLocked() // its peer begins anew
	}
	switch {
	case t.ctx.Err() != nil:
		return nil, t.ctx.Err()
	case len(t.pending) >= maxRTCPending:
		return nil, errRTCFull
	case t.names[name] != nil:
		return nil, errRTCTwice
	}
	var err error
	e.pc, err = t.api.NewPeerConnection(webrtc.Configuration{ICEServers: t.servers})
	if err != nil {
		return nil, fmt.Errorf("make a WebRTC connection: %w", err)
	}
	e.pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		if s == webrtc.PeerConnectionStateFailed || s == webrtc.PeerConnectionStateClosed {
			e.close()
			t.mu.Lock()
			w := e.wire
			t.mu.Unlock()
			if w != nil {
				w.end()
			}
		}
	})
	e.pc.OnDataChannel(func(d *webrtc.DataChannel) { // a second channel ends the connection
		second := true
		if e.channel.Do(func() { second = false }); second {
			t.mu.Lock()
			t.shut(e.pc)
			t.mu.Unlock()
			return
		}
		e.use(d)
	})
	t.pending[e] = struct{}{}
	e.expiry = time.AfterFunc(rtcPatience, e.close)
	return e, nil
}

// close ends an end that is not connected yet.
func (e *rtcEnd) close() {
	e.transport.mu.Lock()
	defer e.transport.mu.Unlock()
	e.closeLocked()
}

func (e *rtcEnd) closeLocked() {
	t := e.transport
	if _, pending := t.pending[e]; pending {
		delete(t.pending, e)
		e.expiry.Stop()
		t.shut(e.pc)
	}
}

// shut closes a connection in the background, since that may wait for packets. The caller holds
// t.mu.
func (t *WebRTC) shut(pc *webrtc.PeerConnection) { t.background(func() { _ = pc.Close() }) }

// background calls f on a goroutine. Close waits for those that began before it. The caller holds
// t.mu.
func (t *WebRTC) background(f func()) {
	if t.ended {
		go f()
		return
	}
	t.workers.Go(f)
}

// use makes d the data channel of the end, which is connected once d opens.
func (e *rtcEnd) use(d *webrtc.DataChannel) {
	d.OnOpen(func() {
		raw, err := d.Detach()
		pair, _ := e.pc.SCTP().Transport().ICETransport().GetSelectedCandidatePair()
		if err != nil || pair == nil {
			e.close()
			return
		}
		at, err := netip.ParseAddr(pair.Remote.Address)
		if err != nil {
			e.close()
			return
		}
		t := e.transport
		w := newRTCWire(d, raw, e.pc, ipPeer(netip.AddrPortFrom(at.WithZone(""), pair.Remote.Port)))
		w.handshake = time.Since(e.began)
		t.mu.Lock()
		name := e.name
		w.gone = func(finish func()) { t.forget(name, w, finish) }
		_, pending := t.pending[e]
		delete(t.pending, e)
		if pending {
			e.wire = w
			t.names[name] = w
		}
		t.mu.Unlock()
		if !pending {
			return // it is closed
		}
		e.expiry.Stop()
		go w.measureRTT()
		e.opened(w)
	})
}

// forget notes that a connection ends, and calls finish in the background.
func (t *WebRTC) forget(name string, w *rtcWire, finish func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ready[w.peer] == w {
		delete(t.ready, w.peer)
	}
	if t.names[name] == w {
		delete(t.names, name)
	}
	t.background(finish)
}

// describe returns the description of our end, with all addresses that may be revealed.
func (e *rtcEnd) describe(ctx context.Context, d webrtc.SessionDescription) (string, error) {
	gathered := webrtc.GatheringCompletePromise(e.pc)
	if err := e.pc.SetLocalDescription(d); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, gatherPatience)
	defer cancel()
	select {
	case <-gathered:
	case <-ctx.Done(): // the addresses that are known by now have to do
	}
	return filterSDP(e.pc.LocalDescription().SDP, e.transport.local)
}

// deliver calls found with a connected peer. If found returns true, a transfer dials the peer soon,
// and our side speaks first. If it returns false, the connection is accepted, and the peer speaks
// first.
func (t *WebRTC) deliver(w *rtcWire, found func(Peer) bool) {
	t.mu.Lock()
	ended := t.ctx.Err() != nil // then Close may have looked at t.ready before
	out := w
	if !ended {
		out = t.makeReadyLocked(w, time.Now())
	}
	t.mu.Unlock()
	if out != nil {
		out.Close()
	}
	if ended {
		return
	}
	if found(w.peer) {
		time.AfterFunc(rtcPatience, func() { // the transfer has enough peers
			if t.take(w) {
				w.Close()
			}
		})
	} else if t.take(w) {
		t.handOver(w)
	}
}

// makeReadyLocked adds a connection to those that are to be dialled. It returns the one that has to
// end for it, if any: one with a peer at the same address, which could not be dialled any more, or
// the oldest.
func (t *WebRTC) makeReadyLocked(w *rtcWire, now time.Time) (out *rtcWire) {
	out = t.ready[w.peer]
	if out == nil && len(t.ready) >= maxRTCReady {
		for _, x := range t.ready {
			if out == nil || x.ready.Before(out.ready) {
				out = x
			}
		}
		delete(t.ready, out.peer)
	}
	w.ready = now
	t.ready[w.peer] = w
	return out
}

// take removes a connection from those that are to be dialled. It reports whether it was one.
func (t *WebRTC) take(w *rtcWire) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.ready[w.peer] == w
	if mine {
		delete(t.ready, w.peer)
	}
	return mine
}

// RTCOffer is an offer of a connection, which another peer may answer.
type RTCOffer struct {
	end *rtcEnd
	SDP string // describes our end
}

// Offer makes an offer. If a peer answers it, found is called with the connected peer: see deliver.
func (t *WebRTC) Offer(ctx context.Context, found func(Peer) bool) (*RTCOffer, error) {
	e, err := t.begin("", func(w *rtcWire) { t.deliver(w, found) })
	if err != nil {
		return nil, err
	}
	o := &RTCOffer{end: e}
	d, err := e.pc.CreateDataChannel("braid", nil)
	if err == nil {
		e.channel.Do(func() { e.use(d) })
		var sdp webrtc.SessionDescription
		if sdp, err = e.pc.CreateOffer(nil); err == nil {
			o.SDP, err = e.describe(ctx, sdp)
		}
	}
	if err != nil {
		e.close()
		return nil, fmt.Errorf("offer a WebRTC connection: %w", err)
	}
	return o, nil
}

// Answered takes the answer of the peer with that name. Names are unique in a torrent.
func (o *RTCOffer) Answered(name, sdp string) error {
	sdp, err := filterSDP(sdp, o.end.transport.local)
	if err != nil {
		return err
	}
	t := o.end.transport
	t.mu.Lock()
	twice := t.names[name] != nil
	o.end.name = name
	t.mu.Unlock()
	if twice {
		o.Close()
		return errRTCTwice
	}
	theirs := webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: sdp}
	return o.end.pc.SetRemoteDescription(theirs)
}

// Close withdraws the offer, unless there is a connection by now.
func (o *RTCOffer) Close() { o.end.close() }

// Answer takes an offer of the peer with that name, and returns the answer to it. When the peer is
// connected, found is called: see deliver.
func (t *WebRTC) Answer(
	ctx context.Context, name, offer string, found func(Peer) bool,
) (answer string, err error) {
	offer, err = filterSDP(offer, t.local)
	if err != nil {
		return "", err
	}
	e, err := t.begin(name, func(w *rtcWire) { t.deliver(w, found) })
	if err != nil {
		return "", err
	}
	var sdp webrtc.SessionDescription
	theirs := webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer}
	if err = e.pc.SetRemoteDescription(theirs); err == nil {
		if sdp, err = e.pc.CreateAnswer(nil); err == nil {
			answer, err = e.describe(ctx, sdp)
		}
	}
	if err != nil {
		e.close()
		return "", fmt.Errorf("answer a WebRTC offer: %w", err)
	}
	return answer, nil
}

func (t *WebRTC) Name() string        { return rtcName }
func (t *WebRTC) Reaches(p Peer) bool { return p.rtc }
func (t *WebRTC) Listening() []Peer   { return nil } // nobody can dial

// Dial implements Transport: it hands out the connection that Offer has announced.
func (t *WebRTC) Dial(
	_ context.Context, p Peer, _ pathsel.Path, _ *scionnet.PeerKey,
) (Wire, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.ready[p]
	if w == nil {
		return nil, errRTCGone
	}
	delete(t.ready, p)
	return w, nil
}

func (t *WebRTC) Close() error {
	t.stop()
	t.mu.Lock()
	wires := slices.Collect(maps.Values(t.ready))
	for e := range t.pending {
		e.closeLocked()
	}
	t.mu.Unlock()
	for _, w := range wires {
		w.Close()
	}
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.workers.Wait()
	return nil
}
