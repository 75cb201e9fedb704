package commands

import (
	"strings"
	"testing"

	"braid/commands/program"
)

// The help of a command can be asked for in every way, at any depth.
func TestHelp(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ args, begins string }{
		{"", "braid: multipath BitTorrent for SCION\n"},
		{"help", "braid: multipath BitTorrent for SCION\n"},
		{"--help", "braid: multipath BitTorrent for SCION\n"},
		{"help download", "braid download: download torrents"},
		{"download -h", "braid download: download torrents"},
		{"help help", "braid help: "},
		{"help --help", "braid help: "},
		{"download x.torrent --help", "braid download: download torrents"},
	} {
		code, out, said := ends(t, dir, strings.Fields(c.args)...)
		if code != 0 || !strings.HasPrefix(out, c.begins) || said != "" {
			t.Errorf("braid %s: exit code %d, %q\n%s", c.args, code, said, out)
		}
	}
}

// A mistyped command or flag gets a suggestion, and every mistake is named once, with the command
// that explains it.
func TestMistypedCommandLines(t *testing.T) {
	dir := t.TempDir()
	for args, want := range map[string]string{
		"version":                        `unknown command "version" (did you mean --version?); see braid --help`,
		"downlaod x":                     `unknown command "downlaod" (did you mean download?); see braid --help`,
		"down":                           `unknown command "down" (did you mean download?); see braid --help`,
		"help download -x":               `unknown flag -x; see braid help --help`,
		"help download x":                `unknown command "download x"; see braid download --help`,
		"frobnicate":                     `unknown command "frobnicate"; see braid --help`,
		"download --peeer x":             `unknown flag --peeer (did you mean --peer?); see braid download --help`,
		"download -x":                    `unknown flag -x; see braid download --help`,
		"seed --storage":                 `--storage needs a value; see braid seed --help`,
		"list --api here":                `--api: address "here": want HOST:PORT, such as 127.0.0.1:8080`,
		"info magnet:?x":                 `magnet link: missing v1 infohash; want magnet:?xt=urn:btih:HASH`,
		"set 1 --position -1":            `--position "-1": want at least 0; see braid set --help`,
		"list 1 2":                       `braid list takes no torrents: braid show 1 2`,
		"pause --all 1":                  `--all stands for all torrents: give it, or name torrents`,
		"watch 1":                        `braid watch takes no arguments, got "1"`,
		"password x":                     `braid password takes no arguments: it asks for the password`,
		"paths 0-0":                      `ISD-AS "0-0" is a wildcard, not a destination`,
		"paths 1-1 --status x":           `name one destination, such as: braid paths 1-ff00:0:111; or give --status or --torrent instead`,
		"paths --torrent x --status x":   `name one destination, such as: braid paths 1-ff00:0:111; or give --status or --torrent instead`,
		"download --max-paths many file": `--max-paths "many": want a whole number; see braid download --help`,
		"download --ratio much file":     `--ratio "much": want a number; see braid download --help`,
		"info --json=x file":             `--json "x": want true or false; see braid info --help`,
		"download --local x file":        `--local "x": want one IP address of this host; see braid download --help`,
		"seed --isd-as x file":           `--isd-as "x": ISD-AS "x": want ISD-AS such as 1-ff00:0:110; see braid seed --help`,
		"paths 1-1 --timeout 0s":         `--timeout "0s": want more than 0; see braid paths --help`,
		"paths 1-1 --bootstrap ftp://x":  `--bootstrap "ftp://x": want http://HOST:PORT, the address of a SCION discovery server; see braid paths --help`,
	} {
		code, out, said := ends(t, dir, strings.Fields(args)...)
		if code != program.Usage || out != "" || said != "braid: "+want+"\n" {
			t.Errorf("braid %s: exit code %d, %s%s, want\nbraid: %s", args, code, out, said, want)
		}
	}
}
