package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
)

// dedupeLoader keeps the IDs of a topic in memory and loads them from the topic. The IDs are
// valid as long as the newest message that they were loaded from is in the stream, because a
// stream loses messages at its end. The sequence and the Count of the checkpoint would not
// prove that: other copies may fill a lost tail again with other commits, or other entities.
type dedupeLoader struct {
	client *client
	topic  *Topic
	ids    *sink.IDs
	// seen is the state of the topic that ids was loaded from. It outlives errors.
	seen topicState
}

// dropIDs drops the IDs. The checkpoint that was seen is kept: whether the topic has lost it
// does not depend on the IDs.
func (d *dedupeLoader) dropIDs() {
	d.ids.Reset()
	d.seen.newest, d.seen.complete, d.seen.uncommitted = identity{}, false, 0
}

// recordUnwritten records that the topic has no checkpoint and no entities.
func (d *dedupeLoader) recordUnwritten() {
	d.dropIDs()
	d.seen = topicState{complete: true}
}

// recordCommit adds the IDs of a commit that is stored.
func (d *dedupeLoader) recordCommit(entities []feed.Entity, cp checkpoint.Checkpoint, c committed) {
	d.ids.Commit(entities)
	d.seen.checkpoint, d.seen.end, d.seen.moved, d.seen.uncommitted = c.fence.checkpoint, c.fence.end, cp.Moved, 0
	if len(entities) > 0 {
		d.seen.newest = c.newest
	}
}

// catchUp makes the IDs the newest of the topic that f describes, with all of its marks, and all
// behind f.committed. cp is the checkpoint of f. It reads nothing if the topic has not changed since
// it was seen, and of a topic without marks not much more than the window.
//
// The entities behind f.committed may be read from the feed again. Nothing of them is forgotten
// before the next commit of entities, whose cursor is behind them, whatever the window is.
func (d *dedupeLoader) catchUp(ctx context.Context, info *streamInfo, f fence, cp checkpoint.Checkpoint) error {
	seen := &d.seen
	if !f.checkpoint.equals(seen.checkpoint) {
		seen.uncommitted = 0
	}
	switch {
	case !cp.Moved.Equal(d.seen.moved):
		// A person has moved the checkpoint, perhaps after deleting messages.
		d.dropIDs()
	case seen.complete && f.checkpoint.equals(seen.checkpoint) && f.end.entity <= seen.end.entity && f.end.dead <= seen.end.dead &&
		seen.newest.sequence < f.sequence():
		seen.end = f.end // retention may have removed the newest entity
		return nil
	case seen.newest == identity{}:
		d.dropIDs()
	default:
		if held, err := d.topicHolds(ctx, info, d.seen.newest); err != nil {
			return err
		} else if !held {
			d.dropIDs()
		}
	}
	if seen.newest.sequence < f.last() {
		if err := d.loadNewer(ctx, info, f); err != nil {
			return err
		}
	}
	seen.checkpoint, seen.end, seen.complete, seen.moved = f.checkpoint, f.end, true, cp.Moved
	return nil
}

// loadNewer loads the IDs of the messages after the newest one that is known, up to the last one of
// f.
func (d *dedupeLoader) loadNewer(ctx context.Context, info *streamInfo, f fence) error {
	subjects, to := d.narrow(info, f)
	if to <= d.seen.newest.sequence {
		return nil
	}
	first := max(1, info.State.FirstSeq)
	from := max(first, d.seen.newest.sequence+1)
	r, err := d.openWindow(ctx, subjects, from, min(to, f.committed))
	if err != nil {
		return err
	}
	err = d.loadMessages(ctx, info, r, f, to)
	if r.from == from || !d.ids.Marked() {
		return err
	}
	// The source of a topic with marks needs every mark, however old. If the load of the
	// newest ones ended early, the next load must not continue after them.
	d.dropIDs()
	if err != nil {
		return err
	}
	if r, err = openReader(ctx, d.client, d.topic.Stream.Name, subjects, first, true); err != nil {
		return err
	}
	return d.loadMessages(ctx, info, r, f, to)
}

// narrow returns the subjects to read for the IDs of the topic that f describes, and the sequence of
// the last of their messages, 0 if there is none. That is the topic's subject if it has no other one
// for entities: a server finds the messages of one subject by an index, and those of several by a
// walk through the stream, which may have the messages of ten thousand topics. They are all
// subjects if the stream has replicas: a leader that was deposed may return an older entity as the
// last one, but it cannot return the checkpoint.
func (d *dedupeLoader) narrow(info *streamInfo, f fence) (subjects []string, last uint64) {
	if d.topic.DeadLetters || info.Config.Replicas > 1 {
		return d.topic.subjects(), f.last()
	}
	return []string{d.topic.Subject}, f.end.entity
}

// topicHolds reports whether the topic still has the message m. Then it has all messages in
// front of m, too: a stream that goes back in time, after a power cut or when a backup is
// restored, loses its tail.
func (d *dedupeLoader) topicHolds(ctx context.Context, info *streamInfo, m identity) (bool, error) {
	if m.sequence == 0 {
		return true, nil
	}
	found, err := d.client.messageAt(ctx, d.topic.Stream.Name, m.sequence)
	if err != nil {
		return false, err
	}
	held := found != nil && identityOf(found.Sequence, found.header(), found.Time) == m
	// Limits delete the messages in front of the stream's first one, or the oldest of a
	// subject.
	expired := found == nil && (m.sequence < info.State.FirstSeq || info.Config.MaxMsgsPerSubject > 0)
	if !held && !expired {
		// People delete dead letters that they have dealt with.
		d.client.log.Warn("the newest known message is gone: it was deleted, or the stream has lost its newest messages; loading the IDs of the topic again",
			"stream", info.Config.Name, "sequence", m.sequence)
	}
	return held, nil
}

// loadMessages adds the IDs of all messages of r up to the sequence to, which is that of a
// checkpoint or of an entity, and closes r. Those behind f.committed are kept beside the
// window. Any replica may deliver them; the message at to
// is known to be there, so loadMessages ends only when it has come.
//
// The stream may have gone back in time between the check of the newest known message and
// the creation of the consumer: in a cluster the connection survives that. So that message
// is checked once more when the first one has come. Those after it are of the same stream:
// a consumer that starts again numbers its messages from 1.
func (d *dedupeLoader) loadMessages(ctx context.Context, info *streamInfo, r *reader, f fence, to uint64) error {
	known := d.seen.newest
	defer sink.Announce(d.client.log, d.topic.Subject, r.pending())()
	defer r.close()
	for seen := uint64(0); seen < to; {
		m, err := r.nextKnown(ctx, to)
		if err != nil {
			return fmt.Errorf("load the IDs of the topic: %w", err)
		}
		if seen == 0 {
			if held, err := d.topicHolds(ctx, info, known); err != nil {
				return err
			} else if !held {
				d.dropIDs()
				return errors.New("the stream has lost its newest messages while it was read")
			}
		}
		if seen = m.sequence; seen <= to && slices.Contains(d.topic.entitySubjects(), m.Subject) {
			if m.sequence > f.counted && m.Subject == d.topic.Subject {
				d.seen.uncommitted++
			}
			if m.sequence > f.committed {
				d.ids.LoadUncommitted(m.headerFields())
			} else {
				d.ids.LoadMessage(m.headerFields())
			}
			d.seen.newest = identityOf(m.sequence, m.Header, m.time)
		}
	}
	return nil
}

// openWindow opens a reader of all messages behind the sequence to, and of about the newest ones up
// to it: of a window of messages at least, or of all from first on if there are fewer, or if the topic is known to
// have marks. Sequences have gaps where checkpoints were, and a shared stream has messages of
// other subjects between.
func (d *dedupeLoader) openWindow(ctx context.Context, subjects []string, first, to uint64) (*reader, error) {
	window := uint64(cmp.Or(d.topic.Window, sink.DefaultWindow))
	for span := 2 * window; ; span *= 4 {
		from := first
		if to > span && !d.ids.Marked() {
			from = max(first, to-span)
		}
		r, err := openReader(ctx, d.client, d.topic.Stream.Name, subjects, from, true)
		if err != nil || from == first || r.pending() > window {
			return r, err
		}
		r.close()
	}
}
