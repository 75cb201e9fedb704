package qbittorrent

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"sync"
)

// views are what clients were told last. A client names the number of the answer that it has, and
// gets the differences to it.
type views struct {
	mu   sync.Mutex
	last int
	kept []view // the newest last
}

// view is one answer. Objects have their fields by name, so that they can be compared.
type view struct {
	rid    int
	of     string // maindata, or the hash whose peers it tells
	groups map[string]map[string]any
	lists  map[string][]string
}

// maxViews bounds the answers that are kept. A client whose answer is gone gets everything.
const maxViews = 6

// exchange keeps the new view, and returns the one that the client knows.
func (v *views) exchange(rid int, now view) (old view, known bool, next int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range v.kept {
		if x.rid == rid && rid > 0 && x.of == now.of {
			old, known = x, true
		}
	}
	v.last++
	now.rid = v.last
	v.kept = append(v.kept, now)
	if len(v.kept) > maxViews {
		v.kept = slices.Delete(v.kept, 0, 1)
	}
	return old, known, now.rid
}

// difference is the answer that leads from one view to another.
func difference(old, now view, known bool, rid int) map[string]any {
	out := map[string]any{"rid": rid}
	if !known {
		out["full_update"] = true
		old = view{}
	}
	for name, group := range now.groups {
		if name == "server_state" { // its fields stand by themselves
			if changed := fieldsThatDiffer(old.groups[name], group); len(changed) > 0 || !known {
				out[name] = changed
			}
			continue
		}
		changed, removed := map[string]any{}, []string{}
		for key, x := range group {
			was, ok := old.groups[name][key]
			switch {
			case !ok:
				changed[key] = x
			case !reflect.DeepEqual(was, x):
				changed[key] = x
				if a, is := was.(map[string]any); is {
					changed[key] = fieldsThatDiffer(a, x.(map[string]any))
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

func fieldsThatDiffer(old, now map[string]any) map[string]any {
	out := maps.Clone(now)
	maps.DeleteFunc(out, func(k string, v any) bool {
		was, ok := old[k]
		return ok && reflect.DeepEqual(was, v)
	})
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
