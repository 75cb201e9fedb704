package lsd

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	"braid/scionnet"
)

// Hash is an info hash.
type Hash [20]byte

const (
	// maxMessage is the greatest length of a message, in bytes (BEP 14). Longer ones are refused.
	maxMessage = 1400
	// maxHashes bounds the torrents in a message. With a SCION address on IPv6, a message then has
	// at most 1307 bytes.
	maxHashes = 22
	// maxCookie is the greatest length of a cookie that is accepted, in bytes.
	maxCookie = 64
)

// The multicast groups of BEP 14.
var (
	group4 = netip.MustParseAddrPort("239.192.152.143:6771")
	group6 = netip.MustParseAddrPort("[ff15::efc0:988f]:6771")
)

// Message is an announce: its sender takes part in the swarms of some torrents.
type Message struct {
	Port   uint16        // where the sender accepts peers over TCP; 0: nowhere
	SCION  scionnet.Addr // where it accepts peers on SCION; zero: nowhere
	Hashes []Hash
	Cookie string // a random text by which the sender recognizes its own messages
}

// encode returns the bytes of the message to a group.
func (m Message) encode(group netip.AddrPort) []byte {
	b := fmt.Appendf(nil, "BT-SEARCH * HTTP/1.1\r\nHost: %s\r\n", group)
	if m.Port != 0 {
		b = fmt.Appendf(b, "Port: %d\r\n", m.Port)
	}
	for _, h := range m.Hashes {
		b = fmt.Appendf(b, "Infohash: %x\r\n", h)
	}
	if m.SCION.IA != 0 {
		b = fmt.Appendf(b, "SCION: %s\r\n", m.SCION)
	}
	return fmt.Appendf(b, "cookie: %s\r\n\r\n\r\n", m.Cookie)
}

// parse reads a message. It ignores unknown headers.
func parse(b []byte) (m Message, err error) {
	if len(b) > maxMessage {
		return m, fmt.Errorf("an announce of %d bytes, at most %d are read", len(b), maxMessage)
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
	if err != nil {
		return m, fmt.Errorf("read an announce: %w", err)
	}
	if r.Method != "BT-SEARCH" {
		return m, fmt.Errorf("an announce with the method %q, want BT-SEARCH", r.Method)
	}
	if text := r.Header.Get("Port"); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return m, fmt.Errorf("the port of an announce: %w", err)
		}
		m.Port = uint16(port)
	}
	if text := r.Header.Get("SCION"); text != "" {
		if m.SCION, err = scionnet.ParseAddr(text); err != nil {
			return m, fmt.Errorf("the SCION address of an announce: %w", err)
		}
		if !m.SCION.Dialable() {
			return m, fmt.Errorf("an announce with the address %s, at which no host can be",
				m.SCION)
		}
	}
	for _, text := range r.Header.Values("Infohash") {
		var h Hash
		if len(text) != 2*len(h) {
			continue // an unknown kind of hash
		}
		if _, err := hex.Decode(h[:], []byte(text)); err != nil {
			return m, fmt.Errorf("an info hash of an announce: %w", err)
		}
		m.Hashes = append(m.Hashes, h)
	}
	if m.Cookie = r.Header.Get("Cookie"); len(m.Cookie) > maxCookie {
		return m, fmt.Errorf("the cookie of an announce has %d bytes, at most %d are read",
			len(m.Cookie), maxCookie)
	}
	return m, nil
}
