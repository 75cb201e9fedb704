package testbed

import (
	"fmt"
	"slices"

	"braid/pathsel"
	"braid/testbed/linkemu"
)

// startLinks starts the links without their properties; see SetLinks.
func (n *Network) startLinks() error {
	for i, p := range n.plan.links {
		l := n.opts.Topology.Links[i]
		link, err := linkemu.New(p.a, p.b, linkemu.Config{})
		if err != nil {
			return fmt.Errorf("emulate link %s to %s: %w", l.A.Interface, l.B.Interface, err)
		}
		link.Answer(n.tooBigAt(l.B.Interface.IA), n.tooBigAt(l.A.Interface.IA))
		n.links = append(n.links, link)
		n.running.Go(func() {
			if err := link.Run(n.life); err != nil {
				n.log.Error("link emulator stopped", "a", l.A.Interface, "b", l.B.Interface, "err", err)
			}
		})
	}
	return nil
}

// SetLinks gives the links the properties that they have in a topology. Start does so last: control
// services drop a beacon after two seconds, and over links of 300 ms they need longer to find each
// other.
func (n *Network) SetLinks(links []Link) error {
	for _, l := range links {
		if err := n.SetLink(l.A.Interface, func(c *linkemu.Config) { *c = l.Config }); err != nil {
			return err
		}
	}
	return nil
}

// tooBigAt answers packets that are too large for a link as a router of the AS at its far end.
func (n *Network) tooBigAt(ia pathsel.IA) func([]byte, int) []byte {
	at := n.HostIP(ia)
	return func(packet []byte, mtu int) []byte { return answerTooBig(packet, mtu, ia, at) }
}

// SetLink changes both directions of the link that ends at the interface.
func (n *Network) SetLink(at pathsel.Interface, change func(*linkemu.Config)) error {
	return n.setLink(LinkChange{Interface: at}, change)
}

// Change changes a link while traffic flows.
func (n *Network) Change(c LinkChange) error { return n.setLink(c, c.Apply) }

func (n *Network) setLink(c LinkChange, change func(*linkemu.Config)) error {
	if !slices.Contains([]string{"", "both", "out", "in"}, c.Direction) {
		return fmt.Errorf("direction %q: want in, out or both", c.Direction)
	}
	i := n.opts.Topology.LinkAt(c.Interface)
	if i < 0 {
		return fmt.Errorf("no link of topology %s ends at %s", n.opts.Topology.Name, c.Interface)
	}
	l := n.opts.Topology.Links[i]
	n.changing.Lock()
	defer n.changing.Unlock()
	ab, ba := n.links[i].Config()
	if c.Concerns(l.A.Interface) {
		change(&ab)
	}
	if c.Concerns(l.B.Interface) {
		change(&ba)
	}
	if err := n.links[i].Set(ab, ba); err != nil {
		return fmt.Errorf("change link %s to %s: %w", l.A.Interface, l.B.Interface, err)
	}
	n.log.Info("link changed", "a", l.A.Interface, "b", l.B.Interface, "ab", ab.String(), "ba", ba.String())
	return nil
}
