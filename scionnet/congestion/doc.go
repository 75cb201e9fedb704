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
//   - They probe together. A single flow asks for a quarter more now and then; flows that asked in
//     turn would take from each other, and each remember the most that it ever had. Who has less
//     asks for more.
//   - Their bandwidths together are at most what they were seen to deliver together.
//   - Losses in a probe are counted together, and end the probe of all.
//   - They look for the least round trip together, since one that drains alone measures the queue
//     of the others; and when one has started behind a queue of the others.
//   - When one leaves or falls silent, the others look for its part at once.
//   - What a single flow may send on top of its share, a few packets here and there, they share.
//
// The bottleneck may be elsewhere: members that share a link with room for all lose nothing. Flows
// are taken to wait in the same queue if they share a link and see about the same delay in it. So a
// member that waits on its own link is not held back by the others.
//
// What this does not cover: links inside ASes and access lines, which no path shows (package
// pathsel finds those by measurement); other hosts; what comes in, since the sender decides. Flows
// that share a link with room for all, and wait in different queues of the same length, yield to
// each other's losses for nothing. While a flow starts it is not coupled: several that start at
// once are as many flows for about ten round trips.
package congestion
