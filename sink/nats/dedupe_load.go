package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/sink"
)

// identity identifies a message of the topic, so that it is recognised when it is read
// again: no other message has the same, at whatever sequence.
type identity struct {
	sequence uint64 // 0 if there is no message
	// id is the message's batch and its number there, or the time at which it was
	// stored if feedbridge has not written it.
	id string
}

// identityOf returns the identity of a message that was read.
func identityOf(sequence uint64, h nats.Header, at time.Time) identity {
	if batch := h.Get(batchID); batch != "" {
		return identity{sequence, batch + "/" + h.Get(batchSequence)}
	}
	return identity{sequence, at.UTC().Format(time.RFC3339Nano)}
}

// catchUp makes ids hold the newest IDs of the topic up to the sequence to, and
// all of its marks, for the checkpoint cp, which is stored in last. It reads nothing if
// it has got that far before, and of a topic without marks never much more than the
// window.
func (s *Sink) catchUp(ctx context.Context, info *jetstream.StreamInfo, last *stored, to uint64, cp checkpoint.Checkpoint) error {
	switch {
	case !cp.Moved.Equal(s.seen.moved):
		// A person has moved the checkpoint, perhaps after deleting messages.
		s.forget()
	case s.seen.complete && last.same(s.seen.checkpoint) && to == last.Sequence && s.seen.newest.sequence < to:
		return nil
	default:
		if held, err := s.holds(ctx, info, s.seen.newest); err != nil {
			return err
		} else if !held {
			s.forget()
		}
	}
	if s.seen.newest.sequence < to {
		if err := s.loadTo(ctx, info, to); err != nil {
			return err
		}
	}
	s.seen.created, s.seen.checkpoint, s.seen.complete, s.seen.moved = info.Created, last, true, cp.Moved
	return nil
}

// loadTo loads the IDs of the messages behind the newest one that is known, up to the
// sequence to.
func (s *Sink) loadTo(ctx context.Context, info *jetstream.StreamInfo, to uint64) error {
	first := max(1, info.State.FirstSeq)
	from := max(first, s.seen.newest.sequence+1)
	r, err := s.tail(ctx, from, to)
	if err != nil {
		return err
	}
	if err := s.load(ctx, info, r, to); err != nil || r.from == from || !s.ids.Marked() {
		return err
	}
	// Its source wants every mark, however old.
	s.forget()
	if r, err = s.headers(ctx, first); err != nil {
		return err
	}
	return s.load(ctx, info, r, to)
}

// holds reports whether the topic still holds the message m. Then it holds all in front
// of m, too: a stream that goes back in time, after a power cut or when a backup is
// restored, loses its tail. Neither the sequence of the checkpoint nor its Count would
// show that, once others have filled the tail again.
func (s *Sink) holds(ctx context.Context, info *jetstream.StreamInfo, m identity) (bool, error) {
	if m.sequence == 0 {
		return true, nil
	}
	found, err := s.conn.get(ctx, s.topic.Stream.Name, map[string]any{"seq": m.sequence})
	if err != nil {
		return false, err
	}
	held := found != nil && identityOf(found.Sequence, found.header(), found.Time) == m
	// Limits take what is in front of the stream's first message, or what is oldest of a
	// subject.
	expired := found == nil && (m.sequence < info.State.FirstSeq || info.Config.MaxMsgsPerSubject > 0)
	if !held && !expired {
		s.conn.log.Warn("the stream has lost its newest messages", "stream", info.Config.Name, "sequence", m.sequence)
	}
	return held, nil
}

// forget forgets the IDs.
func (s *Sink) forget() {
	s.ids.Reset()
	s.seen.newest, s.seen.complete = identity{}, false
}

// load makes ids hold what is read up to the sequence to, which is that of a
// checkpoint or of a message of the topic.
//
// The stream may have gone back in time between the look at the newest known message and
// the creation of the consumer: in a cluster the connection lasts. So that message is
// looked at once more when the first one has come. Those after it are of the same stream:
// a consumer that starts again numbers its messages from 1.
func (s *Sink) load(ctx context.Context, info *jetstream.StreamInfo, r *reading, to uint64) error {
	known := s.seen.newest
	defer sink.Announce(s.conn.log, s.topic.Subject, r.pending())()
	defer r.close()
	for seen := uint64(0); seen < to; {
		m, err := r.await(ctx, to)
		if err != nil {
			return fmt.Errorf("read what the topic holds: %w", err)
		}
		if seen == 0 {
			if held, err := s.holds(ctx, info, known); err != nil {
				return err
			} else if !held {
				s.forget()
				return errors.New("the stream has lost its newest messages while it was read")
			}
		}
		if seen = m.sequence; seen <= to && m.Subject == s.topic.Subject {
			s.ids.LoadMessage(m.fields())
			s.seen.newest = identityOf(m.sequence, m.Header, m.time)
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
