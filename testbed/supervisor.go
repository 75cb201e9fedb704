package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// The supervisor is a process that owns the network after 'up' has returned. Until the network is
// ready, up and the supervisor talk:
//
//	up                                         supervisor
//	Options as JSON ------------- stdin -----> starts the network
//	             <--------------- stdout ----- {"progress": ...}, repeated
//	             <--------------- stdout ----- {"ready": true} or {"error": "..."}
//
// If stdin ends before that, up is gone and the supervisor gives up.

const (
	supervisorLog = "supervisor.log"
	abortGrace    = 15 * time.Second // for the supervisor to clean up when up is interrupted
)

type supervisorEvent struct {
	Progress *Progress `json:"progress,omitempty"`
	Ready    bool      `json:"ready,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// Supervise runs the network that Launch asks for on in, until ctx ends or it is taken down.
func Supervise(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger) error {
	events := json.NewEncoder(out)
	var opts Options
	options := json.NewDecoder(in)
	if err := options.Decode(&opts); err != nil {
		return fmt.Errorf("supervisor: read options (it is started by 'braid-testbed up', not by hand): %w", err)
	}
	starting, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	go func() {
		_, _ = io.Copy(io.Discard, in) // ends with whoever started us
		abandon(errors.New("the command that started the testbed has ended"))
	}()
	opts.Log = log
	opts.Progress = func(p Progress) { _ = events.Encode(supervisorEvent{Progress: &p}) }
	n, err := Start(starting, opts)
	if err != nil {
		_ = events.Encode(supervisorEvent{Error: err.Error()}) // the exit code says it, too
		return err
	}
	defer n.Close()
	if err := events.Encode(supervisorEvent{Ready: true}); err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	select {
	case <-ctx.Done():
		log.Info("taking the testbed down", "reason", context.Cause(ctx))
	case <-n.Done():
	}
	return nil
}

// Launch starts a supervisor in the background with that command, and waits until its network is
// up. If ctx ends first, Launch takes everything down.
func Launch(ctx context.Context, command []string, opts Options) error {
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return fmt.Errorf("testbed directory %s: %w", opts.Dir, err)
	}
	// Check the lock here, because a second supervisor must not truncate the log.
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, supervisorLog))
	lock.Close()
	if err != nil {
		return fmt.Errorf("create supervisor log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = log
	cmd.SysProcAttr = ownSession()
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}
	ready := make(chan error, 1)
	go func() {
		_ = json.NewEncoder(in).Encode(opts) // if this fails, follow returns the reason
		ready <- follow(out, opts.Progress)
	}()
	select {
	case err = <-ready:
		if err == nil {
			// It lives on without us.
			in.Close()
			return cmd.Process.Release()
		}
	case <-ctx.Done():
		err = fmt.Errorf("testbed taken down again: %w", context.Cause(ctx))
	}
	in.Close()
	// Killing it ends its children, too. Its exit code says nothing, since it was told to stop.
	kill := time.AfterFunc(abortGrace, func() { cmd.Process.Kill() })
	_ = cmd.Wait()
	kill.Stop()
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("supervisor ended (%v); the end of %s:\n%s",
			cmd.ProcessState, log.Name(), LastWords(log.Name(), 0))
	}
	return err
}

// follow reads the supervisor's events until the network is up.
func follow(out io.Reader, progress func(Progress)) error {
	for events := json.NewDecoder(out); ; {
		var e supervisorEvent
		err := events.Decode(&e)
		switch {
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return fmt.Errorf("supervisor: %w", err)
		case e.Error != "":
			return errors.New(e.Error)
		case e.Ready:
			return nil
		case e.Progress != nil && progress != nil:
			progress(*e.Progress)
		}
	}
}
