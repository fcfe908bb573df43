package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// The largest commit that is useful: a server takes 1,000 messages in a batch, of which one
// is the checkpoint, and it stores nothing of a batch before the batch is complete.
const (
	MaxEntities = 999
	MaxBytes    = 4 << 20
)

// publisher publishes the commits of one topic as atomic batches.
type publisher struct {
	client      *client
	topic       *Topic
	limit       *sizeLimit
	checkpoints *checkpointReader
	// domain is the JetStream domain of the stream, when its configuration was last read.
	domain string
}

// A batch is the content of a commit.
type batch struct {
	first      bool // the topic has never had an entity
	entities   []feed.Entity
	staged     *stagedBatch // has the entities, if they were sent ahead; else nil
	checkpoint checkpoint.Checkpoint
}

// A committed batch is stored.
type committed struct {
	fence  fence    // of the next commit
	newest identity // of the last entity or dead letter, if there is one
}

// publish stores a batch, if the topic is still as f describes it. It calls meanwhile, in
// another goroutine, while it waits for the acknowledgement, and returns after meanwhile has.
// It panics if meanwhile does.
func (p *publisher) publish(ctx context.Context, f fence, b batch, meanwhile func()) (committed, error) {
	last := &nats.Msg{Subject: p.topic.checkpointSubject(), Data: checkpoint.Encode(b.checkpoint), Header: nats.Header{
		expectedLast: {strconv.FormatUint(f.sequence(), 10)},
		// One checkpoint is kept, and it outlives the stream's age limit.
		rollup: {"sub"},
		ttl:    {"never"},
	}}
	if b.first && feed.CountDead(b.entities) == len(b.entities) {
		last.Header[firstOf] = []string{p.topic.Subject}
	}
	// A checkpoint without entities is a plain message, which costs the server much less
	// than a batch.
	var id string
	if len(b.entities) > 0 {
		if id = nuid.Next(); b.staged != nil {
			id = b.staged.id
		}
		last.Header[batchID] = []string{id}
		last.Header[batchSequence] = []string{strconv.Itoa(len(b.entities) + 1)}
		last.Header[batchCommit] = []string{"1"}
	} else {
		last.Header[lastCommitted] = []string{strconv.FormatUint(f.committed, 10)}
	}
	if err := p.limit.checkCheckpoint(last); err != nil {
		return committed{}, err
	}
	if len(b.entities) > 0 && b.staged == nil {
		if err := p.sendEntities(id, b.first, f.end, b.entities); err != nil {
			return committed{}, err
		}
	}
	if err := p.checkpoints.confirm(ctx, f); err != nil {
		return committed{}, err
	}
	now := time.Now()
	// meanwhile starts when this goroutine waits for the answer, so that the message that
	// makes the commit is sent first.
	var waiting sync.WaitGroup
	var panicked any
	waiting.Go(func() {
		// A panic in this goroutine would end the process, and with it all other feeds.
		defer func() { panicked = recover() }()
		meanwhile()
	})
	reply, err := p.client.nc.RequestMsgWithContext(ctx, last)
	waiting.Wait()
	if panicked != nil {
		panic(panicked)
	}
	if errors.Is(err, nats.ErrNoResponders) {
		return committed{}, fmt.Errorf("stream %s does not answer: it is gone, or has no leader", p.topic.Stream.Name)
	}
	if err != nil {
		return committed{}, causeOf(ctx, err)
	}
	sequence, err := p.parseAck(reply.Data, id, len(b.entities)+1)
	if err != nil {
		return committed{}, p.explainDead(err, feed.CountDead(b.entities))
	}
	next := fence{&storedMessage{Subject: last.Subject, Sequence: sequence, Data: last.Data}, f.end, f.committed, now}
	if err := p.checkpoints.confirmStored(ctx, next.checkpoint); err != nil {
		return committed{}, err
	}
	if len(b.entities) > 0 {
		next.end = f.end.after(b.entities, sequence-uint64(len(b.entities))-1)
		next.committed = sequence
	}
	// A batch has consecutive sequences. If it had not, topicHolds would not recognise the
	// entity, and the IDs would be loaded again.
	newest := identity{sequence - 1, id + "/" + strconv.Itoa(len(b.entities))}
	return committed{next, newest}, nil
}

// sendEntities sends all of a batch except its last message. The server stores nothing
// before it has received that one, and drops a batch that remains incomplete. first reports
// that the topic has never had an entity. end is the end of the topic in front of the batch.
func (p *publisher) sendEntities(id string, first bool, end topicEnd, entities []feed.Entity) error {
	// PublishMsg has copied the whole message when it returns, so one message serves for all.
	msg := &nats.Msg{}
	var header headerMap
	var fields feed.Header
	encoder := codec.NewHeaderEncoder(p.topic.Feed)
	// Each message has room for one condition, and the subject must be new to the batch. So the
	// first message has that of its own subject, and the second one that of the other subject.
	conditions := p.topic.entitySubjects()
	if entities[0].Dead != nil {
		slices.Reverse(conditions)
	}
	for i := range entities {
		e := &entities[i]
		msg.Subject, msg.Data = p.topic.Subject, e.Body
		if e.Dead != nil {
			msg.Subject = p.topic.deadSubject()
			fields, msg.Data = codec.DeadLetter(p.topic.Feed, *e, p.limit.deadLetterRoom())
		} else {
			h, sameNames := encoder.Encode(e)
			if err := p.limit.checkEntity(h, sameNames, len(e.Body)); err != nil {
				// The gate has checked it already, but the limit may be lower since.
				return feed.Permanent(fmt.Errorf("entity %q: %w", e.ID, err))
			}
			fields = append(fields[:0], h...)
		}
		fields = append(fields, feed.Field{Name: batchID, Value: id}, feed.Field{Name: batchSequence, Value: strconv.Itoa(i + 1)})
		if i < len(conditions) {
			fields = append(fields, feed.Field{Name: expectedLast, Value: strconv.FormatUint(*end.of(conditions[i], p.topic), 10)},
				feed.Field{Name: expectedOf, Value: conditions[i]})
		}
		if first && e.Dead == nil {
			fields = append(fields, feed.Field{Name: firstOf, Value: p.topic.Subject})
			first = false
		}
		msg.Header = header.convert(fields)
		if err := p.client.nc.PublishMsg(msg); errors.Is(err, nats.ErrReconnectBufExceeded) {
			return errLost
		} else if err != nil {
			return err
		}
	}
	return nil
}

// explainDead adds the dead letters to an error about a full stream, if n messages of the commit,
// and not none, are dead letters.
func (p *publisher) explainDead(err error, n int) error {
	if n == 0 || !errors.Is(err, errFull) {
		return err
	}
	return fmt.Errorf("%w; the commit has dead letters for %s, which take room there, too", err, p.topic.deadSubject())
}

// parseAck reads the server's answer to a batch of n messages, or to a plain message if id
// is empty. It returns the sequence of the checkpoint.
func (p *publisher) parseAck(data []byte, id string, n int) (sequence uint64, err error) {
	var ack struct {
		Error    *jetstream.APIError `json:"error"`
		Stream   string              `json:"stream"`
		Domain   string              `json:"domain"`
		Sequence uint64              `json:"seq"`
		Batch    string              `json:"batch"`
		Count    int                 `json:"count"`
	}
	stream, subject := p.topic.Stream.Name, p.topic.checkpointSubject()
	switch err := json.Unmarshal(data, &ack); {
	case err != nil:
		return 0, fmt.Errorf("NATS answered without an acknowledgement: %w", err)
	case ack.Error != nil:
		return 0, apiError(ack.Error, stream, p.client.cfg)
	case ack.Stream != stream:
		return 0, feed.Permanent(fmt.Errorf("stream %s acknowledged a commit for %s; find out which of them has the subject %s",
			ack.Stream, stream, subject))
	case ack.Domain != p.domain:
		return 0, feed.Permanent(fmt.Errorf("JetStream domain %q acknowledged a commit for domain %s: it has a stream with the subject %s, too; delete the subject there",
			ack.Domain, cmp.Or(p.domain, `""`), subject))
	case ack.Sequence == 0:
		return 0, errors.New("NATS acknowledged without a sequence")
	case id != "" && (ack.Batch != id || ack.Count != n):
		// A server that knows no batches has stored each message by itself.
		return 0, feed.Permanent(fmt.Errorf("NATS acknowledged %d messages as batch %q instead of %d as %q: this server has no atomic batches, "+
			"and the topic may now hold part of a commit; make every server of the cluster 2.%d or newer", ack.Count, ack.Batch, n, id, minor))
	}
	return ack.Sequence, nil
}
