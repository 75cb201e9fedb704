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

// Notes in the server: "notes" is a sorted set of the trackers that have one, by its version, "noted" the newest version,
// "note:ID" a note, which goes by itself when its life has ended.
const (
	notesKey, notedKey, noteKey = sharedPrefix + "notes", sharedPrefix + "noted", sharedPrefix + "note:"
	// notesRead bounds how many notes one call reads: as many trackers change theirs at a time.
	notesRead = 32
	// notePatience bounds one conversation about notes, which may be large.
	notePatience = 10 * time.Second
)

//go:embed lua/keep.lua
var keepLua string

// aside does f with the server, as long as it is there. Visitors do not wait for it, so if it fails they are told nothing.
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

// Kept implements Keeper. To a tracker that was started anew its note from before is another's.
func (s *Shared) Kept(ctx context.Context) (notes [][]byte, err error) {
	s.mu.Lock()
	after := s.told
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
			after = 0 // the server has forgotten all, and counts anew
		}
		found, err := s.client.Do(ctx, b().Zrangebyscore().Key(notesKey).Min("("+strconv.FormatInt(after, 10)).Max("+inf").
			Withscores().Limit(0, notesRead).Build()).AsZScores()
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
	s.told = after
	s.mu.Unlock()
	return notes, nil
}
