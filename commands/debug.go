package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/urfave/cli/v3"

	"braid/commands/program"
)

// debugFlag helps to find leaks; the testbed's soak uses it.
func debugFlag() cli.Flag {
	return &program.FileFlag{
		Name:   "debug-socket",
		Hidden: true,
		Usage: "answer each connection to the Unix socket `FILE` with the number of goroutines " +
			"and the bytes of the heap after a collection, all stacks, and what the heap holds",
	}
}

// debugState is the first line of the answer.
type debugState struct {
	Goroutines  int    `json:"goroutines"`
	HeapBytes   uint64 `json:"heap_bytes"`   // in use
	MemoryBytes uint64 `json:"memory_bytes"` // taken from the system and not returned
}

// openDebug opens the socket of debugFlag, if there is one, for the user's own processes only.
func (t *task) openDebug() error {
	name := t.String("debug-socket")
	if name == "" {
		return nil
	}
	runtime.MemProfileRate = 64 << 10 // so that the profile shows what holds a megabyte
	_ = os.Remove(name)               // a killed process may have left it
	l, err := net.Listen("unix", name)
	if err == nil {
		err = os.Chmod(name, 0o600)
	}
	if err != nil {
		return fmt.Errorf("open the debug socket: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.log.Warn("debug socket", "error", err)
				}
				return
			}
			// Connections are answered one at a time, so each gets a deadline.
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			var m runtime.MemStats
			runtime.GC() // objects in pools survive one collection
			debug.FreeOSMemory()
			runtime.ReadMemStats(&m)
			state := debugState{runtime.NumGoroutine(), m.HeapAlloc, m.Sys - m.HeapReleased}
			if json.NewEncoder(c).Encode(state) == nil {
				_ = pprof.Lookup("goroutine").WriteTo(c, 1) // fails if the client has gone
				_ = pprof.Lookup("heap").WriteTo(c, 1)
			}
			c.Close()
		}
	}()
	t.atEnd(func() error { err := l.Close(); <-done; return err })
	return nil
}
