// Package linkemu emulates a network link in user space, without privileges, between two processes
// that exchange UDP datagrams. Each process sends to an address of the emulator, which passes the
// datagrams on to the other one with the rate, delay and loss of a [Config]. Each direction has a
// Config of its own.
//
// A model without sockets and clock decides what happens to each packet (model.go); its tests run
// in simulated time. A loop (link.go) carries the decisions out over a pair of sockets (wire.go):
// in batches and with segmentation offload on Linux, with plain calls elsewhere.
//
// The emulator delivers late, never early: packets that are due within the same millisecond go out
// together, which halves the CPU time of everything behind it. [Counters.Late] shows whether the
// machine is too busy. The emulator does not reorder, duplicate or corrupt packets, and losses come
// in no bursts.
package linkemu

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"braid/units"
)

// Config describes one direction of a link. The zero value passes everything at once.
type Config struct {
	// Rate in bits per second of SCION packets, 0: not limited. Only the UDP payload counts; the
	// headers of the underlay are free, like those of layer 2 on a real link.
	Rate int64 `json:"rate_bit_s,omitempty"`
	// Delay is the propagation delay, Jitter the width of the uniform variation that is added.
	// Jitter never reorders packets.
	Delay  time.Duration `json:"delay_ns,omitempty"`
	Jitter time.Duration `json:"jitter_ns,omitempty"`
	// Loss is the probability from 0 to 1 that a packet is lost, independently of the others. A
	// lost packet has taken its share of Rate and of the queue.
	Loss float64 `json:"loss,omitempty"`
	// QueueBytes bounds the drop-tail queue in front of a rate-limited link by its size, QueueTime
	// by the time that it takes to drain. If both are 0, Rate and Delay determine the bound; see
	// [Config.QueueLimit].
	QueueBytes int           `json:"queue_bytes,omitempty"`
	QueueTime  time.Duration `json:"queue_ns,omitempty"`
	// Police makes the link a policer: Rate fills a token bucket of the queue's size, and packets
	// that find no tokens are dropped at once. No packet waits.
	Police bool `json:"police,omitempty"`
	// MTU in bytes of a SCION packet, 0: not limited. Larger packets vanish silently, unless TooBig
	// is set; then they get a reply (see [Link.Answer]).
	MTU    int  `json:"mtu_bytes,omitempty"`
	TooBig bool `json:"too_big,omitempty"`
	// Down silently drops everything, including the packets on the link when it goes down.
	Down bool `json:"down,omitempty"`
}

// Bounds of a Config. They keep the model's integer arithmetic exact: the bits of the largest
// packet, in billionths, and the departure time of a full queue at 1 bit/s both fit an int64.
const (
	MaxRate  = units.MaxRate
	MaxDelay = time.Minute // of Delay, Jitter and QueueTime each
)

// maxHeld bounds the memory of one direction in bytes: packets in the queue and in flight, with
// their bookkeeping. Packets beyond it are dropped and count as dropped by a full queue. It is the
// product of 1 Gbit/s and half a second.
const maxHeld = 64 << 20

// With a shorter queue, one QUIC connection cannot fill the link: quic-go's NewReno reduces its
// window to 0.7 after a loss, so 0.43 of the product of rate and round trip must wait in the queue
// at that moment. minQueueTime allows for the delay of the path's other links and hosts, which the
// link does not know. A queue below minQueueBytes overflows with one burst of a segmented send.
const (
	minQueueTime  = 50 * time.Millisecond
	minQueueBytes = 64 << 10
)

// QueueLimit returns the bounds of the queue in bytes and in time; 0 is no bound. By default the
// queue holds as much as the link sends in one round trip over it (2 x Delay) or in 50 ms,
// whichever is longer, and at least 64 KiB.
func (c Config) QueueLimit() (bytes int, wait time.Duration) {
	if c.QueueBytes != 0 || c.QueueTime != 0 || c.Rate == 0 {
		return c.QueueBytes, c.QueueTime
	}
	trip := max(2*c.Delay, minQueueTime)
	product := float64(c.Rate) / 8 * trip.Seconds()
	return int(min(max(product, minQueueBytes), maxHeld)), 0
}

// Validate returns an error that names a value out of bounds.
func (c Config) Validate() error {
	switch {
	case c.Rate < 0 || c.Rate > MaxRate:
		return fmt.Errorf("link rate %d bit/s: must be from 0 (not limited) to %s", c.Rate, units.FormatRate(MaxRate))
	case c.Delay < 0 || c.Delay > MaxDelay:
		return fmt.Errorf("link delay %s: must be from 0 to %s", c.Delay, MaxDelay)
	case c.Jitter < 0 || c.Jitter > MaxDelay:
		return fmt.Errorf("link jitter %s: must be from 0 to %s", c.Jitter, MaxDelay)
	case !(c.Loss >= 0 && c.Loss <= 1): // written so that NaN fails
		return fmt.Errorf("link loss %v: must be from 0%% to 100%%", c.Loss)
	case c.QueueBytes < 0 || c.QueueBytes > math.MaxInt32:
		return fmt.Errorf("link queue of %d bytes: must be from 0 (default) to %d", c.QueueBytes, math.MaxInt32)
	case c.Police && c.Rate == 0:
		return errors.New("link: police needs a rate")
	case c.MTU < 0 || c.MTU > math.MaxUint16:
		return fmt.Errorf("link MTU of %d bytes: must be from 0 (not limited) to %d", c.MTU, math.MaxUint16)
	case c.QueueTime < 0 || c.QueueTime > MaxDelay:
		return fmt.Errorf("link queue %s: must be from 0 (default) to %s", c.QueueTime, MaxDelay)
	}
	return nil
}

// String lists the properties that are set, in the units that the Parse functions read: "rate
// 20mbit delay 10ms loss 1% queue 64KiB"; "unlimited" if there are none.
func (c Config) String() string {
	var s []string
	add := func(set bool, words ...string) {
		if set {
			s = append(s, words...)
		}
	}
	add(c.Rate != 0, "rate", units.FormatRate(c.Rate))
	add(c.Delay != 0, "delay", c.Delay.String())
	add(c.Jitter != 0, "jitter", c.Jitter.String())
	add(c.Loss != 0, "loss", FormatLoss(c.Loss))
	add(c.QueueBytes != 0, "queue", FormatQueue(c.QueueBytes, 0))
	add(c.QueueTime != 0, "queue", FormatQueue(0, c.QueueTime))
	add(c.Police, "police")
	add(c.MTU != 0, "mtu", strconv.Itoa(c.MTU))
	add(c.TooBig, "too-big")
	add(c.Down, "down")
	add(len(s) == 0, "unlimited")
	return strings.Join(s, " ")
}
