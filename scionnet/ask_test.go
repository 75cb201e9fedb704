package scionnet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/daemon"
	"github.com/scionproto/scion/pkg/daemon/types"
	"github.com/scionproto/scion/pkg/log"
	"github.com/scionproto/scion/pkg/snet"
)

// answer is one answer of a daemon: a number of paths, and the failure that it writes to its log,
// after some time.
type answer struct {
	paths   int
	failure error
	after   time.Duration
}

// answers is a daemon that gives these answers, the last one again and again.
type answers struct {
	daemon.Connector
	of    []answer
	asked int
}

func (a *answers) Paths(ctx context.Context, _, _ addr.IA, _ types.PathReqFlags) ([]snet.Path, error) {
	now := a.of[min(a.asked, len(a.of)-1)]
	a.asked++
	time.Sleep(now.after)
	log.FromCtx(ctx).Debug("Segment lookup failed", "try", 1, "err", now.failure)
	return make([]snet.Path, now.paths), nil
}

func TestPartOfAnAnswer(t *testing.T) {
	busy, locked := errors.New("no attempts left"), errors.New("database table is locked: chains")
	for name, c := range map[string]struct {
		of           []answer
		paths, asked int
		noControl    bool
	}{
		"whole":                {of: []answer{{paths: 7}}, paths: 7, asked: 1},
		"part, then whole":     {of: []answer{{paths: 2, failure: busy}, {paths: 7}}, paths: 7, asked: 2},
		"locked, then whole":   {of: []answer{{failure: locked}, {paths: 7}}, paths: 7, asked: 2},
		"part again and again": {of: []answer{{paths: 2, failure: busy}}, paths: 2, asked: askTries},
		"part after seconds":   {of: []answer{{paths: 2, failure: busy, after: 4 * time.Second}}, paths: 2, asked: 1},
		"no path":              {of: []answer{{}}, asked: 1},
		"no answer":            {of: []answer{{failure: busy}}, asked: 1, noControl: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answers{of: c.of}
				paths, err := askPaths(t.Context(), a, 1, 2, false)
				if whole := a.of[min(a.asked, len(a.of))-1].failure == nil; whole != (err == nil) {
					t.Errorf("error %v", err)
				}
				if len(paths) != c.paths || a.asked != c.asked || errors.Is(err, ErrNoControl) != c.noControl {
					t.Errorf("%d paths after %d questions, %v", len(paths), a.asked, err)
				}
			})
		})
	}
}
