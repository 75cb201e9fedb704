package files

import (
	"cmp"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"braid/client"
)

// maxEntries bounds a listing. A crafted torrent has a quarter of a million files. Listings of
// torrents with more files than maxEntries are made one after the other: each takes up to 70 MB of
// memory for a moment.
const maxEntries = 10_000

// entry is a file or directory of a listing.
type entry struct {
	Name, Link string
	Bytes      int64 // of a directory: of all files in it
}

// listing is what the page shows.
type listing struct {
	Title   string
	Up      bool
	Entries []entry
	More    int // entries that are left out
}

var page = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Title}}</title>
<style>body{font:1em system-ui,sans-serif;margin:2em}td{padding:.1em 1em .1em 0}td+td{text-align:right}</style>
<h1>{{.Title}}</h1>
<table>
{{if .Up}}<tr><td><a href="../">../</a><td>
{{end}}{{range .Entries}}<tr><td><a href="{{.Link}}">{{.Name}}</a><td>{{.Bytes}}
{{end}}</table>
{{if .More}}<p>and {{.More}} more</p>
{{end}}</html>
`))

// list answers with the files of a directory; an empty name is the torrent itself.
func (h *handler) list(src client.Source, name string, w http.ResponseWriter, r *http.Request) {
	dir := strings.TrimSuffix(name, "/")
	l := listing{Title: cmp.Or(dir, src.Name), Up: dir != ""}
	if len(src.Layout.Files) > maxEntries {
		select {
		case h.listing <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		l.Entries, l.More = entriesOf(src, dir)
		<-h.listing
	} else {
		l.Entries, l.More = entriesOf(src, dir)
	}
	switch {
	case len(l.Entries) == 0 && dir != "":
		http.Error(w, "The torrent has no such file.", http.StatusNotFound)
		return
	case name != "" && dir == name: // so that links in it lead below it
		parts := strings.Split(dir, "/")
		w.Header().Set("Location", linkTo(parts[len(parts)-1]+"/"))
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, l) // the client has gone
}

func linkTo(name string) string { return (&url.URL{Path: "./" + name}).String() }

// entriesOf returns what is directly in a directory, in the order of names, and the number of
// entries that are left out.
func entriesOf(src client.Source, dir string) (out []entry, more int) {
	below := dir + "/"
	if dir == "" {
		below = ""
	}
	sizes := map[string]int64{}
	for _, f := range src.Layout.Files {
		rest, ok := strings.CutPrefix(f.Path, below)
		if !ok {
			continue
		}
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			rest = rest[:i+1]
		}
		sizes[rest] += f.Length
	}
	names := slices.Sorted(maps.Keys(sizes))
	shown := names[:min(len(names), maxEntries)]
	for _, name := range shown {
		out = append(out, entry{Name: name, Link: linkTo(name), Bytes: sizes[name]})
	}
	return out, len(names) - len(shown)
}
