package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"braid/commands/program"
)

// The help of a command can be asked for in every way, at any depth.
func TestHelp(t *testing.T) {
	const whole = "braid-testbed: real SCION networks on this machine"
	for _, c := range []struct{ args, begins string }{
		{"", whole},
		{"help", whole},
		{"help link", "braid-testbed link: change a link"},
		{"link --help", "braid-testbed link: change a link"},
		{"help bench tracker", "braid-testbed bench tracker: "},
		{"bench help tracker", "braid-testbed bench tracker: "},
		{"bench --help tracker", "braid-testbed bench tracker: "},
	} {
		code, out, said := ends(t, t.TempDir(), strings.Fields(c.args)...)
		if code != 0 || !strings.HasPrefix(out, c.begins) || said != "" {
			t.Errorf("braid-testbed %s: exit code %d, %q\n%s", c.args, code, said, out)
		}
	}
}

// Every mistake is named once, with the command that explains it.
func TestMistypedCommandLines(t *testing.T) {
	for args, want := range map[string]string{
		"lnk":                             `unknown command "lnk" (did you mean link?); see braid-testbed --help`,
		"bench lnk":                       `unknown command "bench lnk" (did you mean bench link?); see braid-testbed bench --help`,
		"link --dri x":                    `unknown flag --dri (did you mean --dir?); see braid-testbed link --help`,
		"link -d x":                       `name one interface, such as 1-ff00:0:110#1; see braid-testbed link --help`,
		"down -d x y":                     `braid-testbed down takes no arguments, got "y"`,
		"link x -d x":                     `interface "x": want ISD-AS#ID such as 1-ff00:0:110#1`,
		"link --direction up x":           `--direction "up": want out, in or both; see braid-testbed link --help`,
		"bench link --duration 0s":        `--duration: want more than 0`,
		"bench link x":                    `braid-testbed bench link takes no arguments, got "x"`,
		"up":                              `--dir is missing; see braid-testbed up --help`,
		"soak --seed -1":                  `--seed "-1": want a whole number of at least 0; see braid-testbed soak --help`,
		"up tiny4 -d x --router-of 1-1=x": `up: --router-of "1-1=x": "x": want stock or fast`,
	} {
		code, out, said := ends(t, t.TempDir(), strings.Fields(args)...)
		if code != program.Usage || out != "" || said != "braid-testbed: "+want+"\n" {
			t.Errorf("braid-testbed %s: exit code %d, %s%s, want\nbraid-testbed: %s", args, code, out, said, want)
		}
	}
}

// A command that fails prints its error once, as a line on standard error.
func TestErrorIsPrintedOnce(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{"bad.yaml": "about: a test\ntakes: 27\n", "bad.topo": "nonsense\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ command, says string }{
		{"run -o out missing", "scenario missing: no such file"},
		{"run -o out bad.yaml", `scenario bad.yaml, line 2: takes: time "27": want`},
		{"up --dir net bad.topo", "bad.topo"},
		{"up --dir net nowhere", "nowhere"},
		{"status --dir missing", "missing: no testbed is running here"},
		{"down --dir missing", "missing: no testbed is running here"},
		{"show nowhere", "nowhere: no such scenario"},
		{"report missing", "missing is no run directory"},
		{"compare missing absent", "missing is no run directory"},
		{"bench storage --size 10", "--size 10: want"},
	} {
		code, out, said := ends(t, "", strings.Fields(tt.command)...)
		message, begins := strings.CutPrefix(said, "braid-testbed: ")
		if code == 0 || !begins || strings.Count(message, "\n") != 1 || strings.Count(message, tt.says) != 1 || out != "" {
			t.Errorf("braid-testbed %s: exit code %d, want an error and once %q\n%s%s", tt.command, code, tt.says, said, out)
		}
	}
}

// Peers are the program that BRAID_PROGRAM names; an error says what to do without one.
func TestFindBraid(t *testing.T) {
	t.Setenv("PATH", "")
	code, _, said := ends(t, t.TempDir(), "export", "two-paths", "--containerlab", "-o", "x", "--bfd", "never")
	if code != program.Usage || !strings.Contains(said, "--bfd") {
		t.Errorf("with a braid: %d: %s", code, said)
	}
	t.Setenv("BRAID_PROGRAM", "")
	code, _, said = ends(t, t.TempDir(), "export", "two-paths", "--containerlab", "-o", "x", "--bfd", "never")
	if code != program.Failed || !strings.Contains(said, "BRAID_PROGRAM") {
		t.Errorf("without a braid: %d: %s", code, said)
	}
}
