package kafka_test

import (
	"slices"
	"testing"

	"github.com/feedbridge/feedbridge/sink/kafka"
)

func TestRetentionLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key    kafka.Key
		config []string
		want   []string
	}{
		"nothing":                         {"", nil, nil},
		"age":                             {"", []string{"retention.ms=1000"}, []string{"retention.ms=1000"}},
		"size":                            {"", []string{"retention.bytes=1000"}, []string{"retention.bytes=1000"}},
		"compaction by something":         {"/n", []string{"cleanup.policy=compact", "retention.ms=1000"}, []string{"cleanup.policy=compact"}},
		"compaction by what we go by":     {"header:content-id", []string{"cleanup.policy=compact"}, nil},
		"compaction by that, and age too": {"header:Content-ID", []string{"cleanup.policy=compact,delete", "retention.ms=1000"}, []string{"retention.ms=1000"}},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			topic := orders()
			topic.Key, topic.Config = test.key, test.config
			s, _, _ := open(t, topic)
			if got, err := s.RetentionLimits(t.Context()); err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		}))
	}
}
