package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"braid/commands/flags"
	"braid/commands/program"
	"braid/commands/terminal"
	v1 "braid/node/web/v1"
	"braid/units/lists"
)

// The commands that control a daemon are thin: they find it, name torrents, and print its answers.

// controlFlags are common to these commands.
func controlFlags() []cli.Flag {
	return []cli.Flag{
		flags.Env("api", "BRAID_API", "the daemon's `ADDR`: unix:PATH, HOST:PORT or a URL "+
			"(default: the user's daemon, or else the system's)"),
		flags.File("password-file", "", "`FILE` with the daemon's password, which TCP may need "+
			"(default: the environment variable BRAID_PASSWORD)"),
		flags.Bool("json", "print JSON, one object a line"),
	}
}

// systemSocket is where the system's daemon answers: see the unit braid.service.
const systemSocket = "/run/braid/api.sock"

// ownSocket returns where the user's daemon answers. It refuses a directory of another user, whose
// program could pretend to be the daemon.
func (e *Env) ownSocket() (string, error) {
	if d := e.Getenv("RUNTIME_DIRECTORY"); filepath.IsAbs(d) { // systemd sets it for the unit
		return filepath.Join(d, "api.sock"), nil
	}
	if d := e.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		return filepath.Join(d, "braid", "api.sock"), nil
	}
	dir := filepath.Join(e.tempDir(), "braid-"+strconv.Itoa(os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("no place for the daemon's socket: %w; give --api unix:PATH", err)
	}
	if !isPrivate(dir) {
		return "", fmt.Errorf("%s belongs to another user: "+
			"set XDG_RUNTIME_DIR, or give --api unix:PATH", dir)
	}
	return filepath.Join(dir, "api.sock"), nil
}

// dial returns a client of the daemon that the flags name.
func dial(cmd *cli.Command) (*v1.Client, error) {
	env := envOf(cmd)
	password := env.Getenv("BRAID_PASSWORD")
	if name := cmd.String("password-file"); name != "" {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("--password-file: %w", err)
		}
		password = strings.TrimRight(string(b), "\r\n")
	}
	address, err := env.daemonAddress(cmd.String("api"))
	if err != nil {
		return nil, err
	}
	return v1.NewClient(address, password), nil
}

func (e *Env) daemonAddress(flag string) (string, error) {
	switch scheme, _, _ := strings.Cut(flag, "://"); {
	case scheme == "http" || scheme == "https":
		return flag, nil
	case flag != "":
		if err := checkAPI(flag); err != nil {
			return "", program.UsageErrorf("--api: %w", err)
		}
		return flag, nil
	}
	own, err := e.ownSocket()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(own); errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(systemSocket); err == nil {
			own = systemSocket
		}
	}
	return "unix:" + own, nil
}

// explain adds advice to an error of the daemon.
func explain(cmd *cli.Command, err error) error {
	status := (*v1.StatusError)(nil)
	switch {
	case errors.Is(err, v1.ErrNoDaemon):
		// An error would have ended the command.
		address, _ := envOf(cmd).daemonAddress(cmd.String("api"))
		if errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("no braid daemon answers at %s: it is another user's; "+
				"try sudo, or name another one with --api", address)
		}
		return fmt.Errorf("no braid daemon answers at %s.\n"+
			"Start one with 'braid daemon', or name another one with --api.\n"+
			"braid download and braid seed need none", address)
	case errors.As(err, &status) && status.Status == http.StatusUnauthorized:
		return errors.New("the daemon wants its password, and got none or a wrong one: " +
			"give --password-file FILE, or set BRAID_PASSWORD")
	case errors.As(err, &status) && status.Status == http.StatusBadRequest:
		return program.UsageErrorf("%w", err)
	}
	return err
}

// action is what a command does with a daemon.
type action func(ctx context.Context, cmd *cli.Command, d *v1.Client) error

// torrentAction is what a command does with a torrent of a daemon.
type torrentAction func(ctx context.Context, cmd *cli.Command, d *v1.Client, t v1.Torrent) error

// controlling makes a command that talks to a daemon.
func controlling(c *cli.Command, act action) *cli.Command {
	c.Flags = append(c.Flags, controlFlags()...)
	c.Action = withDaemon(act)
	return c
}

// withDaemon connects to the daemon and acts.
func withDaemon(act action) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		d, err := dial(cmd)
		if err != nil {
			return err
		}
		defer d.Close()
		return explain(cmd, act(ctx, cmd, d))
	}
}

const torrentsUsage = "TORRENT..."

const howToName = "A torrent is named by its number in braid list, its name, or the beginning of " +
	"its info hash."

// named returns the torrents that the command line names.
func named(ctx context.Context, cmd *cli.Command, d *v1.Client) ([]v1.Torrent, error) {
	if !cmd.Args().Present() && !cmd.Bool("all") {
		return nil,
			program.UsageErrorf("name a torrent by its number, its name or its info hash; " +
				"braid list shows them")
	}
	if cmd.Args().Present() && cmd.Bool("all") {
		return nil, program.UsageErrorf("--all stands for all torrents: give it, or name torrents")
	}
	all, err := d.List(ctx, "info_hash", "number", "name", "state")
	if err != nil {
		return nil, err
	}
	if cmd.Bool("all") {
		return all, nil
	}
	var out []v1.Torrent
	for _, name := range cmd.Args().Slice() {
		t, err := choose(all, name)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// theTorrent returns the torrent that a user names.
func theTorrent(ctx context.Context, d *v1.Client, name string) (v1.Torrent, error) {
	all, err := d.List(ctx, "info_hash", "number", "name")
	if err != nil {
		return v1.Torrent{}, err
	}
	return choose(all, name)
}

// minPrefix is the shortest beginning of an info hash that names a torrent.
const minPrefix = 4

// choose finds the torrent that a user means: by its number, its whole name, or the beginning of
// its info hash, in this order.
func choose(all []v1.Torrent, name string) (v1.Torrent, error) {
	number, err := strconv.Atoi(name)
	lower := strings.ToLower(name)
	isOther := []func(v1.Torrent) bool{
		func(t v1.Torrent) bool { return err != nil || t.Number != number },
		func(t v1.Torrent) bool { return t.Name != name },
		func(t v1.Torrent) bool {
			return len(name) < minPrefix || !strings.HasPrefix(t.InfoHash, lower)
		},
	}
	for _, other := range isOther {
		found := slices.DeleteFunc(slices.Clone(all), other)
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			which := lists.Map(found[:min(len(found), 5)], func(t v1.Torrent) string {
				return fmt.Sprintf("%d (%s, %s)", t.Number, t.Name, t.InfoHash[:8])
			})
			return v1.Torrent{}, program.UsageErrorf("%q means %d torrents: name one by its "+
				"number: %s",
				name, len(found), strings.Join(which, ", "))
		}
	}
	return v1.Torrent{}, program.UsageErrorf("there is no torrent %q; braid list shows all", name)
}

// asWanted are the states in which a torrent is already as a command wants all torrents to be. The
// daemon calls it a conflict if the command is for one of them.
var asWanted = map[string][]string{
	"paused":  {"paused"},
	"resumed": {"downloading", "seeding", "metadata", "checking", "queued"},
}

// onTorrents makes a command that does something with each torrent on the command line. what is the
// word for it in the output, such as paused.
func onTorrents(c *cli.Command, what string, do torrentAction) *cli.Command {
	c.ArgsUsage = torrentsUsage
	c.Description = strings.TrimSpace(howToName + " " + c.Description)
	return controlling(c, each(what, do))
}

// each does something with each torrent that the command line names, and prints what it has done.
func each(what string, do torrentAction) action {
	return func(ctx context.Context, cmd *cli.Command, d *v1.Client) error {
		all, err := named(ctx, cmd, d)
		if err != nil {
			return err
		}
		var errs []error
		for _, t := range all {
			err := do(ctx, cmd, d, t)
			status := (*v1.StatusError)(nil)
			if cmd.Bool("all") && slices.Contains(asWanted[what], t.State) &&
				errors.As(err, &status) && status.Status == http.StatusConflict {
				continue
			}
			if err != nil {
				title := cmp.Or(t.Name, t.InfoHash)
				if err = explain(cmd, err); !strings.Contains(err.Error(), "torrent "+title) {
					err = fmt.Errorf("%s: %w", title, err) // most errors of the daemon name it
				}
				errs = append(errs, err)
				continue
			}
			object := map[string]any{"event": what, "info_hash": t.InfoHash, "torrent": t.Name}
			errs = append(errs,
				terminal.PrintResult(cmd, object, "%s %d  %s\n", what, t.Number, t.Name))
		}
		return errors.Join(errs...)
	}
}

func allFlag() cli.Flag { return flags.Bool("all", "all torrents") }

func pauseCommand() *cli.Command {
	return onTorrents(&cli.Command{
		Name:  "pause",
		Usage: "pause torrents of the daemon",
		Flags: []cli.Flag{allFlag()},
	}, "paused", func(ctx context.Context, _ *cli.Command, d *v1.Client, t v1.Torrent) error {
		return d.Pause(ctx, t.InfoHash)
	})
}

func resumeCommand() *cli.Command {
	return onTorrents(&cli.Command{
		Name: "resume",
		Usage: "resume torrents of the daemon that are paused, have failed, or have reached " +
			"their ratio or seeding time",
		Flags: []cli.Flag{
			allFlag(),
			flags.Bool("now", "do not wait in the queue"),
		},
	}, "resumed", func(ctx context.Context, cmd *cli.Command, d *v1.Client, t v1.Torrent) error {
		return d.Resume(ctx, t.InfoHash, v1.Resume{Now: cmd.Bool("now")})
	})
}

func removeCommand() *cli.Command {
	return onTorrents(&cli.Command{
		Name:  "remove",
		Usage: "remove torrents from the daemon; their data stays",
		Flags: []cli.Flag{flags.Bool("data", "delete their data, too")},
	}, "removed", func(ctx context.Context, cmd *cli.Command, d *v1.Client, t v1.Torrent) error {
		return d.Remove(ctx, t.InfoHash, cmd.Bool("data"))
	})
}

func renameCommand() *cli.Command {
	return controlling(&cli.Command{
		Name:         "rename",
		Usage:        "rename a torrent of the daemon or its files and directories, also on disk",
		ArgsUsage:    "TORRENT [PATH] NEW",
		ArgValidator: flags.Arguments(2, 3, "want TORRENT [PATH] NEW; see braid rename --help"),
		Description: howToName +
			" PATH is a file as braid show --files lists it, or a directory; without it, the " +
			"name that all paths begin with. NEW is a name or, with slashes, a whole path. " +
			"Nothing is overwritten. braid set --name changes the name in lists only.",
	}, rename)
}

func rename(ctx context.Context, cmd *cli.Command, d *v1.Client) error {
	args := cmd.Args().Slice()
	t, err := theTorrent(ctx, d, args[0])
	if err != nil {
		return err
	}
	in := v1.Rename{To: args[len(args)-1]}
	if len(args) == 3 {
		in.From = strings.TrimSuffix(args[1], "/")
		if !strings.Contains(in.To, "/") {
			in.To = path.Join(path.Dir(in.From), in.To)
		}
	}
	if err := d.Rename(ctx, t.InfoHash, in); err != nil {
		return err
	}
	object := map[string]any{
		"event":     "renamed",
		"info_hash": t.InfoHash,
		"torrent":   t.Name,
		"path":      in.From,
		"to":        in.To,
	}
	return terminal.PrintResult(cmd, object, "renamed %s to %s\n", cmp.Or(in.From, t.Name), in.To)
}

func moveCommand() *cli.Command {
	return onTorrents(&cli.Command{
		Name:        "move",
		Usage:       "move torrents of the daemon to another directory, with their data",
		Description: "The data is moved in the background; braid list shows the state moving.",
		Flags: []cli.Flag{
			&program.FileFlag{
				Name: "to", Required: true, Usage: "move to `DIR`, of the daemon's machine",
			},
			flags.Bool("no-data", "the data is there already: check it there, and leave the old "+
				"directory alone"),
		},
	}, "moving", move)
}

func move(ctx context.Context, cmd *cli.Command, d *v1.Client, t v1.Torrent) error {
	if cmd.String("to") == "" {
		return program.UsageErrorf("--to: want a directory")
	}
	dir, err := filepath.Abs(cmd.String("to"))
	if err != nil {
		return err
	}
	return d.Move(ctx, t.InfoHash, v1.Move{Directory: dir, Data: !cmd.Bool("no-data")})
}
