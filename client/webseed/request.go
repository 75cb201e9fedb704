package webseed

import (
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

// probe asks for the first byte, which shows whether the server has the data and sends ranges.
func (c *Conn) probe() error {
	files := c.cfg.Layout.Files
	may := func(f storage.File) bool {
		_, lacks := c.cfg.Lacks.Load(f)
		return f.Length > 0 && !lacks
	}
	i := slices.IndexFunc(files, may)
	if i < 0 { // all are tried again
		c.cfg.Lacks.Clear()
		i = slices.IndexFunc(files, may)
	}
	if i < 0 {
		return final("the torrent has no data")
	}
	res, stop, err := c.get(c.ctx, files[i], 0, 1)
	if err != nil {
		return err
	}
	defer stop()
	c.ranged = res.StatusCode == http.StatusPartialContent
	return nil
}

// open returns n bytes of a file from that place on. The body may have more; it may end early.
func (c *Conn) open(ctx context.Context, f storage.File, from, n int64) (io.ReadCloser, error) {
	if !c.ranged {
		return c.whole.open(c, f, from)
	}
	res, stop, err := c.get(ctx, f, from, n)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK && from > 0 {
		stop()
		return nil, final("the web seed sends ranges only now and then")
	}
	return &body{Reader: res.Body, stop: stop}, nil
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
			c.cfg.Lacks.Store(f, nil)
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

func (b *body) Close() error {
	b.stop()
	return nil
}

// whole is the answer of a server without ranges, which begins with the first byte of a file. It is
// kept between runs, so that requests in order need one answer for each file.
type whole struct {
	file storage.File
	at   int64 // place in the file
	body *body // nil: none
	// skipped are bytes that were received for nothing.
	skipped int64
}

// place is the place that the answer has reached, in the torrent's data.
func (w *whole) place() int64 { return w.file.Offset + w.at }

func (w *whole) close() {
	if w.body != nil {
		w.body.Close()
		w.body = nil
	}
}

// open returns the answer from that place of a file on.
func (w *whole) open(c *Conn, f storage.File, from int64) (io.ReadCloser, error) {
	if w.body == nil || w.file != f || w.at > from {
		w.close()
		res, stop, err := c.get(c.ctx, f, 0, f.Length)
		if err != nil {
			return nil, err
		}
		w.file, w.at, w.body = f, 0, &body{Reader: res.Body, stop: stop}
	}
	if w.skipped += from - w.at; w.skipped > 4*c.cfg.Layout.Length {
		return nil, final("the web seed sends no ranges, and too many bytes came for nothing")
	}
	switch _, err := io.CopyN(io.Discard, w, from-w.at); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errShort
	case err != nil:
		return nil, err
	}
	return io.NopCloser(w), nil
}

// Read implements io.Reader.
func (w *whole) Read(p []byte) (int, error) {
	if w.body == nil {
		return 0, errShort
	}
	n, err := w.body.Read(p)
	if w.at += int64(n); err != nil {
		w.close()
	}
	return n, err
}
