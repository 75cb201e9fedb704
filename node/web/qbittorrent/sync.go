package qbittorrent

import (
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
)

// views has the last answers. A client names the number of the last answer that it has, and gets
// the differences to it.
type views struct {
	mu   sync.Mutex
	last int
	kept []told // the newest last
}

// answer is a whole answer: things by part and name. A thing is an object (a map), or a single
// value. Tags have no value.
type answer struct {
	of    string // maindata, or the info hash of the torrent whose peers are in it
	parts map[string]map[string]any
}

// told is an earlier answer. It has only checksums of the values: the values of a thousand torrents
// would take ten megabytes.
type told struct {
	rid   int
	of    string
	parts map[string]map[string][]uint64
}

// maxViews bounds the earlier answers. A client whose last answer is forgotten gets a whole answer.
const maxViews = 6

var seed = maphash.MakeSeed()

// sum returns the checksum of a field. A single value has no name.
func sum(name string, v any) uint64 {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types can be written
	}
	return maphash.Bytes(seed, append([]byte(name+"\x00"), b...))
}

func (a answer) told() told {
	out := told{of: a.of, parts: map[string]map[string][]uint64{}}
	for part, things := range a.parts {
		sums := make(map[string][]uint64, len(things))
		for name, x := range things {
			fields, ok := x.(map[string]any)
			if !ok {
				fields = map[string]any{"": x}
			}
			for field, v := range fields {
				sums[name] = append(sums[name], sum(field, v))
			}
		}
		out.parts[part] = sums
	}
	return out
}

// exchange keeps the new answer under the number next, and returns the answer with the number rid.
func (v *views) exchange(rid int, now answer) (old told, known bool, next int) {
	new := now.told()
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

// difference returns the changes from an old answer to the present one.
func difference(old told, now answer, known bool, rid int) map[string]any {
	out := map[string]any{"rid": rid}
	if !known {
		out["full_update"] = true
	}
	for part, things := range now.parts {
		before := old.parts[part]
		changed, removed := map[string]any{}, []string{}
		for name, x := range things {
			was, there := before[name]
			if fields, ok := x.(map[string]any); ok {
				fields = maps.Clone(fields)
				maps.DeleteFunc(fields, func(field string, v any) bool {
					return slices.Contains(was, sum(field, v))
				})
				if len(fields) > 0 || !there {
					changed[name] = fields
				}
			} else if !slices.Contains(was, sum("", x)) {
				changed[name] = x
			}
		}
		for name := range before {
			if _, ok := things[name]; !ok {
				removed = append(removed, name)
			}
		}
		slices.Sort(removed)
		switch {
		case len(changed) == 0 && known:
		case part == "tags":
			out[part] = append([]string{}, slices.Sorted(maps.Keys(changed))...)
		default:
			out[part] = changed
		}
		if len(removed) > 0 {
			out[part+"_removed"] = removed
		}
	}
	return out
}

// tell returns the whole answer, or the changes since the answer that the client names.
func (c *call) tell(now answer) (map[string]any, error) {
	rid := c.whole("rid", 0)
	if c.err != nil {
		return nil, c.err
	}
	old, known, next := c.views.exchange(rid, now)
	return difference(old, now, known, next), nil
}

func (c *call) mainData() (any, error) {
	torrents, trackers, hashes := map[string]any{}, map[string]any{}, map[string][]string{}
	state, wasted := c.serverState(), int64(0)
	for _, v := range c.all() {
		wasted += v.wasted()
		torrents[v.InfoHash] = v.fields()
		for _, x := range v.trackers {
			hashes[x.URL] = append(hashes[x.URL], v.InfoHash)
			trackers[x.URL] = hashes[x.URL]
		}
	}
	state["total_wasted_session"] = wasted
	categories, tags := map[string]any{}, map[string]any{}
	for name, x := range c.categories() {
		categories[name] = map[string]any{"name": x.Name, "savePath": x.SavePath}
	}
	for _, name := range c.tags() {
		tags[name] = nil
	}
	return c.tell(answer{"maindata", map[string]map[string]any{
		"torrents": torrents, "categories": categories, "trackers": trackers, "tags": tags,
		"server_state": state,
	}})
}

func (c *call) torrentPeers() (any, error) {
	t := c.torrent()
	if c.err != nil {
		return nil, c.err
	}
	out, err := c.tell(answer{t.InfoHash(), map[string]map[string]any{"peers": peersOf(t)}})
	if err == nil {
		out["show_flags"] = true
	}
	return out, err
}
