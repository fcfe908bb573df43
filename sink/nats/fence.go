package nats

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// The fence: why a commit of a copy that is out of date stores nothing.
//
// The fence is on everything that is promised: on the checkpoint, the entities and the dead
// letters.
//
//  1. An atomic batch has Nats-Expected-Last-Subject-Sequence for the subject of the checkpoint, in its
//     last message, and for those of the entities and the dead letters, in its first two: the
//     sequences of the newest messages that this copy knows. The server compares all of them
//     before it stores anything of the batch. If another copy has committed, the newest
//     checkpoint has a higher sequence, and the whole batch is refused. If the server has stored
//     only the beginning of another batch, which has no checkpoint, the newest entity or dead
//     letter has a higher sequence. The same holds for a commit that was thought lost and arrives
//     late.
//
//     In a fast batch each message has a fence, and the server drops what comes after the first that is
//     refused or missing: without that a later message of a stale copy could meet the expected sequence
//     again. In a stream of one topic the fence is the sequence of the message before it
//     (Nats-Expected-Last-Sequence), so that nothing that this copy does not know is in front of any of
//     its messages; the first one also has that of the newest entity. In a stream of several topics it
//     is that of the checkpoint. That does not show the beginning of another batch, so the first commit
//     after Resume is atomic, and [Sink.takeOver] stores the checkpoint once more before it: that
//     refuses all other copies, also if only the beginning of the batch is stored.
//
//     A checkpoint without entities is a message of its own and compares only the checkpoint. It
//     may follow such a beginning without knowing it. So it names the newest checkpoint that was
//     stored with entities: what is stored behind that one may not be behind the cursor, and is
//     loaded as such. See [fence.committed].
//  2. The sequence is not enough, because a stream can go back in time: a server that does not
//     sync before it acknowledges loses its newest messages in a power cut. If another copy
//     fills the stream again up to the same sequence, the server accepts a commit that
//     continues the lost checkpoint. In a cluster, or over a leaf node, the connection
//     survives that. So [checkpointReader.confirm] reads the checkpoint from the stream's
//     leader (a replica may be behind, and any of them may answer Direct Get) and compares its
//     content, immediately before the last message.
//  3. Within [confirmAfter] of the last proof, which is a read or an acknowledged commit, the
//     comparison is left out: all of point 2 does not happen in that time.
//  4. The acknowledgement must come from the stream that the checkpoint is read from. It names
//     the stream and the JetStream domain, and parseAck compares both. With api_prefix, which
//     may lead to another account, [checkpointReader.confirmStored] reads the checkpoint back.
//  5. A sink commits only on the connection on which it has resumed.
//  6. A checkpoint that is stored, or acknowledged, does not prove its entities. nats-server before 2.14.6 goes
//     on with an atomic batch after a message for which the account has no room, and acknowledges all; newer ones
//     keep such a batch, and complete it when they are started again, as far as there is room and without any
//     comparison. So the copy compares the sequences of the messages ([publisher.checkStored]), and Resume does the
//     same ([checkpointReader.isTorn]). The checkpoint carries the previous one in a header (see [previous]). If
//     entities are missing, Resume returns the previous checkpoint, and loads the IDs of the entities behind it, as
//     for the beginning of a batch.
//
//     A message of a fast batch may be refused behind the checks of the batch, when another stream of the account
//     takes the last room in between. Then the server does not drop the rest. In a chain the next message is
//     refused, too. In a stream of several topics there is a hole; the server answers with the error, and
//     the copy, whose checkpoint is there in spite of it, resumes from the one before ([topicState.torn]).
//
// The content cannot be the condition: the server refuses Nats-Expected-Last-Msg-Id in batches.
// The newest entity needs no comparison of its content. If it is in front of the checkpoint, the
// content of the checkpoint proves it, because a stream loses its tail. If it is behind the
// checkpoint, it was read from the feed behind the cursor of that checkpoint, by whichever copy.
//
// Three cases remain: all of point 2 happens while the last message is in flight, or while the
// process is stopped between the comparison and the message; a leader that was deposed
// answers the comparison; and in a stream of several topics the copy dies before it reads the error of a batch
// that lacks a message. The next copy cannot detect that for a fast batch, and for an atomic batch not if its
// first message is missing and the message of another topic before it was deleted.

// confirmAfter is the time after the last proof of a fence from which a commit compares the
// content of the checkpoint again.
const confirmAfter = time.Second

// A fence is the condition of a commit: what this copy knows to be the newest of the topic.
type fence struct {
	checkpoint *storedMessage // nil if the topic has none
	end        topicEnd
	// committed is the sequence of the newest checkpoint that was stored with entities, which is
	// in front of checkpoint if that was stored without. The entities behind it are the beginning
	// of a batch that was not stored to its end. The cursor may be in front of them.
	committed uint64
	// named is the ID of the newest commit with entities, empty if it had only dead letters, or a person has
	// moved the checkpoint since. Its last entity has it, too.
	named string
	// content is the newest checkpoint whose entities are all there, nil if there is none: that of checkpoint, or
	// of the one before it. It counts the entities up to the sequence counted.
	content []byte
	counted uint64
	// stream is the last sequence of the stream, for [chainedIngest].
	stream uint64
	// proved holds the time when the read that returned the checkpoint began, or when the
	// commit that stored it was sent.
	proved time.Time
}

// topicEnd has the sequences of the newest entity and the newest dead letter, 0 if there is none.
type topicEnd struct{ entity, dead uint64 }

// topicState is the state of a topic in which this process saw it last.
type topicState struct {
	// checkpoint is the newest checkpoint that was read or stored; nil if the topic had none.
	checkpoint *storedMessage
	// complete reports whether the IDs were loaded up to checkpoint since they were last
	// dropped. A load may fail half-way, and the topic may then have that checkpoint again.
	complete bool
	// end is the end of the topic up to which the IDs were loaded.
	end topicEnd
	// newest is the newest entity or dead letter whose ID was loaded or committed.
	newest identity
	// uncommitted is the number of entities behind checkpoint.
	uncommitted uint64
	// moved holds the time when a person had last moved the checkpoint.
	moved time.Time
	// torn are the contents of the checkpoints of commits that the server has not stored to their end, as it has
	// shown, although the checkpoint may be there: of the newest one, and of those since.
	torn [][]byte
}

// sequence returns the sequence of the checkpoint that the server compares, 0 if there must be
// none.
func (f fence) sequence() uint64 {
	if f.checkpoint == nil {
		return 0
	}
	return f.checkpoint.Sequence
}

// last returns the sequence of the newest message of the topic.
func (f fence) last() uint64 { return max(f.sequence(), f.end.entity, f.end.dead) }

// of returns the sequence of the newest message of one of the topic's two subjects.
func (e *topicEnd) of(subject string, topic *Topic) *uint64 {
	if subject == topic.Subject {
		return &e.entity
	}
	return &e.dead
}

// after returns the end of a topic after entities were stored behind the sequence before. A batch
// has consecutive sequences.
func (e topicEnd) after(entities []feed.Entity, before uint64) topicEnd {
	for i := range entities {
		sequence := before + uint64(i) + 1
		if entities[i].Dead != nil {
			e.dead = sequence
		} else {
			e.entity = sequence
		}
	}
	return e
}

// checkpointReader reads the checkpoint of a topic. All answers come from the stream's leader.
type checkpointReader struct {
	client *client
	topic  *Topic
}

// confirm returns an error that matches [checkpoint.ErrConflict] unless the newest checkpoint
// is that of f, compared by content. It makes no request if f was proved within confirmAfter. An
// answer that has taken longer than that proves nothing, and the checkpoint is read again.
func (r *checkpointReader) confirm(ctx context.Context, f fence) error {
	for time.Since(f.proved) >= confirmAfter {
		f.proved = time.Now()
		last, err := r.readLast(ctx)
		if err != nil {
			return err
		}
		if !last.equals(f.checkpoint) {
			return fmt.Errorf("%w: its checkpoint differs from the one that was read", checkpoint.ErrConflict)
		}
	}
	return nil
}

// confirmStored returns an error unless an acknowledged checkpoint is in the stream. It makes
// a request only with api_prefix, under which the streams of another account may be used: an import
// may have any prefix, also one like that of a domain. An acknowledgement names its stream and
// JetStream domain, and not its account: a stream of this account that has the same name and
// subjects answers with the same acknowledgement.
func (r *checkpointReader) confirmStored(ctx context.Context, acknowledged *storedMessage) error {
	if r.client.cfg.APIPrefix == "" {
		return nil
	}
	last, err := r.readLast(ctx)
	switch {
	case err != nil:
		return err
	case last.equals(acknowledged):
		return nil
	case last != nil && last.Sequence >= acknowledged.Sequence:
		return fmt.Errorf("%w since the acknowledgement", checkpoint.ErrConflict)
	}
	stream := r.topic.Stream.Name
	return feed.Permanent(fmt.Errorf("stream %s acknowledged a commit for the stream of that name behind api_prefix %s, which has not stored it: "+
		"a stream of this account has the subject %s, too; delete the subject there", stream, r.client.cfg.APIPrefix, r.topic.checkpointSubject()))
}

// readLast returns the newest checkpoint, or nil.
func (r *checkpointReader) readLast(ctx context.Context) (*storedMessage, error) {
	return r.client.lastMessage(ctx, r.topic.Stream.Name, r.topic.checkpointSubject())
}

// readEnd returns the end of the topic. It is read after the checkpoint: entities that another copy
// commits in between look like a beginning without a checkpoint, and the fence refuses the next
// commit.
func (r *checkpointReader) readEnd(ctx context.Context) (end topicEnd, err error) {
	for _, subject := range r.topic.entitySubjects() {
		last, err := r.client.lastMessage(ctx, r.topic.Stream.Name, subject)
		if err != nil {
			return end, err
		}
		if last != nil {
			*end.of(subject, r.topic) = last.Sequence
		}
	}
	return end, nil
}

// endsBy reports whether the topic has nothing behind an end.
func (r *checkpointReader) endsBy(ctx context.Context, end topicEnd) bool {
	last, err := r.readEnd(ctx)
	return err == nil && last.entity <= end.entity && last.dead <= end.dead
}

// readFence returns the fence of a topic whose stream is info. The error matches
// [checkpoint.ErrMissing] if the topic has no checkpoint, and has had some message. seen is the
// state in which this process saw the topic last.
func (r *checkpointReader) readFence(ctx context.Context, info *streamInfo, seen topicState) (f fence, err error) {
	f.stream = info.State.LastSeq // of the first request, so that the fence covers all that was stored since
	for range 2 {                 // another copy may make the first commit between the requests
		f.proved = time.Now()
		if f.checkpoint, err = r.readLast(ctx); err != nil {
			return f, err
		}
		f.committed, f.named, f.counted = f.checkpoint.lastCommitted(), f.checkpoint.header().Get(commitID), f.sequence()
		if f.checkpoint != nil {
			f.content = f.checkpoint.Data
		}
		if torn, err := r.isTorn(ctx, f.checkpoint); err != nil {
			return f, err
		} else if torn || slices.ContainsFunc(seen.torn, func(data []byte) bool { return bytes.Equal(data, f.content) }) {
			f.stepBack()
		}
		if f.checkpoint != nil && f.sequence() == info.State.LastSeq && r.topic.ownsAll(info.Config.Subjects) && seen.complete && f.checkpoint.equals(seen.checkpoint) {
			f.end = seen.end // nothing is behind the checkpoint, and nothing in front of it is new
			return f, nil
		}
		if f.end, err = r.readEnd(ctx); err != nil || f.content != nil {
			return f, err
		}
		if f.checkpoint != nil {
			break
		}
		// A checkpoint that was seen is never forgotten, also if the stream is as empty as at its
		// start: with start: now the feed would lose all that is in it.
		if seen.checkpoint == nil && r.isUnwritten(info, f) {
			return f, nil
		}
	}
	return f, feed.Permanent(fmt.Errorf("stream %s: %w; set the position to continue from with 'feedbridge checkpoint set %s', "+
		"or start the feed over with 'feedbridge checkpoint reset %[3]s'", info.Config.Name, checkpoint.ErrMissing, r.topic.Feed))
}

// isTorn reports whether the newest checkpoint was stored without all of the entities of its atomic batch: the
// message that has to be the first one of the batch is another. That it is gone proves nothing.
func (r *checkpointReader) isTorn(ctx context.Context, m *storedMessage) (bool, error) {
	h := m.header()
	behind, err := strconv.ParseUint(h.Get(batchSequence), 10, 64)
	if err != nil {
		return false, nil
	}
	before, _ := strconv.ParseUint(h.Get(expectedLast), 10, 64)
	if behind--; m.Sequence-behind <= before || m.Sequence <= behind {
		return true, nil
	}
	first, err := r.client.messageAt(ctx, r.topic.Stream.Name, m.Sequence-behind)
	return first != nil && !first.begins(h.Get(batchID)), err
}

// stepBack makes content the checkpoint before the newest one, whose entities are not all there. Those that are
// lie behind it, like the beginning of a batch. If the newest checkpoint is the first one, there is none.
func (f *fence) stepBack() {
	h := f.checkpoint.header()
	committed, content, _ := strings.Cut(h.Get(previous), " ")
	f.committed, _ = strconv.ParseUint(committed, 10, 64)
	f.counted, _ = strconv.ParseUint(h.Get(expectedLast), 10, 64)
	if f.content = nil; content != "" {
		f.content = []byte(content)
	}
}

// isUntouched reports whether a stream has never had a message.
func isUntouched(info *streamInfo) bool {
	return info.State.LastSeq+1 == firstSequence(info.Config)
}

// firstSequence returns the sequence of the first message that a stream has ever had.
func firstSequence(c jetstream.StreamConfig) uint64 { return max(1, c.FirstSeq) }

// isUnwritten reports whether the topic, whose fence is f, has never had an entity.
func (r *checkpointReader) isUnwritten(info *streamInfo, f fence) bool {
	if f.checkpoint != nil {
		return f.checkpoint.precedesTopic(r.topic.Subject) && f.end.entity == 0
	}
	// A dead letter without a checkpoint is half of a commit, like an entity. In a stream that
	// has no other subjects, deleted messages count, too.
	return f.end == topicEnd{} && (isUntouched(info) || !r.topic.ownsAll(info.Config.Subjects))
}
