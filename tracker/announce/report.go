package announce

import (
	"errors"
	"strings"
	"time"

	"braid/tracker/wire"
)

// reportEvery is the least time between reports to one tracker, which would pass them over. The first one is due so long
// after the first answer: earlier there is little to tell, and a regular announce may come after the end of the download.
const reportEvery = time.Minute

// reporting is what a tracker has been told of paths. It belongs to the tier's goroutine.
type reporting struct {
	most    int       // how many it takes; 0: none, or not known yet
	last    time.Time // when it was told last
	planned bool      // an announce of its own was planned for the first report
	muted   bool      // it has refused an announce with reports
}

// first moves the next announce forward to the first report.
func (r *reporting) first(a *Announcer, began, next time.Time, answer wire.Answer) time.Time {
	if r.most == 0 || r.planned || a.cfg.Reports == nil {
		return next
	}
	r.planned = true
	if at := began.Add(max(reportEvery, answer.MinInterval)); at.Before(next) {
		return at
	}
	return next
}

// due are the reports to send with an announce. The end of a download is worth one at any time.
func (r *reporting) due(a *Announcer, end bool) []wire.PathReport {
	if r.most == 0 || r.muted || a.cfg.Reports == nil || time.Since(r.last) < reportEvery && !end {
		return nil
	}
	all := a.cfg.Reports()
	return all[:min(len(all), r.most)]
}

// sent notes what has become of an announce.
func (r *reporting) sent(reports []wire.PathReport, answer wire.Answer, err error) {
	var f *wire.Failure
	switch {
	case err == nil:
		r.most = answer.Reports
	case errors.As(err, &f) && strings.HasPrefix(f.Reason, wire.ReportsRefused):
		r.muted = true
	}
	if err == nil && len(reports) > 0 {
		r.last = time.Now()
	}
}
