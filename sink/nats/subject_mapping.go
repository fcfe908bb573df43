package nats

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/feed"
	codec "github.com/feedbridge/feedbridge/message"
)

// An account may map a subject to others, also a part of its messages. The server stores a batch with
// them, and acknowledges it, if the stream has the other subjects, too. Then the topic lacks entities.
//
// So the first batch of a session is read back, and when a sink resumes, the newest entity must be on
// a subject of the topic. In between the fence of each atomic batch names the subject and the sequence of the
// newest entity, and after a fast batch the newest entity is read. A stream that has only the topic's subjects
// is not read: the server refuses a batch of which messages go elsewhere.

// checkSubject returns an error if a message of this feed was stored on a subject that is none of the
// topic.
func (r *checkpointReader) checkSubject(subject string, h nats.Header) error {
	if h.Get(codec.FeedName) != r.topic.Feed || slices.Contains(r.topic.subjects(), subject) || subject == r.topic.deadSubject() {
		return nil
	}
	return feed.Permanent(fmt.Errorf("a message for %s was stored on the subject %s: a subject mapping of the account moves entities away from the topic; "+
		"remove the mapping, and then publish what is missing with 'feedbridge checkpoint set %s'", r.topic.Subject, subject, r.topic.Feed))
}

// checkSubjectAt is checkSubject for the message at a sequence, if there is one.
func (r *checkpointReader) checkSubjectAt(ctx context.Context, sequence uint64) error {
	if sequence == 0 {
		return nil
	}
	m, err := r.client.messageAt(ctx, r.topic.Stream.Name, sequence)
	if m == nil || err != nil {
		return err
	}
	return r.checkSubject(m.Subject, m.header())
}

// checkNewestSubject is checkSubject for the newest entity of f, if its checkpoint was stored with
// entities.
func (r *checkpointReader) checkNewestSubject(ctx context.Context, f fence) error {
	if f.named != "" {
		return r.checkCommit(ctx, f.named, f.sequence())
	}
	newest := f.sequence() - 1
	if f.committed != f.sequence() || f.end.entity == newest || f.end.dead == newest {
		return nil
	}
	return r.checkSubjectAt(ctx, newest)
}

// checkCommit is checkSubject for the entities of a fast batch, whose checkpoint is at a sequence. The last of
// them has the ID of the commit. It is the newest message on the topic's subject in front of the checkpoint,
// unless someone has deleted it.
func (r *checkpointReader) checkCommit(ctx context.Context, id string, sequence uint64) error {
	newest, err := r.client.lastMessage(ctx, r.topic.Stream.Name, r.topic.Subject)
	if newest == nil || err != nil || newest.Sequence > sequence || newest.header().Get(commitID) == id {
		return err
	}
	return r.checkSubjects(ctx, int(sequence-newest.Sequence)-1, sequence) //nolint:gosec // a stream has fewer messages
}

// checkSubjects is checkSubject for the n messages in front of the checkpoint at a sequence.
func (r *checkpointReader) checkSubjects(ctx context.Context, n int, sequence uint64) error {
	reader, err := openReader(ctx, r.client, r.topic.Stream.Name, nil, sequence-uint64(n), true)
	if err != nil {
		return err
	}
	defer reader.close()
	for {
		m, err := reader.nextKnown(ctx, sequence)
		if err != nil {
			return err
		}
		if err := r.checkSubject(m.Subject, m.Header); err != nil || m.sequence >= sequence {
			return err
		}
	}
}
