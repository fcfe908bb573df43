package nats

import (
	"context"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
)

// ingest is how the server stores the entities of a commit.
type ingest int

const (
	// atomicIngest stores the whole commit or nothing: an atomic batch. The server stages it first.
	atomicIngest ingest = iota
	// chainedIngest stores each message as it comes, if the stream's last sequence is that of the
	// message before it. The stream has only this topic.
	chainedIngest
	// fencedIngest stores each message as it comes, if no checkpoint was stored since the copy read or
	// stored its last one. The stream has other topics, and one replica: a replicated stream refuses a
	// fence by subject while another message with that fence is in flight.
	fencedIngest
)

// String returns the name that the status shows.
func (in ingest) String() string {
	if in == atomicIngest {
		return "atomic_batches"
	}
	return "fast_ingest"
}

// fastMinor is the first minor version of 2.x that has fast ingest.
const fastMinor = 14

// report logs, once for each stream, the command that allows fast ingest.
func (in ingest) report(c *client, stream *openStream, config jetstream.StreamConfig) {
	c.log.Debug("the way of the commits is chosen", "stream", config.Name, "commits", in)
	if in != atomicIngest || config.AllowBatchPublish || c.cfg.APIPrefix != "" || !c.hasMinor(fastMinor) || stream.reported.Swap(true) {
		return
	}
	c.log.Info("the stream does not allow fast ingest, so that each commit is an atomic batch, which the server stores twice",
		"stream", config.Name, "cure", "run 'nats stream edit "+config.Name+" --allow-fast'")
}

// fastIngest returns chainedIngest or fencedIngest, or atomicIngest if the stream does not allow either.
// Behind an api_prefix the answers may come through an import, which may pass only one of them.
func (t *Topic) fastIngest(c jetstream.StreamConfig, cfg *Config) ingest {
	switch {
	case !c.AllowBatchPublish || cfg.APIPrefix != "":
		return atomicIngest
	case t.ownsAll(c.Subjects):
		return chainedIngest
	case c.Replicas <= 1:
		return fencedIngest
	}
	return atomicIngest
}

// endAfter returns the end of a topic after a commit of entities, whose checkpoint is at a sequence,
// and the identity of its last entity. end was the end before.
func (in ingest) endAfter(end topicEnd, entities []feed.Entity, sequence uint64, id string) (topicEnd, identity) {
	if in == fencedIngest {
		// Messages of other topics are between those of this one. The entities are in front of the
		// checkpoint, which is as good as their sequences except for a fence on them.
		return topicEnd{sequence, sequence}, identity{}
	}
	newest := identity{sequence - 1, id}
	if in == atomicIngest {
		// A batch has consecutive sequences. If it had not, topicHolds would not recognise the
		// entity, and the IDs would be loaded again.
		newest.id += "/" + strconv.Itoa(len(entities))
	}
	return end.after(entities, sequence-uint64(len(entities))-1), newest
}

// A plainMessage carries a checkpoint without entities.
type plainMessage struct {
	nc     *nats.Conn
	fence  fence
	ingest ingest
}

func (p plainMessage) addFields(to feed.Header, _ int) feed.Header {
	if p.ingest == chainedIngest {
		return append(to, feed.Field{Name: expectedStream, Value: strconv.FormatUint(p.fence.stream, 10)})
	}
	return append(to, feed.Field{Name: expectedLast, Value: strconv.FormatUint(p.fence.sequence(), 10)})
}

func (p plainMessage) send(context.Context, *nats.Msg) error { return nil }

func (p plainMessage) commit(ctx context.Context, last *nats.Msg) ([]byte, error) {
	return request(ctx, p.nc, last)
}

// An atomicBatch carries a commit as an atomic batch. The server stores nothing before it has received
// the last message, and drops a batch that remains incomplete.
type atomicBatch struct {
	nc       *nats.Conn
	id       string
	entities []feed.Entity
	fence    fence
	topic    *Topic
	// conditions are the subjects whose newest message each of the first messages has as its fence.
	conditions []string
}

func newAtomicBatch(nc *nats.Conn, id string, entities []feed.Entity, f fence, topic *Topic) atomicBatch {
	// Each message has room for one condition, and the subject must be new to the batch. So the
	// first message has that of its own subject, and the second one that of the other subject.
	conditions := topic.entitySubjects()
	if entities[0].Dead != nil {
		slices.Reverse(conditions)
	}
	return atomicBatch{nc, id, entities, f, topic, conditions}
}

func (a atomicBatch) addFields(to feed.Header, i int) feed.Header {
	to = append(to, feed.Field{Name: batchID, Value: a.id}, feed.Field{Name: batchSequence, Value: strconv.Itoa(i + 1)})
	switch {
	case i == len(a.entities):
		if i > feed.CountDead(a.entities) {
			to = append(to, feed.Field{Name: commitID, Value: a.id})
		}
		return append(to, feed.Field{Name: batchCommit, Value: "1"}, feed.Field{Name: expectedLast, Value: strconv.FormatUint(a.fence.sequence(), 10)})
	case i < len(a.conditions):
		return append(to, feed.Field{Name: expectedLast, Value: strconv.FormatUint(*a.fence.end.of(a.conditions[i], a.topic), 10)},
			feed.Field{Name: expectedOf, Value: a.conditions[i]})
	}
	return to
}

func (a atomicBatch) send(_ context.Context, m *nats.Msg) error { return a.nc.PublishMsg(m) }

func (a atomicBatch) commit(ctx context.Context, last *nats.Msg) ([]byte, error) {
	return request(ctx, a.nc, last)
}

// request sends a message and returns the answer.
func request(ctx context.Context, nc *nats.Conn, m *nats.Msg) ([]byte, error) {
	reply, err := nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return nil, err
	}
	return reply.Data, nil
}

// A fencedBatch carries a commit of n entities as a fast batch, of which each message has the fence.
type fencedBatch struct {
	*fastBatch
	n          int
	named      int // the entity that has the ID of the commit
	fence      fence
	ingest     ingest
	checkpoint string // its subject
}

func newFencedBatch(fast *fastBatch, entities []feed.Entity, f fence, in ingest, checkpoint string) fencedBatch {
	named := len(entities) - 1
	if in == fencedIngest {
		// That is compared on the topic's subject; see [checkpointReader.checkNewestSubject].
		for named >= 0 && entities[named].Dead != nil {
			named--
		}
	}
	return fencedBatch{fast, len(entities), named, f, in, checkpoint}
}

func (b fencedBatch) addFields(to feed.Header, i int) feed.Header {
	if i == b.named || i == b.n && b.named >= 0 {
		to = append(to, feed.Field{Name: commitID, Value: b.id})
	}
	sequence, subject := b.fence.sequence(), b.checkpoint
	if b.ingest == chainedIngest {
		to = append(to, feed.Field{Name: expectedStream, Value: strconv.FormatUint(b.fence.stream+uint64(i), 10)})
		if i > 0 {
			return to
		}
		// The chain does not show that a subject mapping has moved the newest entity.
		sequence, subject = b.fence.end.entity, b.subject
	}
	return append(to, feed.Field{Name: expectedLast, Value: strconv.FormatUint(sequence, 10)}, feed.Field{Name: expectedOf, Value: subject})
}
