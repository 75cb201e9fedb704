package foreign

import (
	"encoding/json"
	"errors"
	"testing"

	"braid/node"
	"braid/node/web/webtest"
	"braid/units/await"
)

// A torrent that another request has removed is no error. All other errors are.
func TestEach(t *testing.T) {
	n, _ := webtest.Service(t)
	c := webtest.Torrent(t, t.TempDir(), "one", webtest.File{Size: 1000})
	x, err := n.Add(t.Context(), node.Options{Source: c.Source})
	if err != nil {
		t.Fatal(err)
	}
	all, wrong := []*node.Torrent{x}, errors.New("wrong")
	if err := Each(all, func(*node.Torrent) error { return wrong }); !errors.Is(err, wrong) {
		t.Error(err)
	}
	remove := func(x *node.Torrent) error { return n.Remove(x.InfoHash(), false) }
	if err := Each(all, func(x *node.Torrent) error { return errors.Join(remove(x), remove(x)) }); err != nil {
		t.Errorf("removed twice at the same time: %v", err)
	}
	for name, do := range map[string]func(*node.Torrent) error{
		"remove": remove, "stop": Stop, "verify": (*node.Torrent).Verify,
	} {
		if err := Each(all, do); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A torrent that has failed while it ran can be started again.
func TestStartFailed(t *testing.T) {
	n, _ := webtest.Service(t)
	c := webtest.Torrent(t, t.TempDir(), "one", webtest.File{Size: 1000})
	x, err := n.Add(t.Context(), node.Options{Source: c.Source, StopTimeout: 1})
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "the failure", func() bool { return x.Status().State == node.Failed })
	started := x.Status().Started
	if err := Start(t.Context(), x, false); err != nil {
		t.Fatal(err)
	}
	await.True(t, "another start", func() bool { return x.Status().Started.After(started) })
}

// A torrent that does not run starts, also one whose data is being verified.
func TestStarts(t *testing.T) {
	for _, c := range []struct {
		state     node.State
		verifying bool
		soon, now bool // whether a start changes something
	}{
		{node.Paused, false, true, true},
		{node.Failed, false, true, true},
		{node.Moving, false, true, true},
		{node.Queued, false, false, true},
		{node.Starting, false, false, true},
		{node.Starting, true, true, true},
		{node.Running, false, false, false},
		{node.Removed, false, false, false},
	} {
		s := node.Status{State: c.state, Verifying: c.verifying}
		if starts(s, false) != c.soon || starts(s, true) != c.now {
			t.Errorf("%s, verifying %v: %v, now %v", c.state, c.verifying, starts(s, false), starts(s, true))
		}
	}
}

// Clients write JSON in many ways, and send back what they have read.
func TestSame(t *testing.T) {
	for _, tt := range []struct {
		raw   string
		value any
		want  bool
	}{
		{"1", 1, true}, {"1.0", 1, true}, {" 1 ", 1, true}, {"2", 1, false}, {`"1"`, 1, false},
		{"true", true, true}, {"1", true, false}, {"null", nil, true}, {"", nil, false},
		{`"a & b"`, "a & b", true}, {`["a", "b"]`, []string{"a", "b"}, true}, {"[]", []string{"a"}, false},
	} {
		if got := Same(json.RawMessage(tt.raw), tt.value); got != tt.want {
			t.Errorf("%s, %v: %v", tt.raw, tt.value, got)
		}
	}
}
