package nats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/limit"
	codec "github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// Sink appends to one topic and stores its checkpoint in the same stream; see the package
// comment. One goroutine at a time uses it, except IDs and Fits, which are safe for
// concurrent use.
type Sink struct {
	client *client
	topic  *Topic

	stream      *streamChecker
	checkpoints *checkpointReader
	limit       *sizeLimit
	publisher   *publisher
	dedupe      *dedupeLoader
	shared      *openStream // with the other sinks of the stream
	watch       *watch
	// watched is what the looks at the stream are compared with; nil before the first Resume.
	watched atomic.Pointer[watchedTopic]

	// session holds the session that the last Resume began, nil if there was none since the
	// last error. The fields after it are valid while it lasts.
	session *session
	// ingest is the way in which the next commit is stored, and fast that of those after it. The
	// first commit of a topic is atomic: of its beginning nobody could tell whether a checkpoint was
	// lost. So is that after Resume with [fencedIngest]: it takes the topic over.
	ingest, fast ingest
	// commits is the name of fast, for other goroutines.
	commits atomic.Value
	// fence is the condition of the next commit.
	fence fence
	// resumed is the checkpoint of fence, as Resume returned it or Commit stored it.
	resumed checkpoint.Checkpoint
	// first reports that the topic has never had an entity, so that the next one is its
	// first.
	first bool
	// unmapped is the session in which the entities of a batch were found on the topic's subjects,
	// or the stream had no others. misplaced is the error if they were not, and misplacedAt the
	// checkpoint of that batch: the error lasts until a person has moved it.
	unmapped    *session
	misplaced   error
	misplacedAt *storedMessage
}

// Sink returns a sink for a topic. It makes no request: Resume checks the stream, and
// creates it if it is missing and the configuration allows it.
func (c *Conn) Sink(topic Topic) *Sink {
	t := &topic // one copy for all parts: there are ten thousand sinks
	t.Stream.Name = t.StreamName()
	size := &sizeLimit{client: c.client, topic: t}
	checkpoints := &checkpointReader{client: c.client, topic: t}
	publisher := &publisher{client: c.client, topic: t, limit: size, checkpoints: checkpoints, fast: &c.fast}
	return &Sink{
		client: c.client, topic: t,
		stream:      &streamChecker{client: c.client, topic: t},
		checkpoints: checkpoints,
		limit:       size,
		publisher:   publisher,
		dedupe:      &dedupeLoader{client: c.client, topic: t, ids: sink.NewIDs(t.Window)},
		shared:      c.streams.open(t.Stream.Name),
		watch:       c.watch,
	}
}

// Close frees the sink's share of the connection. It is called once, after the last commit has
// ended. The connection stays open.
func (s *Sink) Close() { s.shared.close() }

// CommitsBy returns how the server stores the commits after the next one, as the last Resume has chosen it:
// "fast_ingest" or "atomic_batches"; "" before that. It is safe for concurrent use.
func (s *Sink) CommitsBy() string {
	name, _ := s.commits.Load().(string)
	return name
}

// IDs returns the newest IDs that the topic holds, and all of its marks, as of the
// last Resume or Commit. It always returns the same.
func (s *Sink) IDs() *sink.IDs { return s.dedupe.ids }

// Fits returns how many of the entities, counted from the first, can be published as they are, and
// an error about the next one: it is too large with its headers, which matches [sink.ErrTooLarge],
// or it has a header that the NATS protocol has no way to carry, which matches [sink.ErrHeader].
// It is safe for concurrent use.
func (s *Sink) Fits(entities []feed.Entity) (n int, err error) {
	encoder := codec.NewHeaderEncoder(s.topic.Feed, s.topic.Events, 0)
	for i := range entities {
		e := &entities[i]
		fields, sameNames := encoder.Encode(e)
		if err := s.limit.checkEntity(fields, sameNames, len(e.Body)); err != nil {
			return i, err
		}
	}
	return len(entities), nil
}

// Resume checks that the stream can hold the topic, and creates it if it is missing and the
// configuration allows it. It returns the stored checkpoint, after it has loaded the IDs up to
// it. It takes answers about the checkpoint from the stream's leader only. The count includes the
// entities behind the checkpoint: they are published, and left out when they are read again.
func (s *Sink) Resume(ctx context.Context) (checkpoint.Checkpoint, error) {
	s.session = nil
	s.dedupe.ids.Rollback()
	watched := watchedTopic{losses: s.shared.lastLook().losses}
	var cp checkpoint.Checkpoint
	err := s.client.withSession(ctx, s.topic.Subject, s.topic.StreamName(), func(ctx context.Context, ses *session) error {
		info, err := s.stream.ensureStream(ctx, s.dedupe.seen.checkpoint != nil)
		if err != nil {
			return err
		}
		s.limit.setFrom(info.Config)
		s.publisher.domain, s.publisher.own = info.Domain, s.topic.ownsAll(info.Config.Subjects)
		watched.session, watched.created, watched.config = ses, info.Created, hashOf(info.Config)
		watched.last, watched.own = info.State.LastSeq, s.publisher.own
		f, err := s.checkpoints.readFence(ctx, info, s.dedupe.seen)
		if err != nil {
			return err
		}
		s.first = s.checkpoints.isUnwritten(info, f)
		s.fast, s.ingest = s.topic.fastIngest(info.Config, &s.client.cfg), atomicIngest
		if s.commits.Swap(s.fast.String()) != s.fast.String() {
			s.fast.report(s.client, s.shared, info.Config)
		}
		if watched.own {
			s.unmapped = ses
		}
		last := f.checkpoint
		if last == nil {
			s.dedupe.recordUnwritten()
			s.session, s.fence = ses, f
			s.watched.Store(watched.after(0))
			return nil
		}
		s.dedupe.seen.torn = nil
		if !bytes.Equal(f.content, last.Data) {
			s.dedupe.seen.torn = [][]byte{last.Data}
		}
		if s.misplaced != nil && last.equals(s.misplacedAt) {
			return s.misplaced
		}
		if err := s.checkpoints.checkNewestSubject(ctx, f); err != nil {
			return err
		}
		if s.fast == chainedIngest {
			s.ingest = s.fast
		}
		last.Header = nil // the message is kept until the next commit, and compared by its content
		if cp, err = checkpoint.Decode(f.content); err != nil {
			return fmt.Errorf("%w; if no newer feedbridge wrote it, set it again with 'feedbridge checkpoint set %s', or discard it with 'feedbridge checkpoint reset %[2]s'", err, s.topic.Feed)
		}
		if err := s.dedupe.catchUp(ctx, info, f, cp); err != nil {
			return err
		}
		cp.Count += s.dedupe.seen.uncommitted
		s.resumed = cp
		s.session, s.fence = ses, f
		s.watched.Store(watched.after(last.Sequence))
		return nil
	})
	if err != nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("resume: %w", err)
	}
	return cp, nil
}

// Commit appends entities, at most [MaxEntities], and stores cp behind them. Dead letters go to their
// own subject of the same stream. It waits for the acknowledgement for three times the configured
// timeout, after it has waited as long at most for other commits to the stream.
func (s *Sink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	// After an error from here on it is unknown whether the commit is stored, until Resume
	// has read the checkpoint. So there is no session unless the commit succeeds.
	ses, first := s.session, s.first
	s.session, s.first = nil, first && feed.CountDead(entities) == len(entities)
	switch current, err := s.client.sessions.activeSession(); {
	case ctx.Err() != nil:
		return fmt.Errorf("commit: %w", context.Cause(ctx))
	case ses == nil:
		return errors.New("commit: the sink has not resumed since its last error")
	case len(entities) > MaxEntities:
		return feed.Permanent(fmt.Errorf("commit: %d entities are too many: a batch takes at most %d", len(entities), MaxEntities))
	case err != nil:
		return fmt.Errorf("commit: %w", err)
	case current != ses:
		return errors.New("commit: the connection to NATS was made after the sink resumed")
	}
	explainer := newExplainer(&s.client.cfg, s.client.sessions, topicScope(s.topic.Subject, s.topic.StreamName()))
	ctx, release := ses.bindContext(ctx)
	defer release()
	ctx, free, err := s.commitContext(ctx, len(entities) > 0 && s.ingest == atomicIngest)
	if err != nil {
		return fmt.Errorf("commit: topic %q: %w", s.topic.Subject, err)
	}
	defer free()
	if err := s.commitBatch(ctx, ses, batch{first, entities, cp, s.ingest}); err != nil {
		return fmt.Errorf("commit: topic %q: %w", s.topic.Subject, explainer.explainError(ctx, err))
	}
	return nil
}

// commitBatch stores a batch, and sets the session again.
func (s *Sink) commitBatch(ctx context.Context, ses *session, b batch) error {
	if err := s.takeOver(ctx, b); err != nil {
		return err
	}
	done, err := s.publisher.publish(ctx, s.fence, b)
	if isConflict(err) {
		s.fence, err = s.publisher.explainRefusal(ctx, b.ingest, s.fence, err)
		if err == nil {
			b.ingest = atomicIngest
			done, err = s.publisher.publish(ctx, s.fence, b)
		}
		s.dedupe.seen.complete = err == nil
	}
	if err != nil {
		// A commit of which a message was refused may be there all the same, without that one. A conflict is none.
		if _, refused := errors.AsType[*jetstream.APIError](err); refused && !isConflict(err) || errors.Is(err, errTorn) {
			s.dedupe.seen.torn = append(s.dedupe.seen.torn, checkpoint.Encode(b.checkpoint))
		}
		return err
	}
	// The batch is stored. If the process dies here, Resume finds it.
	s.dedupe.recordCommit(b.entities, b.checkpoint, done)
	if err := s.proveSubjects(ctx, ses, len(b.entities), done); err != nil {
		return err
	}
	// From now on no other copy stores anything behind this one's checkpoint. Of the two subjects of a
	// topic with dead letters, a batch of one entity has compared only one.
	if s.ingest != s.fast && len(b.entities) > 0 && (s.fast == chainedIngest || s.checkpoints.endsBy(ctx, done.fence.end)) {
		s.ingest = s.fast
	}
	s.session, s.fence, s.resumed = ses, done.fence, b.checkpoint
	s.watched.Store(s.watched.Load().after(done.fence.checkpoint.Sequence))
	return nil
}

// takeOver stores the newest checkpoint once more, before the first batch after Resume with
// [fencedIngest]. The fast commits of another copy compare only the checkpoint. So they would be stored
// behind the beginning of this batch, if the server stores no more of it.
func (s *Sink) takeOver(ctx context.Context, b batch) error {
	if s.fast != fencedIngest || b.ingest != atomicIngest || len(b.entities) == 0 || s.fence.checkpoint == nil {
		return nil
	}
	cp := s.resumed
	cp.Writer = b.checkpoint.Writer
	done, err := s.publisher.publish(ctx, s.fence, batch{b.first, nil, cp, atomicIngest})
	if err != nil {
		return err
	}
	s.fence = done.fence
	s.dedupe.recordCommit(nil, cp, done)
	return nil
}

// proveSubjects returns an error if entities of a commit of n are not on the topic's subjects, unless that
// was proved in this session and the fence of the next commit shows it.
func (s *Sink) proveSubjects(ctx context.Context, ses *session, n int, done committed) (err error) {
	switch sequence := done.fence.sequence(); {
	case n > 0 && s.unmapped != ses:
		err = s.checkpoints.checkSubjects(ctx, n, sequence)
	case n == 0 || s.fast != fencedIngest:
		return nil
	default:
		err = s.checkpoints.checkNewestSubject(ctx, done.fence)
	}
	if errors.Is(err, feed.ErrPermanent) {
		s.misplaced, s.misplacedAt = err, done.fence.checkpoint
	}
	if err == nil {
		s.unmapped = ses
	}
	return err
}

// commitContext returns the context of a commit. One with a batch first waits for a slot of the
// stream, as long as a commit may take. The commit's own time begins after that: a batch that is sent
// and given up stays with the server for 10 s, without a slot. release must be called when the commit
// is stored or has failed. After an error nothing was sent.
func (s *Sink) commitContext(ctx context.Context, batch bool) (_ context.Context, release func(), err error) {
	longest := 3 * s.client.cfg.Timeout
	free := func() {}
	if batch {
		waiting, cancel := contextWithTimeout(ctx, longest)
		defer cancel()
		slot, err := s.shared.batches.Acquire(waiting)
		if err != nil {
			return nil, nil, fmt.Errorf("waiting for other commits to stream %s, of which %d are made at a time: %w; if this persists, divide the feeds among several streams",
				s.topic.Stream.Name, limit.Batches, causeOf(waiting, err))
		}
		free = slot.Release
	}
	ctx, cancel := contextWithTimeout(ctx, longest)
	return ctx, func() { cancel(); free() }, nil
}

// Unchanged returns when a look at the stream last showed that the checkpoint that the last Resume or
// Commit left is still the newest one; the zero time if none did. It is safe for concurrent use.
func (s *Sink) Unchanged() time.Time {
	return s.watched.Load().confirmedBy(s.shared.lastLook(), s.watch.subscribed.Load())
}

// Overwrite stores the checkpoint that next returns for the stored one, which is the zero
// checkpoint if there is none or it cannot be read. Like a commit it is refused with
// [checkpoint.ErrConflict] if another writer commits at the same moment. It is for a
// person who moves the position of a feed; the sink must Resume afterwards.
func (s *Sink) Overwrite(ctx context.Context, next func(old checkpoint.Checkpoint) checkpoint.Checkpoint) error {
	s.session = nil
	err := s.client.withSession(ctx, s.topic.Subject, s.topic.StreamName(), func(ctx context.Context, _ *session) error {
		info, err := s.stream.ensureStream(ctx, s.dedupe.seen.checkpoint != nil)
		if err != nil {
			return err
		}
		s.limit.setFrom(info.Config)
		s.publisher.domain = info.Domain
		f, err := s.checkpoints.readFence(ctx, info, topicState{})
		if err != nil && !errors.Is(err, checkpoint.ErrMissing) {
			return err
		}
		var old checkpoint.Checkpoint
		if f.content != nil {
			// Resume has reported a checkpoint that cannot be read, and this is its cure.
			old, _ = checkpoint.Decode(f.content)
		} else if f.last() > MaxEntities {
			// The first batch of the topic may not have been stored to its end.
			f.committed = f.last() - MaxEntities
		}
		ctx, cancel := s.client.withTimeout(ctx)
		defer cancel()
		cp := next(old)
		if !cp.Moved.Equal(old.Moved) {
			f.named = "" // entities that are missing are published again, or not wanted
		}
		_, err = s.publisher.publish(ctx, f, batch{first: s.checkpoints.isUnwritten(info, f), checkpoint: cp})
		return err
	})
	if err != nil {
		return fmt.Errorf("overwrite: %w", err)
	}
	return nil
}
