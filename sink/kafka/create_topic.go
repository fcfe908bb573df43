package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/retry"
)

// newTopic describes a topic that is missing.
type newTopic struct {
	client      *client
	name        string
	partitions  int
	replication int      // 0 for the cluster's default
	config      []string // each name=value
	create      bool     // whether the configuration allows to create it
}

// createTopic creates the topic and waits until its partitions have leaders. It is no error if
// the topic exists by then.
func (t newTopic) createTopic(ctx context.Context) (kadm.TopicDetail, error) {
	if !t.create {
		return kadm.TopicDetail{}, t.errMissing()
	}
	c := t.client
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	answer, err := c.admin.CreateTopic(ctx, int32(t.partitions), t.replicas(), t.configEntries(), t.name)
	if err == nil {
		c.log.Info("created a topic", "topic", t.name, "partitions", answer.NumPartitions, "replication", answer.ReplicationFactor)
	} else if err := t.explainCreateError(ctx, answer, err); err != nil {
		return kadm.TopicDetail{}, err
	}
	// The brokers learn of it one by one.
	for {
		d, err := c.describeTopic(ctx, t.name)
		switch {
		case err != nil && !isTransient(err):
			return d, err
		case err == nil && len(d.Partitions) > 0 && !slices.ContainsFunc(d.Partitions.Sorted(), func(p kadm.PartitionDetail) bool { return p.Leader < 0 }):
			return d, nil
		}
		if cause := retry.Sleep(ctx, 50*time.Millisecond); cause != nil {
			return d, fmt.Errorf("topic %s was created and has no leaders yet: %w", t.name, cause)
		}
	}
}

// mayCreate returns the error that createTopic would return, and creates nothing.
func (t newTopic) mayCreate(ctx context.Context) error {
	if !t.create {
		return t.errMissing()
	}
	c := t.client
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	answers, err := c.admin.ValidateCreateTopics(ctx, int32(t.partitions), t.replicas(), t.configEntries(), t.name)
	if err == nil {
		err = answers[t.name].Err
	}
	if err == nil {
		return nil
	}
	return t.explainCreateError(ctx, answers[t.name], err)
}

// explainCreateError returns the reason why the topic was not created, and nil if it exists.
func (t newTopic) explainCreateError(ctx context.Context, answer kadm.CreateTopicResponse, err error) error {
	c := t.client
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists):
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed):
		return feed.Permanent(fmt.Errorf("there is no topic %s, and this user may not create it; create it with '%s', or run '%s --operation Create --topic %[1]s'",
			t.name, t.command(), c.cfg.aclCommand()))
	case kerr.IsRetriable(err), !isKafka(err):
		return causeOf(ctx, fmt.Errorf("create topic %s: %w", t.name, err))
	}
	return feed.Permanent(fmt.Errorf("create topic %s: %w: %s; correct its settings under kafka, or create it by hand", t.name, err, answer.ErrMessage))
}

func (t newTopic) replicas() int16 { return int16(cmp.Or(t.replication, -1)) } // the cluster's default

func (t newTopic) configEntries() map[string]*string {
	all := map[string]*string{}
	for _, kv := range t.config {
		name, value, _ := strings.Cut(kv, "=")
		all[name] = &value
	}
	return all
}

// command returns a command that creates the topic.
func (t newTopic) command() string {
	cmd := fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d", t.client.cfg.Brokers[0], t.name, t.partitions)
	for _, kv := range t.config {
		cmd += " --config " + kv
	}
	return cmd
}

// errMissing reports that the topic is missing and may not be created.
func (t newTopic) errMissing() error {
	return feed.Permanent(fmt.Errorf("there is no topic %s, and create is off; create it with '%s'", t.name, t.command()))
}
