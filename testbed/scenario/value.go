package scenario

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/linkemu"
	"braid/units"
)

// misread is the error of a value that cannot be parsed, with its node.
type misread struct {
	node *yaml.Node
	error
}

func (m misread) Unwrap() error { return m.error }

// read parses the text of a node.
func read(n *yaml.Node, to encoding.TextUnmarshaler) error {
	if n.Kind != yaml.ScalarNode {
		return misread{n, errors.New("want one value")}
	}
	if err := to.UnmarshalText([]byte(n.Value)); err != nil {
		return misread{n, err}
	}
	return nil
}

// Values are decoded from YAML nodes, so that an error can name the line and the field.

func (d *Duration) UnmarshalYAML(n *yaml.Node) error { return read(n, (*units.Duration)(d)) }
func (r *Rate) UnmarshalYAML(n *yaml.Node) error     { return read(n, r) }
func (l *Loss) UnmarshalYAML(n *yaml.Node) error     { return read(n, l) }
func (q *Queue) UnmarshalYAML(n *yaml.Node) error    { return read(n, q) }
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error    { return read(n, b) }
func (a *At) UnmarshalYAML(n *yaml.Node) error       { return read(n, a) }
func (w *When) UnmarshalYAML(n *yaml.Node) error     { return read(n, w) }

// Duration is a time of at least 0, written like 30s.
type Duration time.Duration

// D is the duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return d.D().String() }

// Rate is in bits per second, written like 10mbit.
type Rate int64

// UnmarshalText reads a rate.
func (r *Rate) UnmarshalText(b []byte) (err error) {
	*(*int64)(r), err = testbed.ParseRate(string(b))
	return err
}

// Loss is a probability, written like 1%.
type Loss float64

// UnmarshalText reads a probability.
func (l *Loss) UnmarshalText(b []byte) (err error) {
	*(*float64)(l), err = linkemu.ParseLoss(string(b))
	return err
}

// Queue bounds a link's queue in bytes or in time, written like 64kb or 50ms.
type Queue struct {
	Bytes int
	Time  time.Duration
}

// UnmarshalText reads the bound of a queue.
func (q *Queue) UnmarshalText(b []byte) (err error) {
	q.Bytes, q.Time, err = linkemu.ParseQueue(string(b))
	return err
}

// Bytes is an amount of data, written like 20MB.
type Bytes int64

// UnmarshalText reads an amount of data.
func (n *Bytes) UnmarshalText(b []byte) error {
	v, err := units.ParseSize(string(b))
	if err != nil {
		return fmt.Errorf("size %q: %w", b, err)
	}
	*n = Bytes(v)
	return nil
}

// At is an interface. It names the link that ends there.
type At struct{ pathsel.Interface }

// UnmarshalText reads an interface such as 1-ff00:0:110#1.
func (a *At) UnmarshalText(b []byte) (err error) {
	a.Interface, err = pathsel.ParseInterface(string(b))
	return err
}

// When is a moment of a run: a time after the first payload byte, written like 5s, or the moment when the
// leechers have a part of all their data, written like 30%.
type When struct {
	After time.Duration
	Done  float64 // 0 to 1; 0: After counts
}

// UnmarshalText reads a moment.
func (w *When) UnmarshalText(b []byte) (err error) {
	s := string(b)
	if part, ok := strings.CutSuffix(s, "%"); ok {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil || !(v > 0 && v < 100) {
			return fmt.Errorf("%q: want more than 0%% and less than 100%%", s)
		}
		w.Done = v / 100
		return nil
	}
	if w.After, err = units.ParseDuration(s); err != nil || w.After > maxTime {
		return fmt.Errorf("%q: want a time after the first payload byte such as 5s, or a part such as 30%%", s)
	}
	return nil
}

func (w When) immediately() bool { return w == When{} }

// change returns the change of the link for the testbed.
func (p Properties) change(at pathsel.Interface) testbed.LinkChange {
	c := testbed.LinkChange{
		Interface: at, Direction: p.Direction, Rate: (*int64)(p.Rate),
		Delay: (*time.Duration)(p.Delay), Jitter: (*time.Duration)(p.Jitter),
		Loss: (*float64)(p.Loss), Police: p.Police, Down: p.Down,
	}
	if p.Queue != nil {
		c.QueueBytes, c.QueueTime = &p.Queue.Bytes, &p.Queue.Time
	}
	return c
}

// undo returns the change that restores those properties of the link that p sets.
func (p Properties) undo(at pathsel.Interface, to linkemu.Config) testbed.LinkChange {
	c := p.change(at)
	restore(&c.Rate, to.Rate)
	restore(&c.Delay, to.Delay)
	restore(&c.Jitter, to.Jitter)
	restore(&c.Loss, to.Loss)
	restore(&c.QueueBytes, to.QueueBytes)
	restore(&c.QueueTime, to.QueueTime)
	restore(&c.Police, to.Police)
	restore(&c.Down, to.Down)
	return c
}

func restore[T any](p **T, to T) {
	if *p != nil {
		*p = &to
	}
}

func (p Properties) empty() bool {
	p.Direction = ""
	return p == Properties{}
}

// comparison is an expectation such as >= 0.95.
type comparison struct {
	atLeast bool
	value   float64
}

func parseComparison(s string) (comparison, error) {
	op, v, _ := strings.Cut(strings.TrimSpace(s), " ")
	value, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
	if err != nil || math.IsNaN(value) || op != ">=" && op != "<=" {
		return comparison{}, fmt.Errorf("%q: want an expectation such as \">= 0.95\" or \"<= 1.5\"", s)
	}
	return comparison{op == ">=", value}, nil
}

func (c comparison) holds(v float64) bool {
	if c.atLeast {
		return v >= c.value
	}
	return v <= c.value
}
