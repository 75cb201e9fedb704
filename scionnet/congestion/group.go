package congestion

// Link names an inter-domain link that paths of this host cross. Two flows with the same Link share it.
type Link string

// Group knows the flows of one host and the links that they cross.
type Group struct{}

// NewGroup returns a group without flows.
func NewGroup() *Group { return &Group{} }

// Join makes the flow a member that crosses these links, in place of those of an earlier Join.
// While it is a member, OnAck, Join and Leave of all members must not run at the same time.
func (g *Group) Join(f *Flow, links []Link) {}

// Leave ends the membership.
func (g *Group) Leave(f *Flow) {}
