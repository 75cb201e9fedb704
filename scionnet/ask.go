package scionnet

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/daemon"
	"github.com/scionproto/scion/pkg/daemon/types"
	"github.com/scionproto/scion/pkg/log"
	"github.com/scionproto/scion/pkg/snet"
)

// askTries is how often a question is asked at most, and askAgainWithin how long after the first time
// it is asked again. A service that needs longer to fail is busy, and the next lookup asks it soon.
const (
	askTries       = 4
	askAgainWithin = time.Second
)

// askPaths asks for the paths to dst. scionproto's in-process daemon writes some failures to its
// log only. askPaths reads that log and handles three of them.
//
// A locked table: the daemon verifies all segments of an answer at the same time. It keeps
// certificates in an SQLite database in memory. If two segments bring the same certificate, one of
// them may find the table locked. The daemon then drops this segment and its paths. In a network of
// 16 ASes, one in twenty of the first answers lacked paths. askPaths asks again, and the next try
// finds the certificates in the table.
//
// A part of an answer: the daemon asks for up, core and down segments each by itself. If one of
// these questions fails, the paths from the others are the answer. askPaths asks again. If that does
// not help, it returns these paths together with an error.
//
// No answer: if the control service does not answer within the time of ctx, the daemon returns an
// empty list, as for an AS to which there is no path. askPaths then returns ErrNoControl.
func askPaths(ctx context.Context, c daemon.Connector, dst, src addr.IA, refresh bool) ([]snet.Path, error) {
	start := time.Now()
	for try := 1; ; try++ {
		var l failureLog
		paths, err := c.Paths(log.CtxWith(ctx, &l), dst, src, types.PathReqFlags{Refresh: refresh})
		locked, failure := l.failures()
		incomplete := len(paths) > 0 && failure != nil && time.Since(start) < askAgainWithin
		switch {
		case (locked || isLocked(err) || incomplete) && try < askTries:
			refresh = true
		case len(paths) == 0 && err == nil && failure != nil:
			return nil, fmt.Errorf("%w from the control service of %s: %w", ErrNoControl, src, failure)
		case err == nil && failure != nil:
			return paths, fmt.Errorf("a part of the answer is missing: %w", failure)
		default:
			return paths, err
		}
	}
}

func isLocked(err error) bool { return err != nil && strings.Contains(err.Error(), "table is locked") }

// failureLog is the daemon's log for one question. It keeps the failures.
type failureLog struct {
	mu     sync.Mutex
	locked bool  // the daemon found a table locked
	first  error // the first failure
}

var _ log.Logger = (*failureLog)(nil)

func (l *failureLog) New(...any) log.Logger { return l }

func (l *failureLog) Debug(_ string, values ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range values {
		if err, ok := v.(error); ok && err != nil {
			l.locked = l.locked || isLocked(err)
			if l.first == nil {
				l.first = err
			}
		}
	}
}

func (l *failureLog) Info(msg string, values ...any)  { l.Debug(msg, values...) }
func (l *failureLog) Error(msg string, values ...any) { l.Debug(msg, values...) }
func (l *failureLog) Enabled(log.Level) bool          { return true }

func (l *failureLog) failures() (locked bool, first error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.locked, l.first
}
