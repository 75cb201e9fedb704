package node

import (
	"fmt"
	"time"

	"braid/client"
	"braid/pathsel"
)

// Rates are limits in bits per second, as users set them. 0 is no limit. A limit that is switched
// off keeps its value, but has no effect.
type Rates struct {
	Upload      int64 `json:"upload_bit_s"`
	UploadOff   bool  `json:"upload_off,omitempty"`
	Download    int64 `json:"download_bit_s"`
	DownloadOff bool  `json:"download_off,omitempty"`
	// Paths limit the connections over paths with a matching interface. Each rate is for all such
	// connections together, in each direction.
	Paths []PathRate `json:"paths,omitempty"`
}

// PathRate limits paths.
type PathRate struct {
	// Pattern is an interface such as 1-ff00:0:110#2, or a pattern of hops: see
	// pathsel.ParsePattern.
	Pattern string `json:"pattern"`
	Rate    int64  `json:"bit_s"`
}

// maxPathRates bounds the patterns, each of which is compared with the path of every connection.
const maxPathRates = 256

// Limits returns the limits that are on, or an error if a limit is too low or a pattern is
// malformed.
func (r Rates) Limits() (l client.Limits, err error) {
	if r.Upload < 0 || r.Download < 0 {
		return l, fmt.Errorf("a limit of %d bit/s: want 0 or more", min(r.Upload, r.Download))
	}
	if len(r.Paths) > maxPathRates {
		return l, fmt.Errorf("limits of %d paths: at most %d", len(r.Paths), maxPathRates)
	}
	l = client.Limits{Upload: r.Upload, Download: r.Download}
	for _, x := range r.Paths {
		p, err := pathsel.ParsePattern(x.Pattern)
		if err != nil {
			return l, err
		}
		l.Paths = append(l.Paths, client.PathLimit{Pattern: p, Rate: x.Rate})
	}
	if err := l.Validate(); err != nil {
		return l, err
	}
	if r.UploadOff {
		l.Upload = 0
	}
	if r.DownloadOff {
		l.Download = 0
	}
	return l, nil
}

// Keeping returns the rates with the values that old keeps while its limits are off, where r has no
// limit. Interfaces without a switch show such a limit as none, and clients send back what they
// read.
func (r Rates) Keeping(old Rates) Rates {
	if r.Upload == 0 && old.UploadOff {
		r.Upload, r.UploadOff = old.Upload, true
	}
	if r.Download == 0 && old.DownloadOff {
		r.Download, r.DownloadOff = old.Download, true
	}
	return r
}

func (r Rates) isZero() bool { return r.Upload == 0 && r.Download == 0 && len(r.Paths) == 0 }

// RatesOf is the inverse of Rates.Limits.
func RatesOf(l client.Limits) Rates {
	r := Rates{Upload: l.Upload, Download: l.Download}
	for _, p := range l.Paths {
		r.Paths = append(r.Paths, PathRate{p.Pattern.String(), p.Rate})
	}
	return r
}

// Alternative are other rates, which hold at scheduled times, or when the user has switched them
// on.
type Alternative struct {
	Rates    Rates    `json:"rates"`
	Schedule Schedule `json:"schedule"`
	// Hand is the user's switch; nil: the user has not switched. It holds until the schedule begins
	// or ends the alternative rates the next time; without a schedule it holds for ever. Since is
	// the time of the switch.
	Hand  *bool     `json:"hand,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// Schedule says when alternative rates hold: on some days of the week, from one minute of the day
// to another, in local time. If To is not after From, they hold until To of the next day.
type Schedule struct {
	On   bool    `json:"on"`
	From int     `json:"from_minute"`
	To   int     `json:"to_minute"`
	Days [7]bool `json:"days"` // the days of the week on which it begins, Sunday first
}

const dayMinutes = 24 * 60

// holds tells whether the alternative rates hold according to the schedule.
func (s Schedule) holds(now time.Time) bool {
	if !s.On {
		return false
	}
	minute, day := now.Hour()*60+now.Minute(), int(now.Weekday())
	if s.From < s.To {
		return s.Days[day] && s.From <= minute && minute < s.To
	}
	return s.Days[day] && minute >= s.From || s.Days[(day+6)%7] && minute < s.To
}

// turned tells whether the alternative rates have begun or ended, by the schedule, between two
// times.
func (s Schedule) turned(from, to time.Time) bool {
	if !s.On {
		return false
	}
	if most := from.AddDate(0, 0, 8); to.After(most) { // a schedule repeats after a week
		to = most
	}
	was := s.holds(from)
	for at := from.Truncate(time.Minute).Add(time.Minute); !at.After(to); at = at.Add(time.Minute) {
		if s.holds(at) != was {
			return true
		}
	}
	return false
}

// Switched returns the user's switch while it holds, and otherwise nil.
func (a Alternative) Switched(now time.Time) *bool {
	if a.Hand == nil || a.Schedule.turned(a.Since, now) {
		return nil
	}
	return a.Hand
}

// holds tells whether the alternative rates hold.
func (a Alternative) holds(now time.Time) bool {
	if on := a.Switched(now); on != nil {
		return *on
	}
	return a.Schedule.holds(now)
}

func (a Alternative) check() error {
	s := a.Schedule
	if s.From < 0 || s.From >= dayMinutes || s.To < 0 || s.To >= dayMinutes {
		return fmt.Errorf("a schedule from minute %d to %d of the day: want 0 to %d",
			s.From, s.To, dayMinutes-1)
	}
	_, err := a.Rates.Limits()
	return err
}
