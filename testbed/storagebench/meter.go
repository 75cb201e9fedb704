package storagebench

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"braid/testbed/bench"
)

// Usage is what a process used for some work.
type Usage struct {
	CPUPerGB   float64 `json:"cpu_s_per_gb"` // user and system, for 10^9 bytes of the work's data
	AllocBytes uint64  `json:"alloc_bytes"`
	// PeakAnonMiB is the growth of memory that belongs to no file; 0 where the system does not
	// report it.
	PeakAnonMiB float64 `json:"peak_anon_mib"`
}

// medianUsage returns the medians of what some runs used.
func medianUsage[T any](runs []T, of func(T) Usage) Usage {
	return Usage{
		CPUPerGB:    bench.Median(runs, func(r T) float64 { return of(r).CPUPerGB }),
		AllocBytes:  uint64(bench.Median(runs, func(r T) float64 { return float64(of(r).AllocBytes) })),
		PeakAnonMiB: bench.Median(runs, func(r T) float64 { return of(r).PeakAnonMiB }),
	}
}

// meter measures a Usage, of the whole process.
type meter struct {
	cpu     float64
	alloc   uint64
	before  int64 // kB
	peak    int64
	ended   chan struct{}
	watched sync.WaitGroup
}

// startMeter begins a measurement.
func startMeter() *meter {
	runtime.GC()
	now := anonymous()
	m := &meter{
		cpu: bench.CPUTime(), alloc: allocated(), before: now, peak: now, ended: make(chan struct{}),
	}
	m.watched.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-m.ended:
				return
			case <-tick.C:
				m.peak = max(m.peak, anonymous())
			}
		}
	})
	return m
}

// stop ends the measurement of work on so many bytes.
func (m *meter) stop(bytes int64) Usage {
	cpu := bench.CPUTime() - m.cpu
	u := Usage{CPUPerGB: cpu / (float64(bytes) / 1e9), AllocBytes: allocated() - m.alloc}
	close(m.ended)
	m.watched.Wait()
	u.PeakAnonMiB = float64(m.peak-m.before) / 1024
	return u
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// anonymous is the process's anonymous memory in kB (proc_pid_status(5)).
func anonymous() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "RssAnon:")
	kb, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, _ := strconv.ParseInt(kb, 10, 64)
	return n
}
