package sim

import (
	"fmt"
	"testing"
	"time"

	"braid/pathsel"
)

func ia(n int) pathsel.IA { return pathsel.IA(1<<48 | 0xff0000000100 + uint64(n)) }

const ms = time.Millisecond

// direct is n parallel links between two ASes, each of them a path: rates in Mbit/s, one-way delays in ms.
func direct(rateDelay ...float64) (links []Link, paths []pathsel.Path) {
	for i := 0; i < len(rateDelay); i += 2 {
		l := NewLink(ia(1), ia(2), uint64(i/2+1), rateDelay[i], time.Duration(rateDelay[i+1])*ms)
		links = append(links, l)
		paths = append(paths, PathOver(l))
	}
	return links, paths
}

// sharedBottleneck is four paths of which three share their last link.
func sharedBottleneck(shared, alone float64) (links []Link, paths []pathsel.Path) {
	last := NewLink(ia(2), ia(9), 1, shared, 5*ms)
	links = append(links, last)
	for i := range 3 {
		l := NewLink(ia(1), ia(2), uint64(10+i), 100, time.Duration(5+2*i)*ms)
		links = append(links, l)
		paths = append(paths, PathOver(l, last))
	}
	l := NewLink(ia(1), ia(9), 20, alone, 10*ms)
	return append(links, l), append(paths, PathOver(l))
}

func one(selector string, paths []pathsel.Path, maxPaths int) Client {
	s, err := pathsel.New(selector)
	if err != nil {
		panic(err)
	}
	return Client{Name: selector, Selector: s, MaxPaths: maxPaths, Peers: [][]pathsel.Path{paths}, Seed: 7}
}

// limit is what the links carry of payload together, in bits per second.
func limit(mbits ...float64) (sum float64) {
	for _, m := range mbits {
		sum += m * 1e6 * PayloadShare
	}
	return sum
}

func story(t *testing.T, r ClientResult) {
	t.Helper()
	for _, e := range r.Events {
		t.Logf("%8.2fs %-7v %v: %s", e.At.Seconds(), e.Action, e.Key, e.Reason)
	}
}

func TestScratch(t *testing.T) {
	for _, sel := range []string{"first", "all", "slots", "adaptive"} {
		show := func(name string, links []Link, paths []pathsel.Path, lim float64, maxp int) {
			b := time.Now()
			r := Run(Scenario{Links: links, Clients: []Client{one(sel, paths, maxp)}, Duration: 10 * time.Minute, Seed: 1})
			c := r.Clients[0]
			fmt.Printf("%-10s %-20s %.3f (first min %.3f) events %d  %v\n", sel, name, c.Rate(60*time.Second, 600*time.Second)/lim, c.Rate(0, 60*time.Second)/lim, len(c.Events), time.Since(b))
			if sel == "adaptive" {
				story(t, c)
			}
		}
		l, p := direct(20, 10, 20, 10)
		show("equal", l, p, limit(40), 8)
		l, p = direct(30, 15, 15, 45)
		show("unequal", l, p, limit(45), 8)
		l, p = direct(30, 5, 3, 50)
		show("10:1", l, p, limit(33), 8)
		l, p = sharedBottleneck(30, 15)
		show("shared", l, p, limit(45), 8)
	}
}
