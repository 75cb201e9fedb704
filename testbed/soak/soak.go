// Package soak runs braid through faults: a network, two seeders, a tracker and a stream of
// downloads, while links fail, routers stop, processes are killed, a disk fills, and hostile hosts
// attack. The plan of a run is a function of a seed (plan.go). The run carries it out, and checks
// all the time that braid keeps its promises:
//
//   - every piece that is announced as verified is on disk with the right content, and so is all
//     data in the end
//   - the completion record of a killed download is right
//   - every download ends
//   - no process panics or ends by itself, and memory is bounded
//   - memory, descriptors and goroutines of the long-lived processes return to their levels
//
// The speed of the machine does not matter: the run waits as long as there is progress.
package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "embed"

	"braid/pathsel"
	"braid/scionnet"
	"braid/testbed"
)

const (
	// patience is how long the run waits without progress. It is far longer than any timeout of
	// braid or its engine, and than a busy machine of two cores needs.
	patience = 4 * time.Minute
	// maxMemory bounds the memory of a process: ten times that of a braid in a quiet swarm.
	maxMemory = 512 << 20
	// heapSlack and memorySlack are allowed if they are more than 20 %. A quiet process is so small
	// that a few buffers and partly used pages of Go's allocator exceed 20 %.
	heapSlack, memorySlack = 1 << 20, 6 << 20
	// concurrent downloads; more would only be slower, on two cores.
	concurrent = 3
	torrents   = 3
)

// The roles of the ASes.
const (
	home    = 1<<48 | 0xff00_0000_0110 // the first seeder, and the tracker
	abroad  = 1<<48 | 0xff00_0000_0111 // the downloads
	second  = 1<<48 | 0xff00_0000_0112 // the second seeder
	hostile = 1<<48 | 0xff00_0000_0113

	tracker, seeder1, seeder2 = "tracker", "seeder-1", "seeder-2"
	trackerPort, seederPort   = 7000, 7001
)

//go:embed soak.topo
var topo []byte

func topology() (testbed.Topology, error) {
	return testbed.ParseTopology("soak.topo", bytes.NewReader(topo))
}

// routersOf lists one interface of each router.
func routersOf(t testbed.Topology) (out []pathsel.Interface) {
	seen := map[string]bool{}
	for _, l := range t.Links {
		for _, e := range []testbed.LinkEnd{l.A, l.B} {
			if key := e.Interface.IA.String() + e.Router; !seen[key] {
				seen[key] = true
				out = append(out, e.Interface)
			}
		}
	}
	return out
}

// Options say what to run.
type Options struct {
	Seed   uint64
	Length time.Duration // of the faults; starting the network and coming to rest take longer
	Dir    string        // for logs and data; it must exist
	Braid  string        // the program
	// SCIONBin is as in [testbed.Options].
	SCIONBin string
	Say      func(line string)
}

// Result is the outcome of a run.
type Result struct {
	Seed      uint64           `json:"seed"`
	Seconds   float64          `json:"seconds"`
	Downloads int              `json:"downloads"` // that succeeded
	Bytes     int64            `json:"bytes"`     // of these downloads
	Restarts  int              `json:"restarts"`  // of downloads, after a kill or a full disk
	Faults    map[Kind]int     `json:"faults"`
	Hostile   map[string]int   `json:"hostile"`            // actions of hostile peers
	LeftOut   string           `json:"left_out,omitempty"` // faults that this machine cannot cause, and why
	Before    map[string]Level `json:"before"`
	After     map[string]Level `json:"after"`
	Failure   string           `json:"failure,omitempty"`
}

// Table writes the result for people.
func (r Result) Table(w io.Writer) {
	fmt.Fprintf(w, "seed %d: %d downloads, %.1f MB, %d restarts, in %.0f s\n",
		r.Seed, r.Downloads, float64(r.Bytes)/1e6, r.Restarts, r.Seconds)
	var faults []string
	for _, k := range Kinds {
		faults = append(faults, fmt.Sprintf("%s %d", k, r.Faults[k]))
	}
	fmt.Fprintln(w, "faults: "+strings.Join(faults, ", "))
	fmt.Fprintf(w, "hostile peers: %v\n", r.Hostile)
	if r.LeftOut != "" {
		fmt.Fprintln(w, "left out: "+r.LeftOut)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Before)) {
		fmt.Fprintf(w, "%-9s before: %v\n%-9s  after: %v\n", name, r.Before[name], "", r.After[name])
	}
}

type run struct {
	Options
	began    time.Time
	log      *os.File // of the network
	network  *testbed.Network
	routers  []pathsel.Interface
	launcher *testbed.Launcher
	attacker *scionnet.Host
	torrents []torrent
	disk     string      // a small one; "" if there is none
	full     atomic.Bool // it is, because a fault fills it
	holder   *os.Process // that has it mounted
	ways     map[testbed.Pair][]testbed.Way
	args     map[string][]string // of the processes that live long
	fail     context.CancelCauseFunc
	work     sync.WaitGroup

	mu          sync.Mutex
	serving     map[string]*process
	downloading map[*process]bool
	result      Result
}

// Run carries out the plan of a seed. The error is the first broken promise, or the reason why the
// run could not take place.
func Run(ctx context.Context, o Options) (Result, error) {
	plan := NewPlan(o.Seed, o.Length)
	ctx, fail := context.WithCancelCause(ctx)
	r := &run{
		Options: o, began: time.Now(), fail: fail, launcher: testbed.NewLauncher(),
		serving: map[string]*process{}, downloading: map[*process]bool{},
		result: Result{Seed: o.Seed, Faults: map[Kind]int{}, Hostile: map[string]int{}},
	}
	var err error
	if r.log, err = os.Create(filepath.Join(o.Dir, "network.log")); err != nil {
		return r.result, err
	}
	defer r.log.Close()
	if err = r.prepare(ctx); err == nil {
		err = r.course(ctx, plan)
	}
	if err != nil {
		fail(err) // the first one stays
		err = context.Cause(ctx)
		r.result.Failure = err.Error()
	}
	fail(nil)
	for _, p := range r.all() {
		p.kill(syscall.SIGKILL)
	}
	if r.holder != nil {
		_ = r.holder.Kill()
	}
	r.work.Wait()
	r.result.Seconds = time.Since(r.began).Seconds()
	r.launcher.Close()
	if r.attacker != nil {
		r.attacker.Close()
	}
	if r.network != nil {
		r.network.Close()
	}
	return r.result, err
}

func (r *run) say(format string, args ...any) {
	r.Say(fmt.Sprintf("%6.1f s  ", time.Since(r.began).Seconds()) + fmt.Sprintf(format, args...))
}

// locked calls a function that uses what mu guards.
func (r *run) locked(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// all returns the processes that run.
func (r *run) all() (all []*process) {
	r.locked(func() { all = slices.AppendSeq(slices.Collect(maps.Values(r.serving)), maps.Keys(r.downloading)) })
	return all
}

// prepare starts the network, tracker and seeders.
func (r *run) prepare(ctx context.Context) error {
	topo, err := topology()
	if err != nil {
		return err
	}
	r.routers = routersOf(topo)
	r.network, err = testbed.Start(ctx, testbed.Options{
		Topology: topo, Dir: filepath.Join(r.Dir, "network"), SCIONBin: r.SCIONBin,
		Log: slog.New(slog.NewTextHandler(r.log, nil)),
	})
	if err != nil {
		return err
	}
	r.say("a network of %d ASes and %d links is up", len(topo.ASes), len(topo.Links))
	attacker := scionnet.Config{ConfigDir: r.network.ConfigDir(hostile), LocalIP: r.network.HostIP(hostile)}
	if r.attacker, err = scionnet.Open(ctx, attacker); err != nil {
		return err
	}
	r.ways = map[testbed.Pair][]testbed.Way{}
	for _, p := range []testbed.Pair{
		{Src: hostile, Dst: home}, {Src: hostile, Dst: abroad}, {Src: home, Dst: abroad}, {Src: abroad, Dst: home},
	} {
		if r.ways[p], err = r.network.Ways(ctx, p.Src, p.Dst); err != nil {
			return err
		}
	}
	if r.disk, err = r.mountDisk(); err != nil {
		r.result.LeftOut = fmt.Sprintf("%s: no small disk on this machine: %v", FullDisk, err)
		r.say("left out: %s", r.result.LeftOut)
	}
	if err := r.makeTorrents(ctx); err != nil {
		return err
	}
	seed := func(ia pathsel.IA, name string) []string {
		return r.onSCION(ia, name, "seed", "--data", r.data(), "--listen", r.network.HostAddr(ia, seederPort),
			"--listen", r.onIP(ia, seederPort), r.torrents[0].file, r.torrents[1].file, r.torrents[2].file)
	}
	r.args = map[string][]string{
		tracker: {
			"tracker", "--data", filepath.Join(r.Dir, "journal"), "--interval", "10s",
			"--config-dir", r.network.ConfigDir(home),
			"--listen", "scion://" + r.network.HostAddr(home, trackerPort),
			"--listen", "http://" + r.onIP(home, trackerPort),
		},
		seeder1: seed(home, seeder1),
		seeder2: seed(second, seeder2),
	}
	for _, name := range []string{tracker, seeder1, seeder2} {
		if err := r.serve(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// onIP returns an address of an AS's host on IP.
func (r *run) onIP(ia pathsel.IA, port int) string {
	return fmt.Sprintf("%s:%d", r.network.HostIP(ia), port)
}

func (r *run) seederAddrs(tcp bool) (out []string) {
	for _, ia := range []pathsel.IA{home, second} {
		if tcp {
			out = append(out, r.onIP(ia, seederPort))
		} else {
			out = append(out, r.network.HostAddr(ia, seederPort))
		}
	}
	return out
}

// onSCION returns the arguments of a braid in an AS, with a key of its own.
func (r *run) onSCION(ia pathsel.IA, name string, args ...string) []string {
	return slices.Concat(args, r.network.HostFlags(ia), []string{"--identity", filepath.Join(r.Dir, name+".pem")})
}

// course, in order:
//  1. run downloads without faults
//  2. carry out the first part of the plan, come to rest, and take the levels of the processes
//  3. carry out the second part, come to rest, and compare the levels
//  4. interrupt all processes, which must end
func (r *run) course(ctx context.Context, plan Plan) (err error) {
	r.work.Go(func() { r.watch(ctx) })
	quiet := []Download{
		{Storage: "file"}, {Torrent: 1, Storage: "mmap"}, {Storage: "bolt", TCP: true},
		{Torrent: 1, Storage: "file", SmallDisk: true},
	}
	if err := r.stream(ctx, quiet, "quiet"); err != nil {
		return err
	}
	first, second := plan.split()
	r.began = time.Now()
	if err := r.carryOut(ctx, first, "warm-up"); err != nil {
		return err
	}
	if r.result.Before, err = r.rest(ctx, nil); err != nil {
		return err
	}
	r.say("levels taken")
	r.began = time.Now().Add(-plan.WarmUp)
	if err := r.carryOut(ctx, second, "download"); err != nil {
		return err
	}
	if r.result.After, err = r.rest(ctx, r.result.Before); err != nil {
		return err
	}
	for _, p := range r.all() {
		p.kill(syscall.SIGINT)
		select {
		case <-p.ended:
		case <-time.After(patience):
			p.kill(syscall.SIGQUIT)
			return fmt.Errorf("%s does not end after an interrupt; its stacks are in %s", p.name, p.log)
		}
		if p.err != nil {
			return fmt.Errorf("%s failed after an interrupt: %w: %s", p.name, p.err, p.lastWords())
		}
	}
	return nil
}

// carryOut causes the faults of a part of the plan, runs its downloads, and waits for the end of
// all.
func (r *run) carryOut(ctx context.Context, part Plan, name string) error {
	var faults sync.WaitGroup
	for _, f := range part.Faults {
		faults.Go(func() {
			if testbed.Sleep(ctx, time.Until(r.began.Add(f.At))) != nil {
				return
			}
			r.say("%s", f.what())
			if err := r.cause(ctx, f); err != nil && ctx.Err() == nil {
				r.fail(fmt.Errorf("%s: %w", f.Kind, err))
			}
			if f.Kind != FullDisk || r.disk != "" {
				r.locked(func() { r.result.Faults[f.Kind]++ })
			}
		})
	}
	err := r.stream(ctx, part.Downloads, name)
	faults.Wait()
	if err = errors.Join(err, context.Cause(ctx)); err == nil {
		r.say("all downloads have ended; waiting for rest")
	}
	return err
}

// stream starts downloads at their times, but few at once, and waits for all.
func (r *run) stream(ctx context.Context, all []Download, name string) error {
	places := make(chan struct{}, concurrent)
	var work sync.WaitGroup
	defer work.Wait()
	for i, d := range all {
		if err := testbed.Sleep(ctx, time.Until(r.began.Add(d.At))); err != nil {
			return err
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		work.Go(func() {
			defer func() { <-places }()
			if err := r.download(ctx, fmt.Sprintf("%s-%d", name, i+1), d); err != nil {
				r.fail(fmt.Errorf("%s-%d: %w", name, i+1, err))
			}
		})
	}
	return nil
}

// watch checks what must hold at any time.
func (r *run) watch(ctx context.Context) {
	for n := 0; testbed.Sleep(ctx, time.Second) == nil; n++ {
		for _, p := range r.all() {
			if m := p.memory(); m > maxMemory {
				r.fail(fmt.Errorf("%s has %d MiB", p.name, m>>20))
			}
		}
		if n%10 == 0 && !r.network.Glance().Healthy() {
			r.fail(errors.New("a process of the network has died"))
		}
	}
}

// rest waits until the long-lived processes are within their earlier levels. Without these, it
// waits until two looks agree.
func (r *run) rest(ctx context.Context, before map[string]Level) (map[string]Level, error) {
	var last map[string]Level
	deadline := time.Now().Add(patience)
	for {
		now := map[string]Level{}
		var errs []error
		for _, name := range []string{tracker, seeder1, seeder2} {
			var p *process
			r.locked(func() { p = r.serving[name] })
			l, err := p.level(r.data())
			if err != nil {
				return nil, err
			}
			now[name] = l
			than := before[name]
			if before == nil {
				than = last[name]
			}
			if err := l.within(than); err != nil {
				errs = append(errs, fmt.Errorf("%s does not come to rest: %w", name, err))
			}
			stacks := filepath.Join(r.Dir, name+".stacks")
			if before == nil {
				stacks += "-before"
			}
			_ = os.WriteFile(stacks, l.stacks, 0o644) // to examine a failure
		}
		if len(errs) == 0 {
			return now, nil
		}
		if time.Now().After(deadline) {
			return now, fmt.Errorf("%w; stacks are in %s", errors.Join(errs...), r.Dir)
		}
		last = now
		if err := testbed.Sleep(ctx, 3*time.Second); err != nil {
			return nil, err
		}
	}
}
