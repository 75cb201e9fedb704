package swarm

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"
)

var _ Keeper = (*Shared)(nil)

// In the server, "note:ID" is a note, which expires by itself, "notes" a sorted set of the trackers
// with a note, by its version, and "noted" the newest version.
const (
	notesKey, notedKey, noteKey = sharedPrefix + "notes", sharedPrefix + "noted", sharedPrefix + "note:"
	// notesRead bounds how many notes one call reads. The next call reads the others.
	notesRead = 32
	// notePatience bounds one exchange of notes, which may be large.
	notePatience = 10 * time.Second
)

//go:embed lua/keep.lua
var keepLua string

// aside calls f, unless the server is known to be away. Visitors do not wait for f, so its failure
// does not concern them.
func (s *Shared) aside(ctx context.Context, f func(context.Context) error) error {
	if err := s.Healthy(); err != nil {
		return fmt.Errorf("%w (%w)", sharedAway, err)
	}
	ctx, cancel := context.WithTimeout(ctx, notePatience)
	defer cancel()
	return f(ctx)
}

// Keep implements Keeper.
func (s *Shared) Keep(ctx context.Context, note []byte, life time.Duration) error {
	if len(note) > MaxNote {
		return fmt.Errorf("a note of %d bytes, more than %d", len(note), MaxNote)
	}
	return s.aside(ctx, func(ctx context.Context) error {
		if len(note) == 0 {
			return s.client.Do(ctx, s.client.B().Del().Key(noteKey+s.id).Build()).Error()
		}
		return s.keep.Exec(ctx, s.client, []string{noteKey + s.id, notesKey, notedKey},
			[]string{s.id, valkey.BinaryString(note), strconv.FormatInt(int64(life/time.Second), 10)}).Error()
	})
}

// Kept implements Keeper. A restarted tracker has a new ID, so it gets its own earlier note too.
func (s *Shared) Kept(ctx context.Context) (notes [][]byte, err error) {
	s.mu.Lock()
	after := s.read
	s.mu.Unlock()
	err = s.aside(ctx, func(ctx context.Context) error {
		b := s.client.B
		newest, err := s.client.Do(ctx, b().Get().Key(notedKey).Build()).AsInt64()
		if valkey.IsValkeyNil(err) {
			newest, err = 0, nil
		}
		if err != nil {
			return err
		}
		if newest < after {
			after = 0 // the server has lost its data, and counts from 1 again
		}
		newer := b().Zrangebyscore().Key(notesKey).Min("(" + strconv.FormatInt(after, 10)).Max("+inf")
		found, err := s.client.Do(ctx, newer.Withscores().Limit(0, notesRead).Build()).AsZScores()
		if err != nil {
			return err
		}
		for _, z := range found {
			after = int64(z.Score)
			if z.Member == s.id {
				continue
			}
			note, err := s.client.Do(ctx, b().Getrange().Key(noteKey+z.Member).Start(0).End(MaxNote).Build()).AsBytes()
			if err == nil && len(note) == 0 {
				err = s.client.Do(ctx, b().Zrem().Key(notesKey).Member(z.Member).Build()).Error()
			} else if err == nil {
				notes = append(notes, note)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.read = after
	s.mu.Unlock()
	return notes, nil
}
