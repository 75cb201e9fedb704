// Package pathsel decides over which SCION paths a peer is reached.
//
// It owns paths as values, their measurements, the user's policy, and the selectors. A selector is
// a function from a View (the state of all connections) to a Plan (a list of decisions, each with
// its reason). The package opens no connection, reads no clock, starts no goroutine, and imports
// only the standard library. So a decision can be tested in a table, simulated (package sim), and
// replayed from a recorded trace. Package client builds the views and carries out the plans.
//
//	Path          a path as a value, its interfaces and ASes     path.go, address.go
//	Policy        paths that the user allows, and their order    policy.go, acl.go, sequence.go
//	Hints         which paths a tracker recommends               hints.go
//	Meter         measures a connection (Silence, Estimate)      meter.go, silence.go, estimate.go
//	View, Plan    the input and the output of a Selector         selector.go
//	Selector      first and all, slots, adaptive                 fixed.go, slots.go, adaptive.go
//	Memory        what adaptive keeps from one view to the next  memory.go
//	Without       a selector without some of its parts           without.go
//	Trace         recorded views and plans                       trace.go
//	ServeUploads  who gets an upload slot, over which paths      serve.go, arrange.go, origin.go
//
// The unit of choice is the path-level peer: one peer over one path. The drawing shows the states
// of its connection. Arrows are labelled with actions; events that the client reports are in
// brackets.
//
//	            Open              [handshake done]
//	 Idle ---------------> Opening --------------> Active <--------.
//	  ^                       |                    |    ^          |
//	  | Close (from any       | [refused]     Park |    | Return   | Return
//	  |  open state)          |                    v    |          |
//	  |                       |                    Parked -----> Probing
//	  |                       |                      ^    Probe    |
//	  |                       v                      `-- Park -----'
//	  `------------------- Failed <--- Fail, [lost] from any open state
//	         [Open again from RetryAt]
//
//	Active   requests and receives pieces.
//	Parked   keeps its connection and its place, but has no requests. A client may close the
//	         connection instead; the path is then Opening again when it is returned or probed.
//	Probing  like Active, but only until its measurement has been judged. An unconnected path can
//	         begin here too, after Opening.
//	Failed   closed because it broke. Its requests went to other connections at once.
//
// The adaptive selector applies its rules in this order:
//
//  1. failure.go, silence.go: drop paths that are revoked or silent.
//  2. tail.go: near the end of the download, use exactly the paths that can deliver in time.
//  3. worth.go: park paths that waste traffic or carry almost nothing, and probe them later.
//  4. choice.go: fill free places by announced properties, disjoint paths first.
//  5. group.go: probe paths that share links with those in use, and park them if they add nothing.
//  6. rotation.go: if there are more paths than places, replace the weakest path by an untried one.
//
// Two problems are unsolved. A bottleneck that many foreign flows share looks like a free link,
// since added paths take most of their rate from those flows. And bottlenecks that no announced
// link explains, such as the host itself or the inside of an AS, are not detected.
//
// The mapping to path-level peers and the slots selector are those of M. Gartner, "Improving SCION
// Bittorrent with efficient Multipath Usage" (OvGU Magdeburg, 2020).
package pathsel
