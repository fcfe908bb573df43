package nats

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/feed"
	codec "github.com/feedbridge/feedbridge/message"
)

// An account may map a subject to others, also a part of its messages. The server stores a batch with
// them, and acknowledges it, if the stream has the other subjects, too. Then the topic lacks entities. So it does
// while the stream has a subject transform, whatever its subjects are.
//
// So in a stream of several topics the first batch of a session is read back. After that the fence of each
// atomic batch, and of each fast batch in a stream of one topic, names the sequence of the newest entity on its
// subject; after other fast batches, and when a sink resumes, the newest entity is read. A stream that has only
// the topic's subjects is read only then: the server refuses a batch that a mapping moves elsewhere, Resume refuses a
// transform, and one that comes and goes in between is seen by the next commit or the next Resume, since the
// checkpoint names its commit.

// checkSubject returns an error if a message of this feed was stored on a subject that is none of the
// topic.
func (r *checkpointReader) checkSubject(subject string, h nats.Header) error {
	if h.Get(codec.FeedName) != r.topic.Feed || slices.Contains(r.topic.subjects(), subject) || subject == r.topic.deadSubject() {
		return nil
	}
	return feed.Permanent(fmt.Errorf("a message for %s was stored on the subject %s: a subject mapping of the account moves entities away from the topic, or a transform of the stream; "+
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

// checkNewestSubject is checkSubject for the newest commit of f that had entities, unless a person has moved
// the checkpoint since. Its last entity has its ID. It is the newest message on the topic's subject in front of
// the checkpoint, unless someone has deleted it.
func (r *checkpointReader) checkNewestSubject(ctx context.Context, f fence) error {
	if f.named == "" {
		return nil
	}
	newest, err := r.client.lastMessage(ctx, r.topic.Stream.Name, r.topic.Subject)
	if newest == nil || err != nil || newest.Sequence > f.committed || f.named == cmp.Or(newest.header().Get(commitID), newest.header().Get(batchID)) {
		return err
	}
	return r.checkSubjects(ctx, int(f.committed-newest.Sequence)-1, f.committed)
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
