package kafka

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// deadLetters is the topic for the dead letters of another topic. All of them are in partition 0
// and have no key. A nil *deadLetters is a sink without dead letters.
//
// A person may delete dead letters, or the topic, which is then created again and has another id. A
// topic that has the id that the checkpoint names, and is shorter than the checkpoint says, has lost
// dead letters.
type deadLetters struct {
	client *client
	name   string
	of     Topic
	// limit is the largest batch of records that the topic takes, in bytes; 0 while it is unknown.
	limit atomic.Int64
}

func newDeadLetters(c *client, t Topic) *deadLetters {
	if !t.DeadLetters {
		return nil
	}
	return &deadLetters{client: c, name: t.Name + sink.DeadSuffix, of: t}
}

// ensureTopic returns the topic. It creates it if it is missing and the configuration allows it, and
// returns an error if it cannot take dead letters.
func (d *deadLetters) ensureTopic(ctx context.Context) (found kadm.TopicDetail, err error) {
	if d == nil {
		return found, nil
	}
	if d.name == d.client.cfg.Checkpoints {
		return found, feed.Permanent(fmt.Errorf("dead-letter topic %s: this is the topic for checkpoints; give one of them another name", d.name))
	}
	found, err = d.describeTopic(ctx)
	if err == nil && len(found.Partitions) == 0 {
		found, err = d.missingTopic().createTopic(ctx)
	}
	if err != nil {
		return found, err
	}
	return found, d.checkFit(ctx, found)
}

// describeTopic returns the topic with the partition that is used; without one if it does not exist.
func (d *deadLetters) describeTopic(ctx context.Context) (found kadm.TopicDetail, err error) {
	if d == nil {
		return found, nil
	}
	found, err = d.client.describeTopic(ctx, d.name)
	switch {
	case isMissingTopic(err):
		return kadm.TopicDetail{}, nil
	case err != nil:
		return found, fmt.Errorf("dead-letter topic %s: %w", d.name, err)
	}
	found.Partitions = kadm.PartitionDetails{0: found.Partitions[0]}
	return found, nil
}

// check returns the error that ensureTopic would return, and changes nothing.
func (d *deadLetters) check(ctx context.Context) error {
	if d == nil {
		return nil
	}
	found, err := d.describeTopic(ctx)
	switch {
	case err != nil:
		return err
	case len(found.Partitions) == 0:
		return d.missingTopic().mayCreate(ctx)
	}
	return d.checkFit(ctx, found)
}

// missingTopic returns the settings with which the topic is created: those of the other topic,
// with one partition, and without compaction, which needs keys.
func (d *deadLetters) missingTopic() newTopic {
	return newTopic{d.client, d.name, 1, d.of.Replication, d.of.DeadLetterSettings(), d.of.Create}
}

func (d *deadLetters) checkFit(ctx context.Context, found kadm.TopicDetail) error {
	config, err := d.client.permittedConfig(ctx, found)
	if err != nil {
		return err
	}
	if policy := config["cleanup.policy"]; strings.Contains(policy, "compact") {
		return feed.Permanent(fmt.Errorf("dead-letter topic %s is compacted (cleanup.policy=%s), and takes no messages without a key; "+
			"change its cleanup.policy with kafka-configs.sh", d.name, policy))
	}
	d.limit.Store(maxMessageBytes(config))
	return nil
}

// waitStable waits as that of [topicCheck] does. It returns the range of the topic's offsets, which is
// empty if the topic does not exist.
func (d *deadLetters) waitStable(ctx context.Context, found kadm.TopicDetail, last topicEnds, meanwhile meanwhile) (offsetRange, error) {
	if len(found.Partitions) == 0 {
		return offsetRange{}, nil
	}
	ends, err := topicCheck{d.client, d.of}.waitStable(ctx, found, last, meanwhile)
	if err != nil {
		return offsetRange{}, fmt.Errorf("dead-letter topic %s: %w", d.name, err)
	}
	starts, err := d.client.listOffsets(ctx, d.name, []int32{0}, firstOffset)
	if err != nil {
		return offsetRange{}, err
	}
	return offsetRange{topic: d.name, id: found.ID, start: starts[0], from: starts[0], to: ends[0]}, nil
}

// makeRecord returns the record of a dead letter. topicLimit is the largest batch that the other
// topic takes, which is also that of the producer. The headers are in the memory of c.
func (d *deadLetters) makeRecord(e feed.Entity, topicLimit int64, c *commitRecords) kgo.Record {
	limit := int(min(topicLimit, d.limit.Load())) - batchOverhead - recordOverhead - sequenceSize
	fields, body := message.DeadLetter(d.of.Feed, e, message.Room{Header: limit, Message: limit, Field: func(f feed.Field) (int, bool) {
		return headerOverhead + len(f.Name) + len(f.Value), utf8.ValidString(f.Name)
	}})
	if body == nil {
		body = []byte{}
	}
	fields = c.appendSequence(fields)
	return kgo.Record{Topic: d.name, Value: body, Headers: c.headers.convert(fields)}
}
