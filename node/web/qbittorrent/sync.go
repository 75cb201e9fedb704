package qbittorrent

import (
	"cmp"
	"encoding/json"
	"hash/maphash"
	"slices"
	"sync"
)

// views are what clients were told last. A client names the number of the answer that it has, and
// gets the differences to it.
type views struct {
	mu   sync.Mutex
	last int
	kept []clientView // the newest last
}

// view is one answer. Objects have their fields by name, so that they can be compared.
type view struct {
	of     string // maindata, or the hash whose peers it tells
	groups map[string]map[string]any
	lists  map[string][]string
}

// clientView is a view that a client has. Of its values only checksums are kept: the values of a thousand
// torrents take ten megabytes.
type clientView struct {
	rid    int
	of     string
	groups map[string]map[string]sums
	lists  map[string][]string
}

// sums are the checksums of an object's fields, by those of their names and in their order. Any other
// value has one, without a name.
type sums []struct{ name, value uint64 }

// maxViews bounds the answers that are kept. A client whose answer is gone gets everything.
const maxViews = 6

var seed = maphash.MakeSeed()

func sum(v any) uint64 {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return maphash.Bytes(seed, b)
}

func sumsOf(v any) sums {
	object, ok := v.(map[string]any)
	if !ok {
		return sums{{value: sum(v)}}
	}
	out := make(sums, 0, len(object))
	for name, x := range object {
		out = append(out, struct{ name, value uint64 }{maphash.String(seed, name), sum(x)})
	}
	slices.SortFunc(out, func(a, b struct{ name, value uint64 }) int { return cmp.Compare(a.name, b.name) })
	return out
}

// has tells whether a field, or the value without a name, has this checksum.
func (s sums) has(name, value uint64) bool {
	i, found := slices.BinarySearchFunc(s, name, func(x struct{ name, value uint64 }, name uint64) int { return cmp.Compare(x.name, name) })
	return found && s[i].value == value
}

func (v view) sums() map[string]map[string]sums {
	out := map[string]map[string]sums{}
	for name, group := range v.groups {
		out[name] = make(map[string]sums, len(group))
		for key, x := range group {
			out[name][key] = sumsOf(x)
		}
	}
	return out
}

// exchange keeps the new view, and returns the one that the client knows.
func (v *views) exchange(rid int, now view) (old clientView, known bool, next int) {
	new := clientView{of: now.of, groups: now.sums(), lists: now.lists}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range v.kept {
		if x.rid == rid && rid > 0 && x.of == now.of {
			old, known = x, true
		}
	}
	v.last++
	new.rid = v.last
	v.kept = append(v.kept, new)
	if len(v.kept) > maxViews {
		v.kept = slices.Delete(v.kept, 0, 1)
	}
	return old, known, new.rid
}

// difference is the answer that leads from one view to another.
func difference(old clientView, now view, known bool, rid int) map[string]any {
	out := map[string]any{"rid": rid}
	if !known {
		out["full_update"] = true
		old = clientView{}
	}
	for name, group := range now.groups {
		if name == "server_state" { // its fields stand by themselves
			changed := map[string]any{}
			for key, x := range group {
				if !old.groups[name][key].has(0, sum(x)) {
					changed[key] = x
				}
			}
			if len(changed) > 0 || !known {
				out[name] = changed
			}
			continue
		}
		changed, removed := map[string]any{}, []string{}
		for key, x := range group {
			was, ok := old.groups[name][key]
			object, is := x.(map[string]any)
			switch {
			case !ok, !is && !was.has(0, sum(x)):
				changed[key] = x
			case is:
				if fields := was.differing(object); len(fields) > 0 {
					changed[key] = fields
				}
			}
		}
		for key := range old.groups[name] {
			if _, ok := group[key]; !ok {
				removed = append(removed, key)
			}
		}
		slices.Sort(removed)
		if len(changed) > 0 || !known {
			out[name] = changed
		}
		if len(removed) > 0 {
			out[name+"_removed"] = removed
		}
	}
	for name, list := range now.lists {
		added, removed := minus(list, old.lists[name]), minus(old.lists[name], list)
		if len(added) > 0 || !known {
			out[name] = added
		}
		if len(removed) > 0 {
			out[name+"_removed"] = removed
		}
	}
	return out
}

// differing are the fields that are new or have other values.
func (s sums) differing(now map[string]any) map[string]any {
	out := map[string]any{}
	for name, x := range now {
		if !s.has(maphash.String(seed, name), sum(x)) {
			out[name] = x
		}
	}
	return out
}

func minus(a, b []string) []string {
	out := []string{}
	for _, x := range a {
		if !slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}

// fields are the members of a value's JSON object.
func fields(v any) map[string]any {
	b, err := json.Marshal(v)
	out := map[string]any{}
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		panic(err) // our own types are objects
	}
	return out
}

// mainData is everything, or what has changed since the answer with the number rid.
func (c *call) mainData() (any, error) {
	rid := c.whole("rid", 0)
	if c.err != nil {
		return nil, c.err
	}
	torrents, categories := map[string]any{}, map[string]any{}
	for _, x := range c.all() {
		torrents[x.Hash] = fields(x)
	}
	for name, x := range c.categories() {
		categories[name] = fields(x)
	}
	now := view{of: "maindata", groups: map[string]map[string]any{
		"torrents": torrents, "categories": categories, "server_state": fields(c.serverState()), "trackers": c.hashesByTracker(),
	}, lists: map[string][]string{"tags": c.tags()}}
	old, known, next := c.views.exchange(rid, now)
	return difference(old, now, known, next), nil
}

// hashesByTracker are the info hashes of the torrents of each tracker.
func (c *call) hashesByTracker() map[string]any {
	out := map[string][]string{}
	for _, t := range c.node.Torrents() {
		for _, x := range t.Trackers() {
			out[x.URL] = append(out[x.URL], t.InfoHash())
		}
	}
	return fields(out)
}

func (c *call) torrentPeers() (any, error) {
	rid := c.whole("rid", 0)
	t, err := c.torrent()
	if err != nil {
		return nil, err
	}
	peers := map[string]any{}
	for name, p := range peersOf(t) {
		peers[name] = fields(p)
	}
	now := view{of: t.InfoHash(), groups: map[string]map[string]any{"peers": peers}}
	old, known, next := c.views.exchange(rid, now)
	out := difference(old, now, known, next)
	out["show_flags"] = true
	return out, nil
}
