// Package congestion decides how fast a connection sends and how much it keeps in flight.
//
// A [Flow] is the controller of one connection on one path. Sent packets, acknowledgements and losses
// go in with their times and sizes; the window and the time of the next packet come out. The package
// knows no clock, starts no goroutine, takes no lock and imports the standard library only, so that
// every figure can be tested on a simulated link (sim_test.go).
//
// Times are durations since any moment that the caller chose and keeps. Sizes are bytes of QUIC
// packets. Rates are bytes a second.
package congestion
