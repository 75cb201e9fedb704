package scenario

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// About is run.json: what was run, and on what.
type About struct {
	Began     time.Time         `json:"began"`
	Scenarios []ScenarioFile    `json:"scenarios"`
	Commit    string            `json:"commit,omitempty"` // of braid's repository, + if there were changes
	Program   string            `json:"program"`          // SHA-256 of the braid that the peers run
	Go        string            `json:"go"`
	Modules   map[string]string `json:"modules"` // those that matter most
	Kernel    string            `json:"kernel"`
	CPU       string            `json:"cpu"`
	CPUs      int               `json:"cpus"`
}

// ScenarioFile is a scenario as it was.
type ScenarioFile struct {
	Name string `json:"name"`
	Seed uint64 `json:"seed"`
	// Scale is the part of the data and of the times that was run.
	Scale float64 `json:"scale"`
	Text  string  `json:"text"`
	// Links are the ends of each link, and what is emulated there at the start of a run.
	Links []string `json:"links"`
}

func about(braid string, scenarios []Scenario) About {
	a := About{
		Began: time.Now().UTC().Truncate(time.Second), Commit: commit(filepath.Dir(braid)), Program: sum(braid), Go: runtime.Version(),
		Modules: map[string]string{}, Kernel: kernel(), CPU: processor(), CPUs: runtime.NumCPU(),
	}
	for _, s := range scenarios {
		f := ScenarioFile{Name: s.Name, Seed: s.Seed, Scale: s.scale, Text: string(s.text)}
		for _, l := range s.topology.Links {
			f.Links = append(f.Links, fmt.Sprintf("%s %s: %s", l.A.Interface, l.B.Interface, l.Config))
		}
		a.Scenarios = append(a.Scenarios, f)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "github.com/scionproto/scion", "github.com/quic-go/quic-go", "github.com/anacrolix/torrent":
				a.Modules[d.Path] = d.Version
			}
		}
	}
	return a
}

// commit is that of the repository that the program lies in; "" outside one.
func commit(dir string) string {
	rev, err := exec.Command("git", "-C", dir, "rev-parse", "HEAD").Output()
	if err != nil {
		return ""
	}
	if changes, err := exec.Command("git", "-C", dir, "status", "--porcelain", "--untracked-files=no").Output(); err != nil || len(changes) > 0 {
		return string(bytes.TrimSpace(rev)) + "+"
	}
	return string(bytes.TrimSpace(rev))
}

func sum(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return runtime.GOOS
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

func processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
