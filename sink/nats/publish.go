package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	codec "github.com/feedbridge/feedbridge/message"
)

// How large a commit is best: a server takes 1,000 messages in a batch, of which
// one is the checkpoint; and it holds a batch back until it is whole.
const (
	MaxEntities = 999
	MaxBytes    = 4 << 20
)

// The headers that the server obeys.
const (
	batchID       = "Nats-Batch-Id"
	batchSequence = "Nats-Batch-Sequence"
	batchCommit   = "Nats-Batch-Commit"
	expectedLast  = "Nats-Expected-Last-Subject-Sequence"
	rollup        = "Nats-Rollup"
	ttl           = "Nats-TTL"
)

// firstOf is a header with a topic's name. In front of a message that has it the
// topic has never had one: it is the topic's first entity, or a checkpoint that is
// older than that. While the oldest message has it, nothing was taken from the
// topic's front.
const firstOf = "Feedbridge-First"

// maxStretch is for how long a checkpoint that was seen is taken for the newest
// by its sequence alone, before a commit compares all of it again. Within it a server cannot
// have stopped and started without its tail, and another copy have noticed, resumed and
// committed up to the very same sequence.
const maxStretch = time.Second

// A fence is what a commit must find: the newest checkpoint.
type fence struct {
	checkpoint *stored // nil if the topic has none
	// at is a moment at which the checkpoint was not older than that.
	at time.Time
}

func (f fence) sequence() uint64 {
	if f.checkpoint == nil {
		return 0
	}
	return f.checkpoint.Sequence
}

// Commit appends entities, at most [MaxEntities], and stores cp in one atomic
// batch. It waits for the acknowledgement for three times the configured
// timeout.
func (s *Sink) Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error {
	return s.CommitStaging(ctx, entities, cp, nil)
}

// CommitStaging is [Sink.Commit]. While the server stores the batch, it is sent
// the entities that next returns, as the beginning of another batch. It stages
// them, and the commit that follows need only add its checkpoint, which has the
// fence. A nil next returns none.
func (s *Sink) CommitStaging(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, next func() []feed.Entity) error {
	// If anything goes wrong from here on, nobody knows whether the commit took
	// place until Resume has looked.
	ses, sent, first := s.session, s.staged, s.first
	s.session, s.staged, s.first = nil, nil, first && len(entities) == 0
	switch now, err := s.conn.current(); {
	case ctx.Err() != nil:
		return fmt.Errorf("commit: %w", context.Cause(ctx))
	case ses == nil:
		return errors.New("commit: the sink has not resumed since its last error")
	case len(entities) > MaxEntities:
		return feed.Permanent(fmt.Errorf("commit: %d entities, and a batch takes %d", len(entities), MaxEntities))
	case err != nil:
		return fmt.Errorf("commit: %w", err)
	case now != ses:
		return errors.New("commit: the connection to NATS is a new one since the sink resumed")
	}
	before := s.conn.nc.LastError()
	ctx, cancel := s.conn.within(ctx, ses, 3*s.conn.cfg.Timeout)
	defer cancel()
	if !sent.serves(entities) {
		sent = nil
	}
	var ahead *staged
	meanwhile := func() {}
	if next != nil && s.mayStage() {
		meanwhile = func() { ahead = s.stage(next()) }
	}
	committed, newest, err := s.publish(ctx, s.fence, batch{first, entities, sent, cp}, meanwhile)
	if err != nil {
		s.failed = time.Now()
		return fmt.Errorf("commit: topic %q: %w", s.topic.Subject, s.conn.explain(ctx, before, err))
	}
	// All of it is stored now. If the process ends here, Resume finds it so.
	s.ids.Commit(entities)
	s.session, s.fence, s.staged = ses, committed, ahead
	s.seen.checkpoint, s.seen.moved = committed.checkpoint, cp.Moved
	if len(entities) > 0 {
		s.seen.newest = newest
	}
	return nil
}

// A batch is what a commit stores.
type batch struct {
	first      bool // the topic has never had a message
	entities   []feed.Entity
	sent       *staged // the entities, if they were sent ahead; else nil
	checkpoint checkpoint.Checkpoint
}

// publish publishes a batch, if the newest checkpoint is still that of f. It returns the
// fence of the next commit, and the identity of the last entity if there is one. meanwhile
// runs while the answer is waited for.
func (s *Sink) publish(ctx context.Context, f fence, b batch, meanwhile func()) (fence, identity, error) {
	entities := b.entities
	last := &nats.Msg{Subject: s.checkpoint, Data: checkpoint.Encode(b.checkpoint), Header: nats.Header{
		expectedLast: {strconv.FormatUint(f.sequence(), 10)},
		// One checkpoint is kept, and the stream's age limit spares it.
		rollup: {"sub"},
		ttl:    {"never"},
	}}
	if b.first && len(entities) == 0 {
		last.Header[firstOf] = []string{s.topic.Subject}
	}
	// A checkpoint alone is a plain message, which costs the server much less
	// than a batch.
	var id string
	if len(entities) > 0 {
		if id = nuid.Next(); b.sent != nil {
			id = b.sent.id
		}
		last.Header[batchID] = []string{id}
		last.Header[batchSequence] = []string{strconv.Itoa(len(entities) + 1)}
		last.Header[batchCommit] = []string{"1"}
	}
	if err := s.checkpointFits(last); err != nil {
		return fence{}, identity{}, err
	}
	if len(entities) > 0 && b.sent == nil {
		if err := s.publishBatch(id, b.first, entities); err != nil {
			return fence{}, identity{}, err
		}
	}
	if err := s.confirm(ctx, f); err != nil {
		return fence{}, identity{}, err
	}
	now := time.Now()
	// It starts when this goroutine waits for the answer, so that the message that makes
	// the commit goes out first.
	var waiting sync.WaitGroup
	waiting.Go(meanwhile)
	reply, err := s.conn.nc.RequestMsgWithContext(ctx, last)
	waiting.Wait()
	if errors.Is(err, nats.ErrNoResponders) {
		return fence{}, identity{}, fmt.Errorf("stream %s does not answer: it is gone, or has no leader", s.topic.Stream.Name)
	}
	if err != nil {
		return fence{}, identity{}, causeOf(ctx, err)
	}
	sequence, err := s.acknowledged(reply.Data, id, len(entities)+1)
	if err != nil {
		return fence{}, identity{}, err
	}
	// A batch has consecutive sequences. If it had not, that would not be found,
	// and the IDs would be loaded again.
	newest := identity{sequence - 1, id + "/" + strconv.Itoa(len(entities))}
	return fence{&stored{Sequence: sequence, Data: last.Data}, now}, newest, nil
}

// confirm compares the newest checkpoint with that of f, unless that was seen a moment
// ago. The server compares sequences alone: a stream that has lost its tail, and has been
// filled again, may have another checkpoint at the same sequence. The connection need
// not have broken meanwhile: in a cluster it may be to another server.
func (s *Sink) confirm(ctx context.Context, f fence) error {
	if time.Since(f.at) < maxStretch {
		return nil
	}
	last, err := s.lastCheckpoint(ctx)
	if err != nil {
		return err
	}
	if !last.same(f.checkpoint) {
		return fmt.Errorf("%w: its checkpoint differs from the one that was read", checkpoint.ErrConflict)
	}
	return nil
}

// publishBatch publishes all of a batch but its last message. Nothing is stored
// before that has come: what breaks off here the server forgets. first says that
// the topic has never had a message.
func (s *Sink) publishBatch(id string, first bool, entities []feed.Entity) error {
	// PublishMsg has copied all that is in a message when it returns, so one
	// message with one map serves for all.
	msg := &nats.Msg{Subject: s.topic.Subject, Header: make(nats.Header, 16)}
	ids := []string{id}
	var fields feed.Header
	var values []string
	for i := range entities {
		e := &entities[i]
		fields = codec.AppendHeader(fields[:0], s.topic.Feed, *e)
		if err := s.fits(fields, len(e.Body)); err != nil {
			// The gate has asked already, but the server may take less since.
			return feed.Permanent(fmt.Errorf("entity %q: %w", e.ID, err))
		}
		clear(msg.Header)
		values = values[:0]
		for _, f := range fields {
			if before := msg.Header[f.Name]; before != nil {
				msg.Header[f.Name] = append(before, f.Value)
				continue
			}
			values = append(values, f.Value)
			msg.Header[f.Name] = one(values)
		}
		values = append(values, strconv.Itoa(i+1))
		msg.Header[batchSequence] = one(values)
		msg.Header[batchID] = ids
		if first && i == 0 {
			msg.Header[firstOf] = []string{s.topic.Subject}
		}
		msg.Data = e.Body
		if err := s.conn.nc.PublishMsg(msg); errors.Is(err, nats.ErrReconnectBufExceeded) {
			return errLost
		} else if err != nil {
			return err
		}
	}
	return nil
}

// one is the last of values as a list of its own, to which appending copies.
func one(values []string) []string {
	n := len(values)
	return values[n-1 : n : n]
}

// acknowledged reads the server's answer to a batch of n messages, or to a plain
// message if id is empty.
func (s *Sink) acknowledged(data []byte, id string, n int) (sequence uint64, err error) {
	var ack struct {
		Error    *jetstream.APIError `json:"error"`
		Stream   string              `json:"stream"`
		Domain   string              `json:"domain"`
		Sequence uint64              `json:"seq"`
		Batch    string              `json:"batch"`
		Count    int                 `json:"count"`
	}
	switch err := json.Unmarshal(data, &ack); {
	case err != nil:
		return 0, fmt.Errorf("NATS answered what is not an acknowledgement: %w", err)
	case ack.Error != nil:
		return 0, refusal(ack.Error, s.topic.Stream.Name)
	case ack.Stream != s.topic.Stream.Name:
		return 0, feed.Permanent(fmt.Errorf("stream %s acknowledged what was meant for %s; which of them has the subject %s?",
			ack.Stream, s.topic.Stream.Name, s.checkpoint))
	case s.conn.cfg.Domain != "" && ack.Domain != s.conn.cfg.Domain:
		return 0, feed.Permanent(fmt.Errorf("JetStream domain %q acknowledged what was meant for domain %s: it has a stream with the subject %s, too; delete the subject there",
			ack.Domain, s.conn.cfg.Domain, s.checkpoint))
	case ack.Sequence == 0:
		return 0, errors.New("NATS acknowledged without a sequence")
	case id != "" && (ack.Batch != id || ack.Count != n):
		// A server that knows no batches has stored each message by itself.
		return 0, feed.Permanent(fmt.Errorf("NATS acknowledged %d messages as batch %q in place of %d as %q: this server has no atomic batches, "+
			"and the topic may now hold part of a commit; make every server of the cluster 2.%d or newer", ack.Count, ack.Batch, n, id, minor))
	}
	return ack.Sequence, nil
}
