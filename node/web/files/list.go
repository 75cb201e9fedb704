package files

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"braid/client"
)

// maxEntries bounds a listing. A crafted torrent has a quarter of a million files.
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
func list(src client.Source, name string, w http.ResponseWriter) {
	dir := strings.TrimSuffix(name, "/")
	entries := entriesOf(src, dir)
	switch {
	case len(entries) == 0 && dir != "":
		http.Error(w, "The torrent has no such file.", http.StatusNotFound)
		return
	case name != "" && dir == name: // so that links in it lead below it
		parts := strings.Split(dir, "/")
		w.Header().Set("Location", (&url.URL{Path: "./" + parts[len(parts)-1] + "/"}).String())
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	l := listing{Title: cmp.Or(dir, src.Name), Up: dir != "", Entries: entries}
	if l.More = len(entries) - maxEntries; l.More > 0 {
		l.Entries = entries[:maxEntries]
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, l) // the client has gone
}

// entriesOf returns what is directly in a directory, in the order of names.
func entriesOf(src client.Source, dir string) (out []entry) {
	below := dir + "/"
	if dir == "" {
		below = ""
	}
	at := map[string]int{}
	for _, f := range src.Layout.Files {
		rest, ok := strings.CutPrefix(f.Path, below)
		if !ok {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		if deeper {
			name += "/"
		}
		i, seen := at[name]
		if !seen {
			i = len(out)
			at[name] = i
			out = append(out, entry{Name: name, Link: (&url.URL{Path: "./" + name}).String()})
		}
		out[i].Bytes += f.Length
	}
	slices.SortFunc(out, func(a, b entry) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
