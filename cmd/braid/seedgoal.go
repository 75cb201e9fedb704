package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"braid/client"
	"braid/node/event"
)

func seedGoalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.FloatFlag{Name: "ratio", HideDefault: true, Usage: "stop serving a torrent when this run has sent `N` times its size (default: no limit)"},
		&durationFlag{Name: "seed-time", Usage: "stop serving a torrent `TIME` after it is complete, such as 30m or 24h (default: no limit)"},
	}
}

// seedGoal is when a torrent has been served for long enough: when it has reached one of the two, as in other clients. 0 is never.
type seedGoal struct {
	ratio float64
	time  time.Duration
}

func parseSeedGoal(cmd *cli.Command) (seedGoal, error) {
	g := seedGoal{cmd.Float("ratio"), cmd.Duration("seed-time")}
	if cmd.IsSet("ratio") && (!(g.ratio > 0) || math.IsInf(g.ratio, 0)) {
		return g, usageErrorf("--ratio %v: want a number above 0, such as 1.5", g.ratio)
	}
	if cmd.IsSet("seed-time") && g.time <= 0 {
		return g, usageErrorf("--seed-time %v: want more than 0", g.time)
	}
	return g, nil
}

func (g seedGoal) isSet() bool { return g != seedGoal{} }

// orUntil goes on with a sentence about serving until interrupted.
func (g seedGoal) orUntil() string {
	var out string
	if g.ratio > 0 {
		out += fmt.Sprintf(", or %v times the size is sent", g.ratio)
	}
	if g.time > 0 {
		out += fmt.Sprintf(", or for %v", g.time)
	}
	return out
}

// reached says why a complete torrent is not served any longer; it is empty if it is served. Partial downloads count by the
// size of what was wanted.
func (g seedGoal) reached(p client.Progress, served time.Duration) string {
	switch {
	case p.Err != nil:
	case g.ratio > 0 && float64(p.Sent) >= g.ratio*float64(p.Total):
		return fmt.Sprintf("ratio %.2f is reached", g.ratio)
	case g.time > 0 && served >= g.time:
		return fmt.Sprintf("served for %v", g.time)
	}
	return ""
}

// until closes each transfer that has been served enough. The context that it returns ends with the other one, or when none is
// left that is served. The function ends all of this.
func (g seedGoal) until(ctx context.Context, out *display, transfers []*client.Transfer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	if !g.isSet() {
		return ctx, cancel
	}
	var all sync.WaitGroup
	for _, t := range transfers {
		all.Go(func() {
			if reason := g.wait(ctx, t); reason != "" {
				t.Close()
				out.served(t, reason)
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		all.Wait()
		cancel()
	}()
	return ctx, func() { cancel(); <-ended }
}

// wait returns why the transfer has been served enough; nothing if it has failed, or the context has ended.
func (g seedGoal) wait(ctx context.Context, t *client.Transfer) (reason string) {
	select {
	case <-t.Done():
	case <-ctx.Done():
		return ""
	}
	complete := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		p := t.Progress()
		if reason = g.reached(p, time.Since(complete)); reason != "" || p.Err != nil {
			return reason
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ""
		}
	}
}

// served tells of a torrent that is not served any longer.
func (d *display) served(t *client.Transfer, reason string) {
	p := t.Progress()
	ratio := 0.0
	if p.Total > 0 {
		ratio = float64(p.Sent) / float64(p.Total)
	}
	if d.json {
		d.emit(event.Served{Event: "served", Torrent: p.Name, InfoHash: t.Source().InfoHash.HexString(), Sent: p.Sent, Ratio: ratio, Reason: reason})
		return
	}
	d.people.printf("%s: %s, %s sent; it is not served any longer\n", p.Name, reason, bytesText(p.Sent))
}
