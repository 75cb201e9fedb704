package scionnet

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/daemon"
	"github.com/scionproto/scion/pkg/daemon/types"
	"github.com/scionproto/scion/pkg/log"
	"github.com/scionproto/scion/pkg/snet"
)

// lockedTries is how often a question is asked until no segment of its answer is missing.
const lockedTries = 4

// askPaths asks for the paths to dst, again if segments of the answer are missing by accident.
//
// scionproto's in-process daemon verifies the segments of an answer at the same time and keeps their certificates in an
// SQLite database in memory. Of two segments that bring the same certificate, one may find the table locked. It then counts
// as forged, and the paths along it are missing from an answer without an error: the log alone tells. With 16 ASes this
// happens to one in twenty of a host's first answers. The next try finds the certificates in the table.
func askPaths(ctx context.Context, c daemon.Connector, dst, src addr.IA, refresh bool) (paths []snet.Path, err error) {
	for range lockedTries {
		var l lockedLog
		paths, err = c.Paths(log.CtxWith(ctx, &l), dst, src, types.PathReqFlags{Refresh: refresh})
		if !l.locked.Load() && !isLocked(err) {
			break
		}
		refresh = true
	}
	return paths, err
}

func isLocked(err error) bool { return err != nil && strings.Contains(err.Error(), "table is locked") }

// lockedLog is the log of one question. It looks for an error by a locked table.
type lockedLog struct{ locked atomic.Bool }

var _ log.Logger = (*lockedLog)(nil)

func (l *lockedLog) New(...any) log.Logger { return l }

func (l *lockedLog) Debug(_ string, values ...any) {
	for _, v := range values {
		if err, ok := v.(error); ok && isLocked(err) {
			l.locked.Store(true)
		}
	}
}

func (l *lockedLog) Info(msg string, values ...any)  { l.Debug(msg, values...) }
func (l *lockedLog) Error(msg string, values ...any) { l.Debug(msg, values...) }
func (l *lockedLog) Enabled(log.Level) bool          { return true }
