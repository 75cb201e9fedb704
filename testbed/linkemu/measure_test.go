package linkemu

import (
	"context"
	"testing"
	"time"
)

// What Measure counts must add up on both wires; how good the figures are is for the benchmark, on
// a machine that does nothing else.
func TestMeasureCountsEveryPacket(t *testing.T) {
	cases := []Case{
		{Config{Rate: 10e6, Delay: 2 * time.Millisecond}, Load{12e6, 1472, 50 * time.Millisecond, true}},
		{Config{Loss: 0.5}, Load{0, 100, 20 * time.Millisecond, false}},
		{Config{Rate: 100e6}, Load{20e6, 1000, 50 * time.Millisecond, false}},
	}
	for _, w := range wires {
		for _, c := range cases {
			t.Run(w.name+"/"+c.Link.String(), func(t *testing.T) {
				var a Accuracy
				for load := c.Load; a.Sent < 10; load.Duration *= 2 { // a busy machine may do nothing for a while
					var err error
					if a, err = measure(t.Context(), w.open, c.Link, load); err != nil {
						t.Fatal(err)
					}
				}
				if a.Received == 0 || a.Received > a.Sent {
					t.Errorf("received %d of %d", a.Received, a.Sent)
				}
				if got := a.RateError != nil; got != (c.Load.Rate > c.Link.Rate) {
					t.Errorf("rate error given: %v", got)
				}
				if got := a.LossError != nil; got != (c.Link.Loss > 0) {
					t.Errorf("loss error given: %v", got)
				}
				if got := a.DelayError != nil; got != (c.Load.Rate > 0) {
					t.Errorf("delay error given: %v", got)
				} else if got && a.DelayError.P50 < 0 {
					t.Errorf("half of the packets arrived early: %+v", *a.DelayError)
				}
			})
		}
	}
}

func TestMeasureRefuses(t *testing.T) {
	ok := Load{Rate: 1e6, Size: 100, Duration: time.Millisecond}
	small, timeless := ok, ok
	small.Size, timeless.Duration = 7, 0
	for _, c := range []Case{
		{Config{}, small}, {Config{}, timeless}, {Config{Jitter: 1}, ok}, {Config{Loss: .1, Rate: 1e5}, ok}, {Config{Rate: -1}, ok},
	} {
		if a, err := Measure(t.Context(), c.Link, c.Load); err == nil {
			t.Errorf("Measure(%v, %v) = %+v, want an error", c.Link, c.Load, a)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, Config{}, ok); err == nil {
		t.Error("an ended context went unnoticed")
	}
}

// BenchmarkLink reports how accurate the emulator is: percent of the rate, milliseconds of delay,
// percent of the loss, CPU seconds per GB. One iteration is a whole measurement: use -benchtime 1x.
func BenchmarkLink(b *testing.B) {
	for _, c := range Cases(2 * time.Second) {
		b.Run(c.Link.String()+"/"+c.Load.String(), func(b *testing.B) {
			for b.Loop() {
				a, err := Measure(b.Context(), c.Link, c.Load)
				if err != nil {
					b.Fatal(err)
				}
				if a.RateError != nil {
					b.ReportMetric(*a.RateError, "rate-error-%")
				}
				if a.DelayError != nil {
					b.ReportMetric(a.DelayError.P50, "p50-late-ms")
					b.ReportMetric(a.DelayError.P90, "p90-late-ms")
					b.ReportMetric(a.DelayError.P99, "p99-late-ms")
				}
				if a.LossError != nil {
					b.ReportMetric(*a.LossError, "loss-error-%")
				}
				b.ReportMetric(a.MbitS, "Mbit/s")
				b.ReportMetric(a.CPUSecondsPerGB, "cpu-s/GB")
				b.ReportMetric(float64(a.Missed), "missed")
			}
		})
	}
}
