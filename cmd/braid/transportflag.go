package main

import (
	"slices"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/scionnet"
)

// transports are the ways in which peers may be reached.
type transports struct {
	scion bool
	ip    client.IPTransport
	rtc   *client.WebRTCConfig // nil: no WebRTC
}

func transportFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name:   "transport",
		Value:  []string{"scion", "tcp"},
		Config: cli.StringConfig{TrimSpace: true},
		Usage: "reach peers over `NAME`: scion; tcp or quic, one of the two for all peers on IP; " +
			"webrtc, for peers in browsers, whom trackers at ws:// and wss:// introduce " +
			"(repeatable)",
	}
}

// iceFlags say how WebRTC connections get through NATs.
func iceFlags() []cli.Flag {
	return []cli.Flag{
		listFlag("ice", "webrtc: ask the server at `URL`, stun:HOST:PORT or "+
			"turn:USER:PASSWORD@HOST:PORT, for a way through NATs (repeatable; default: none)"),
		boolFlag("ice-local", "webrtc: tell peers this host's addresses on local networks, and "+
			"contact peers at such addresses"),
	}
}

// transports reads --transport.
func (f *flags) transports() (t transports) {
	names := f.StringSlice("transport")
	has := func(n string) bool { return slices.Contains(names, n) }
	for _, n := range names {
		f.want(slices.Contains([]string{"scion", "tcp", "quic", "webrtc"}, n),
			"--transport %q: want scion, tcp, quic or webrtc", n)
	}
	t.scion = has("scion")
	if has("webrtc") {
		t.rtc = &client.WebRTCConfig{ICE: f.StringSlice("ice"), Local: f.Bool("ice-local")}
		readAll(f, "ice", client.ParseICE)
	} else if f.IsSet("ice") || f.IsSet("ice-local") {
		f.wrong("--ice and --ice-local are for WebRTC: add webrtc to --transport")
	}
	switch {
	case has("tcp") && has("quic"):
		f.wrong("--transport: give tcp or quic, not both: " +
			"the address of a peer does not tell which one it speaks")
	case has("quic"):
		t.ip = client.QUIC
	case !has("tcp"):
		t.ip = client.NoIP
	}
	return t
}

func congestionFlag() cli.Flag {
	return stringFlag("congestion", string(scionnet.DefaultCongestion), "`NAME` of the congestion "+
		"controller of connections over SCION and QUIC: bbr or newreno")
}
