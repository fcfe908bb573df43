//go:build integration

package kafkatest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
)

func TestQuickCleaning(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.QuickCleaning())
	policy := func(p string) map[string]*string { return map[string]*string{"cleanup.policy": &p} }

	t.Run("compaction", func(t *testing.T) {
		topic := newTopic(t, b, 1, policy("compact"))
		until(t, func(i int) bool {
			transaction(t, b, kgo.TryCommit, &kgo.Record{Topic: topic, Key: []byte("k"), Value: fmt.Append(nil, i)})
			return read(t, b, topic, 1)[0].Offset > 0
		})
	})
	t.Run("retention", func(t *testing.T) {
		age := "1"
		config := policy("delete")
		config["retention.ms"] = &age
		topic := newTopic(t, b, 1, config)
		until(t, func(i int) bool {
			transaction(t, b, kgo.TryCommit, &kgo.Record{Topic: topic, Value: fmt.Append(nil, i)})
			return startOffset(t, b, topic) > 0
		})
	})
}

// until calls done with 0, 1, 2 and so on, until it returns true.
func until(t *testing.T, done func(i int) bool) {
	t.Helper()
	for i := range 1200 {
		if done(i) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("it does not come about")
}
