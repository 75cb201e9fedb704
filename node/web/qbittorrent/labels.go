package qbittorrent

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"braid/node"
	"braid/units/lists"
)

// prefix begins the label that is a torrent's category.
const prefix = "category:"

// parse separates the labels of a torrent.
func parse(all []string) (category string, tags []string) {
	tags = []string{}
	for _, l := range all {
		if name, ok := strings.CutPrefix(l, prefix); ok && category == "" {
			category = name
		} else {
			tags = append(tags, l)
		}
	}
	return category, tags
}

// join is the opposite of parse.
func join(category string, tags []string) []string {
	out := []string{}
	if category != "" {
		out = append(out, prefix+category)
	}
	for _, t := range tags {
		if t != "" && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// labels has the categories and tags that clients have created. They exist even if no torrent has
// them.
type labels struct {
	file string

	mu   sync.Mutex
	kept keptLabels
}

type keptLabels struct {
	Categories map[string]string `json:"categories"` // name to directory
	Tags       []string          `json:"tags"`
}

// maxKept bounds the categories, and the tags.
const maxKept = 1000

func openLabels(dir string) (*labels, error) {
	l := &labels{file: filepath.Join(dir, "qbittorrent.json")}
	if err := node.ReadJSON(l.file, &l.kept); err != nil {
		return nil, fmt.Errorf("read the categories: %w; repair or remove %s", err, l.file)
	}
	if l.kept.Categories == nil {
		l.kept.Categories = map[string]string{}
	}
	return l, nil
}

// change changes categories and tags, and saves them.
func (l *labels) change(f func(*keptLabels) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := keptLabels{maps.Clone(l.kept.Categories), slices.Clone(l.kept.Tags)}
	if err := f(&k); err != nil {
		return err
	}
	if len(k.Categories) > maxKept || len(k.Tags) > maxKept {
		return fail(http.StatusConflict, "more than %d categories or tags", maxKept)
	}
	if err := node.WriteJSON(l.file, k, true); err != nil {
		return err
	}
	l.kept = k
	return nil
}

func (l *labels) get() keptLabels {
	l.mu.Lock()
	defer l.mu.Unlock()
	return keptLabels{maps.Clone(l.kept.Categories), slices.Clone(l.kept.Tags)}
}

// category is a category as clients see it.
type category struct {
	Name     string `json:"name"`
	SavePath string `json:"savePath"`
}

// categories returns the categories that a client has created, and those of torrents.
func (c *call) categories() map[string]category {
	out := map[string]category{}
	for name, dir := range c.labels.get().Categories {
		out[name] = category{name, dir}
	}
	for _, t := range c.node.Torrents() {
		if name, _ := parse(t.Options().Labels); name != "" && out[name].Name == "" {
			out[name] = category{Name: name}
		}
	}
	return out
}

func (c *call) tags() []string {
	all := c.labels.get().Tags
	for _, t := range c.node.Torrents() {
		_, tags := parse(t.Options().Labels)
		all = append(all, tags...)
	}
	slices.Sort(all)
	return append([]string{}, slices.Compact(all)...)
}

// validName tells whether a node accepts a name as a label.
func validName(name string) bool {
	return name != "" && len(name) <= 100 &&
		!strings.ContainsAny(name, ",\n") && !strings.HasPrefix(name, prefix) &&
		!strings.HasPrefix(name, "/") && !strings.HasSuffix(name, "/") && !strings.Contains(name, "//")
}

func (c *call) createCategory() error {
	name := c.needed("category")
	if _, known := c.labels.get().Categories[name]; known {
		return fail(http.StatusConflict, "there is a category %q already", name)
	}
	return c.keepCategory(name, c.text("savePath"))
}

func (c *call) editCategory() error {
	name := c.needed("category")
	if _, known := c.categories()[name]; c.err == nil && !known {
		return fail(http.StatusConflict, "there is no category %q", name)
	}
	return c.keepCategory(name, c.needed("savePath"))
}

// keepCategory remembers a category with its directory, which may be empty.
func (c *call) keepCategory(name, dir string) error {
	switch {
	case c.err != nil:
		return c.err
	case name == "":
		return fail(http.StatusBadRequest, "a category needs a name")
	case !validName(name):
		return fail(http.StatusConflict, "%q is no name for a category", name)
	case dir != "" && !filepath.IsAbs(dir):
		return fail(http.StatusConflict, "%q is not an absolute path", dir)
	}
	return c.labels.change(func(k *keptLabels) error {
		k.Categories[name] = dir
		return nil
	})
}

func (c *call) removeCategories() error {
	names := strings.Split(c.needed("categories"), "\n")
	err := c.labels.change(func(k *keptLabels) error {
		for _, n := range names {
			delete(k.Categories, n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return relabel(c.node.Torrents(), func(category string, tags []string) (string, []string) {
		if slices.Contains(names, category) {
			category = ""
		}
		return category, tags
	})
}

func (c *call) setCategory() error {
	all, name := c.torrents(), c.needed("category")
	if _, known := c.categories()[name]; c.err == nil && name != "" && !known {
		return fail(http.StatusConflict, "there is no category %q", name)
	}
	if c.err != nil {
		return c.err
	}
	return relabel(all, func(_ string, tags []string) (string, []string) { return name, tags })
}

// edit returns another category and other tags for those of a torrent.
type edit func(category string, tags []string) (string, []string)

// relabel changes the categories and tags of torrents.
func relabel(all []*node.Torrent, f edit) error {
	var errs []error
	for _, t := range all {
		before := t.Options().Labels
		if slices.Equal(before, join(f(parse(before)))) {
			continue
		}
		errs = append(errs, setOptions(t, func(o *node.Options) { o.Labels = join(f(parse(o.Labels))) }))
	}
	return errors.Join(errs...)
}

func (c *call) tagNames() []string {
	names := lists.Split(c.needed("tags"), ",")
	for _, n := range names {
		if !validName(n) {
			c.wrong("%q is no name for a tag", n)
		}
	}
	return names
}

// keepTags remembers tags, so that clients still see them when no torrent has them. If an argument
// is wrong, it does nothing.
func (c *call) keepTags(names []string) error {
	if c.err != nil || len(names) == 0 {
		return c.err
	}
	return c.labels.change(func(k *keptLabels) error {
		for _, n := range names {
			if !slices.Contains(k.Tags, n) {
				k.Tags = append(k.Tags, n)
			}
		}
		return nil
	})
}

func (c *call) deleteTags() error {
	names := lists.Split(c.needed("tags"), ",")
	err := c.labels.change(func(k *keptLabels) error {
		k.Tags = slices.DeleteFunc(k.Tags, func(t string) bool { return slices.Contains(names, t) })
		return nil
	})
	if err != nil {
		return err
	}
	return relabel(c.node.Torrents(), without(names))
}

func with(names []string) edit {
	return func(category string, tags []string) (string, []string) {
		return category, append(tags, names...)
	}
}

func only(names []string) edit {
	return func(category string, _ []string) (string, []string) { return category, names }
}

func without(names []string) edit {
	return func(category string, tags []string) (string, []string) {
		return category, slices.DeleteFunc(tags, func(t string) bool {
			return slices.Contains(names, t)
		})
	}
}

// putTags remembers the tags that the client names, and changes the tags of torrents.
func (c *call) putTags(how func(names []string) edit) error {
	all, names := c.torrents(), c.tagNames()
	if err := c.keepTags(names); err != nil {
		return err
	}
	return relabel(all, how(names))
}

// removeTags removes the tags that the client names from torrents, or all tags if it names none.
func (c *call) removeTags() error {
	all, names := c.torrents(), lists.Split(c.text("tags"), ",")
	if c.err != nil {
		return c.err
	}
	if len(names) == 0 {
		return relabel(all, only(nil))
	}
	return relabel(all, without(names))
}
