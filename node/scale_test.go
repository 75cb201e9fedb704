//go:build unix

package node

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"braid/client"
	"braid/units/await"
)

var (
	scaleTorrents = flag.Int("torrents", 20, "torrents of TestScale")
	scaleTime     = flag.Duration("idle", 0, "how long TestScale watches them idle")
)

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory is the resident memory of this process in bytes.
func memory() (n int64) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &n); err == nil {
			return n << 10
		}
	}
	return 0
}

// Many seeds are added, restored and idle. With -args -torrents 1000 -idle 60s it prints what they
// cost.
func TestScale(t *testing.T) {
	data, state := t.TempDir(), t.TempDir()
	var sources []client.Source
	for i := range *scaleTorrents {
		sources = append(sources, create(t, data, fmt.Sprint("file", i), 100_000))
	}
	n := openService(t, state, data)
	began, cpu := time.Now(), cpuTime(t)
	for _, src := range sources {
		add(t, n, Options{Source: src, Storage: Storage{Dir: data}})
	}
	t.Logf("added in %v, %v of CPU", time.Since(began), cpuTime(t)-cpu)
	complete := func() bool {
		for _, s := range n.Statuses() {
			if s.Phase != client.Complete {
				return false
			}
		}
		return true
	}
	await.True(t, "all to be complete", complete)
	t.Logf("complete after %v", time.Since(began))
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	began, cpu = time.Now(), cpuTime(t)
	n = openService(t, state, data)
	await.True(t, "all to be complete again", complete)
	t.Logf("restored in %v, %v of CPU", time.Since(began), cpuTime(t)-cpu)
	if files, err := filepath.Glob(filepath.Join(state, "*.torrent")); err != nil || len(files) != *scaleTorrents || len(n.Torrents()) != *scaleTorrents {
		t.Errorf("%d files and %d torrents, %v", len(files), len(n.Torrents()), err)
	}
	if *scaleTime == 0 {
		return
	}
	time.Sleep(20 * time.Second) // until the last sync
	runtime.GC()
	cpu = cpuTime(t)
	time.Sleep(*scaleTime)
	used := cpuTime(t) - cpu
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	t.Logf("idle: %.2f %% of a core; %d MB resident, %d MB heap, %d goroutines",
		100*used.Seconds()/scaleTime.Seconds(), memory()>>20, stats.HeapAlloc>>20, runtime.NumGoroutine())
	const rounds = 20
	began, cpu = time.Now(), cpuTime(t)
	for range rounds {
		n.Statuses()
	}
	t.Logf("status of all: %v, %v of CPU", time.Since(began)/rounds, (cpuTime(t)-cpu)/rounds)
}
