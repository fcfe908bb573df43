package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/retry"
)

// describeTopic returns the partitions of a topic, its id, which is zero before Kafka 2.8, and the
// rights of this user. A topic that does not exist is [kerr.UnknownTopicOrPartition].
func (c *client) describeTopic(ctx context.Context, topic string) (kadm.TopicDetail, error) {
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	topics, err := c.admin.ListTopicsWithInternal(kadm.WithAuthorizedOps(ctx), topic)
	if err != nil {
		return kadm.TopicDetail{}, causeOf(ctx, err)
	}
	d, ok := topics[topic]
	if !ok {
		return d, errors.New("the cluster describes another topic than it was asked about")
	}
	return d, d.Err
}

// offsetSpec selects an offset of a partition in a ListOffsets request.
type offsetSpec struct {
	timestamp int64
	isolation int8
}

var (
	firstOffset  = offsetSpec{-2, 0} // of the oldest record
	endOffset    = offsetSpec{-1, 0} // behind the newest record, committed or not
	stableOffset = offsetSpec{-1, 1} // last stable offset: before the oldest open transaction
)

// newTopicTime is how long a topic that exists may be unknown: to a broker that has not heard of a
// new topic yet, and to the client, which remembers for metadataMinAge that it was missing.
const newTopicTime = time.Second

// listOffsets returns the selected offset of each partition, in their order. It retries while a
// partition changes its leader, and for newTopicTime if the topic is unknown. Unlike kadm it asks
// about no other partition of the topic, so that it does not wait for their leaders.
func (c *client) listOffsets(ctx context.Context, topic string, partitions []int32, of offsetSpec) ([]int64, error) {
	var asked kadm.TopicsSet
	asked.Add(topic, partitions...)
	found, err := c.listTopicOffsets(ctx, asked, of)
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, len(partitions))
	for i, p := range partitions {
		offsets[i] = found[topic][p]
	}
	return offsets, nil
}

// topicOffsets are offsets of partitions, by topic.
type topicOffsets map[string]map[int32]int64

// listTopicOffsets is listOffsets for partitions of several topics.
func (c *client) listTopicOffsets(ctx context.Context, asked kadm.TopicsSet, of offsetSpec) (topicOffsets, error) {
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = of.isolation
	asked.EachPartitions(func(topic string, partitions []int32) {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for _, n := range partitions {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = n, of.timestamp
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	})
	backoff := retry.Backoff{Min: 10 * time.Millisecond, Max: 500 * time.Millisecond}
	for began := time.Now(); ; {
		offsets, err := c.listOffsetsOnce(ctx, req)
		// kgo retries NOT_LEADER for only one of several concurrent requests, so retry here. A
		// leader that was just elected does not know its offsets at first.
		again := errors.Is(err, kerr.NotLeaderForPartition) || errors.Is(err, kerr.OffsetNotAvailable) ||
			isMissingTopic(err) && time.Since(began) < newTopicTime
		if !again || backoff.Wait(ctx) != nil {
			return offsets, err
		}
	}
}

func (c *client) listOffsetsOnce(ctx context.Context, req *kmsg.ListOffsetsRequest) (topicOffsets, error) {
	resp, err := req.RequestWith(ctx, c.kgo)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	found := topicOffsets{}
	for _, t := range resp.Topics {
		if found[t.Topic] == nil {
			found[t.Topic] = map[int32]int64{} // each broker answers for its own partitions
		}
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("partition %d of %s: %w", p.Partition, t.Topic, err)
			}
			found[t.Topic][p.Partition] = p.Offset
		}
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if _, ok := found[t.Topic][p.Partition]; !ok {
				return nil, fmt.Errorf("the response of the cluster lacks partition %d of %s", p.Partition, t.Topic)
			}
		}
	}
	return found, nil
}

// topicConfig returns the configuration of a topic; an empty map if this user may not see it,
// because the defaults can be assumed.
func (c *client) topicConfig(ctx context.Context, topic string) (map[string]string, error) {
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	all, err := c.admin.DescribeTopicConfigs(ctx, topic)
	if err == nil && len(all) != 1 {
		err = errors.New("the cluster describes another topic than it was asked about")
	} else if err == nil {
		err = all[0].Err
	}
	if errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		c.log.Debug("cannot see the configuration of a topic; the defaults are assumed", "topic", topic, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	config := map[string]string{}
	for _, kv := range all[0].Configs {
		config[kv.Key] = kv.MaybeValue()
	}
	return config, nil
}

// permittedConfig returns the configuration of a topic, or an error if this user may not read and write
// the topic. Before Kafka 2.3, and on other systems, a cluster does not report the user's permissions.
func (c *client) permittedConfig(ctx context.Context, d kadm.TopicDetail) (map[string]string, error) {
	var lacking []string
	for _, op := range []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite} {
		if d.AuthorizedOperations != nil && !slices.Contains(d.AuthorizedOperations, op) {
			lacking = append(lacking, op.String())
		}
	}
	if len(lacking) == 0 {
		return c.topicConfig(ctx, d.Topic)
	}
	return nil, feed.Permanent(fmt.Errorf("this user may not %s topic %s; run '%s --operation Read --operation Write --operation DescribeConfigs --topic %[2]s'",
		strings.Join(lacking, " or "), d.Topic, c.cfg.aclCommand()))
}

// openTransactions returns the producers that have a transaction open in partitions.
func (c *client) openTransactions(ctx context.Context, partitions kadm.TopicsSet) (open []kadm.DescribedProducer, err error) {
	ctx, cancel := c.withTimeout(ctx, c.graceTime())
	defer cancel()
	described, err := c.admin.DescribeProducers(ctx, partitions)
	described.EachPartition(func(p kadm.DescribedProducersPartition) {
		if err == nil {
			err = p.Err
		}
	})
	described.EachProducer(func(p kadm.DescribedProducer) {
		if p.CurrentTxnStartOffset >= 0 {
			open = append(open, p)
		}
	})
	return open, err
}
