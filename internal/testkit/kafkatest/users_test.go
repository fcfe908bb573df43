//go:build integration

package kafkatest_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
)

func TestUsersMayDoWhatACLsAllow(t *testing.T) {
	const password = `a "quoted" \ one`
	b := kafkatest.Start(t, kafkatest.User("alice", password), kafkatest.User("bob", "b"))
	topic := newTopic(t, b, 1, nil)
	allow := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
		Allow("User:alice").AllowHosts().Operations(kadm.OpWrite)
	if _, err := kadm.NewClient(client(t, b.Addr())).CreateACLs(t.Context(), allow); err != nil {
		t.Fatal(err)
	}
	mechanisms := map[string]func(user, password string) sasl.Mechanism{
		"PLAIN": func(u, p string) sasl.Mechanism { return plain.Auth{User: u, Pass: p}.AsMechanism() },
		"SCRAM-SHA-256": func(u, p string) sasl.Mechanism {
			return scram.Auth{User: u, Pass: p}.AsSha256Mechanism()
		},
		"SCRAM-SHA-512": func(u, p string) sasl.Mechanism {
			return scram.Auth{User: u, Pass: p}.AsSha512Mechanism()
		},
	}
	for name, mechanism := range mechanisms {
		t.Run(name, func(t *testing.T) {
			produce := func(auth sasl.Mechanism) error {
				cl := client(t, b.SASLAddr(), kgo.SASL(auth))
				if err := cl.Ping(t.Context()); err != nil {
					return err
				}
				return cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr()
			}
			if err := produce(mechanism("alice", password)); err != nil {
				t.Errorf("a user with the right to write: %v", err)
			}
			if err := produce(mechanism("bob", "b")); !errors.Is(err, kerr.TopicAuthorizationFailed) {
				t.Errorf("a user without it: %v, want %v", err, kerr.TopicAuthorizationFailed)
			}
			if err := produce(mechanism("alice", "wrong")); !errors.Is(err, kerr.SaslAuthenticationFailed) {
				t.Errorf("a wrong password: %v, want %v", err, kerr.SaslAuthenticationFailed)
			}
		})
	}
}
