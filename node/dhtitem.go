package node

import (
	"context"
	"crypto/ed25519"
	"errors"
	"time"

	"braid/dht"
	"braid/pathsel"
)

const (
	// itemLeast is the first pause after publishing or reading an item. The pause doubles each
	// time, up to rereadMost for readers, and up to republishMost for publishers, which is a
	// quarter of the time that nodes keep an item.
	itemLeast                 = 2 * time.Second
	republishMost, rereadMost = 30 * time.Minute, 5 * time.Minute
	itemPatience              = 30 * time.Second
	// maxPublished bounds the published nodes of one AS. The item has room for 32 nodes, which
	// should be in several ASes.
	maxPublished = 4
)

var errPublish = errors.New("publish the addresses of nodes on SCION: " +
	"a node on SCION and one on IP are needed")

// publish publishes the addresses of this node and others on SCION in the DHTs over IP, again and
// again until Close. If a newer item is stored, because the clock was ahead when it was published,
// the next one replaces it.
func (d *DHT) publish(key ed25519.PrivateKey) {
	var stored int64 // the sequence number of the newest item that was found
	d.repeat(republishMost, func(ctx context.Context) {
		own, others := d.onSCION()
		seq := max(time.Now().Unix(), stored+1)
		found, err := d.server.PutItem(ctx, dht.FirstNodes(key, seq, append(own, others...)))
		if found.Item != nil {
			stored = found.Item.Seq
		}
		answers := 0
		for _, r := range found.Results {
			answers += r.Answers
		}
		d.log.Debug("nodes on SCION are published",
			"nodes", len(own)+len(others), "answers", answers, "error", err)
	})
}

// readItems reads the items of some owners until a node on SCION is known.
func (d *DHT) readItems(owners []ed25519.PublicKey) {
	d.repeat(rereadMost, func(ctx context.Context) {
		for _, key := range owners {
			if _, others := d.onSCION(); len(others) > 0 {
				return
			}
			found, err := d.server.GetItem(ctx, dht.FirstNodesOf(key))
			var nodes []dht.Addr
			if found.Item != nil {
				nodes, err = found.Item.FirstNodes()
				d.server.AddNodes(nodes...)
			}
			d.log.Debug("looked for an item with nodes on SCION",
				"nodes", len(nodes), "error", err)
		}
	})
}

// repeat calls f until Close. The pauses double up to most.
func (d *DHT) repeat(most time.Duration, f func(ctx context.Context)) {
	for pause := itemLeast; d.ctx.Err() == nil; pause = min(2*pause, most) {
		ctx, cancel := context.WithTimeout(d.ctx, itemPatience)
		f(ctx)
		cancel()
		Wait(d.ctx, pause)
	}
}

// onSCION returns the address of the own node on SCION, and some of the nodes that it knows.
func (d *DHT) onSCION() (own, others []dht.Addr) {
	of := map[pathsel.IA]int{}
	for _, s := range d.server.States() {
		if !s.Addr.IsSCION() {
			continue
		}
		own = append(own, s.Addr)
		for _, c := range s.Nodes {
			if of[c.Addr.IA]++; of[c.Addr.IA] <= maxPublished {
				others = append(others, c.Addr)
			}
		}
	}
	return own, others
}
