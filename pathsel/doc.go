// Package pathsel decides over which SCION paths a peer is reached.
//
// It owns paths as values, what is known and measured about them, the policies of the user, and the
// selectors: functions from a view of the world to a plan, a list of decisions with reasons. It refuses
// everything else: it opens no connection, reads no clock, starts nothing, and imports only the standard
// library, so that a decision can be tested in a table, simulated (package sim), and replayed from a
// recorded trace. Package client takes the views and carries the plans out.
//
// The unit is the path-level peer (peer, path, connection). Its connection moves like this; the words on
// the arrows are actions, those in brackets are events that the client reports:
//
//	            Open              [handshake done]
//	 Idle ---------------> Opening --------------> Active <--------.
//	  ^                       |                    |    ^          |
//	  | Close (from anywhere  | [refused]     Park |    | Return   | Return
//	  |  where it is open)    |                    v    |          |
//	  |                       |                    Parked -----> Probing
//	  |                       |                      ^    Probe    |
//	  |                       v                      `-- Park -----'
//	  `------------------- Failed <--- Fail, [lost] from any open state
//	         [Open again from RetryAt]
//
//	Active   carries pieces.
//	Parked   in its place but without requests. A client that has no way to keep a connection without any may
//	         close it; when the path is wanted again it is Opening until the handshake is done.
//	Probing  carries pieces like Active, but only until its probe has been judged. Paths that share links with those in
//	         use begin so, after Opening.
//	Failed   closed because it broke; its requests went to the others at once.
//
// What the adaptive selector does, in the order in which it looks:
//
//  1. failure.go (and silence.go): out with what is revoked or silent, whatever else is known.
//  2. tail.go: the end of the download: each path that can still deliver in time, and no other.
//  3. worth.go: park what wastes or carries next to nothing.
//  4. trial.go: one change at a time, judged by what the paths that share a link with it gain or lose.
//  5. choice.go: fill free places by what is announced, disjoint paths first.
//  6. rotation.go: more paths than places: give the weakest place to one that was never tried.
//
// What is unsolved: a bottleneck that many others use (ten flows or more) cannot be told from a free link
// by parking one of a few connections, because the others pick up most of what is freed. Bottlenecks that no
// announced link explains (the host itself, an AS's inside) are not looked for.
//
// The mapping and the selection by slots are those of M. Gartner, "Improving SCION Bittorrent with
// efficient Multipath Usage" (OvGU Magdeburg, 2020). Only the choice of connections is made here; which
// piece comes over which connection stays with BitTorrent itself.
package pathsel
