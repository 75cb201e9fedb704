package testbed

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"braid/pathsel"
	"braid/testbed/linkemu"
	"braid/units"
)

// LinkChange is a change of a link. nil leaves a property as it is.
type LinkChange struct {
	Interface pathsel.Interface `json:"interface"`
	// Direction is both (or ""), out (packets that leave the AS at the interface) or in.
	Direction string         `json:"direction,omitempty"`
	Rate      *int64         `json:"rate,omitempty"`
	Delay     *time.Duration `json:"delay,omitempty"`
	Jitter    *time.Duration `json:"jitter,omitempty"`
	Loss      *float64       `json:"loss,omitempty"`
	// QueueBytes and QueueTime are one property: setting one of them resets the other.
	QueueBytes *int           `json:"queue_bytes,omitempty"`
	QueueTime  *time.Duration `json:"queue_time,omitempty"`
	Police     *bool          `json:"police,omitempty"` // see linkemu.Config
	// MTU is the largest SCION packet in bytes that the link carries, whatever it announces; 0:
	// unlimited.
	MTU *int `json:"mtu,omitempty"`
	// TooBig: a router answers larger packets with SCMP packet too big; else they vanish.
	TooBig *bool `json:"too_big,omitempty"`
	Down   *bool `json:"down,omitempty"`
}

// Concerns tells whether the change is about what an end of its link sends.
func (c LinkChange) Concerns(end pathsel.Interface) bool {
	return c.Direction != "in" && end == c.Interface || c.Direction != "out" && end != c.Interface
}

// each calls do for each property that the change sets, with the property of a configuration. Both
// have the same name.
func (c *LinkChange) each(of *linkemu.Config, do func(change, property reflect.Value)) {
	change, config := reflect.ValueOf(c).Elem(), reflect.ValueOf(of).Elem()
	for i := range change.NumField() {
		if f := change.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			do(f, config.FieldByName(change.Type().Field(i).Name))
		}
	}
}

// Apply applies the change to a configuration.
func (c LinkChange) Apply(to *linkemu.Config) {
	if c.QueueBytes != nil || c.QueueTime != nil {
		to.QueueBytes, to.QueueTime = 0, 0
	}
	c.each(to, func(change, property reflect.Value) { property.Set(change.Elem()) })
}

// Undo returns the change that gives the properties that c sets the values that they have in a
// configuration.
func (c LinkChange) Undo(to linkemu.Config) LinkChange {
	c.each(&to, func(change, property reflect.Value) { change.Set(property.Addr()) })
	return c
}

// String says in a few words what a link becomes.
func (c LinkChange) String() string {
	var to linkemu.Config
	c.Apply(&to)
	var s []string
	add := func(changes bool, text string) {
		if changes {
			s = append(s, text)
		}
	}
	add(to.Down, "down")
	add(c.Down != nil && !to.Down, "up")
	add(c.Rate != nil, units.FormatRate(to.Rate))
	add(c.Delay != nil, to.Delay.String())
	add(c.Jitter != nil, "jitter "+to.Jitter.String())
	add(c.Loss != nil, linkemu.FormatLoss(to.Loss)+" lost")
	add(c.QueueBytes != nil || c.QueueTime != nil, "queue "+linkemu.FormatQueue(to.QueueBytes, to.QueueTime))
	add(to.Police, "policed")
	add(c.MTU != nil, fmt.Sprint("mtu ", to.MTU))
	add(to.TooBig, "too-big")
	add(c.Direction == "in" || c.Direction == "out", "("+c.Direction+")")
	return strings.Join(s, " ")
}

// Set reads a property of the link as people write it in topologies, scenarios and commands: queue,
// 50ms.
func (c *LinkChange) Set(name, value string) (err error) {
	switch name {
	case "rate":
		c.Rate, err = read(value, ParseRate)
	case "delay":
		c.Delay, err = read(value, parseDelay)
	case "jitter":
		c.Jitter, err = read(value, parseDelay)
	case "loss":
		c.Loss, err = read(value, linkemu.ParseLoss)
	case "queue":
		c.QueueBytes, c.QueueTime = new(int), new(time.Duration)
		*c.QueueBytes, *c.QueueTime, err = linkemu.ParseQueue(value)
	case "police":
		c.Police, err = read(value, parseBool)
	case "mtu":
		c.MTU, err = read(value, linkemu.ParseMTU)
	case "too-big":
		c.TooBig, err = read(value, parseBool)
	case "down":
		c.Down, err = read(value, parseBool)
	default:
		err = fmt.Errorf("links have no property %q", name)
	}
	return err
}

func read[T any](s string, parse func(string) (T, error)) (*T, error) {
	v, err := parse(s)
	return &v, err
}
