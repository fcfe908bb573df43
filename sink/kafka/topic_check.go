package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/retry"
)

// topicCheck finds out whether a topic can take a feed, whether it is the one that its
// checkpoint was made for, and whether it has lost messages. It creates a topic that is
// missing, and never changes one that exists.
type topicCheck struct {
	client *client
	topic  Topic
}

// ensureTopic returns the topic, and its largest batch in bytes. It creates a topic that is
// missing, if the configuration allows it and mayBeNew is set.
func (t topicCheck) ensureTopic(ctx context.Context, last topicEnds, mayBeNew bool) (d kadm.TopicDetail, limit int64, err error) {
	if t.topic.Name == t.client.cfg.Checkpoints {
		return d, 0, feed.Permanent(errors.New("this is the topic for checkpoints; give the feed another one"))
	}
	d, err = t.client.describeTopic(ctx, t.topic.Name)
	switch {
	case isMissingTopic(err) && !mayBeNew:
		// A new topic would be filled from the checkpoint on, which hides that its messages are
		// gone.
		return d, 0, t.errGone()
	case isMissingTopic(err):
		d, err = t.missingTopic().createTopic(ctx)
	}
	if err == nil {
		err = t.sameTopic(d, last)
	}
	if err != nil {
		return d, 0, err
	}
	limit, err = t.checkFit(ctx, d)
	return d, limit, err
}

// missingTopic returns the settings with which the topic is created.
func (t topicCheck) missingTopic() newTopic {
	return newTopic{t.client, t.topic.Name, t.topic.Partitions, t.topic.Replication, t.topic.Settings(), t.topic.Create}
}

func (t topicCheck) errGone() error {
	return feed.Permanent(fmt.Errorf("the topic is gone: %w; restore it, or start the feed over in a new one with 'feedbridge checkpoint reset %s'",
		checkpoint.ErrMissing, t.topic.Feed))
}

// sameTopic returns an error unless the topic is the one that its checkpoint was
// made for, as far as is known.
func (t topicCheck) sameTopic(d kadm.TopicDetail, last topicEnds) error {
	if last.isOf(d.ID) {
		return nil
	}
	return feed.Permanent(fmt.Errorf("the topic was deleted and created again since its checkpoint was made, or is another cluster's: %w; "+
		"restore it, or continue in this one with 'feedbridge checkpoint set %s', or start the feed over with 'feedbridge checkpoint reset %[2]s'",
		checkpoint.ErrMissing, t.topic.Feed))
}

// checkFit returns the largest batch that the topic takes, or an error that names
// everything that makes it unfit.
func (t topicCheck) checkFit(ctx context.Context, d kadm.TopicDetail) (limit int64, err error) {
	config, err := t.client.permittedConfig(ctx, d)
	if err != nil {
		return 0, err
	}
	var wrong []string
	if policy := config["cleanup.policy"]; strings.Contains(policy, "compact") && (t.topic.Key == "" || t.topic.MissingKey == KeyNull) {
		wrong = append(wrong, "it is compacted (cleanup.policy="+policy+"), and takes no messages without a key; "+
			"set one, such as \"key: /id\", and not \"missing_key: 'null'\", or give the feed another topic")
	}
	if n := len(d.Partitions); t.topic.Partition >= n {
		wrong = append(wrong, fmt.Sprintf("it has no partition %d, only 0 to %d; change partition", t.topic.Partition, n-1))
	}
	if len(wrong) > 0 {
		return 0, feed.Permanent(errors.New("the topic cannot hold the feed: " + strings.Join(wrong, "; ")))
	}
	return maxMessageBytes(config), nil
}

// maxMessageBytes returns the largest batch that a topic with the configuration takes.
func maxMessageBytes(config map[string]string) int64 {
	if n, err := strconv.ParseInt(config["max.message.bytes"], 10, 64); err == nil {
		return n
	}
	return 1048588 // Kafka's default
}

// retentionLimits returns the settings in the topic's configuration by which it loses messages of the
// feed in time; none if it keeps all of them, or if this user may not see the configuration.
func (t topicCheck) retentionLimits(ctx context.Context) ([]string, error) {
	config, err := t.client.topicConfig(ctx, t.topic.Name)
	var limits []string
	policy := config["cleanup.policy"]
	// If the key is the entity's ID, compaction keeps the newest message of each ID, as
	// intended.
	if strings.Contains(policy, "compact") && !strings.EqualFold(string(t.topic.Key), "header:Content-ID") {
		limits = append(limits, "cleanup.policy="+policy)
	}
	if strings.Contains(policy, "delete") {
		for _, name := range []string{"retention.ms", "retention.bytes"} {
			if value := config[name]; value != "" && value != "-1" {
				limits = append(limits, name+"="+value)
			}
		}
	}
	return limits, err
}

// lostAfter is how long a partition must be too short before its messages count as lost. The
// answering broker may no longer be the leader, and may not know the newest commits. Kafka
// replaces a leader after 9 s (broker.session.timeout.ms).
const lostAfter = 10 * time.Second

// waitStable waits until every transaction in the topic d has ended, and its partitions have
// reached the ends that its last checkpoint has, unless these are of another topic with its name. It
// returns the ends of the partitions. A partition that stays shorter has lost messages, which is
// [checkpoint.ErrLost]. It calls meanwhile as stableWait does.
func (t topicCheck) waitStable(ctx context.Context, d kadm.TopicDetail, last topicEnds, meanwhile meanwhile) ([]int64, error) {
	c, atLeast := t.client, last.of(d)
	if n := len(d.Partitions); len(atLeast) > n {
		return nil, t.errLost(d.Topic, n, 0, atLeast[n])
	}
	wait := stableWait{c, d.Topic, d.Partitions.Numbers(), c.cfg.Timeout, meanwhile}
	for began := time.Now(); ; {
		ends, err := wait.toEnd(ctx, atLeast)
		if !errors.Is(err, errHeldBack) {
			return ends, err
		}
		_, lost := t.checkLost(ctx, d, atLeast)
		switch {
		case lost == nil:
			return nil, err
		case time.Since(began) >= lostAfter:
			return nil, lost
		}
	}
}

// confirmEnds returns the ends of the partitions. The error is that of checkLost if it persists for
// lostAfter.
func (t topicCheck) confirmEnds(ctx context.Context, d kadm.TopicDetail, last topicEnds) ([]int64, error) {
	for began := time.Now(); ; {
		ends, err := t.checkLost(ctx, d, last.of(d))
		if !errors.Is(err, checkpoint.ErrLost) || time.Since(began) >= lostAfter {
			return ends, err
		}
		if err := retry.Sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// checkLost returns the ends of the partitions, as the answering broker knows them, and an error that
// matches [checkpoint.ErrLost] if one of them does not reach atLeast.
func (t topicCheck) checkLost(ctx context.Context, d kadm.TopicDetail, atLeast []int64) ([]int64, error) {
	ends, err := t.client.listOffsets(ctx, d.Topic, d.Partitions.Numbers(), endOffset)
	if err != nil {
		return nil, err
	}
	for p, n := range atLeast {
		switch {
		case p >= len(ends):
			return ends, t.errLost(d.Topic, p, 0, n)
		case ends[p] < n:
			return ends, t.errLost(d.Topic, p, ends[p], n)
		}
	}
	return ends, nil
}

func (t topicCheck) errLost(topic string, partition int, end, want int64) error {
	return feed.Permanent(fmt.Errorf("%w: partition %d of %s ends at offset %d, and its checkpoint says at least %d; restore them, "+
		"or read the feed again from the first missing one with 'feedbridge checkpoint set %s', or start the feed over with 'feedbridge checkpoint reset %[6]s'",
		checkpoint.ErrLost, partition, topic, end, want, t.topic.Feed))
}
