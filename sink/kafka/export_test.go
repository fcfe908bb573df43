package kafka

import (
	"testing"

	"github.com/feedbridge/feedbridge/feed"
)

// KeyOf returns an entity's key.
func (s *Sink) KeyOf(t testing.TB, e feed.Entity) string {
	t.Helper()
	key, err := s.keyOf(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(key)
}
