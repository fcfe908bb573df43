package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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

// errTorn is the error of a commit of which the server has stored a part, with the checkpoint.
var errTorn = errors.New("the server has acknowledged a batch and has not stored all of it; what is missing is published again")

// publisher publishes the commits of one topic.
type publisher struct {
	client      *client
	topic       *Topic
	limit       *sizeLimit
	checkpoints *checkpointReader
	fast        *fastBatches
	// domain is the JetStream domain of the stream, when its configuration was last read.
	domain string
	// own reports that the stream had no other subjects than those of the topic then.
	own bool
}

// A batch is the content of a commit.
type batch struct {
	first      bool // the topic has never had an entity
	entities   []feed.Entity
	checkpoint checkpoint.Checkpoint
	ingest     ingest
}

// A committed batch is stored.
type committed struct {
	fence  fence    // of the next commit
	newest identity // of the last entity or dead letter, if there is one and its sequence is known
}

// A carrier brings the messages of a commit to the server. After an error it is unknown which of them
// are stored.
type carrier interface {
	// addFields adds the header fields that message i, counted from 0, has besides those of an entity
	// or of a checkpoint. They have the fence.
	addFields(to feed.Header, i int) feed.Header
	// send sends a message, which may be changed afterwards.
	send(ctx context.Context, m *nats.Msg) error
	// commit sends the last message, and returns the acknowledgement of all.
	commit(ctx context.Context, last *nats.Msg) ([]byte, error)
}

// publish stores a batch, if the topic is still as f describes it.
func (p *publisher) publish(ctx context.Context, f fence, b batch) (committed, error) {
	last := &nats.Msg{Subject: p.topic.checkpointSubject(), Data: checkpoint.Encode(b.checkpoint)}
	fields := feed.Header{
		// One checkpoint is kept, and it outlives the stream's age limit.
		{Name: rollup, Value: "sub"}, {Name: ttl, Value: "never"},
	}
	if b.first && feed.CountDead(b.entities) == len(b.entities) {
		fields = append(fields, feed.Field{Name: firstOf, Value: p.topic.Subject})
	}
	n := len(b.entities)
	var to carrier
	var id string
	switch {
	case n == 0:
		// A checkpoint without entities is a plain message, which costs the server much less
		// than a batch.
		to = plainMessage{p.client.nc(), f, b.ingest}
		fields = append(fields, feed.Field{Name: lastCommitted, Value: strconv.FormatUint(f.committed, 10)})
		if f.named != "" {
			fields = append(fields, feed.Field{Name: commitID, Value: f.named})
		}
	case b.ingest == atomicIngest:
		id = nuid.Next()
		to = newAtomicBatch(p.client.nc(), id, b.entities, f, p.topic)
	default:
		fast, err := p.fast.begin(p.topic.Stream.Name, p.topic.Subject)
		if err != nil {
			return committed{}, err
		}
		defer p.fast.end(fast)
		id = fast.id
		to = newFencedBatch(fast, b.entities, f, b.ingest, last.Subject)
	}
	if n > 0 && b.ingest != chainedIngest && f.content != nil && p.limit.carries(last.Data, f.content) {
		fields = append(fields, feed.Field{Name: previous, Value: strconv.FormatUint(f.committed, 10) + " " + string(f.content)})
	}
	last.Header = nats.Header{}
	setFields(last.Header, to.addFields(fields, n))
	// A fast batch is stored as it comes, an atomic one by its last message.
	if b.ingest != atomicIngest {
		if err := p.checkpoints.confirm(ctx, f); err != nil {
			return committed{}, err
		}
	}
	now := time.Now()
	if err := p.sendEntities(ctx, to, b); err != nil {
		return committed{}, err
	}
	if b.ingest == atomicIngest {
		if err := p.checkpoints.confirm(ctx, f); err != nil {
			return committed{}, err
		}
		now = time.Now()
	}
	ack, err := to.commit(ctx, last)
	if errors.Is(err, nats.ErrNoResponders) {
		return committed{}, fmt.Errorf("stream %s does not answer: it is gone, or has no leader", p.topic.Stream.Name)
	}
	if err != nil {
		return committed{}, causeOf(ctx, err)
	}
	sequence, err := p.parseAck(ack, id, n+1)
	if err != nil {
		return committed{}, err
	}
	if n > 0 && b.ingest == atomicIngest {
		if err := p.checkStored(ctx, f, id, n, sequence); err != nil {
			return committed{}, err
		}
	}
	next := fence{
		checkpoint: &storedMessage{Subject: last.Subject, Sequence: sequence, Data: last.Data}, content: last.Data, counted: sequence,
		end: f.end, committed: f.committed, named: last.Header.Get(commitID), stream: sequence, proved: now,
	}
	if err := p.checkpoints.confirmStored(ctx, next.checkpoint); err != nil {
		return committed{}, err
	}
	done := committed{fence: next}
	if n > 0 {
		done.fence.committed = sequence
		done.fence.end, done.newest = b.ingest.endAfter(f.end, b.entities, sequence, id)
	}
	return done, nil
}

// checkStored returns an error unless an acknowledged atomic batch of n entities, whose checkpoint is at a
// sequence, is stored without gaps. The count in an acknowledgement is that of the messages which the server
// has received: nats-server before 2.14.6 goes on after one for which it has no room.
func (p *publisher) checkStored(ctx context.Context, f fence, id string, n int, sequence uint64) error {
	if p.own {
		// Another copy may have committed after the stream was read, and before its newest messages were.
		if sequence == max(f.stream, f.last())+uint64(n)+1 {
			return nil
		}
	} else if first, err := p.client.messageAt(ctx, p.topic.Stream.Name, sequence-uint64(n)); err != nil || first.begins(id) {
		return err
	}
	return errTorn
}

// explainRefusal returns the fence for a second attempt, as an atomic batch, if a commit was refused
// although no other copy has stored anything. An atomic batch is refused if messages were deleted from
// the topic: retention removes the newest entity of a feed that was quiet for long. The chain of
// [chainedIngest] is refused after an atomic batch of another copy was: nats-server 2.15 goes on
// counting from where that one would have ended, until an atomic batch is stored. Otherwise
// explainRefusal returns an error. The second attempt is refused if another copy has committed.
func (p *publisher) explainRefusal(ctx context.Context, in ingest, f fence, refused error) (fence, error) {
	known, r := f, p.checkpoints
	// The end is read first. On a replicated stream a commit of another copy refuses this one before
	// it is stored. Then its entities must not be seen without its checkpoint.
	end, err := r.readEnd(ctx)
	if err != nil {
		return f, err
	}
	f.end, f.proved = end, time.Now()
	last, err := r.readLast(ctx)
	if err != nil {
		return f, err
	}
	switch {
	case !last.equals(known.checkpoint), in == atomicIngest && f.end == known.end:
		return f, refused
	case f.end == known.end:
		return f, nil
	case f.end.entity <= known.end.entity && f.end.dead <= known.end.dead && known.last() == known.sequence():
		// If the checkpoint is still there, the messages before it were not lost.
		return f, cmp.Or(r.checkSubjectAt(ctx, known.end.entity), r.checkSubjectAt(ctx, known.end.dead))
	case in != atomicIngest:
		return f, refused
	}
	return f, errors.New("the stream has the beginning of a batch that was not stored to its end, or has lost it; loading its IDs before the next commit")
}

// sendEntities sends all of a batch except its last message.
func (p *publisher) sendEntities(ctx context.Context, to carrier, b batch) error {
	// send has copied the whole message when it returns, so one message serves for all.
	msg := &nats.Msg{Header: nats.Header{}}
	var fields feed.Header
	publishedBefore := b.checkpoint.Count - uint64(len(b.entities)-feed.CountDead(b.entities))
	encoder := codec.NewHeaderEncoder(p.topic.Feed, p.topic.Events, publishedBefore)
	first := b.first
	for i := range b.entities {
		e := &b.entities[i]
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
		fields = to.addFields(fields, i)
		if first && e.Dead == nil {
			fields = append(fields, feed.Field{Name: firstOf, Value: p.topic.Subject})
			first = false
		}
		setFields(msg.Header, fields)
		if err := to.send(ctx, msg); errors.Is(err, nats.ErrReconnectBufExceeded) {
			return errLost
		} else if err != nil {
			return err
		}
	}
	return nil
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
		return 0, ack.Error
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
