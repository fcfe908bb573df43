package nats

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/sink"
)

// catchUp makes ids hold the newest IDs of the topic up to the sequence to, and
// all of its marks, for the checkpoint cp. It reads nothing if it has got that far
// before, and of a topic without marks never much more than the window.
func (s *Sink) catchUp(ctx context.Context, info *jetstream.StreamInfo, to uint64, cp checkpoint.Checkpoint) error {
	seen := &s.seen
	if !info.Created.Equal(seen.created) || to < seen.sequence || !cp.Moved.Equal(seen.moved) || info.State.FirstSeq > seen.sequence {
		// The stream is another one, or was purged, or a person has moved the
		// place, perhaps after deleting messages: what ids has may be gone.
		s.forget(info.Created)
	}
	if to == seen.sequence {
		return nil
	}
	first := max(1, info.State.FirstSeq)
	from := max(first, seen.sequence+1)
	r, err := s.tail(ctx, from, to)
	if err != nil {
		return err
	}
	if err := s.load(ctx, r, to); err != nil {
		return err
	}
	if r.from > from && s.ids.Marked() {
		// Its source wants every mark, however old.
		s.forget(info.Created)
		if r, err = s.headers(ctx, first); err != nil {
			return err
		}
		if err := s.load(ctx, r, to); err != nil {
			return err
		}
	}
	seen.sequence, seen.moved = to, cp.Moved
	return nil
}

// load makes ids hold what is read up to the sequence to, which is that of a
// checkpoint or of a message of the topic.
func (s *Sink) load(ctx context.Context, r *reading, to uint64) error {
	defer sink.Announce(s.conn.log, s.topic.Subject, r.pending())()
	defer r.close()
	for seen := uint64(0); seen < to; {
		m, err := r.await(ctx, to)
		if err != nil {
			return fmt.Errorf("read what the topic holds: %w", err)
		}
		if seen = m.sequence; seen <= to && m.Subject == s.topic.Subject {
			s.ids.LoadMessage(m.fields())
		}
	}
	return nil
}

// headers begins to read the headers of the topic and its checkpoint.
func (s *Sink) headers(ctx context.Context, from uint64) (*reading, error) {
	return s.conn.read(ctx, s.topic.Stream.Name, s.subjects(), from, true)
}

// tail begins to read about the newest messages up to the sequence to: of
// a window of them at least, or of all from first on if there are less, or if the
// topic is known to have marks. Sequences have gaps where
// checkpoints were, and a shared stream has other subjects' messages between.
func (s *Sink) tail(ctx context.Context, first, to uint64) (*reading, error) {
	window := uint64(s.topic.Window)
	if window == 0 {
		window = sink.DefaultWindow
	}
	for span := 2 * window; ; span *= 4 {
		from := first
		if to > span && !s.ids.Marked() {
			from = max(first, to-span)
		}
		r, err := s.headers(ctx, from)
		if err != nil || from == first || r.pending() > window {
			return r, err
		}
		r.close()
	}
}
