package v1

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"braid/client"
	"braid/node"
	"braid/storage"
	"braid/tracker"
	"braid/units/lists"
)

func (a *API) session(*http.Request, none) (Session, error) {
	s := Session{
		Name: "braid", Version: a.Version, Started: a.started, Listen: []string{},
		API: a.Addresses(), HasPassword: a.Access.HasPassword(), FreeBytes: -1,
	}
	if free, _, err := storage.DiskSpace(a.Node.Dir()); err == nil {
		s.FreeBytes = free
	}
	for _, p := range a.Node.Listening() {
		s.Listen = append(s.Listen, p.String())
		if x, ok := p.SCION(); ok {
			s.ISDAS = x.IA.String()
		}
	}
	return s, nil
}

func (a *API) totals(*http.Request, none) (Totals, error) { return a.sum(a.rows()), nil }

// sum returns the totals of these torrents.
func (a *API) sum(rows []Torrent, ever node.Totals) Totals {
	t := Totals{
		Torrents:     len(rows),
		States:       map[string]int{},
		FetchedBytes: ever.Fetched,
		SentBytes:    ever.Sent,
	}
	_, t.Alternative = a.Node.Settings().RatesAt(time.Now())
	for _, r := range rows {
		t.States[r.State]++
		t.DownMbitS, t.UpMbitS = t.DownMbitS+r.DownMbitS, t.UpMbitS+r.UpMbitS
		t.Peers, t.Paths = t.Peers+r.Peers, t.Paths+r.Paths
	}
	return t
}

// rows returns all torrents, in the order of the queue, and the node's totals.
func (a *API) rows() ([]Torrent, node.Totals) {
	all, ever := a.Node.Overview()
	return lists.Map(all, a.row), ever
}

func (a *API) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	fields, err := fieldsOf(q.Get("fields"))
	if err != nil {
		return err
	}
	out := []json.RawMessage{}
	all, _ := a.rows()
	for _, t := range all {
		if s := q.Get("state"); s != "" && s != t.State {
			continue
		}
		if l := q.Get("label"); l != "" && !slices.Contains(t.Labels, l) {
			continue
		}
		b, err := encodeFields(t, fields)
		if err != nil {
			return err
		}
		out = append(out, b)
	}
	return answer(w, http.StatusOK, out)
}

// fieldsOf reads the keys of Torrent that a request wants. It returns nil for all keys.
func fieldsOf(text string) (map[string]int, error) {
	if text == "" {
		return nil, nil
	}
	known, out := map[string]int{}, map[string]int{}
	for i := range reflect.TypeFor[Torrent]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[Torrent]().Field(i).Tag.Get("json"), ",")
		known[name] = i
	}
	for _, f := range strings.SplitN(text, ",", len(known)+1) {
		i, ok := known[f]
		if !ok {
			return nil, wrong("fields: a torrent has no key %q", f)
		}
		out[f] = i
	}
	return out, nil
}

func encodeFields(t Torrent, fields map[string]int) (json.RawMessage, error) {
	if fields == nil {
		return json.Marshal(t)
	}
	v, out := reflect.ValueOf(t), map[string]any{}
	for name, i := range fields {
		out[name] = v.Field(i).Interface()
	}
	return json.Marshal(out)
}

const mega = 1e6

// row converts a torrent for a list.
func (a *API) row(s node.Status) Torrent {
	r := Torrent{
		InfoHash:      s.InfoHash,
		Number:        s.Number,
		Name:          s.Name,
		State:         stateOf(s),
		Waiting:       s.Reason,
		Cause:         node.NewCause(s.Cause),
		SizeBytes:     s.Total,
		HaveBytes:     s.Have,
		CheckedBytes:  s.Checked,
		FetchedBytes:  s.Fetched,
		SentBytes:     s.Sent,
		WastedBytes:   s.Wasted,
		Ratio:         s.Ratio,
		DownMbitS:     s.ReadRate / mega,
		UpMbitS:       s.WriteRate / mega,
		Peers:         s.Peers,
		Paths:         s.Paths,
		Priority:      levels[s.Priority],
		QueuePosition: s.QueuePosition,
		Labels:        append([]string{}, s.Labels...),
		Directory:     s.Storage.Dir,
		Magnet:        s.Source.IsMagnet(),
		Added:         s.Added,
	}
	if s.Err != nil {
		r.Error = s.Err.Error()
	}
	if left := s.Remaining.Seconds(); left >= 0 {
		r.LeftS = &left
	}
	if !s.Completed.IsZero() {
		r.Completed = &s.Completed
	}
	return r
}

// levels has the names of priorities in the queue.
var levels = map[node.Priority]string{
	node.PriorityLow:    "low",
	node.PriorityNormal: "normal",
	node.PriorityHigh:   "high",
}

// level returns the priority with a name.
func level(name string) (node.Priority, error) {
	for p, n := range levels {
		if n == name {
			return p, nil
		}
	}
	return 0, wrong("priority %q: want low, normal or high", name)
}

// stateOf returns the word for what a torrent does.
func stateOf(s node.Status) string {
	switch {
	case s.State == node.Served:
		return string(s.State)
	case s.Phase == client.Complete:
		return "seeding"
	}
	return string(s.Phase)
}

func (a *API) show(t *node.Torrent, _ none) (TorrentDetail, error) {
	s := t.Status()
	src := s.Source
	d := TorrentDetail{
		Torrent:     a.row(s),
		MagnetLink:  src.Magnet(),
		Comment:     src.Comment,
		Creator:     src.Creator,
		Created:     src.Created,
		Private:     src.IsPrivate(),
		PieceLength: src.Layout.PieceLength,
		Pieces:      s.Pieces,
		PiecesDone:  s.Done,
		Dropped:     s.Dropped,
		FileCount:   len(src.Layout.Files),
		Storage:     string(s.Storage.Kind),
		WebSeeds:    append([]string{}, s.WebSeedURLs()...),
		PeerSources: map[string]int{},
		Settings: TorrentSettings{
			Sequential:   s.Selection.Sequential,
			Limits:       newRates(s.Rates),
			HonourGlobal: !s.IgnoreGlobal,
			Goal:         newGoal(s.Goal),
			PeerLimit:    s.PeerLimit,
			Trackers: lists.Map(s.Trackers, func(tier []tracker.URL) []string {
				return lists.Map(tier, tracker.URL.String)
			}),
			Policy: newPolicy(s.Policy),
		},
	}
	for _, p := range t.Peers() {
		d.PeerSources[string(p.Source)]++
	}
	return d, nil
}

// change changes the settings of a torrent: all that the request names, or none.
func (a *API) change(t *node.Torrent, in Change) (TorrentDetail, error) {
	if err := t.Change(in.apply); err != nil {
		return TorrentDetail{}, wrong("%w", err)
	}
	if in.QueuePosition != nil {
		if err := t.SetPosition(*in.QueuePosition); err != nil {
			return TorrentDetail{}, err
		}
	}
	return a.show(t, none{})
}

// apply sets the options that the request names.
func (in Change) apply(o *node.Options) (err error) {
	set(&o.Name, in.Name)
	set(&o.Labels, in.Labels)
	set(&o.Selection.Sequential, in.Sequential)
	set(&o.PeerLimit, in.PeerLimit)
	if in.HonourGlobal != nil {
		o.IgnoreGlobal = !*in.HonourGlobal
	}
	if in.Priority != nil {
		if o.Priority, err = level(*in.Priority); err != nil {
			return err
		}
	}
	if err := in.Limits.apply(&o.Rates); err != nil {
		return err
	}
	in.Goal.apply(&o.Goal)
	in.Policy.apply(&o.Policy)
	if in.Trackers != nil {
		tiers := [][]tracker.URL{}
		for _, urls := range *in.Trackers {
			tier, err := parseAll("trackers", urls, o.Tracker)
			if err != nil {
				return err
			}
			tiers = append(tiers, tier)
		}
		o.Trackers = tiers
	}
	if len(in.Files) == 0 {
		return nil
	}
	files := map[int]client.Priority{}
	for number, name := range in.Files {
		n, err := strconv.Atoi(number)
		p := slices.Index(priorities, name)
		if err != nil || n < 1 || p < 0 {
			return wrong("files: %q is %q: want the number of a file, from 1, and skip, low, normal "+
				"or high", number, name)
		}
		files[n-1] = client.Priority(p)
	}
	return o.SetFiles(files)
}

func (a *API) remove(r *http.Request, _ none) (none, error) {
	t, err := a.torrent(r)
	if err != nil {
		return none{}, err
	}
	data := false
	if text := r.URL.Query().Get("data"); text != "" {
		if data, err = strconv.ParseBool(text); err != nil {
			return none{}, wrong("data is %q: want true or false", text)
		}
	}
	return none{}, a.Node.Remove(t.InfoHash(), data)
}

func (a *API) pause(t *node.Torrent, _ none) (none, error) { return none{}, t.Pause() }

// resume continues even if the client has gone.
func (a *API) resume(t *node.Torrent, in Resume) (none, error) {
	if in.Now {
		return none{}, t.ResumeNow(context.Background())
	}
	return none{}, t.Resume(context.Background())
}

func (a *API) verify(t *node.Torrent, _ none) (none, error) { return none{}, t.Verify() }

func (a *API) announce(t *node.Torrent, _ none) (none, error) {
	t.Announce()
	return none{}, nil
}

func (a *API) move(t *node.Torrent, in Move) (none, error) {
	if !filepath.IsAbs(in.Directory) {
		return none{}, wrong("directory %q: want an absolute path", in.Directory)
	}
	return none{}, t.Move(filepath.Clean(in.Directory), in.Data)
}

func (a *API) rename(t *node.Torrent, in Rename) (none, error) {
	return none{}, t.Rename(cmp.Or(in.From, t.Source().Layout.Name), in.To)
}

func (a *API) addPeers(t *node.Torrent, in AddPeers) (none, error) {
	peers, err := parseAll("peers", in.Peers, client.ParsePeer)
	if err != nil {
		return none{}, err
	}
	if state := t.State(); state != node.Running { // otherwise they would be forgotten
		return none{}, fmt.Errorf("add peers to torrent %s: it is %s, and only a running torrent "+
			"takes peers", t.InfoHash(), state)
	}
	t.AddPeers(peers...)
	return none{}, nil
}

// maxNamed bounds a list of peers, trackers or web seeds in a request.
const maxNamed = 256

// parseAll parses the elements of a list in a request.
func parseAll[T any](list string, texts []string, parse func(string) (T, error)) (all []T, err error) {
	if len(texts) > maxNamed {
		return nil, wrong("%s: at most %d are accepted at once", list, maxNamed)
	}
	for _, text := range texts {
		x, err := parse(text)
		if err != nil {
			return nil, wrong("%s: %w", list, err)
		}
		all = append(all, x)
	}
	return all, nil
}

// add reads the request in one of its two forms.
func (a *API) add(w http.ResponseWriter, r *http.Request) error {
	in, err := decodeAdd(r)
	if err != nil {
		return err
	}
	out, err := a.addTorrent(r.Context(), in)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, out)
}

func decodeAdd(r *http.Request) (in AddTorrent, err error) {
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "multipart/form-data" {
		return in, decode(r, &in)
	}
	if params["boundary"] == "" {
		return in, wrong("the form has no boundary")
	}
	form, err := r.MultipartReader()
	if err != nil {
		return in, wrong("%w", err)
	}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return in, nil
		}
		var b []byte
		if err == nil {
			b, err = io.ReadAll(part)
		}
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return in, err
		}
		if err != nil {
			return in, wrong("read the form: %w", err)
		}
		switch name := part.FormName(); name {
		case "torrent":
			in.Torrent = b
		case "options":
			file := in.Torrent
			if err := unmarshal(b, &in); err != nil {
				return in, err
			}
			if in.Torrent == nil {
				in.Torrent = file
			}
		default:
			return in, wrong("the form has a part %q: want torrent and options", name)
		}
	}
}

func (a *API) addTorrent(ctx context.Context, in AddTorrent) (Added, error) {
	src, err := in.open(ctx)
	if err != nil {
		return Added{}, err
	}
	o := node.Options{Source: src}
	if err := in.apply(&o); err != nil {
		return Added{}, err
	}
	o.Trackers = append(o.Trackers, node.ParseTrackers(src, slog.New(a.Journal.Handler()))...)
	added := Added{InfoHash: src.InfoHash.HexString(), Name: cmp.Or(in.Name, src.Name)}
	// The torrent is added even if the client has gone.
	if _, err = a.Node.Add(context.WithoutCancel(ctx), o); errors.Is(err, node.ErrExists) {
		added.Existed, err = true, nil
	}
	return added, err
}

// open reads the torrent. It refuses names of files on this machine, since the interface must not
// reveal their content.
func (in AddTorrent) open(ctx context.Context) (client.Source, error) {
	var src client.Source
	var err error
	scheme, _, _ := strings.Cut(strings.ToLower(in.Source), ":")
	switch {
	case (len(in.Torrent) > 0) == (in.Source != ""):
		return src, wrong("give either source or torrent")
	case len(in.Torrent) > 0:
		src, err = client.ParseTorrent(in.Torrent)
	case slices.Contains([]string{"magnet", "http", "https"}, scheme):
		src, err = client.OpenSource(ctx, in.Source)
		if err != nil && scheme != "magnet" {
			return src, fault{http.StatusBadGateway, err}
		}
	default:
		err = errors.New("source: want a magnet link, or an http or https URL; send the content of a file as torrent")
	}
	if err != nil {
		return src, wrong("%w", err)
	}
	return src, nil
}

// apply sets the options that the request names.
func (in AddTorrent) apply(o *node.Options) (err error) {
	if in.Directory != "" {
		if !filepath.IsAbs(in.Directory) {
			return wrong("directory %q: want an absolute path", in.Directory)
		}
		o.Storage.Dir = filepath.Clean(in.Directory)
	}
	o.Name, o.Paused, o.Storage.Complete, o.Labels = in.Name, in.Paused, in.Complete, in.Labels
	if o.Peers, err = parseAll("peers", in.Peers, client.ParsePeer); err != nil {
		return err
	}
	o.Selection.Select, o.Selection.Sequential = in.Select, in.Sequential
	for _, p := range in.Select {
		if err := client.CheckPattern(p); err != nil {
			return wrong("select: %w", err)
		}
	}
	urls, err := parseAll("trackers", in.Trackers, o.Tracker)
	if err != nil {
		return err
	}
	for _, u := range urls {
		o.Trackers = append(o.Trackers, []tracker.URL{u})
	}
	webSeed := func(u string) (client.WebSeed, error) {
		return client.WebSeed{URL: u, ByUser: true}, client.CheckWebSeed(u)
	}
	if o.WebSeeds, err = parseAll("web_seeds", in.WebSeeds, webSeed); err != nil {
		return err
	}
	if in.Priority != "" {
		if o.Priority, err = level(in.Priority); err != nil {
			return err
		}
	}
	in.Goal.apply(&o.Goal)
	return in.Limits.apply(&o.Rates)
}
