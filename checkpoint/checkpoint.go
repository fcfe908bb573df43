// Package checkpoint has the record of how far a feed has been published, the encoding in
// which it is stored on the bus, and the errors about it.
//
// A checkpoint is stored by the same commit that publishes the entities before
// it, so it is never ahead of the topic and never behind it.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// Checkpoint is the record of how far a feed has been published to a topic. The zero
// Checkpoint belongs to a topic to which nothing was published yet.
type Checkpoint struct {
	// Feed is the configured name of the feed that the topic belongs to.
	Feed string
	// Source is the kind of source that made Cursor, such as
	// "datareplication".
	Source string
	// Cursor is the position in the feed from which to read on.
	Cursor feed.Cursor
	// Count is the number of entities that were published to the topic so far. Dead letters
	// are not among them.
	Count uint64
	// At holds the time of the commit, by the clock of the copy that made it.
	At time.Time
	// Writer names the copy that made the commit, for people. The program does not use it:
	// the fence of the sink decides between copies.
	Writer string
	// Moved holds the time when a person last moved the checkpoint, zero if that never
	// happened. Commits keep it. A copy that sees a new value drops its memory of the topic.
	Moved time.Time
	// Paused holds the time since when a person has paused the feed, zero if it is not
	// paused. No entity is published after a paused checkpoint.
	Paused time.Time
}

// UnknownSource is the Source of a checkpoint of a feed whose kind of source is not known yet:
// one that was paused before it was ever read. Such a checkpoint has no cursor.
const UnknownSource = "unknown"

// IsPaused reports whether a person has paused the feed.
func (cp Checkpoint) IsPaused() bool { return !cp.Paused.IsZero() }

// IsZero reports whether nothing has been published yet.
func (cp Checkpoint) IsZero() bool {
	return cp.Feed == "" && cp.Source == "" && len(cp.Cursor) == 0 && cp.Count == 0
}

// The errors about checkpoints. Sinks and bridges wrap them with the details and with the cure
// for an operator.
var (
	// ErrConflict is matched by errors of a commit if another writer has committed to the
	// topic since this one last read the checkpoint. Nothing was published; Resume returns the
	// new checkpoint.
	ErrConflict = errors.New("another copy has committed to this topic")
	// ErrForeign is matched by errors about a checkpoint that was made for another feed
	// or by another kind of source.
	ErrForeign = errors.New("the topic belongs to another feed")
	// ErrMissing is matched by errors about a topic that has no checkpoint although it is not
	// empty, or was not when it was last seen. It is unknown how far the feed was published, so
	// the feed is never started over.
	ErrMissing = errors.New("the topic has lost its checkpoint")
	// ErrLost is matched by errors about a topic that has fewer messages than were published
	// according to its checkpoint: the bus has lost some.
	ErrLost = errors.New("the topic has lost messages")
	// ErrUnreadable is matched by errors about stored bytes that are not a checkpoint that this
	// version can read.
	ErrUnreadable = errors.New("the stored checkpoint cannot be read")
)

// Kind returns the kind of source that Cursor is bound to. It is empty if there is no cursor,
// as after a reset: any source can read from the start.
func (cp Checkpoint) Kind() string {
	if len(cp.Cursor) == 0 {
		return ""
	}
	return cp.Source
}

// Check returns an error that matches [ErrForeign] and [feed.ErrPermanent]
// unless cp is zero, or was made for that feed and has no cursor but one of that
// kind of source.
func (cp Checkpoint) Check(name, source string) error {
	if kind := cp.Kind(); cp.IsZero() || cp.Feed == name && (kind == "" || kind == source) {
		return nil
	}
	return feed.Permanent(fmt.Errorf("%w: its checkpoint was made for feed %q of kind %q, this is feed %q of kind %q; "+
		"give the feed a topic of its own, or, if the other feed is gone, take its topic over with 'feedbridge checkpoint reset %s'",
		ErrForeign, cp.Feed, cp.Source, name, source, name))
}

// version is the version of the stored form. A reader refuses newer ones: if it ignored their
// additions, it could move the position of the feed.
const version = 1

// storedForm is the JSON form of a checkpoint.
type storedForm struct {
	Version int       `json:"version"`
	Feed    string    `json:"feed"`
	Source  string    `json:"source"`
	Cursor  []byte    `json:"cursor"`
	Count   uint64    `json:"count"`
	At      time.Time `json:"at"`
	Writer  string    `json:"writer,omitempty"`
	Moved   time.Time `json:"moved,omitzero"`
	Paused  time.Time `json:"paused,omitzero"`
}

// Encode returns the bytes in which cp is stored: a JSON object with a version.
// Every version reads the bytes of all released versions; see testdata.
func Encode(cp Checkpoint) []byte {
	data, err := json.Marshal(storedForm{version, cp.Feed, cp.Source, cp.Cursor, cp.Count, storedTime(cp.At), cp.Writer, storedTime(cp.Moved), storedTime(cp.Paused)})
	if err != nil {
		// Strings, bytes, an integer, and a time: the last fails for years
		// that have more than four digits.
		panic(fmt.Sprintf("checkpoint: %v", err))
	}
	return data
}

// storedTime returns a time as it is stored: in UTC, to the millisecond.
func storedTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// Decode reads what [Encode] wrote. Its errors match [ErrUnreadable] and
// [feed.ErrPermanent]. Keys that it does not know are ignored, so that a later
// version may add some.
func Decode(data []byte) (Checkpoint, error) {
	var s storedForm
	if err := json.Unmarshal(data, &s); err != nil {
		return Checkpoint{}, unreadableError(err)
	}
	switch {
	case s.Version < 1:
		return Checkpoint{}, unreadableError(errors.New("it has no version"))
	case s.Version > version:
		return Checkpoint{}, unreadableError(fmt.Errorf("it has version %d and this program reads up to %d; run the feedbridge that wrote it, or a newer one", s.Version, version))
	case s.Feed == "" || s.Source == "":
		return Checkpoint{}, unreadableError(errors.New("it names no feed or no source"))
	}
	if len(s.Cursor) == 0 {
		s.Cursor = nil
	}
	s.At, s.Moved, s.Paused = s.At.UTC(), s.Moved.UTC(), s.Paused.UTC()
	for _, t := range []time.Time{s.At, s.Moved, s.Paused} {
		// A time zone can move a time beyond the years that Encode writes.
		if t.Year() < 0 || t.Year() > 9999 {
			return Checkpoint{}, unreadableError(fmt.Errorf("its time %v is not in the years 0 to 9999", t))
		}
	}
	return Checkpoint{s.Feed, s.Source, s.Cursor, s.Count, s.At, s.Writer, s.Moved, s.Paused}, nil
}

func unreadableError(err error) error {
	return feed.Permanent(fmt.Errorf("%w: %w", ErrUnreadable, err))
}
