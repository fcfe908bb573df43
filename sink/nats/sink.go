package nats

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
)

// checkpointPrefix is put before a topic's subject to make that of its
// checkpoint.
const checkpointPrefix = "_feedbridge."

// Sink appends to one topic and keeps its checkpoint beside it; see the package
// comment. But for IDs and Fits it is used by one goroutine at a time.
type Sink struct {
	conn       *Conn
	topic      Topic
	checkpoint string // the checkpoint's subject
	ids        *sink.IDs

	// limit is the largest message that server and stream take, in bytes,
	// headers included; 0 before the first Resume.
	limit atomic.Int64

	// session is that of the last Resume; nil if there was none since the last
	// error. What follows holds while it lasts.
	session *session
	// staged is what the next commit may find on the server; nil if there is
	// nothing. It was sent in session.
	staged *staged
	// failed is when a commit has failed last.
	failed time.Time
	// fence is the checkpoint that the next commit must find.
	fence fence
	// first says that the topic has never had a message, so that the entity that
	// comes next is its first.
	first bool

	// seen is what this sink remembers of the topic. It outlives errors.
	seen seen
}

// seen is the state of a topic that a sink's IDs were loaded from.
type seen struct {
	// created is when the stream was created.
	created time.Time
	// checkpoint is the newest checkpoint that the sink has read or stored; nil
	// if the topic had none.
	checkpoint *stored
	// complete reports whether the IDs were loaded up to checkpoint since they were last
	// forgotten. A load may fail half-way, and the topic may then have that checkpoint again.
	complete bool
	// newest is the newest entity whose ID was loaded or committed.
	newest identity
	// moved is when a person had last moved the checkpoint.
	moved time.Time
}

// Sink returns a sink for a topic. The stream is looked at, and created if need
// be, by Resume.
func (c *Conn) Sink(t Topic) *Sink {
	t.Stream.Name = t.StreamName()
	c.mu.Lock()
	c.sinks[t.Stream.Name]++
	c.mu.Unlock()
	return &Sink{conn: c, topic: t, checkpoint: checkpointPrefix + t.Subject, ids: sink.NewIDs(t.Window)}
}

// IDs returns the newest IDs that the topic holds, and all of its marks, as of the
// last Resume or Commit. It always returns the same.
func (s *Sink) IDs() *sink.IDs { return s.ids }

// Resume checks that the stream is fit to be committed to, and creates it if it
// is missing and the configuration says so. It returns the stored checkpoint,
// having caught up IDs with it. It takes the answers of the stream's leader
// alone.
func (s *Sink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	s.session, s.staged = nil, nil
	s.ids.Rollback()
	var cp checkpoint.Checkpoint
	err := s.conn.ask(ctx, s.topic.Subject, func(ctx context.Context, ses *session) error {
		info, err := s.checkStream(ctx)
		if err != nil {
			return err
		}
		asked := time.Now()
		last, err := s.newest(ctx, info)
		if err != nil {
			return err
		}
		if s.first, err = s.unwritten(ctx, info, last); err != nil {
			return err
		}
		if last == nil {
			s.forget()
			s.session, s.fence, s.seen = ses, fence{at: asked}, seen{created: info.Created, complete: true}
			return nil
		}
		if cp, err = checkpoint.Decode(last.Data); err != nil {
			return fmt.Errorf("%w; if no newer feedbridge wrote it, set it anew with 'feedbridge checkpoint set %s', or discard it with 'feedbridge checkpoint reset %[2]s'", err, s.topic.Feed)
		}
		to, err := s.end(ctx, info, last.Sequence)
		if err != nil {
			return err
		}
		if err := s.catchUp(ctx, info, last, to, cp); err != nil {
			return err
		}
		s.session, s.fence = ses, fence{last, asked}
		return nil
	})
	if err != nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("resume: %w", err)
	}
	return cp, nil
}

// Overwrite stores what next makes of the checkpoint that the topic has, the zero
// one if it has none or one that cannot be read. Like a commit it is refused with
// [checkpoint.ErrConflict] if someone commits at the same moment. It is for a
// person who moves a feed's place; the sink must Resume afterwards.
func (s *Sink) Overwrite(ctx context.Context, next func(old checkpoint.Checkpoint) checkpoint.Checkpoint) error {
	s.session, s.staged = nil, nil
	err := s.conn.ask(ctx, s.topic.Subject, func(ctx context.Context, _ *session) error {
		info, err := s.checkStream(ctx)
		if err != nil {
			return err
		}
		asked := time.Now()
		last, err := s.lastCheckpoint(ctx)
		if err != nil {
			return err
		}
		first, err := s.unwritten(ctx, info, last)
		if err != nil {
			return err
		}
		var old checkpoint.Checkpoint
		if last != nil {
			old, _ = checkpoint.Decode(last.Data) // whoever moves the place was told
		}
		ctx, cancel := s.conn.bounded(ctx)
		defer cancel()
		_, _, err = s.publish(ctx, fence{last, asked}, batch{first: first, checkpoint: next(old)}, func() {})
		return err
	})
	if err != nil {
		return fmt.Errorf("overwrite: %w", err)
	}
	return nil
}

func (s *Sink) lastCheckpoint(ctx context.Context) (*stored, error) {
	return s.last(ctx, s.checkpoint)
}

func (s *Sink) last(ctx context.Context, subject string) (*stored, error) {
	return s.conn.last(ctx, s.topic.Stream.Name, subject)
}

// newest returns the topic's checkpoint, nil if the topic has never had a message,
// and an error that matches [checkpoint.ErrMissing] if it has had some.
func (s *Sink) newest(ctx context.Context, info *jetstream.StreamInfo) (*stored, error) {
	last, err := s.lastCheckpoint(ctx)
	if last != nil || err != nil {
		return last, err
	}
	if !s.lost(info) {
		if first, err := s.unwritten(ctx, info, nil); first || err != nil {
			return nil, err
		}
	}
	// Another copy may have made the first commit since the first question.
	if last, err = s.lastCheckpoint(ctx); last != nil || err != nil {
		return last, err
	}
	return nil, feed.Permanent(fmt.Errorf("stream %s: %w; say where to read on with 'feedbridge checkpoint set %s', "+
		"or start the feed over with 'feedbridge checkpoint reset %[3]s'", info.Config.Name, checkpoint.ErrMissing, s.topic.Feed))
}

// lost reports whether a topic without a checkpoint has lost the one that this sink saw
// last. The state of a shared stream cannot show that, because it has messages of other
// subjects in any case.
//
// An empty stream with the same creation time is no loss: its server lost the whole
// tail, including the topic's first commit, so the feed starts over. A shared stream
// that lost its tail back to before the topic's first commit, and still has messages of
// other subjects, is in the same state as one whose checkpoint was deleted. So it counts
// as a loss: the feed halts, and a person has to set or reset the checkpoint.
func (s *Sink) lost(info *jetstream.StreamInfo) bool {
	return s.seen.checkpoint != nil && (!untouched(info) || !info.Created.Equal(s.seen.created))
}

// untouched reports whether a stream has never had a message.
func untouched(info *jetstream.StreamInfo) bool {
	return info.State.LastSeq+1 == beginning(info.Config)
}

// unwritten says whether the topic has never had a message, by its checkpoint, which
// is nil if it has none.
func (s *Sink) unwritten(ctx context.Context, info *jetstream.StreamInfo, cp *stored) (bool, error) {
	if cp != nil && !cp.first(s.topic.Subject) {
		return false, nil
	}
	// There may be one that the checkpoint does not know of: see end.
	message, err := s.last(ctx, s.topic.Subject)
	if message != nil || err != nil {
		return false, err
	}
	// In a stream that is the topic's alone even messages that are gone count.
	return cp != nil || untouched(info) || !s.alone(info.Config.Subjects), nil
}

// end returns up to where ids are to be caught up: to the checkpoint, or to a
// message of the topic behind it. There is none but after a power cut that left
// half a batch in the log of a server that had not written it all to the disk.
// Its checkpoint was in the half that is gone, so its entities will be read
// again, and the gate has to know those that are there.
func (s *Sink) end(ctx context.Context, info *jetstream.StreamInfo, sequence uint64) (uint64, error) {
	if info.State.LastSeq <= sequence {
		return sequence, nil
	}
	last, err := s.last(ctx, s.topic.Subject)
	if err != nil || last == nil {
		return sequence, err
	}
	return max(sequence, last.Sequence), nil
}

func (s *Sink) subjects() []string { return []string{s.topic.Subject, s.checkpoint} }

// alone says whether a stream of such subjects takes nothing but what is the topic's.
func (s *Sink) alone(subjects []string) bool {
	return !slices.ContainsFunc(subjects, func(subject string) bool { return !slices.Contains(s.subjects(), subject) })
}
