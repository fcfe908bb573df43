package kafka

import (
	"context"
	"strings"
)

// Forgets returns what in the topic's configuration takes messages of the feed
// away in time; nothing if it keeps all of them, or if this user may not see it.
func (s *Sink) Forgets(ctx context.Context) ([]string, error) {
	var limits []string
	err := s.ask(ctx, func(ctx context.Context) error {
		config, err := s.conn.config(ctx, s.topic.Name)
		limits = s.forgets(config)
		return err
	})
	return limits, err
}

func (s *Sink) forgets(config map[string]string) []string {
	var limits []string
	policy := config["cleanup.policy"]
	// With the entity's ID for a key, compaction leaves the newest of each ID,
	// which is all that is asked for.
	if strings.Contains(policy, "compact") && !strings.EqualFold(string(s.topic.Key), "header:Content-ID") {
		limits = append(limits, "cleanup.policy="+policy)
	}
	if strings.Contains(policy, "delete") {
		for _, name := range []string{"retention.ms", "retention.bytes"} {
			if value := config[name]; value != "" && value != "-1" {
				limits = append(limits, name+"="+value)
			}
		}
	}
	return limits
}
