package webseed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"braid/storage"
)

// finalError says that a server is of no use, or lacks a file.
type finalError struct{ text string }

func (e *finalError) Error() string { return e.text }

func final(format string, args ...any) error { return &finalError{fmt.Sprintf(format, args...)} }

// busyError says that the server wants to be asked again later.
type busyError struct {
	status string
	pause  time.Duration // 0: it has not said when
}

func (e *busyError) Error() string { return "the web seed answers " + e.status }

var (
	errShort   = errors.New("the web seed has sent less than was requested")
	errStalled = errors.New("the web seed sends nothing")
	errLacks   = errors.New("files that the web seed has lacked are tried again")
)

// probe asks for the first byte of a file, which shows whether the server has the data and sends
// ranges. A server that lacks one file may lack many, and each would end a connection. So probe
// then asks for other files, too.
func (c *Conn) probe() error {
	ctx, cancel := context.WithTimeout(c.ctx, surveyTime)
	defer cancel()
	var lacks error // why the first file is of no use
	found, missed, lacking := false, 0, slices.ContainsFunc(c.cfg.Layout.Files, c.lacks)
	for _, f := range c.cfg.Layout.Files {
		_, known := c.cfg.Lacks.Load(f)
		if f.Length == 0 || c.lacks(f) || found && (known || !lacking) {
			continue
		}
		within := ctx
		if !found {
			within = c.ctx
		}
		began := time.Now()
		res, stop, err := c.get(within, f, 0, 1)
		switch {
		case err == nil:
			stop()
			c.cfg.Lacks.Store(f, false)
			if !found {
				found, c.ranged = true, res.StatusCode == http.StatusPartialContent
				c.FirstAnswer = time.Since(began)
			}
		case errors.As(err, new(*finalError)):
			lacks, lacking = cmp.Or(lacks, err), true
			if missed++; !found && missed == maxMissed {
				return lacks
			}
		case found:
			return nil // the others are asked for by the next connection
		default:
			return err
		}
	}
	switch {
	case found:
		return nil
	case lacks != nil:
		return lacks
	case !lacking:
		return final("the torrent has no data")
	}
	c.cfg.Lacks.Clear() // all are tried again
	return c.probe()
}

// lacks tells whether it is known that the server lacks a file.
func (c *Conn) lacks(f storage.File) bool {
	absent, _ := c.cfg.Lacks.Load(f)
	return absent == true
}

// get asks for a range. The caller ends the answer with stop.
func (c *Conn) get(
	ctx context.Context, f storage.File, from, n int64,
) (_ *http.Response, stop func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			if context.Cause(ctx) == errStalled {
				err = errStalled
			}
			cancel(nil)
		}
	}()
	at := fileURL(c.cfg.URL, c.cfg.Layout, f)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, nil, final("%v", err)
	}
	r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, from+n-1))
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "braid")
	slow := time.AfterFunc(headerPatience, func() { cancel(errStalled) })
	res, err := c.cfg.Client.Do(r)
	slow.Stop()
	if err != nil {
		return nil, nil, err
	}
	if err := checkAnswer(res, f, from, n); err != nil {
		if errors.As(err, new(*finalError)) {
			c.cfg.Lacks.Store(f, true)
		}
		res.Body.Close()
		return nil, nil, err
	}
	return res, func() { cancel(errStalled); res.Body.Close() }, nil
}

// checkAnswer tells what a status and header mean.
func checkAnswer(res *http.Response, f storage.File, from, n int64) error {
	if e := res.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return final("the web seed encodes its answer (%q)", e)
	}
	switch code := res.StatusCode; {
	case code == http.StatusPartialContent:
		first, last, total, err := parseContentRange(res.Header.Get("Content-Range"))
		if err != nil || first != from || last < first || last >= from+n ||
			total >= 0 && total != f.Length {
			return final("the web seed sends other bytes (%.100q) than were requested; "+
				"it has another file, or none of this name", res.Header.Get("Content-Range"))
		}
		return nil
	case code == http.StatusOK:
		if res.ContentLength >= 0 && res.ContentLength != f.Length {
			return final("the web seed has a file of %d bytes instead of %d",
				res.ContentLength, f.Length)
		}
		return nil
	case code == http.StatusServiceUnavailable, code == http.StatusTooManyRequests:
		return &busyError{res.Status, retryAfter(res.Header.Get("Retry-After"), time.Now())}
	case code >= 500, code == http.StatusRequestTimeout:
		return &busyError{status: res.Status}
	case code == http.StatusRequestedRangeNotSatisfiable:
		return final("the web seed has a file of another size")
	}
	return final("the web seed answers %s", res.Status)
}

// retryAfter reads the header of that name: seconds, or a date (RFC 9110, section 10.2.3).
func retryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxPause)
	}
	if at, err := http.ParseTime(s); err == nil {
		return min(max(0, at.Sub(now)), maxPause)
	}
	return 0
}

// parseContentRange reads "bytes 0-9/10". A total of "*" is -1.
func parseContentRange(s string) (first, last, total int64, err error) {
	s, ok := strings.CutPrefix(s, "bytes ")
	span, of, ok2 := strings.Cut(s, "/")
	from, to, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, 0, fmt.Errorf("content range %.100q", s)
	}
	number := func(s string) int64 {
		n, e := strconv.ParseUint(s, 10, 63)
		err = errors.Join(err, e)
		return int64(n)
	}
	if first, last, total = number(from), number(to), -1; of != "*" {
		total = number(of)
	}
	return first, last, total, err
}

// body is an answer that ends if it comes too slowly. The time between reads does not count, since
// then the engine is slow, not the server.
type body struct {
	io.Reader
	stop  func()
	got   int           // bytes since spent was 0
	spent time.Duration // in reads
}

// slowest is the number of bytes for which body has blockPatience.
const slowest = 16 << 10

func (b *body) Read(p []byte) (int, error) {
	began := time.Now()
	slow := time.AfterFunc(blockPatience-b.spent, b.stop)
	n, err := b.Reader.Read(p)
	if !slow.Stop() && err != nil {
		return n, errStalled
	}
	b.spent += time.Since(began)
	if b.got += n; b.got >= slowest {
		b.got, b.spent = 0, 0
	}
	return n, err
}

// answers are the answers of the server to one fetcher, one after another. A server without ranges
// begins with the first byte of a file. Its answer is kept between runs, so that requests in order
// need one answer for each file.
type answers struct {
	conn  *Conn
	end   int64 // of the present run, in the torrent's data
	short int   // answers to it that have ended early

	body    *body // the present answer; nil: none
	file    storage.File
	at      int64 // its place in the file
	got     int   // bytes that it has brought for runs
	skipped int64 // bytes that were received for nothing, of all answers
}

// place is the place of the answer in the torrent's data.
func (a *answers) place() int64 { return a.file.Offset + a.at }

func (a *answers) close() {
	if a.body != nil {
		a.body.stop()
		a.body = nil
	}
}

// read fills b with the bytes of a file from that place on. If an answer ends early, it asks for
// the rest: some servers limit the length of their answers, and connections break.
func (a *answers) read(ctx context.Context, f storage.File, at int64, b []byte) error {
	for {
		if err := a.seek(ctx, f, at); err != nil {
			return err
		}
		// If nobody wants the run any more, its bytes are left for the next one.
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(a, b)
		if a.got += n; err == nil {
			return nil
		}
		useless := a.got == 0 || errors.Is(err, errStalled)
		if useless || a.short == maxShort || ctx.Err() != nil {
			return err
		}
		a.short++
		at, b = at+int64(n), b[n:]
	}
}

// seek has the next Read begin at that place of a file.
func (a *answers) seek(ctx context.Context, f storage.File, at int64) error {
	if a.body == nil || a.file != f || a.at > at {
		a.close()
		if err := a.open(ctx, f, at); err != nil {
			return err
		}
	}
	if a.skipped += at - a.at; a.skipped > 4*a.conn.cfg.Layout.Length {
		return final("the web seed sends no ranges, and too many bytes came for nothing")
	}
	_, err := io.CopyN(io.Discard, a, at-a.at)
	return err
}

// open asks for a file from that place on to the end of the run, or for all of it. The answer may
// be longer or shorter.
func (a *answers) open(ctx context.Context, f storage.File, at int64) error {
	n := min(a.end-f.Offset, f.Length) - at
	if !a.conn.ranged {
		ctx, at, n = a.conn.ctx, 0, f.Length
	}
	res, stop, err := a.conn.get(ctx, f, at, n)
	if err != nil {
		return err
	}
	a.body, a.file, a.at, a.got = &body{Reader: res.Body, stop: stop}, f, at, 0
	if res.StatusCode == http.StatusOK && at > 0 {
		return final("the web seed sends ranges only now and then")
	}
	return nil
}

// Read implements io.Reader.
func (a *answers) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	if a.at += int64(n); err != nil {
		a.close()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errShort
	}
	return n, err
}
