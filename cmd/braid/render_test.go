package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"braid/client"
	"braid/pathsel"
)

func pathOf(fingerprint string, hops int) pathsel.Path {
	return pathsel.Path{Fingerprint: pathsel.Fingerprint(fingerprint), Src: 1, Dst: 2, Interfaces: make([]pathsel.Interface, 2*hops)}
}

func TestRender(t *testing.T) {
	two := []client.PathProgress{
		{
			Peer: "1-2,[10.0.0.1]:7", Path: pathOf("aabbccddeeff", 2), Transport: "scion", State: pathsel.Active,
			Measurement: client.Measurement{RTT: 21 * time.Millisecond}, BytesRead: 3000, ReadRate: 15e6,
		},
		{
			Peer: "10.0.0.2:7", Transport: "tcp", State: pathsel.Active,
			Measurement: client.Measurement{RTT: 1500 * time.Microsecond}, BytesRead: 1000, ReadRate: 5e6,
		},
	}
	for _, c := range []struct {
		name    string
		p       client.Progress
		uploads bool
		want    []string
	}{
		{
			"half", client.Progress{Name: "set", Phase: client.Downloading, Total: 4 << 20, Have: 2 << 20, ReadRate: 20e6, Paths: two}, false,
			[]string{
				"set  [############------------] 50%  2 MiB of 4 MiB  20.0 Mbit/s  0:01 left",
				"  1-2,[10.0.0.1]:7  aabbccdd 2 hops    21 ms  15.0 Mbit/s   75%  active",
				"  10.0.0.2:7  tcp   1.5 ms  5.0 Mbit/s   25%  active",
			},
		},
		{
			"nothing moves", client.Progress{Name: "set", Phase: client.Downloading, Since: time.Minute, Total: 100, Paths: []client.PathProgress{
				{Peer: "10.0.0.2:7", Transport: "tcp", State: pathsel.Failed, Err: errors.New("refused")},
			}}, false,
			[]string{
				"set  [------------------------] 0%  0 B of 100 B  0.0 Mbit/s  stalled",
				"  10.0.0.2:7  tcp  failed  refused",
			},
		},
		{
			"all down", client.Progress{Name: "set", Phase: client.Downloading, Since: time.Minute, Total: 100, Waiting: "all 1 paths are down; the next attempt is in 2s", Paths: []client.PathProgress{
				{Peer: "1-2,[10.0.0.1]:7", Path: pathOf("aabbccddeeff", 2), State: pathsel.Failed, Err: errors.New("refused")},
				{Peer: "1-2,[10.0.0.1]:7", Path: pathOf("bbccddeeff00", 2), State: pathsel.Idle},
			}}, false,
			[]string{
				"set  [------------------------] 0%  0 B of 100 B  0.0 Mbit/s  stalled",
				"  all 1 paths are down; the next attempt is in 2s",
				"  1-2,[10.0.0.1]:7  aabbccdd 2 hops  failed  refused",
			},
		},
		{
			"last byte", client.Progress{Name: "set", Phase: client.Downloading, Total: 1e9, Have: 1e9 - 1, ReadRate: 8e6}, false,
			[]string{"set  [#######################-] 99%  953.7 MiB of 953.7 MiB  8.0 Mbit/s  0:00 left"},
		},
		{
			"seed", client.Progress{Name: "set", Phase: client.Complete, Sent: 1 << 30, WriteRate: 1e6, Paths: []client.PathProgress{
				{Peer: "1-2,[10.0.0.1]:7", Path: pathOf("aabbccddeeff", 1), Accepted: true, State: pathsel.Active, BytesWritten: 9, WriteRate: 1e6},
				{Peer: "gone", State: pathsel.Idle, BytesWritten: 9},
			}}, true,
			[]string{
				"set  1 GiB sent  1.0 Mbit/s",
				"  1-2,[10.0.0.1]:7  aabbccdd 1 hop     - ms  1.0 Mbit/s   50%  active",
			},
		},
		{"magnet", client.Progress{Name: "set", Phase: client.Metadata}, false, []string{"set  waiting for a peer to describe the torrent"}},
		{"checking", client.Progress{Name: "set", Phase: client.Checking, Total: 2048, Checked: 1536, Have: 1024}, false, []string{"set  checking what is there  1.5 KiB hashed  1 KiB of 2 KiB right"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := render(c.p, c.uploads); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		want        string
	}{{0, 0, "0%"}, {0, 10, "0%"}, {5, 10, "50%"}, {999_999, 1_000_000, "99%"}, {10, 10, "100%"}, {1, 1 << 62, "0%"}} {
		if got := percent(c.done, c.total); got != c.want {
			t.Errorf("percent(%d, %d) = %s, want %s", c.done, c.total, got, c.want)
		}
	}
}

func TestTexts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{bytesText(0), "0 B"}, {bytesText(1023), "1023 B"}, {bytesText(1 << 10), "1 KiB"}, {bytesText(1536), "1.5 KiB"},
		{bytesText(1 << 62), "4 EiB"},
		{durationText(59*time.Second + 600*time.Millisecond), "1:00"}, {durationText(3671 * time.Second), "1:01:11"},
		{rttText(0), "   - ms"}, {rttText(330 * time.Millisecond), " 330 ms"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
