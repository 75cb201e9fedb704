// Package dht is a node of a DHT, in which peers of a torrent find each other without a tracker: over
// SCION, where braid's nodes make the DHT, and over IP, where other clients' nodes do. PROTOCOL.md
// describes it for other implementations.
//
// A Node is a state machine for one network: it takes messages and the time, and returns messages to
// send and what it has found. Server runs nodes on sockets. Package sim runs many in virtual time.
//
//	Node     transactions, the table's upkeep                    node.go
//	table    places for nodes, limited by AS                     table.go
//	reply    answers to others                                   reply.go, token.go
//	search   disjoint branches towards a target                  search.go
//	Torrent  when to search and to announce                      torrent.go
//	store    peers and items that are kept for others            store.go, item.go
//	Message  bytes and back; IDs and addresses                   message.go, bounded.go, id.go, addr.go
//	Server   sockets on IP and SCION, limits on rates            server.go, follow.go, udp.go, scion.go
//
// The package opens no file and knows neither trackers nor transfers. What arrives is hostile: it is
// bounded before it is decoded, and whatever grows has a limit.
//
// Unsolved: with fewer than about five ASes the limits by AS leave a large DHT's tables thin.
package dht
