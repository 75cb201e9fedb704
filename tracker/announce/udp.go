package announce

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"braid/tracker/wire"
)

// udpPatience is the time until a packet is sent again. It doubles each time, as in BEP 15, which
// begins with 15 seconds: too long for an announce that shall end within announceTimeout.
const udpPatience = 3 * time.Second

// overUDP is BEP 15. Each announce gets a connection ID of its own, since IDs expire before the
// next announce.
func overUDP(u *url.URL) func(context.Context, *dialer, *wire.Announce) (wire.Answer, error) {
	urlData := u.RequestURI() // BEP 41
	if urlData == "/announce" {
		urlData = "" // it says nothing, and some trackers do not understand options
	}
	return func(ctx context.Context, d *dialer, a *wire.Announce) (wire.Answer, error) {
		c, err := d.dial(ctx, "udp", u.Host)
		if err != nil {
			return wire.Answer{}, fmt.Errorf("announce: %w", err)
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		connected, err := AskUDP(ctx, c, &wire.UDPRequest{Action: wire.Connect})
		if err != nil {
			return wire.Answer{}, fmt.Errorf("announce: connect: %w", err)
		}
		got, err := AskUDP(ctx, c, &wire.UDPRequest{
			Action: wire.AnnounceUDP, Connection: connected.Connection, Announce: *a, URLData: urlData,
		})
		if err != nil {
			return wire.Answer{}, fmt.Errorf("announce: %w", err)
		}
		return got.Answer, nil
	}
}

// AskUDP sends the request until there is an answer to it or the context ends.
func AskUDP(ctx context.Context, c net.Conn, r *wire.UDPRequest) (wire.UDPAnswer, error) {
	var b [4]byte
	rand.Read(b[:])
	r.Transaction = binary.BigEndian.Uint32(b[:])
	out := r.Append(nil)
	v6 := c.RemoteAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().Is6()
	for patience := udpPatience; ; patience *= 2 {
		if _, err := c.Write(out); err != nil {
			return wire.UDPAnswer{}, orEnded(ctx, err)
		}
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return wire.UDPAnswer{}, orEnded(ctx, err)
		}
		got, err := readUDP(c, r, v6)
		if e := net.Error(nil); errors.As(err, &e) && e.Timeout() && ctx.Err() == nil {
			continue
		}
		return got, orEnded(ctx, err)
	}
}

// orEnded replaces an error by the end of the context that caused it.
func orEnded(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return errors.New("the tracker does not answer")
		}
		return ctx.Err()
	}
	return err
}

// readUDP reads the answer to the request. It ignores late answers to others, and foreign packets.
func readUDP(c net.Conn, r *wire.UDPRequest, v6 bool) (wire.UDPAnswer, error) {
	b := make([]byte, 16<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return wire.UDPAnswer{}, err
		}
		got, err := wire.ParseUDPAnswer(b[:n], v6)
		switch {
		case err != nil || got.Transaction != r.Transaction:
		case got.Failure != nil:
			return wire.UDPAnswer{}, got.Failure
		case got.Action == r.Action:
			return got, nil
		}
	}
}
