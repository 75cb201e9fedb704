package trackerbench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"braid/scionnet"
	"braid/testbed"
	"braid/tracker"
	"braid/tracker/wire"
)

// workers runs n workers at once, each with announces and a tally of its own, and adds up what they
// counted.
func workers(j Job, n int, work func(*chooser, *tally) error) (*tally, error) {
	tallies := make([]tally, n)
	var all errgroup.Group
	for i := range tallies {
		all.Go(func() error { return work(j.chooser(i, n), &tallies[i]) })
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	for i := range tallies[1:] {
		tallies[0].add(&tallies[i+1])
	}
	return &tallies[0], nil
}

// announceAll announces peers one after another, until the job is done.
func announceAll(ctx context.Context, choose *chooser, t *tally, one func(wire.Announce) error) error {
	for {
		n, ok := choose.peer()
		if !ok || ctx.Err() != nil {
			return ctx.Err()
		}
		a, began := peer(n), time.Now()
		if err := one(a); err != nil {
			return err
		}
		t.answered(time.Since(began))
	}
}

func overHTTP(ctx context.Context, j Job) (*tally, error) {
	return workers(j, j.Window, func(choose *chooser, t *tally) error {
		var c net.Conn
		var in *bufio.Reader
		defer func() {
			if c != nil {
				c.Close()
			}
		}()
		end := ""
		if j.Transport == "http-close" {
			end = "Connection: close\r\n"
		}
		var request bytes.Buffer
		return announceAll(ctx, choose, t, func(a wire.Announce) (err error) {
			request.Reset()
			fmt.Fprintf(&request, "GET /announce?%s HTTP/1.1\r\nHost: %s\r\n%s\r\n", a.Query(), j.Addr, end)
			if c == nil {
				if c, err = (&net.Dialer{}).DialContext(ctx, "tcp", j.Addr); err != nil {
					return err
				}
				in = bufio.NewReader(c)
			}
			if _, err = c.Write(request.Bytes()); err == nil {
				err = readAnswer(in)
			}
			if end != "" {
				c.Close()
				c = nil
			}
			return err
		})
	})
}

// readAnswer reads a tracker's answer over HTTP/1. A refusal is an error. It is faster than
// net/http, so that one core can keep a tracker busy.
func readAnswer(in *bufio.Reader) error {
	length := -1
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		switch name, value, _ := bytes.Cut(line, []byte(":")); {
		case first && !bytes.Contains(line, []byte(" 200 ")):
			return fmt.Errorf("the tracker answers %q", line)
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
		if len(line) == 0 {
			break
		}
	}
	if length < 2 || length > wire.MaxAnswer {
		return fmt.Errorf("an answer of %d bytes", length)
	}
	start, err := in.Peek(min(length, 16))
	if err != nil {
		return err
	}
	if bytes.Contains(start, []byte("failure")) {
		return fmt.Errorf("the tracker refuses: %q", start)
	}
	_, err = in.Discard(length)
	return err
}

// scionPorts is the number of clients on SCION, each with a connection of its own.
const scionPorts = 4

func overSCION(ctx context.Context, j Job) (*tally, error) {
	u, err := tracker.ParseURL(j.Addr)
	if err != nil {
		return nil, err
	}
	server, _ := u.SCION()
	h, err := scionnet.Open(ctx, scionnet.Config{ConfigDir: j.ConfigDir, LocalIP: server.Host})
	if err != nil {
		return nil, err
	}
	defer h.Close()
	free := make(chan *http.Client, j.Window)
	for i := range min(scionPorts, j.Window) {
		p, err := h.OpenHTTP(ctx, 0)
		if err != nil {
			return nil, err
		}
		defer p.Close()
		t := p.ClientOf(server, "")
		defer t.Close()
		for n := i; n < j.Window; n += scionPorts {
			free <- &http.Client{Transport: t}
		}
	}
	return workers(j, j.Window, func(choose *chooser, t *tally) error {
		c := <-free
		return announceAll(ctx, choose, t, func(a wire.Announce) error {
			to := u.Request(a.Query())
			req := &http.Request{Method: http.MethodGet, URL: to, Host: to.Host, Header: http.Header{}}
			res, err := c.Do(req.WithContext(ctx))
			if err != nil {
				return err
			}
			b, err := io.ReadAll(io.LimitReader(res.Body, wire.MaxAnswer))
			res.Body.Close()
			if err == nil {
				_, err = wire.ParseAnswer(b)
			}
			return err
		})
	})
}

// half begins requests and does not finish them.
func half(ctx context.Context, j Job) (*tally, error) {
	ctx, cancel := context.WithTimeout(ctx, j.Time)
	defer cancel()
	return workers(j, j.Window, func(_ *chooser, t *tally) error {
		for ctx.Err() == nil {
			if c, err := (&net.Dialer{}).DialContext(ctx, "tcp", j.Addr); err == nil {
				if _, err = io.WriteString(c, "GET /announce?info_hash="); err == nil {
					t.lost++
					stop := context.AfterFunc(ctx, func() { c.Close() })
					_, _ = c.Read(make([]byte, 512)) // until it is cut off
					stop()
				}
				c.Close()
			}
			_ = testbed.Sleep(ctx, rand.N(time.Second))
		}
		return nil
	})
}
