//go:build integration

package kafka_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// right is one of those that docs/kafka.md lists.
type right string

const (
	readTopic, writeTopic, createTopics, describeTopic right = "Read topic", "Write topic", "Create topic", "DescribeConfigs topic"
	writeID, describeIDs                               right = "Write id", "Describe ids"
	readStore, writeStore, createStore, describeStore  right = "Read checkpoints", "Write checkpoints", "Create checkpoints", "DescribeConfigs checkpoints"
)

// TestRealRights removes one of the listed permissions of a user at a time.
func TestRealRights(t *testing.T) {
	t.Parallel()
	// In errors TOPIC, STORE and USER are replaced by the names of both topics and of the user.
	tests := []struct {
		without right
		exists  bool     // both topics do
		want    []string // nothing if it works without
	}{
		{"", false, nil},
		{"", true, nil},
		{readTopic, true, []string{"this user may not READ topic TOPIC; run 'kafka-acls.sh", "--allow-principal User:USER", "--operation Read", "--topic TOPIC'"}},
		{writeTopic, true, []string{"this user may not WRITE topic TOPIC; run", "--operation Write", "--topic TOPIC'"}},
		{createTopics, false, []string{"there is no topic TOPIC, and this user may not create it", "--allow-principal User:USER --operation Create --topic TOPIC'"}},
		{createTopics, true, nil},
		{describeTopic, false, nil},
		{describeTopic, true, nil},
		{readStore, true, []string{"this user may not READ topic STORE; run", "--operation Read", "--topic STORE'"}},
		{writeStore, true, []string{"this user may not WRITE topic STORE; run", "--operation Write", "--topic STORE'"}},
		{createStore, false, []string{"there is no topic STORE, and this user may not create it", "--allow-principal User:USER --operation Create --topic STORE'"}},
		{createStore, true, nil},
		{describeStore, false, nil},
		{describeStore, true, nil},
		{writeID, true, []string{`this user may not use the transactional id "feedbridge.TOPIC/orders"`, "--operation Write --operation Describe --transactional-id"}},
		// Kafka has it with Write.
		{describeIDs, true, nil},
	}
	var users []kafkatest.Option
	name := func(i int) string { return fmt.Sprintf("fb-%d", i) }
	for i := range tests {
		users = append(users, kafkatest.User(name(i), "secret"))
	}
	b := kafkatest.Start(t, users...)
	for i, test := range tests {
		t.Run(fmt.Sprintf("without %q, topics exist %v", test.without, test.exists), func(t *testing.T) {
			t.Parallel()
			user, topic, store := name(i), fmt.Sprintf("topic-%d", i), fmt.Sprintf("store-%d", i)
			grant(t, b, user, topic, store, test.without)
			if test.exists {
				createTopic(t, b.Addr(), topic, 1, nil)
				createTopic(t, b.Addr(), store, 1, map[string]string{"cleanup.policy": "compact"})
			}
			cfg := kafka.Config{
				Brokers: []string{b.SASLAddr()}, Timeout: 30 * time.Second, TransactionTimeout: 2 * time.Minute, Checkpoints: store,
				SASL: kafka.SASL{Mechanism: kafka.ScramSHA512, Username: user, Password: "secret"},
			}
			spec := orders()
			spec.Name = topic
			err := useAll(t, cfg, spec)
			if test.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			check := connect(t, cfg).Sink(spec).Check(t.Context())
			for _, text := range test.want {
				text = strings.NewReplacer("TOPIC", topic, "STORE", store, "USER", user).Replace(text)
				wantError(t, err, true, nil, text)
				wantError(t, check, true, nil, text)
			}
		})
	}
}

// useAll uses every operation of a copy: it starts, commits, takes over, reads the checkpoint,
// and moves it.
func useAll(t *testing.T, cfg kafka.Config, topic kafka.Topic) error {
	first, second := connect(t, cfg).Sink(topic), connect(t, cfg).Sink(topic)
	if _, err := first.Resume(t.Context()); err != nil {
		return err
	}
	if err := first.Commit(t.Context(), sinktest.Entities(0, 3), sinktest.At(3)); err != nil {
		return err
	}
	if _, err := second.Resume(t.Context()); err != nil {
		return err
	}
	if err := second.Commit(t.Context(), sinktest.Entities(3, 1), sinktest.At(4)); err != nil {
		return err
	}
	_, stored := first.Checkpoint(t.Context())
	if err := errors.Join(stored, first.Check(t.Context()), first.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(2)))); err != nil {
		return err
	}
	wantFeed(t, second, 4)
	return nil
}

// grant gives a user all rights but one.
func grant(t *testing.T, b *kafkatest.Broker, user, topic, store string, but right) {
	t.Helper()
	admin := kadm.NewClient(kafkaClient(t, b.Addr()))
	allow := func(r right, acl *kadm.ACLBuilder, op kadm.ACLOperation) {
		if r == but {
			return
		}
		allowUser(t, admin, user, acl, op)
	}
	for r, op := range map[right]kadm.ACLOperation{readTopic: kadm.OpRead, writeTopic: kadm.OpWrite, createTopics: kadm.OpCreate, describeTopic: kadm.OpDescribeConfigs} {
		allow(r, kadm.NewACLs().Topics(topic), op)
	}
	for r, op := range map[right]kadm.ACLOperation{readStore: kadm.OpRead, writeStore: kadm.OpWrite, createStore: kadm.OpCreate, describeStore: kadm.OpDescribeConfigs} {
		allow(r, kadm.NewACLs().Topics(store), op)
	}
	id := "feedbridge." + topic + "/orders"
	allow(writeID, kadm.NewACLs().TransactionalIDs(id), kadm.OpWrite)
	allow(describeIDs, kadm.NewACLs().TransactionalIDs(id), kadm.OpDescribe)
}

// allowUser gives a user a right, and waits until the broker knows it: the controller answers before that.
func allowUser(t *testing.T, admin *kadm.Client, user string, acl *kadm.ACLBuilder, op kadm.ACLOperation) {
	t.Helper()
	acl = acl.ResourcePatternType(kadm.ACLPatternLiteral).Allow("User:" + user).AllowHosts().Operations(op)
	created, err := admin.CreateACLs(t.Context(), acl)
	must.Succeed(t, err)
	for _, c := range created {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
	}
	until(t, func() bool {
		known, err := admin.DescribeACLs(t.Context(), acl)
		must.Succeed(t, err)
		return len(known) == 1 && known[0].Err == nil && len(known[0].Described) == 1
	})
}
