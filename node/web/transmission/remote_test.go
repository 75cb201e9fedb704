package transmission

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"braid/client"
	"braid/node"
	"braid/node/web/webtest"
	"braid/units/await"
)

// remote runs the real transmission-remote against the service.
func (s *service) remote(args ...string) string {
	s.Helper()
	said, err := webtest.Run(s, []string{"TR_AUTH=user:secret"}, "transmission-remote",
		append([]string{strings.TrimPrefix(s.url, "http://")}, args...)...)
	if err != nil && !strings.Contains(said, "Error:") {
		s.Errorf("transmission-remote %v: %v: %s", args, err, said)
	}
	return said
}

// option is one option of transmission-remote and what it has changed or said.
type option struct {
	names  string // all its spellings
	args   []string
	field  string // of torrent 1, or of the session with a leading "session:"
	want   any
	says   string // in its output
	global bool   // not for one torrent
}

// options are those that change a setting, or print something. What a whole test is needed for is
// in TestRemoteTorrents.
func options(dir string) []option {
	const lacks = "braid has no "
	set := func(names string, args []string, field string, want any) option {
		return option{names: names, args: args, field: "session:" + field, want: want, says: "success", global: true}
	}
	of := func(names string, args []string, field string, want any) option {
		return option{names: names, args: args, field: field, want: want}
	}
	show := func(names string, args []string, says string) option {
		return option{names: names, args: args, says: says}
	}
	lack := func(names string, args []string, field string, want any, what string) option {
		return option{names: names, args: args, field: "session:" + field, want: want, says: lacks + what, global: true}
	}
	one := func(args ...string) []string { return args }
	return []option{
		show("-h --help", one("--help"), "Usage:"),
		show("-V --version", one("--version"), "transmission-remote"),
		show("-b --debug", one("--debug", "-l"), "torrent-get"),
		set("-asd --alt-speed-downlimit", one("-asd", "70"), "alt-speed-down", 70.0),
		set("-asu --alt-speed-uplimit", one("-asu", "30"), "alt-speed-up", 30.0),
		set("-as --alt-speed", one("-as"), "alt-speed-enabled", true),
		set("-AS --no-alt-speed", one("-AS"), "alt-speed-enabled", false),
		set("-asc --alt-speed-scheduler", one("-asc"), "alt-speed-time-enabled", true),
		set("-ASC --no-alt-speed-scheduler", one("-ASC"), "alt-speed-time-enabled", false),
		set("--alt-speed-time-begin", one("--alt-speed-time-begin", "0830"), "alt-speed-time-begin", 510.0),
		set("--alt-speed-time-end", one("--alt-speed-time-end", "1700"), "alt-speed-time-end", 1020.0),
		set("--alt-speed-days", one("--alt-speed-days", "1-3,7"), "alt-speed-time-day", 15.0),
		{names: "--blocklist-update", args: one("--blocklist-update"), says: lacks + "blocklist", global: true},
		set("-c --incomplete-dir", one("-c", dir+"/part"), "incomplete-dir", dir+"/part"),
		set("-C --no-incomplete-dir", one("-C"), "incomplete-dir-enabled", false),
		set("-d --downlimit", one("-d", "800"), "speed-limit-down", 800.0),
		set("-D --no-downlimit", one("-D"), "speed-limit-down-enabled", false),
		set("-u --uplimit", one("-u", "300"), "speed-limit-up", 300.0),
		set("-U --no-uplimit", one("-U"), "speed-limit-up-enabled", false),
		lack("-e --cache", one("-e", "8"), "cache-size-mb", 0.0, "cache of its own"),
		lack("-er --encryption-required", one("-er"), "encryption", "tolerated", "other order"),
		lack("-ep --encryption-preferred", one("-ep"), "encryption", "tolerated", "other order"),
		set("-et --encryption-tolerated", one("-et"), "encryption", "tolerated"),
		show("-f --files", one("-t1", "-f"), "album/b/c.mkv"),
		of("-G --no-get", one("-t1", "-G", "0,2"), "wanted", []any{0.0, 1.0, 0.0}),
		of("-g --get", one("-t1", "-g", "2"), "wanted", []any{0.0, 1.0, 1.0}),
		of("-g --get", one("-t1", "-g", "all"), "wanted", []any{1.0, 1.0, 1.0}),
		show("-i --info", one("-t1", "-i"), "Name: album"),
		show("-if --info-files", one("-t1", "-if"), "album/a.txt"),
		show("-ip --info-peers", one("-t1", "-ip"), "Address"),
		show("-pi --peer-info", one("-t1", "-pi"), "Address"),
		show("-ic --info-pieces", one("-t1", "-ic"), "000000"),
		of("-td --tracker-add", one("-t1", "-td", "http://127.0.0.1:1/announce"), "trackerList", "http://127.0.0.1:1/announce\n"),
		show("-it --info-trackers", one("-t1", "-it"), "127.0.0.1:1"),
		of("-tr --tracker-remove", one("-t1", "-tr", "0"), "trackerList", ""),
		show("-si --session-info", one("-si"), "Download directory: "+dir),
		show("-st --session-stats", one("-st"), "Started 1 times"),
		show("-l --list", one("-l"), "album"),
		of("-L --labels", one("-t1", "-L", "one,two"), "labels", []any{"one", "two"}),
		set("-M --no-portmap", one("-M"), "port-forwarding-enabled", false),
		lack("-m --portmap", one("-m"), "port-forwarding-enabled", false, "port forwarding"),
		show("-n --auth", one("-n", "user:secret", "-l"), "album"),
		show("-ne --authenv", one("-ne", "-l"), "album"),
		show("-N --netrc", one("-N", dir+"/netrc", "-l"), "album"),
		set("-O --no-dht", one("-O"), "dht-enabled", false),
		lack("-o --dht", one("-o"), "dht-enabled", false, "switch for the DHT"),
		{names: "-p --port", args: one("-p", "51413"), says: lacks + "other port", global: true},
		{names: "-pt --port-test", args: one("-pt"), says: lacks + "service that tests its port", global: true},
		lack("-P --random-port", one("-P"), "peer-port-random-on-start", false, "random port"),
		of("-ph --priority-high", one("-t1", "-ph", "1"), "priorities", []any{0.0, 1.0, 0.0}),
		of("-pl --priority-low", one("-t1", "-pl", "0"), "priorities", []any{-1.0, 1.0, 0.0}),
		of("-pn --priority-normal", one("-t1", "-pn", "all"), "priorities", []any{0.0, 0.0, 0.0}),
		of("-Bh --bandwidth-high", one("-t1", "-Bh"), "bandwidthPriority", 1.0),
		of("-Bl --bandwidth-low", one("-t1", "-Bl"), "bandwidthPriority", -1.0),
		of("-Bn --bandwidth-normal", one("-t1", "-Bn"), "bandwidthPriority", 0.0),
		{names: "--reannounce", args: one("-t1", "--reannounce"), says: "success"},
		of("-pr --peers", one("-t1", "-pr", "17"), "maxConnectedPeers", 17.0),
		set("--torrent-done-script", one("--torrent-done-script", dir+"/done"), "script-torrent-done-filename", dir+"/done"),
		set("--no-torrent-done-script", one("--no-torrent-done-script"), "script-torrent-done-enabled", false),
		of("-sr --seedratio", one("-t1", "-sr", "1.5"), "seedRatioLimit", 1.5),
		of("-SR --no-seedratio", one("-t1", "-SR"), "seedRatioMode", 2.0),
		of("-srd --seedratio-default", one("-t1", "-srd"), "seedRatioMode", 0.0),
		set("-gsr --global-seedratio", one("-gsr", "2.5"), "seedRatioLimit", 2.5),
		set("-GSR --no-global-seedratio", one("-GSR"), "seedRatioLimited", false),
		set("--start-paused", one("--start-paused"), "start-added-torrents", false),
		set("--no-start-paused", one("--no-start-paused"), "start-added-torrents", true),
		set("--trash-torrent", one("--trash-torrent"), "trash-original-torrent-files", true),
		set("--no-trash-torrent", one("--no-trash-torrent"), "trash-original-torrent-files", false),
		of("-HL --no-honor-session", one("-t1", "-HL"), "honorsSessionLimits", false),
		of("-hl --honor-session", one("-t1", "-hl"), "honorsSessionLimits", true),
		set("--no-utp", one("--no-utp"), "utp-enabled", false),
		lack("--utp", one("--utp"), "utp-enabled", false, "uTP"),
		set("-X --no-pex", one("-X"), "pex-enabled", false),
		set("-x --pex", one("-x"), "pex-enabled", true),
		set("-y --lpd", one("-y"), "lpd-enabled", true),
		set("-Y --no-lpd", one("-Y"), "lpd-enabled", false),
		set("-w --download-dir", one("-w", dir+"/done"), "download-dir", dir+"/done"),
		// The same options for one torrent.
		of("-d --downlimit", one("-t1", "-d", "90"), "downloadLimit", 90.0),
		of("-D --no-downlimit", one("-t1", "-D"), "downloadLimited", false),
		of("-u --uplimit", one("-t1", "-u", "40"), "uploadLimit", 40.0),
		of("-U --no-uplimit", one("-t1", "-U"), "uploadLimited", false),
	}
}

// elsewhere are options that other tests run: TestRemoteTorrents, and the tests of the whole server
// for --ssl, which needs a proxy in front of braid.
const elsewhere = "-a --add --exit --move --find -r --remove -rad --remove-and-delete -s --start -S --stop -t --torrent -v --verify --ssl"

// TestRemoteOptions runs every option of transmission-remote --help, and reads back what it did.
func TestRemoteOptions(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, _, _ := s.torrent("album")
	s.add(c, nil)
	if err := os.WriteFile(filepath.Join(s.downloads, "netrc"), []byte("machine 127.0.0.1 login user password secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(elsewhere)
	for _, o := range options(s.downloads) {
		known = append(known, strings.Fields(o.names)...)
		said := s.remote(o.args...)
		if !strings.Contains(said, o.says) {
			t.Errorf("transmission-remote %v says %q, want %q", o.args, said, o.says)
		}
		name, session := strings.CutPrefix(o.field, "session:")
		switch {
		case o.field == "":
		case session:
			if got := s.setting(name); !reflect.DeepEqual(got, o.want) {
				t.Errorf("transmission-remote %v: %s is %v, want %v; it says %s", o.args, name, got, o.want, said)
			}
		default:
			if got := s.field(1, name); !reflect.DeepEqual(got, o.want) {
				t.Errorf("transmission-remote %v: %s is %v, want %v; it says %s", o.args, name, got, o.want, said)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^ (-\w+)? +(--[a-z-]+)`).FindAllStringSubmatch(s.remote("--help"), -1) {
		for _, name := range m[1:] {
			if name != "" && !slices.Contains(known, name) {
				t.Errorf("no test runs the option %s", name)
			}
		}
	}
}

// TestRemoteTorrents takes a torrent through its life with transmission-remote.
func TestRemoteTorrents(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, data, file := s.torrent("album")
	status := func(want ...int) {
		t.Helper()
		await.True(t, fmt.Sprintf("status %v", want), func() bool {
			return slices.Contains(want, int(s.field(1, "status").(float64)))
		})
	}
	place := func(dir string) {
		t.Helper()
		await.True(t, "the data in "+dir, func() bool { return s.field(1, "downloadDir") == dir && s.field(1, "percentDone") == 1.0 })
		await.True(t, "a file in "+dir, func() bool { // it gets its name a moment after the last piece
			_, err := os.Stat(filepath.Join(dir, "album/b/c.mkv"))
			return err == nil
		})
	}
	s.remote("--start-paused")
	s.remote("-a", file)
	status(stopped)
	s.remote("-t1", "-s")
	status(downloading)
	x, err := s.node.Torrent(c.Source.InfoHash.HexString())
	if err != nil {
		t.Fatal(err)
	}
	x.AddPeers(webtest.Seed(t, c.Source, data)...)
	status(seeding)
	place(s.downloads)
	s.remote("-t1", "-S")
	status(stopped)
	s.remote("-t", c.Source.InfoHash.HexString(), "-s")
	status(seeding)

	// Verifying finds the damage, and the download goes on.
	damaged := filepath.Join(s.downloads, "album/b/c.mkv")
	b, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	b[1000]++
	if err := os.WriteFile(damaged, b, 0o644); err != nil {
		t.Fatal(err)
	}
	s.remote("-t1", "-S")
	status(stopped)
	s.remote("-t1", "-v")
	await.True(t, "the damage to be found", func() bool { return s.field(1, "leftUntilDone").(float64) > 0 })
	s.remote("-t1", "-s")
	status(downloading, seeding)
	x.AddPeers(webtest.Seed(t, c.Source, data)...)
	status(seeding)

	elsewhere := t.TempDir()
	s.remote("-t1", "--move", elsewhere)
	place(elsewhere)
	s.remote("-t1", "--find", data)
	place(data)
	// It counts as seeding while it moves, too. Files that are being verified have other names.
	await.True(t, "the data that was found to be right", func() bool {
		return x.State() == node.Running && x.Progress().Phase == client.Complete
	})

	said := s.remote("-t1", "-r")
	if n := len(s.node.Torrents()); n != 0 {
		t.Errorf("%d torrents after -r: %s", n, said)
	}
	if _, err := os.Stat(filepath.Join(data, "album/a.txt")); err != nil {
		t.Errorf("-r has removed data: %v", err)
	}
	s.remote("--no-start-paused")
	s.remote("-a", file, "-w", elsewhere)
	await.True(t, "the torrent to be complete again", func() bool { return s.field(2, "percentDone") == 1.0 })
	said = s.remote("-t2", "-rad")
	await.True(t, "the data to be deleted: "+said, func() bool {
		_, err := os.Stat(filepath.Join(elsewhere, "album"))
		return os.IsNotExist(err) && len(s.node.Torrents()) == 0
	})
	s.remote("--exit")
	<-s.ended
}
