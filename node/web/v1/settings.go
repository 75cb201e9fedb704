package v1

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"braid/client"
	"braid/node"
	"braid/pathsel"
	"braid/units"
	"braid/units/lists"
)

// newRates converts rates. A limit that is switched off becomes 0, which is no limit.
func newRates(r node.Rates) Limits {
	out := Limits{Paths: lists.Map(r.Paths, func(p node.PathRate) PathLimit {
		return PathLimit{p.Pattern, float64(p.Rate) / mega}
	})}
	if !r.UploadOff {
		out.UploadMbitS = float64(r.Upload) / mega
	}
	if !r.DownloadOff {
		out.DownloadMbitS = float64(r.Download) / mega
	}
	return out
}

// parse checks and converts limits, which replace old ones.
func (l Limits) parse(old node.Rates) (out node.Rates, err error) {
	if out.Upload, err = bitsPerSecond(l.UploadMbitS, "upload_mbit_s"); err != nil {
		return out, err
	}
	if out.Download, err = bitsPerSecond(l.DownloadMbitS, "download_mbit_s"); err != nil {
		return out, err
	}
	if out.Paths, err = parsePathLimits(l.Paths); err != nil {
		return out, err
	}
	if _, err := out.Limits(); err != nil {
		return out, wrong("limits: %w", err)
	}
	return out.Keeping(old), nil
}

// apply replaces rates, unless there are no limits in the request.
func (l *Limits) apply(to *node.Rates) (err error) {
	if l != nil {
		*to, err = l.parse(*to)
	}
	return err
}

// parsePathLimits converts limits for paths. It leaves out limits of 0.
func parsePathLimits(all []PathLimit) (out []node.PathRate, err error) {
	for _, p := range all {
		rate, err := bitsPerSecond(p.MbitS, "the limit for "+p.Pattern)
		if err != nil {
			return nil, err
		}
		if rate > 0 {
			out = append(out, node.PathRate{Pattern: p.Pattern, Rate: rate})
		}
	}
	return out, nil
}

func bitsPerSecond(mbit float64, what string) (int64, error) {
	if !(mbit >= 0 && mbit*mega <= float64(units.MaxRate)) {
		return 0, wrong("%s is %v: want 0 for no limit, or up to %s",
			what, mbit, units.FormatRate(units.MaxRate))
	}
	return int64(math.Round(mbit * mega)), nil
}

func newGoal(g node.Goal) Goal {
	return Goal{Ratio: g.Ratio, TimeS: g.Time.Seconds(), IdleS: g.Idle.Seconds()}
}

func (g *Goal) apply(to *node.Goal) {
	if g != nil {
		*to = node.Goal{Ratio: g.Ratio, Time: seconds(g.TimeS), Idle: seconds(g.IdleS)}
	}
}

// seconds converts a number of seconds. If it is too large, the result is the longest duration.
func seconds(s float64) time.Duration {
	return time.Duration(max(math.MinInt64/2, min(math.MaxInt64/2, s*float64(time.Second))))
}

func newPolicy(p node.Policy) PathPolicy {
	return PathPolicy{
		Sequence:     p.Sequence,
		ACL:          p.ACL,
		Preference:   lists.Split(p.Preference, ","),
		MaxLatencyMs: ms(p.MaxLatency),
		MinMTUBytes:  p.MinMTU,
	}
}

func (p PathPolicy) parse() node.Policy {
	return node.Policy{
		Sequence:   p.Sequence,
		ACL:        p.ACL,
		Preference: strings.Join(p.Preference, ","),
		MaxLatency: seconds(p.MaxLatencyMs / 1000),
		MinMTU:     p.MinMTUBytes,
	}
}

func (p *PathPolicy) apply(to *node.Policy) {
	if p != nil {
		*to = p.parse()
	}
}

func newWholePolicy(s node.Settings) Policy {
	return Policy{PathPolicy: newPolicy(s.Policy), Limits: newRates(s.Rates).Paths}
}

func (a *API) policy(*http.Request, none) (Policy, error) {
	return newWholePolicy(a.Node.Settings()), nil
}

// setPolicy replaces the policy, and the limits for paths. The limits replace those of the usual
// and those of the alternative rates: a limit of an interface should not end with the schedule.
func (a *API) setPolicy(_ *http.Request, in Policy) (Policy, error) {
	limits, err := parsePathLimits(in.Limits)
	if err != nil {
		return Policy{}, err
	}
	if err := a.Node.Change(func(s *node.Settings) error {
		s.Policy, s.Rates.Paths, s.Alternative.Rates.Paths = in.parse(), limits, limits
		return nil
	}); err != nil {
		return Policy{}, wrong("%w", err)
	}
	return newWholePolicy(a.Node.Settings()), nil
}

// with returns the policy with more forbidden interfaces, and with added or replaced limits.
func (p Policy) with(forbid []string, limit []PathLimit) (Policy, error) {
	for _, pattern := range forbid {
		x, err := pathsel.ParsePattern(pattern)
		if err != nil {
			return p, wrong("forbid: %w; want ISD, ISD-AS or ISD-AS#interface", err)
		}
		if strings.TrimSpace(p.ACL) == "" {
			p.ACL = "+"
		}
		p.ACL = fmt.Sprintf("- %s, %s", x, p.ACL)
	}
	p.Limits = slices.Clone(p.Limits)
	for _, l := range limit {
		p.Limits = slices.DeleteFunc(p.Limits, func(o PathLimit) bool {
			return o.Pattern == l.Pattern
		})
		p.Limits = append(p.Limits, l)
	}
	return p, nil
}

// preview applies a policy to the known paths of all torrents.
func (a *API) preview(_ *http.Request, in PreviewPolicy) (PolicyPreview, error) {
	base := newWholePolicy(a.Node.Settings())
	if in.Policy != nil {
		base = *in.Policy
	}
	p, err := base.with(in.Forbid, in.Limit)
	if err != nil {
		return PolicyPreview{}, err
	}
	policy, err := p.parse().Parse()
	if err != nil {
		return PolicyPreview{}, wrong("%w", err)
	}
	rates, err := Limits{Paths: p.Limits}.parse(node.Rates{})
	if err != nil {
		return PolicyPreview{}, err
	}
	limits, err := rates.Limits()
	if err != nil {
		return PolicyPreview{}, wrong("%w", err)
	}
	out := PolicyPreview{Policy: p, Destinations: []PreviewDestination{}}
	out.Policy.Preference = append([]string{}, p.Preference...) // [] rather than null
	out.Policy.Limits = append([]PathLimit{}, p.Limits...)
	for _, known := range a.destinations() {
		allowed, refused := policy.Apply(known.paths)
		paths := lists.Map(allowed, func(x pathsel.Path) PreviewPath {
			return PreviewPath{
				Fingerprint: x.Fingerprint,
				Hops:        hopsOf(x),
				Allowed:     true,
				LimitMbitS:  lowest(limits, x),
			}
		})
		for _, x := range refused {
			paths = append(paths, PreviewPath{
				Fingerprint: x.Path.Fingerprint,
				Hops:        hopsOf(x.Path),
				Clause:      string(x.Clause),
				Reason:      x.Reason,
			})
		}
		out.Destinations = append(out.Destinations,
			PreviewDestination{known.to.String(), len(allowed), paths})
	}
	return out, nil
}

var days = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} // by time.Weekday

func newSettings(s node.Settings) Settings {
	x := s.Alternative.Schedule
	out := Settings{
		Limits:          newRates(s.Rates),
		Alternative:     newRates(s.Alternative.Rates),
		ActiveDownloads: s.Queue.Downloads,
		ActiveSeeds:     s.Queue.Seeds,
		Schedule: Schedule{
			Enabled: x.On,
			Begin:   clock(x.From),
			End:     clock(x.To),
			Days:    []string{},
		},
		Directory:      s.Dir,
		CompleteDir:    s.CompleteDir,
		WatchDir:       s.Watch.Dir,
		Watched:        cmp.Or(s.Watch.Then, "keep"),
		Policy:         newPolicy(s.Policy),
		Goal:           newGoal(s.Goal),
		AddPaused:      s.AddPaused,
		PeerExchange:   !s.NoPEX,
		LocalDiscovery: s.LSD,
	}
	if !s.ScriptOff {
		out.Script = s.Script
	}
	on := s.Alternative.Switched(time.Now())
	out.Schedule.Always = on != nil && *on
	for i, on := range x.Days {
		if on {
			out.Schedule.Days = append(out.Schedule.Days, days[i])
		}
	}
	return out
}

// clock returns a minute of the day as HH:MM.
func clock(minute int) string { return fmt.Sprintf("%02d:%02d", minute/60, minute%60) }

func parseClock(text string) (int, error) {
	t, err := time.Parse("15:04", text)
	if err != nil {
		return 0, wrong("schedule: %q is no time: want HH:MM", text)
	}
	return t.Hour()*60 + t.Minute(), nil
}

func (s *Schedule) apply(to *node.Alternative) (err error) {
	if s == nil {
		return nil
	}
	to.Schedule = node.Schedule{On: s.Enabled}
	if to.Schedule.From, err = parseClock(s.Begin); err != nil {
		return err
	}
	if to.Schedule.To, err = parseClock(s.End); err != nil {
		return err
	}
	for _, d := range s.Days {
		i := slices.Index(days, d)
		if i < 0 {
			return wrong("schedule: %q is no day: want %s", d, strings.Join(days, ", "))
		}
		to.Schedule.Days[i] = true
	}
	switch {
	case s.Always:
		to.Hand, to.Since = new(true), time.Now()
	case to.Hand != nil && *to.Hand:
		to.Hand = nil
	}
	return nil
}

func (a *API) settings(*http.Request, none) (Settings, error) {
	return newSettings(a.Node.Settings()), nil
}

func (a *API) changeSettings(_ *http.Request, in ChangeSettings) (Settings, error) {
	if err := a.Node.Change(in.apply); err != nil {
		return Settings{}, wrong("%w", err)
	}
	return newSettings(a.Node.Settings()), nil
}

// apply sets the settings that the request names.
func (in ChangeSettings) apply(s *node.Settings) error {
	err := cmp.Or(in.Limits.apply(&s.Rates), in.Alternative.apply(&s.Alternative.Rates),
		in.Schedule.apply(&s.Alternative))
	if err != nil {
		return err
	}
	script := s.Script
	for _, x := range []struct {
		from, to *string
		name     string
	}{
		{in.Directory, &s.Dir, "directory"}, {in.CompleteDir, &s.CompleteDir, "complete_directory"},
		{in.WatchDir, &s.Watch.Dir, "watch_directory"}, {in.Script, &s.Script, "completion_script"},
	} {
		if x.from == nil {
			continue
		}
		mayBeEmpty := x.to != &s.Dir
		if *x.to = *x.from; !filepath.IsAbs(*x.from) && (*x.from != "" || !mayBeEmpty) {
			return wrong("%s %q: want an absolute path", x.name, *x.from)
		}
	}
	if s.ScriptOff && s.Script == "" { // the client has read that there is none
		s.Script = script
	} else if in.Script != nil {
		s.ScriptOff = false
	}
	set(&s.Watch.Then, in.Watched)
	set(&s.Queue.Downloads, in.ActiveDownloads)
	set(&s.Queue.Seeds, in.ActiveSeeds)
	set(&s.AddPaused, in.AddPaused)
	if in.PeerExchange != nil {
		s.NoPEX = !*in.PeerExchange
	}
	set(&s.LSD, in.LocalDiscovery)
	in.Goal.apply(&s.Goal)
	in.Policy.apply(&s.Policy)
	return nil
}

// set changes a value if there is a new one.
func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// LimitsOf converts limits.
func LimitsOf(l client.Limits) Limits { return newRates(node.RatesOf(l)) }
