package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// defaultLimit is max.message.bytes where nobody has set it.
const defaultLimit = 1048588

// checkTopic returns the topic as the cluster describes it, or an error that
// says what is wrong with it. It creates a topic that is missing, unless last, the
// checkpoint, says that there was one; and it never changes one that is there.
func (s *Sink) checkTopic(ctx context.Context, last stored, cp checkpoint.Checkpoint) (description, error) {
	if s.topic.Name == s.conn.cfg.Checkpoints {
		return description{}, feed.Permanent(errors.New("this is the topic for checkpoints; give the feed another one"))
	}
	d, err := s.conn.describe(ctx, s.topic.Name)
	switch {
	case err == nil:
	case missing(err) && (cp.Count > 0 || last.data == nil && s.seen.known):
		// To create it anew would publish the feed from the checkpoint on, and
		// hide that the history is gone.
		return d, s.errGone()
	case missing(err) && s.topic.Create:
		if d, err = s.conn.create(ctx, s.topic.Name, s.topic.Partitions, s.topic.Replication, s.topicConfig()); err != nil {
			return d, err
		}
	default:
		return d, err
	}
	if err := s.sameTopic(d, last); err != nil {
		return d, err
	}
	limit, err := s.fitness(ctx, d)
	if err != nil {
		return d, err
	}
	s.limit.Store(min(limit, largestRequest))
	s.id = d.id
	return d, nil
}

// topicConfig is what the topic is created with.
func (s *Sink) topicConfig() []string { return append([]string{"retention.ms=-1"}, s.topic.Config...) }

func (s *Sink) errGone() error {
	return feed.Permanent(fmt.Errorf("the topic is gone: %w; restore it, or start the feed over in a new one with 'feedbridge checkpoint reset %s'",
		checkpoint.ErrMissing, s.topic.Feed))
}

// errNone reports that a topic is missing and is not to be created.
func (s *Sink) errNone(topic string) error {
	partitions, config := s.topic.Partitions, s.topicConfig()
	if topic == s.conn.cfg.Checkpoints {
		partitions, config = checkpointPartitions, checkpointConfig
	}
	return feed.Permanent(fmt.Errorf("there is no topic %s, and create is off; create it with '%s'", topic, s.conn.creation(topic, partitions, config)))
}

// sameTopic returns an error unless the topic is the one that its checkpoint was
// made for, as far as is known.
func (s *Sink) sameTopic(d description, last stored) error {
	if id := idText(d.id); last.topic == "" || id == "" || id == last.topic {
		return nil
	}
	return feed.Permanent(fmt.Errorf("the topic was deleted and created anew since its checkpoint was made, or is another cluster's: %w; "+
		"restore it, or go on in this one with 'feedbridge checkpoint set %s', or start the feed over with 'feedbridge checkpoint reset %[2]s'",
		checkpoint.ErrMissing, s.topic.Feed))
}

// fitness returns the largest batch that a topic takes, or an error that says
// everything that makes it unfit.
func (s *Sink) fitness(ctx context.Context, d description) (limit int64, err error) {
	if err := s.conn.mayUse(d); err != nil {
		return 0, err
	}
	config, err := s.conn.config(ctx, d.name)
	if err != nil {
		return 0, err
	}
	var wrong []string
	if policy := config["cleanup.policy"]; strings.Contains(policy, "compact") {
		switch {
		case s.key == nil:
			wrong = append(wrong, "it is compacted (cleanup.policy="+policy+"), and takes no messages without a key; "+
				"set one, such as \"key: /id\", or give the feed another topic")
		case s.topic.MissingKey == KeyNull:
			wrong = append(wrong, "it is compacted (cleanup.policy="+policy+"), and takes no messages without a key; set \"missing_key: stop\"")
		}
	}
	if s.topic.Partition >= len(d.leaders) {
		wrong = append(wrong, fmt.Sprintf("it has no partition %d, only 0 to %d; change partition", s.topic.Partition, len(d.leaders)-1))
	}
	if len(wrong) > 0 {
		return 0, feed.Permanent(errors.New("the topic cannot hold the feed: " + strings.Join(wrong, "; ")))
	}
	if n, err := strconv.ParseInt(config["max.message.bytes"], 10, 64); err == nil {
		return n, nil
	}
	return defaultLimit, nil
}

// errCompacted says that a compacted topic cannot be read back. It does not tell to
// change that: the topic would lose by its age what its programs count on.
func (c *Conn) errCompacted(topic, policy string) error {
	if topic == c.cfg.Checkpoints {
		return errors.New("it has the checkpoints of feeds, and no entities; name the topic of a feed")
	}
	return fmt.Errorf("it is compacted (cleanup.policy=%s), so that messages vanish from its middle; name a topic that is not", policy)
}

// config returns the configuration of a topic; nothing if this user may not see
// it, for nothing breaks without.
func (c *Conn) config(ctx context.Context, topic string) (map[string]string, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	all, err := c.admin.DescribeTopicConfigs(ctx, topic)
	if err == nil && len(all) == 1 {
		err = all[0].Err
	}
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed):
		c.log.Debug("cannot see the configuration of a topic; the defaults are assumed", "topic", topic, "error", err)
		return nil, nil
	case err != nil:
		return nil, causeOf(ctx, err)
	case len(all) != 1:
		return nil, errors.New("the cluster describes another topic than it was asked about")
	}
	config := map[string]string{}
	for _, kv := range all[0].Configs {
		config[kv.Key] = kv.MaybeValue()
	}
	return config, nil
}

// mayUse returns an error if this user may not read and write a topic.
func (c *Conn) mayUse(d description) error {
	var lacking []string
	for _, op := range []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite} {
		if !d.may(op) {
			lacking = append(lacking, op.String())
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return feed.Permanent(fmt.Errorf("this user may not %s topic %s; run 'kafka-acls.sh --bootstrap-server %s --add --allow-principal User:%s "+
		"--operation Read --operation Write --operation DescribeConfigs --topic %[2]s'",
		strings.Join(lacking, " or "), d.name, c.cfg.Brokers[0], either(c.cfg.SASL.Username, "NAME")))
}

// create creates a topic that is missing and waits until its partitions have
// leaders. That someone else has created it meanwhile is fine.
func (c *Conn) create(ctx context.Context, topic string, partitions, replication int, config []string) (description, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	answer, err := c.admin.CreateTopic(ctx, int32(partitions), replicas(replication), values(config), topic)
	if err == nil {
		c.log.Info("created a topic", "topic", topic, "partitions", answer.NumPartitions, "replication", answer.ReplicationFactor)
	} else if err := c.notCreated(ctx, topic, partitions, config, answer, err); err != nil {
		return description{}, err
	}
	// The brokers learn of it one by one.
	for {
		d, err := c.describe(ctx, topic)
		switch {
		case err != nil && !passes(err):
			return d, err
		case err == nil && len(d.leaders) > 0 && slices.Min(d.leaders) >= 0:
			return d, nil
		}
		if cause := sleep(ctx, 50*time.Millisecond); cause != nil {
			return d, fmt.Errorf("topic %s was created and has no leaders yet: %w", topic, cause)
		}
	}
}

// mayCreate says what would keep a topic from being created, and creates none.
func (c *Conn) mayCreate(ctx context.Context, topic string, partitions, replication int, config []string) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	answers, err := c.admin.ValidateCreateTopics(ctx, int32(partitions), replicas(replication), values(config), topic)
	if err == nil {
		err = answers[topic].Err
	}
	if err == nil {
		return nil
	}
	return c.notCreated(ctx, topic, partitions, config, answers[topic], err)
}

// notCreated explains why a topic is not created. That there is one already is no
// error.
func (c *Conn) notCreated(ctx context.Context, topic string, partitions int, config []string, answer kadm.CreateTopicResponse, err error) error {
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists):
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed):
		return feed.Permanent(fmt.Errorf("there is no topic %s, and this user may not create it; create it with '%s', or run "+
			"'kafka-acls.sh --bootstrap-server %s --add --allow-principal User:%s --operation Create --topic %[1]s'",
			topic, c.creation(topic, partitions, config), c.cfg.Brokers[0], either(c.cfg.SASL.Username, "NAME")))
	case kerr.IsRetriable(err), !isKafka(err):
		return causeOf(ctx, fmt.Errorf("create topic %s: %w", topic, err))
	}
	return feed.Permanent(fmt.Errorf("create topic %s: %w: %s; correct what is set for it, or create it by hand", topic, err, answer.ErrMessage))
}

func replicas(n int) int16 {
	if n == 0 {
		return -1 // the cluster's default
	}
	return int16(n)
}

func values(config []string) map[string]*string {
	all := map[string]*string{}
	for _, kv := range config {
		name, value, _ := strings.Cut(kv, "=")
		all[name] = &value
	}
	return all
}

// creation is a command that creates a topic.
func (c *Conn) creation(topic string, partitions int, config []string) string {
	cmd := fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d", c.cfg.Brokers[0], topic, partitions)
	for _, kv := range config {
		cmd += " --config " + kv
	}
	return cmd
}

// idText is a topic's id as Kafka's tools show it; empty if the cluster gives
// none.
func idText(id kadm.TopicID) string {
	if id == (kadm.TopicID{}) {
		return ""
	}
	return id.String()
}
