package qbittorrent

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"

	"braid/client"
	"braid/node"
	"braid/node/web/foreign"
	"braid/units/lists"
)

// maxSources bounds how many torrents one call adds.
const maxSources = 1000

// add adds torrents: files of the form, and URLs, magnet links and info hashes, one on each line.
func (c *call) add() (any, error) {
	o := c.newOptions()
	if c.err != nil {
		return nil, c.err
	}
	var files []client.Source
	if c.r.MultipartForm != nil {
		// As in qBittorrent, the names of the parts do not matter.
		parts := slices.Concat(slices.Collect(maps.Values(c.r.MultipartForm.File))...)
		for _, part := range parts {
			f, err := part.Open()
			if err != nil {
				return nil, err
			}
			b, err := io.ReadAll(io.LimitReader(f, client.MaxTorrentFile+1))
			f.Close()
			if err != nil {
				return nil, err
			}
			src, err := client.ParseTorrent(b)
			if err != nil {
				return nil, fail(http.StatusUnsupportedMediaType,
					"%q is not a valid torrent file: %v", part.Filename, err)
			}
			files = append(files, src)
		}
	}
	names := lists.Split(c.text("urls"), "\n")
	if len(names)+len(files) > maxSources {
		return nil, fail(http.StatusBadRequest, "more than %d torrents in one call", maxSources)
	}
	if slices.ContainsFunc(names, filepath.IsAbs) { // qBittorrent's API reads no files of its machine
		return text("Fails."), nil
	}
	added := 0
	add := func(src client.Source) error {
		err := c.addOne(src, o)
		if errors.Is(err, node.ErrExists) {
			c.options.Logger.Info("a torrent is there already", "torrent", src.Name)
			return nil
		}
		if err == nil {
			added++
		}
		return err
	}
	for _, src := range files {
		if err := add(src); err != nil {
			return nil, err
		}
	}
	for _, name := range names { // one after the other, since a fetched file may be large
		src, err := foreign.Source(c.r.Context(), name, c.text("cookie"))
		if err != nil {
			c.options.Logger.Warn("a torrent cannot be added", "error", err)
			continue
		}
		if err := add(src); err != nil {
			return nil, err
		}
	}
	if added == 0 {
		return text("Fails."), nil
	}
	return text("Ok."), nil
}

// newOptions reads the options for all torrents of a call.
func (c *call) newOptions() node.Options {
	category := c.text("category")
	tags := lists.Split(c.text("tags"), ",")
	for _, n := range append(slices.Clone(tags), cmp.Or(category, "x")) {
		if !validName(n) {
			c.wrong("%q is no name for a category or tag", n)
		}
	}
	o := node.Options{
		Labels: join(category, tags),
		Goal:   c.goal(),
		Name:   c.text("rename"),
		Paused: c.node.Settings().AddPaused,
	}
	if stopped := c.flag("stopped", "paused"); stopped != nil {
		o.Paused = *stopped
	}
	o.Paused = o.Paused && !c.on("forced")
	if c.text("savepath") == "" {
		o.Storage.Dir = c.categories()[category].SavePath
	} else {
		o.Storage.Dir = c.directory("savepath")
	}
	o.Rates = withRate(withRate(o.Rates, true, c.whole("dlLimit", 0)), false, c.whole("upLimit", 0))
	o.Selection.Sequential = c.on("sequentialDownload")
	for name, what := range map[string]string{
		"autoTMM": "automatic management", "firstLastPiecePrio": "priority for first and last pieces",
		"useDownloadPath": "directory for the incomplete data of one torrent",
	} {
		if err := c.refuseOn(name, what); err != nil && c.err == nil {
			c.err = err
		}
	}
	c.refuse("contentLayout", "other content layout than Original", "Subfolder", "NoSubfolder")
	c.refuse("stopCondition", "condition that stops a torrent", "MetadataReceived", "FilesChecked")
	if c.err == nil {
		c.err = c.keepLabels(category, tags)
	}
	return o
}

// keepLabels remembers the category and the tags of new torrents.
func (c *call) keepLabels(category string, tags []string) error {
	if _, known := c.categories()[category]; category != "" && !known {
		if err := c.keepCategory(category, ""); err != nil {
			return err
		}
	}
	return c.keepTags(tags)
}

// readFilePriorities reads a priority for each file of a torrent, with commas between them. It
// returns nil if the client has sent none.
func (c *call) readFilePriorities(src client.Source) (map[int]client.Priority, error) {
	list := lists.Split(c.text("filePriorities"), ",")
	switch {
	case len(list) == 0:
		return nil, nil
	case src.IsMagnet():
		return nil, lacking("file priorities for a magnet link before it is known what is in it")
	case len(list) != len(src.Layout.Files):
		return nil, fail(http.StatusBadRequest, "%d priorities for %d files",
			len(list), len(src.Layout.Files))
	}
	files := map[int]client.Priority{}
	for i, text := range list {
		n, err := strconv.Atoi(text)
		to, ok := levels[n]
		if err != nil || !ok {
			return nil, fail(http.StatusBadRequest, "priority %q: want 0, 1, 6 or 7", text)
		}
		files[i] = to
	}
	return files, nil
}

func (c *call) addOne(src client.Source, o node.Options) error {
	o.Source, o.Trackers = src, node.ParseTrackers(src, c.options.Logger)
	files, err := c.readFilePriorities(src)
	if err == nil && files != nil {
		err = o.SetFiles(files)
	}
	if err != nil {
		return err
	}
	t, err := foreign.Add(c.r.Context(), c.node, o, c.on("forced"))
	if err == nil && c.on("addToTopOfQueue") {
		err = t.SetPosition(0)
	}
	return err
}
