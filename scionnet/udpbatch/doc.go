// Package udpbatch moves many UDP packets in one system call, on Linux: recvmmsg and sendmmsg, of messages that are each a
// run of packets of one size, which the kernel or the device joins (UDP_GRO) and cuts (UDP_SEGMENT).
//
// It knows file descriptors and bytes only. Who waits, and how, is the caller's affair: braid's packet connection and its
// fast router wait in Go's network poller, the link emulator in ppoll.
package udpbatch
