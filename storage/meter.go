//go:build unix

package storage

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Usage is what a process used for some work.
type Usage struct {
	CPUPerGB   float64 `json:"cpu_s_per_gb"` // user and system, for 10^9 bytes of the work's data
	AllocBytes uint64  `json:"alloc_bytes"`
	// PeakAnonMiB is the growth of memory that belongs to no file; 0 where the system does not
	// report it.
	PeakAnonMiB float64 `json:"peak_anon_mib"`
}

// Meter measures a Usage, of the whole process.
type Meter struct {
	cpu     float64
	alloc   uint64
	before  int64 // kB
	peak    int64
	stop    chan struct{}
	watched sync.WaitGroup
}

// StartMeter begins a measurement.
func StartMeter() *Meter {
	runtime.GC()
	now := anonymous()
	m := &Meter{cpu: cpuSeconds(), alloc: allocated(), before: now, peak: now, stop: make(chan struct{})}
	m.watched.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-m.stop:
				return
			case <-tick.C:
				m.peak = max(m.peak, anonymous())
			}
		}
	})
	return m
}

// Stop ends the measurement of work on so many bytes.
func (m *Meter) Stop(bytes int64) Usage {
	u := Usage{CPUPerGB: (cpuSeconds() - m.cpu) / (float64(bytes) / 1e9), AllocBytes: allocated() - m.alloc}
	close(m.stop)
	m.watched.Wait()
	u.PeakAnonMiB = float64(m.peak-m.before) / 1024
	return u
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
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
