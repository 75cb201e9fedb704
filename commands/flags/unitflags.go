package flags

import (
	"errors"
	"time"

	"github.com/urfave/cli/v3"

	"braid/units"
)

// Flags for quantities, in the notation of package units. cmd.Int64 returns a rate in bit/s, and a
// size in bytes.
type (
	RateFlag     = cli.FlagBase[int64, cli.NoConfig, unitValue[int64, rateUnit]]
	sizeFlag     = cli.FlagBase[int64, cli.NoConfig, unitValue[int64, sizeUnit]]
	durationFlag = cli.FlagBase[time.Duration, cli.NoConfig, unitValue[time.Duration, timeUnit]]
)

func Time(name string, value time.Duration, usage string) cli.Flag {
	return &durationFlag{Name: name, Value: value, Usage: usage}
}

// Period is a Time that wants more than 0.
func Period(name string, value time.Duration, usage string) cli.Flag {
	isPositive := func(d time.Duration) error {
		if d <= 0 {
			return errors.New("want more than 0")
		}
		return nil
	}
	return &durationFlag{Name: name, Value: value, Usage: usage, Validator: isPositive}
}

func Size(name string, value int64, usage string) cli.Flag {
	return &sizeFlag{Name: name, Value: value, Usage: usage}
}

type rateUnit struct{}

func (rateUnit) parse(s string) (int64, error) { return units.ParseRate(s) }
func (rateUnit) format(v int64) string         { return units.FormatRate(v) }

type sizeUnit struct{}

func (sizeUnit) parse(s string) (int64, error) { return units.ParseSize(s) }
func (sizeUnit) format(v int64) string         { return units.FormatSize(v) }

type timeUnit struct{}

func (timeUnit) parse(s string) (time.Duration, error) { return units.ParseDuration(s) }
func (timeUnit) format(v time.Duration) string         { return v.String() }

// unitValue is a flag's value that a unit reads and writes.
type unitValue[T comparable, U interface {
	parse(string) (T, error)
	format(T) string
}] struct{ to *T }

func (unitValue[T, U]) Create(v T, to *T, _ cli.NoConfig) cli.Value {
	*to = v
	return unitValue[T, U]{to}
}

// ToString writes the default in the help. It writes nothing for 0, since the usage text then names
// the default.
func (unitValue[T, U]) ToString(v T) string {
	if v == *new(T) {
		return ""
	}
	return (*new(U)).format(v)
}

func (v unitValue[T, U]) Set(s string) (err error) {
	*v.to, err = (*new(U)).parse(s)
	return err
}

func (v unitValue[T, U]) Get() any { return *v.to }

func (v unitValue[T, U]) String() string {
	if v.to == nil {
		return ""
	}
	return (*new(U)).format(*v.to)
}
