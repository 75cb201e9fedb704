// Package lsd finds peers on the local network (local service discovery, BEP 14): each announces its
// torrents to a multicast group, over IPv4 and IPv6. PROTOCOL.md describes the message, with the
// header in which braid names its address on SCION.
//
//	Message   an announce (message.go)
//	calendar  which torrents the next message names, as a function of time (calendar.go)
//	gate      how many messages are read, by sender and time (gate.go)
//	choose    on which networks to announce, as a function of interfaces and addresses (networks.go)
//	sockets   the multicast groups (sockets.go)
//	Server    one goroutine that announces, and one for each socket that listens (server.go)
//
// Everybody on the local network hears which torrents are announced, and may claim to have them. The
// package knows nothing of private torrents: whoever follows a torrent says whether it may be
// announced.
package lsd
