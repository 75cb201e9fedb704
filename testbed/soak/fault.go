package soak

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"braid/testbed"
	"braid/testbed/linkemu"
)

// cause causes a fault, and ends it when its time is over. Errors are those of the run, not of
// braid.
func (r *run) cause(ctx context.Context, f Fault) error {
	fault, cancel := context.WithTimeout(ctx, f.For)
	defer cancel()
	switch f.Kind {
	case Cut, Delay, Lossy, Slow, Narrow:
		l := r.network.Topology().Links[f.Target]
		if err := r.network.SetLink(l.A.Interface, f.worsen); err != nil {
			return err
		}
		<-fault.Done()
		return r.network.SetLink(l.A.Interface, func(c *linkemu.Config) { *c = l.Config })
	case Pause:
		if _, err := r.network.Pause(r.routers[f.Target]); err != nil {
			return err
		}
		<-fault.Done()
		return r.network.Resume(r.routers[f.Target])
	case KillTracker, KillSeeder:
		name := map[Kind]string{KillTracker: tracker, KillSeeder: seeder2}[f.Kind]
		var p *process
		r.locked(func() {
			p = r.serving[name]
			delete(r.serving, name)
		})
		p.kill(syscall.SIGKILL)
		<-fault.Done()
		<-p.ended
		return r.serve(ctx, name)
	case KillDownload:
		for killed := false; !killed && testbed.Sleep(fault, 100*time.Millisecond) == nil; {
			r.locked(func() {
				for p := range r.downloading {
					p.kill(syscall.SIGKILL)
					killed = true
					break
				}
			})
		}
		return nil
	case FullDisk:
		return r.fillDisk(fault)
	case ForgedDown, ForgedMTU:
		return r.forge(fault, f)
	case SwarmFlood:
		r.joinSwarms(fault)
		return nil
	}
	return r.attack(fault, f)
}

// worsen applies the fault to a link.
func (f Fault) worsen(c *linkemu.Config) {
	switch f.Kind {
	case Cut:
		c.Down = true
	case Delay:
		c.Delay += time.Duration(f.Strength * float64(mostDelay))
		c.Jitter = c.Delay / 4
	case Lossy:
		c.Loss = f.Strength * mostLoss
	case Slow:
		c.Rate = slowRate
	case Narrow:
		c.MTU, c.TooBig = leastNarrow, f.Strength < 0.5
	}
}

// fillDisk fills the small disk to the last block.
func (r *run) fillDisk(ctx context.Context) error {
	if r.disk == "" {
		return nil // Result.LeftOut says so
	}
	r.full.Store(true)
	defer r.full.Store(false)
	ballast := filepath.Join(r.disk, "ballast")
	f, err := os.Create(ballast)
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	defer os.Remove(ballast)
	defer f.Close()
	for ctx.Err() == nil {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			_ = testbed.Sleep(ctx, 10*time.Millisecond) // a download may free a block
		}
	}
	return nil
}
