package soak

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"braid/client"
	"braid/node/event"
	"braid/storage"
	"braid/testbed"
)

// torrent is a torrent that the seeders serve.
type torrent struct {
	file    string // .torrent
	source  client.Source
	content []byte // of all pieces
}

func (r *run) data() string { return filepath.Join(r.Dir, "data") }

// makeTorrents makes three torrents: one file; many files, some of them empty; and less than a
// piece.
func (r *run) makeTorrents(ctx context.Context) error {
	files := map[string]int64{"one": 5_000_000, "tiny": 7000, "many/large": 3_000_000, "many/empty": 0}
	for i := range 30 {
		files[fmt.Sprintf("many/d%d/f%d", i%4, i)] = int64(1 + i*i*100)
	}
	for name, size := range files {
		path := filepath.Join(r.data(), filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := testbed.RandomFile(path, sha256.Sum256([]byte(name)), size); err != nil {
			return err
		}
	}
	url := "scion://" + r.network.HostAddr(home, trackerPort) + "/announce"
	opts := client.CreateOptions{PieceLength: 64 << 10, Trackers: [][]string{{url}}}
	for _, name := range []string{"one", "many", "tiny"} {
		c, err := client.Create(ctx, filepath.Join(r.data(), name), opts)
		if err != nil {
			return err
		}
		t := torrent{file: filepath.Join(r.Dir, name+".torrent"), source: c.Source}
		for _, f := range c.Source.Layout.Files {
			b, err := os.ReadFile(filepath.Join(r.data(), filepath.FromSlash(f.Path)))
			if err != nil {
				return err
			}
			t.content = append(t.content, b...)
		}
		if err := os.WriteFile(t.file, c.Torrent, 0o644); err != nil {
			return err
		}
		r.torrents = append(r.torrents, t)
	}
	return nil
}

// download runs a download until it is complete, restarts it after each kill and full disk, and
// compares every byte.
func (r *run) download(ctx context.Context, name string, d Download) error {
	t := r.torrents[d.Torrent]
	dir := filepath.Join(r.Dir, name)
	if d.SmallDisk && r.disk != "" {
		dir = filepath.Join(r.disk, name)
	}
	stored := storage.Stored{Kind: storage.Kind(d.Storage), Dir: dir, Hash: t.source.InfoHash, Layout: t.source.Layout}
	args := r.onSCION(abroad, name, "download", t.file, "-o", dir, "--storage", d.Storage, "--piece-events")
	if d.TCP { // which does not use the emulated links, so it has a limit
		args = append(args, "--transport", "tcp", "--download-rate", "10mbit", "--listen", r.onIP(abroad, 0))
	} else {
		args = append(args, "--listen", r.network.HostAddr(abroad, 0))
	}
	for _, a := range r.seederAddrs(d.TCP) {
		if !d.Tracked {
			args = append(args, "--peer", a)
		}
	}
	if d.Neighbour != Nobody {
		addr, closeNeighbour, err := r.neighbour(ctx, d, t)
		if err != nil {
			return err
		}
		defer closeNeighbour()
		args = append(args, "--peer", addr)
	}
	for {
		p, err := r.start(name, args...)
		if err != nil {
			return err
		}
		r.locked(func() { r.downloading[p] = true })
		err = r.follow(ctx, p, t, stored)
		r.locked(func() { delete(r.downloading, p) })
		if err != nil {
			return err
		}
		if p.err == nil {
			break
		}
		if said := p.lastWords(); !p.signalled.Load() && !(d.SmallDisk && strings.Contains(said, "no space left")) {
			return fmt.Errorf("ended by itself: %w: %s", p.err, said)
		}
		for full := true; full; {
			if err := testbed.Sleep(ctx, 100*time.Millisecond); err != nil {
				return err
			}
			err := recordIsRight(ctx, stored, t.source)
			if err != nil && !errors.Is(err, syscall.ENOSPC) {
				return err
			}
			full = err != nil || d.SmallDisk && r.full.Load()
		}
		r.locked(func() { r.result.Restarts++ })
		r.say("%s restarts after %v", name, p.err)
	}
	if err := r.compare(ctx, stored); err != nil {
		return err
	}
	r.locked(func() {
		r.result.Downloads++
		r.result.Bytes += int64(len(t.content))
	})
	r.say("%s is complete", name)
	return os.RemoveAll(dir)
}

// follow reads the events of a download until it ends, and checks each piece that is announced as
// verified. The download has ended when follow returns.
func (r *run) follow(ctx context.Context, p *process, t torrent, s storage.Stored) error {
	stall := time.NewTimer(patience)
	defer stall.Stop()
	var verified []int
	var last event.Progress
	for {
		select {
		case said, ok := <-p.events:
			if !ok {
				return nil
			}
			switch e := said.(type) {
			case *event.Ready:
				r.locked(func() { p.listen = e.Listen })
			case *event.Piece:
				verified = append(verified, e.Piece)
			case *event.Progress:
				if e.Bytes != last.Bytes || e.Checked != last.Checked {
					stall.Reset(patience)
				}
				last = *e
				for _, piece := range verified {
					if err := t.onDisk(s, piece); err != nil {
						p.end(syscall.SIGKILL)
						return err
					}
				}
			}
		case <-stall.C:
			p.end(syscall.SIGQUIT)
			return fmt.Errorf("no progress for %v at %d bytes; its stacks are in %s", patience, last.Bytes, p.log)
		case <-ctx.Done():
			p.end(syscall.SIGKILL)
			return context.Cause(ctx)
		}
	}
}

// onDisk compares a piece that was announced as verified. A database belongs to its process, and is
// checked later.
func (t torrent) onDisk(s storage.Stored, piece int) error {
	if s.Kind == storage.KindBolt {
		return nil
	}
	from, n := s.Layout.PieceRange(piece)
	return s.Layout.Span(from, int(n), func(i int, at int64, begin, end int) error {
		name := filepath.Join(s.Dir, filepath.FromSlash(s.Layout.Files[i].Path))
		file, err := os.Open(name + ".part")
		if errors.Is(err, os.ErrNotExist) {
			file, err = os.Open(name) // it is complete
		}
		if err != nil {
			return fmt.Errorf("piece %d was announced as verified: %w", piece, err)
		}
		defer file.Close()
		b := make([]byte, end-begin)
		_, err = file.ReadAt(b, at)
		if err != nil || !bytes.Equal(b, t.content[from:][begin:end]) {
			return fmt.Errorf("piece %d was announced as verified, but differs in %s: %v", piece, name, err)
		}
		return nil
	})
}

// compare compares every piece and, of files, every byte.
func (r *run) compare(ctx context.Context, s storage.Stored) error {
	report, err := s.Check(ctx, nil)
	if err != nil {
		return err
	}
	if !report.Complete() {
		return fmt.Errorf("the download says that it is complete, but it is not: %+v", report)
	}
	if s.Kind == storage.KindBolt {
		return nil
	}
	return testbed.SameTree(filepath.Join(r.data(), s.Layout.Name), filepath.Join(s.Dir, s.Layout.Name))
}

// recordIsRight checks the completion record that an interrupted download has left. It opens the
// storage as the next download does, and reads every piece that the record calls complete.
func recordIsRight(ctx context.Context, s storage.Stored, src client.Source) (err error) {
	store, err := storage.Open(s.Kind, s.Dir, slog.New(slog.DiscardHandler), storage.Options{})
	if err != nil {
		return fmt.Errorf("open the storage of an interrupted download: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	t, err := store.OpenTorrent(ctx, src.Info, src.InfoHash)
	if err != nil {
		return fmt.Errorf("open the storage of an interrupted download: %w", err)
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	for i := range src.Info.NumPieces() {
		piece := t.Piece(src.Info.Piece(i))
		if c := piece.Completion(); !c.Ok || !c.Complete {
			continue
		}
		b := make([]byte, src.Info.Piece(i).Length())
		if _, err := piece.ReadAt(b, 0); err != nil || sha1.Sum(b) != [20]byte(src.Info.Piece(i).V1Hash().Value) {
			return fmt.Errorf("piece %d is complete in the record, but wrong: %v", i, err)
		}
	}
	return nil
}
