package linkemu

import "time"

// Config is what a link does to the packets of one direction. The zero value passes everything at once.
type Config struct {
	// Rate in bits per second of SCION packets (the UDP payload; the underlay's own headers are free,
	// as a layer-2 header is on a real link). 0: not limited.
	Rate int64
	// Delay is the propagation delay, Jitter the width of the uniform variation added to it; packets
	// are never reordered by jitter.
	Delay, Jitter time.Duration
	// Loss is the probability from 0 to 1 that a packet is lost, independently of the others.
	Loss float64
	// QueueBytes bounds the drop-tail queue in front of a rate-limited link; QueueTime does so by the
	// time that the queue takes to drain. If both are 0 a default is chosen from Rate and Delay.
	QueueBytes int
	QueueTime  time.Duration
	// Down drops everything, without a word to the sender.
	Down bool
}
