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

// lockedTries is how often a question is asked at most.
const lockedTries = 4

// askPaths asks for the paths to dst. It asks again if a locked database table has cost the answer some of them.
//
// scionproto's in-process daemon verifies all segments of an answer at the same time. It keeps certificates in an SQLite
// database in memory. If two segments bring the same certificate, one of them may find the table locked. The daemon then
// drops this segment and its paths. It returns no error, but writes one to its log. In a network of 16 ASes, one in twenty
// of the first answers lacked paths. The next try finds the certificates in the table.
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

// lockedLog is the daemon's log for one question. It notes whether the daemon found a table locked.
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
