package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A running testbed answers HTTP with JSON on a Unix socket in its directory:
//
//	GET  /status   Status; with ?paths=no without counting paths
//	POST /link     LinkChange
//	POST /down     takes it down

const (
	maxRequest    = 64 << 10
	statusTimeout = 60 * time.Second // of one question; counting paths of a loaded network takes its time
	downTimeout   = 30 * time.Second
)

// socketPath names the socket through an open directory: the address of a Unix socket has room for
// 108 bytes only, and a directory's own path may be longer.
func socketPath(dir *os.File) string {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		return filepath.Join(dir.Name(), socketFile)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketFile)
}

// serveControl opens the control socket, and returns a function that closes it.
func (n *Network) serveControl() (closeControl func(), err error) {
	dir, err := os.Open(n.dir)
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	os.Remove(filepath.Join(n.dir, socketFile)) // of a testbed that was killed
	l, err := net.Listen("unix", socketPath(dir))
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("open control socket in %s: %w", n.dir, err)
	}
	server := &http.Server{Handler: n.requests(), ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("control socket", "err", err)
		}
	})
	return func() {
		server.Close()
		serving.Wait()
		dir.Close()
	}, nil
}

// requests answers what comes over the control socket.
func (n *Network) requests() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		answer(w, n.Status(r.Context(), r.FormValue("paths") != "no"), nil)
	})
	mux.HandleFunc("POST /link", func(w http.ResponseWriter, r *http.Request) {
		var c LinkChange
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&c)
		if err == nil {
			err = n.Change(c)
		}
		answer(w, struct{}{}, err)
	})
	mux.HandleFunc("POST /down", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, nil)
		http.NewResponseController(w).Flush()
		go n.Close() // which ends this server
	})
	return mux
}

func answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		v = map[string]string{"error": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(v) // fails if the client has gone
}

// Refusal is the error of a testbed that cannot do what a request says.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// call asks the testbed that runs in a directory. It gets out, or posts in.
func call(ctx context.Context, dir, path string, in, out any) error {
	method := http.MethodPost
	if out != nil {
		method = http.MethodGet
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	pid, alive, err := locked(dir)
	if err != nil {
		return err
	}
	if !alive {
		return notRunning(dir)
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("testbed directory: %w", err)
	}
	defer d.Close()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socketPath(d))
		},
	}}
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://testbed"+path, &body)
	if err != nil {
		return err
	}
	reply, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the testbed in %s (process %s): %w", dir, pid, err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		var refusal struct{ Error string }
		if json.NewDecoder(reply.Body).Decode(&refusal) != nil || refusal.Error == "" {
			refusal.Error = reply.Status
		}
		return Refusal(refusal.Error)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(reply.Body).Decode(out); err != nil {
		return fmt.Errorf("answer of the testbed in %s: %w", dir, err)
	}
	return nil
}

// StatusOf asks the testbed that runs in dir, see [Network.Status].
func StatusOf(ctx context.Context, dir string, paths bool) (Status, error) {
	var s Status
	path := "/status"
	if !paths {
		path += "?paths=no"
	}
	err := call(ctx, dir, path, nil, &s)
	return s, err
}

// ChangeLink changes a link of the testbed that runs in dir.
func ChangeLink(ctx context.Context, dir string, c LinkChange) error {
	return call(ctx, dir, "/link", c, nil)
}

// Down takes the testbed in dir down and returns when nothing of it runs any more.
func Down(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if err := call(ctx, dir, "/down", nil, nil); err != nil {
		return err
	}
	for {
		pid, alive, err := locked(dir)
		if err != nil || !alive {
			return err
		}
		if err := Sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("the testbed in %s (process %s) is still there: %w", dir, pid, err)
		}
	}
}
