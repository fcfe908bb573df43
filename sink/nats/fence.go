package nats

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// The fence: why a commit of a copy that is out of date stores nothing.
//
//  1. The last message of a commit has Nats-Expected-Last-Subject-Sequence with the sequence
//     of the newest checkpoint that this copy knows. The server compares it when it stores the
//     batch, of which it has stored nothing before. If another copy has committed, the newest
//     checkpoint has a higher sequence, and the whole batch is refused. The same holds for a
//     commit that was thought lost and arrives late. One writer never has two commits in
//     flight: the last message of a staged batch is sent after the commit before it was
//     acknowledged.
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
//
// The content cannot be the condition: the server refuses Nats-Expected-Last-Msg-Id in batches.
// Two cases remain: all of point 2 happens while the last message is in flight, or while the
// process is stopped between the comparison and the message; and a leader that was deposed
// answers the comparison.

// confirmAfter is the time after the last proof of a fence from which a commit compares the
// content of the checkpoint again.
const confirmAfter = time.Second

// A fence is the condition of a commit: the newest checkpoint of the topic.
type fence struct {
	checkpoint *storedMessage // nil if the topic has none
	// proved holds the time when the read that returned the checkpoint began, or when the
	// commit that stored it was sent.
	proved time.Time
}

// sequence returns the sequence that the server compares, 0 if there must be no checkpoint.
func (f fence) sequence() uint64 {
	if f.checkpoint == nil {
		return 0
	}
	return f.checkpoint.Sequence
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
// a request only with api_prefix, under which the streams of another account are used. An
// acknowledgement names its stream and JetStream domain, and not its account: a stream of this
// account that has the same name and subjects answers with the same acknowledgement. Without
// api_prefix the account is that of the connection.
func (r *checkpointReader) confirmStored(ctx context.Context, acknowledged *storedMessage) error {
	prefix := r.client.cfg.APIPrefix
	if prefix == "" {
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
		"a stream of this account has the subject %s, too; delete the subject there", stream, prefix, r.topic.checkpointSubject()))
}

// readLast returns the newest checkpoint, or nil.
func (r *checkpointReader) readLast(ctx context.Context) (*storedMessage, error) {
	return r.client.lastMessage(ctx, r.topic.Stream.Name, r.topic.checkpointSubject())
}

func (r *checkpointReader) readLastEntity(ctx context.Context) (*storedMessage, error) {
	return r.client.lastMessage(ctx, r.topic.Stream.Name, r.topic.Subject)
}

func (r *checkpointReader) readLastDead(ctx context.Context) (*storedMessage, error) {
	return r.client.lastMessage(ctx, r.topic.Stream.Name, r.topic.deadSubject())
}

// readOrMissing returns the newest checkpoint, nil if the topic has never had a message, and
// an error that matches [checkpoint.ErrMissing] if it has had some. seen is the state in which
// this process saw the topic last.
func (r *checkpointReader) readOrMissing(ctx context.Context, info *streamInfo, seen topicState) (*storedMessage, error) {
	last, err := r.readLast(ctx)
	if last != nil || err != nil {
		return last, err
	}
	if !hasLostCheckpoint(info, seen) {
		if empty, err := r.isUnwritten(ctx, info, nil); empty || err != nil {
			return nil, err
		}
	}
	// Another copy may have made the first commit since the first request.
	if last, err = r.readLast(ctx); last != nil || err != nil {
		return last, err
	}
	return nil, feed.Permanent(fmt.Errorf("stream %s: %w; set the position to continue from with 'feedbridge checkpoint set %s', "+
		"or start the feed over with 'feedbridge checkpoint reset %[3]s'", info.Config.Name, checkpoint.ErrMissing, r.topic.Feed))
}

// hasLostCheckpoint reports whether a topic without a checkpoint has lost the one that this
// process saw last. The state of a shared stream cannot show that, because it has messages of
// other subjects in any case.
//
// An empty stream with the same creation time is no loss: its server lost the whole
// tail, including the topic's first commit, so the feed starts over. A shared stream
// that lost its tail back to before the topic's first commit, and still has messages of
// other subjects, is in the same state as one whose checkpoint was deleted. So it counts
// as a loss: the feed halts, and a person has to set or reset the checkpoint.
func hasLostCheckpoint(info *streamInfo, seen topicState) bool {
	return seen.checkpoint != nil && (!isUntouched(info) || !info.Created.Equal(seen.created))
}

// isUntouched reports whether a stream has never had a message.
func isUntouched(info *streamInfo) bool {
	return info.State.LastSeq+1 == firstSequence(info.Config)
}

// firstSequence returns the sequence of the first message that a stream has ever had.
func firstSequence(c jetstream.StreamConfig) uint64 { return max(1, c.FirstSeq) }

// isUnwritten reports whether the topic has never had an entity. cp is its newest
// checkpoint, nil if it has none.
func (r *checkpointReader) isUnwritten(ctx context.Context, info *streamInfo, cp *storedMessage) (bool, error) {
	if cp != nil && !cp.precedesTopic(r.topic.Subject) {
		return false, nil
	}
	// There may be an entity behind the checkpoint: see endOfTopic.
	entity, err := r.readLastEntity(ctx)
	if entity != nil || err != nil {
		return false, err
	}
	if cp == nil && r.topic.DeadLetters {
		// A dead letter without a checkpoint is half of a commit, like an entity.
		if dead, err := r.readLastDead(ctx); dead != nil || err != nil {
			return false, err
		}
	}
	// In a stream that has no other subjects, deleted messages count, too.
	return cp != nil || isUntouched(info) || !r.topic.ownsAll(info.Config.Subjects), nil
}

// endOfTopic returns the sequence up to which the IDs of the topic must be loaded: that of
// the checkpoint, or of an entity or a dead letter behind it. There is one behind it only after a power
// cut that left half a batch in the log of a server that had not written all of it to the
// disk. The checkpoint was in the half that is gone, so the entities will be read from the
// feed again, and the gate has to know those that are there.
func (r *checkpointReader) endOfTopic(ctx context.Context, info *streamInfo, cp uint64) (uint64, error) {
	if info.State.LastSeq <= cp {
		return cp, nil
	}
	entity, err := r.readLastEntity(ctx)
	if err != nil {
		return cp, err
	}
	end := cp
	if entity != nil {
		end = max(end, entity.Sequence)
	}
	if r.topic.DeadLetters {
		dead, err := r.readLastDead(ctx)
		if err != nil {
			return cp, err
		}
		if dead != nil {
			end = max(end, dead.Sequence)
		}
	}
	return end, nil
}
