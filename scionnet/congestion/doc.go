// Package congestion decides how fast a connection sends and how much it keeps in flight.
//
// A [Flow] is the controller of one connection on one path. Sent packets, acknowledgements and
// losses go in with their times and sizes; the window and the time of the next packet come out. The
// package knows no clock, starts no goroutine, takes no lock and imports the standard library only,
// so that every figure can be tested on a simulated network (sim_test.go).
//
// Times are durations since any moment that the caller chose and keeps. Sizes are bytes of QUIC
// packets. Rates are bytes a second.
//
// # Coupling
//
// SCION tells which inter-domain links two paths have in common. Flows that share a link and join
// one [Group] behave like one flow where that link is the bottleneck:
//
//   - They probe together. A single flow sends a quarter more now and then. If several flows did so
//     in turn, they would take bandwidth from each other, and each would remember the most that it
//     ever had. In a common probe, smaller flows ask for more.
//   - The sum of their bandwidths is at most the rate that they were seen to deliver together.
//   - Losses in their probes are added up, and end all of these probes.
//   - They look for the least round trip together: a flow that drains alone would measure the queue
//     of the others. They also do so after a flow has started behind a queue of the others.
//   - When a flow leaves or falls silent, the others probe for its part at once.
//   - They share the few packets that a single flow may send on top of its share.
//
// The bottleneck may be elsewhere, so a common link alone costs a flow nothing. Two flows count as
// waiting in the same queue only if they share a link and see about the same queueing delay. So a
// flow that waits on a link of its own is not held back by the others.
//
// The coupling does not cover links inside ASes and access lines, which no path shows (package
// pathsel finds those by measurement). It covers neither other hosts nor received data, whose
// sender decides. If flows share a link that has room for all, and wait in different queues of the
// same length, they respond to each other's losses without need. A flow that starts is not coupled:
// several flows that start at once compete as separate flows for about ten round trips.
package congestion
