package sinktest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	codec "github.com/feedbridge/feedbridge/message"
)

// TestEvents commits to a topic by a sink without events, and then by one with events, whose headers begin with
// prefix.
func TestEvents(t *testing.T, without, with Sink, topic Topic, prefix string) {
	t.Helper()
	resume(t, without)
	commitEntities(t, without, withDead(0, 4, 1), liveAt(4, 1))
	// Nothing is published again.
	wantCheckpoint(t, resume(t, with), liveAt(4, 1))
	WantKnown(t, with, true, Entities(2, 2)...)
	commitEntities(t, with, withDead(4, 8, 5), liveAt(8, 2))
	resume(t, with)
	commitEntities(t, with, Entities(8, 1), liveAt(9, 2))

	var sequences []string
	for i, r := range readLog(t, topic.Log) {
		sequence, _ := r.Header.Get(prefix + "sequence")
		sequences = append(sequences, strings.TrimLeft(sequence, "0"))
		// The entity comes back without the attributes.
		got, err := codec.Entity(r.Header, r.Body)
		must.Succeed(t, err)
		n := []int{0, 2, 3, 4, 6, 7, 8}[i]
		if diff := cmp.Diff(Entities(n, 1)[0], got); diff != "" {
			t.Errorf("entity %d (-sent +got):\n%s", n, diff)
		}
	}
	if diff := cmp.Diff([]string{"", "", "", "4", "5", "6", "7"}, sequences); diff != "" {
		t.Errorf("sequences of the topic (-want +got):\n%s", diff)
	}
	for _, r := range readLog(t, topic.DeadLetters) {
		if sequence, ok := r.Header.Get(prefix + "sequence"); ok {
			t.Errorf("a dead letter has the sequence %s", sequence)
		}
	}
}
