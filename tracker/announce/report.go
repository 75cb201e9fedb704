package announce

import (
	"errors"
	"strings"
	"time"

	"braid/tracker/wire"
)

// reportEvery is the shortest time between reports to one tracker, which would ignore more of them.
// The first report follows this time after the first answer. Earlier there is little to report; at
// the next regular announce, the download may be over.
const reportEvery = time.Minute

// reporting is the state of path reports to one tracker. It belongs to the tier's goroutine.
type reporting struct {
	most    int       // reports that it accepts with an announce; 0: none, or unknown
	last    time.Time // when it last got reports
	planned bool      // the announce with the first report was planned
	muted   bool      // it refused an announce because of its reports
}

// first moves the next announce forward to the time of the first report.
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

// due are the reports to send with an announce. The end of a download is always worth a report.
func (r *reporting) due(a *Announcer, end bool) []wire.PathReport {
	if r.most == 0 || r.muted || a.cfg.Reports == nil || time.Since(r.last) < reportEvery && !end {
		return nil
	}
	all := a.cfg.Reports()
	return all[:min(len(all), r.most)]
}

// sent notes the result of an announce.
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
