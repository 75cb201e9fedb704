package commands

import (
	"strings"
	"testing"

	"braid/client"
	"braid/node"
	"braid/tracker"
)

func TestReach(t *testing.T) {
	const scion, tcp = "1-ff00:0:110,[10.0.0.1]:31000", "10.0.0.1:1"
	const onSCION, onHTTP, onUDP = "scion://1-ff00:0:110,[10.0.0.1]:31080/announce", "http://10.0.0.1/announce", "udp://10.0.0.1:1"
	for _, tt := range []struct {
		listen   string
		ip       client.IPTransport
		trackers []string // of each torrent
		want     []string // the beginning of each line, with what else is in it behind a |
	}{
		{scion, client.TCP, []string{onSCION}, []string{"SCION peers only: other clients"}},
		{scion, client.TCP, []string{""}, []string{"SCION peers only"}},
		{tcp, client.TCP, []string{onHTTP}, []string{"TCP peers only: SCION peers cannot"}},
		{tcp, client.QUIC, []string{onUDP}, []string{"QUIC peers only"}},
		{scion + " " + tcp, client.TCP, []string{onSCION + " " + onHTTP}, []string{"peers on SCION and on TCP"}},
		{scion + " " + tcp, client.TCP, []string{onHTTP}, []string{"peers on SCION and on TCP", "no tracker on SCION is named: |hear of this seed only if the tracker " + onHTTP}},
		{scion + " " + tcp, client.TCP, []string{onSCION}, []string{"peers on SCION and on TCP", "no tracker on IP is named: |only if the tracker " + onSCION}},
		{scion, client.TCP, []string{onUDP}, []string{"SCION peers only", "no tracker on SCION is named: nobody hears there of this seed"}},
		{scion, client.TCP, []string{onUDP, onSCION, onUDP, onUDP}, []string{"SCION peers only", "no tracker on SCION is named: nobody hears there of a, c and 1 more"}},
	} {
		var listen []client.Peer
		for s := range strings.FieldsSeq(tt.listen) {
			p, err := client.ParseListen(s)
			if err != nil {
				t.Fatal(err)
			}
			listen = append(listen, p)
		}
		var torrents []node.Options
		for i, all := range tt.trackers {
			o := node.Options{Source: client.Source{Name: string(rune('a' + i))}}
			for s := range strings.FieldsSeq(all) {
				u, err := tracker.ParseURL(s)
				if err != nil {
					t.Fatal(err)
				}
				o.Trackers = append(o.Trackers, []tracker.URL{u})
			}
			torrents = append(torrents, o)
		}
		have := reach(listen, tt.ip, torrents)
		fits := len(have) == len(tt.want)
		for i := 0; fits && i < len(have); i++ {
			begin, in, _ := strings.Cut(tt.want[i], "|")
			fits = strings.HasPrefix(have[i], begin) && strings.Contains(have[i], in)
		}
		if !fits {
			t.Errorf("on %s with %q:\n%s\nwant\n%s", tt.listen, tt.trackers, strings.Join(have, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}
