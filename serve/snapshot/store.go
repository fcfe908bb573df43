package snapshot

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/logonce"
)

const (
	// kept is the number of snapshots that a Store keeps: the newest, and the one before
	// it, because clients may still be reading that.
	kept = 2
	// Settled is the time from a snapshot's moment until it is built. By then all messages
	// that the bus stored before the moment can be read, if clocks differ by no more than
	// that.
	Settled = 10 * time.Second
	// Retry is the time after which a failed build of a snapshot is retried.
	Retry = time.Minute
)

// Store builds and keeps the snapshots of a feed. Its methods may be called from any
// goroutine, but Run and Renew by one at a time only.
type Store struct {
	opts    Options
	builder builder

	mu   sync.Mutex  // protects list and complete
	list []*Snapshot // the newest first
	// complete reports whether list is as it would be without a restart.
	complete bool
}

// NewStore returns a Store without snapshots.
func NewStore(topic Topic, opts Options) *Store {
	if opts.Keys == 0 {
		opts.Keys = defaultKeys
	}
	if opts.PageBytes == 0 {
		opts.PageBytes = defaultPageBytes
	}
	return &Store{opts: opts, builder: builder{topic: topic, Options: opts}}
}

// Run builds snapshots until ctx ends, and drops them all then.
func (s *Store) Run(ctx context.Context) {
	defer s.Drop(0)
	var causes logonce.Causes
	for {
		err := s.Renew(ctx, time.Now())
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		wait := s.latestMoment(now).Add(s.opts.Every + Settled).Sub(now)
		if err != nil {
			wait = min(wait, Retry)
		}
		if err == nil {
			if causes.End() {
				s.opts.Log.Info("snapshots can be built again")
			}
		} else if isNew, _ := causes.Add(innermostCause(err)); isNew {
			s.opts.Log.Warn("a snapshot could not be built", "error", err)
		}
		for wait > 0 {
			step := min(wait, Retry)
			timer := time.NewTimer(step)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			if wait -= step; s.isOutdated(ctx) {
				break
			}
		}
	}
}

// innermostCause returns the text of the innermost error, which is the same each time, unlike
// the names of temporary files in the others.
func innermostCause(err error) string {
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err.Error()
}

// isOutdated reports whether the topic was recreated after the newest snapshot.
// Clients do not get a snapshot of the old topic any more.
func (s *Store) isOutdated(ctx context.Context) bool {
	newest := s.Newest()
	if newest == nil {
		return false
	}
	span, err := s.builder.topic.Span(ctx)
	return err == nil && span.Epoch != newest.Span.Epoch
}

// latestMoment returns the moment of the newest snapshot that can be built now.
func (s *Store) latestMoment(now time.Time) time.Time {
	return now.Add(-Settled).Truncate(s.opts.Every)
}

// Renew builds the newest snapshot unless it is there. After a start it builds the one
// before too, because readers may be in the middle of that.
func (s *Store) Renew(ctx context.Context, now time.Time) (err error) {
	defer feed.RecoverPanic(&err)
	moment := s.latestMoment(now)
	if err := s.buildAt(ctx, moment, true); err != nil {
		return err
	}
	if !s.complete { // only this goroutine sets it
		if err := s.buildAt(ctx, moment.Add(-s.opts.Every), false); err != nil {
			return err
		}
		s.mu.Lock()
		s.complete = true
		s.mu.Unlock()
	}
	return nil
}

// buildAt builds the snapshot of a moment unless it is there.
func (s *Store) buildAt(ctx context.Context, moment time.Time, newest bool) error {
	span, err := s.builder.topic.Span(ctx)
	if err != nil {
		return err
	}
	end, created, err := s.builder.findEnd(ctx, span, moment)
	if err != nil || s.hasSnapshot(func(o *Snapshot) bool {
		return o.End == end && o.Created.Equal(created) && o.Span.Epoch == span.Epoch && o.Span.First == span.First
	}) {
		return err
	}
	slot, err := s.opts.Turn.Acquire(ctx)
	if err != nil {
		return err
	}
	defer slot.Release()
	begun := time.Now()
	built, err := s.builder.buildSnapshot(ctx, span, end, created)
	if err != nil {
		return err
	}
	if s.hasSnapshot(func(o *Snapshot) bool { return o.ID == built.ID }) {
		built.closeUnused() // retention took nothing that was in it
		return nil
	}
	s.mu.Lock()
	at := len(s.list)
	if newest {
		at = 0
	}
	s.list = slices.Insert(s.list, at, built)
	s.mu.Unlock()
	s.Drop(kept)
	s.opts.Log.Info("a snapshot was built", "id", built.ID, "pages", len(built.pages), "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

func (s *Store) hasSnapshot(is func(*Snapshot) bool) bool {
	return slices.ContainsFunc(s.All(), is)
}

// All returns the snapshots, the newest first.
func (s *Store) All() []*Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// Newest returns the newest snapshot, nil if there is none.
func (s *Store) Newest() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return nil
	}
	return s.list[0]
}

// Progress is how far the build of a snapshot has come: how many positions of the topic were read, of about how many. A
// build reads a topic at least twice. The zero Progress means that no snapshot is being built.
type Progress struct {
	Began       time.Time
	Read, Total uint64
}

// Progress returns the progress of the build that is under way.
func (s *Store) Progress() (p Progress) {
	if began := s.builder.began.Load(); began != 0 {
		p = Progress{time.Unix(0, began), s.builder.read.Load(), s.builder.total.Load()}
	}
	return p
}

// Drop removes all but the newest n snapshots, and closes each when no client reads it
// any more.
func (s *Store) Drop(n int) {
	s.mu.Lock()
	old := s.list[min(n, len(s.list)):]
	s.list = s.list[:len(s.list)-len(old)]
	s.mu.Unlock()
	for _, o := range old {
		go o.closeUnused()
	}
}

// Open returns the snapshot with an ID that valid accepts, for the caller to Release. If
// there is none, it returns nil and whether the snapshot may still come: as long as
// those from before a restart have not been built, and if it ends behind the newest,
// because another copy of the server may have been faster.
func (s *Store) Open(id string, valid func(*Snapshot) bool) (found *Snapshot, pending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.list, func(o *Snapshot) bool { return o.ID == id && valid(o) }); i >= 0 {
		s.list[i].reading.RLock() // a snapshot is closed after it left the list
		return s.list[i], false
	}
	epoch, end, ok := ParseID(id)
	if !ok || s.complete && len(s.list) > 0 && (epoch != s.list[0].Span.Epoch || end <= s.list[0].End) {
		return nil, false
	}
	return nil, true
}
