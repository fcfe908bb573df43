package serve

import (
	"strings"
	"testing"
)

// A page or a snapshot is built in a goroutine of its own, where a panic would end the
// process, and with it all feeds.
func TestPanicWhileATopicIsReadDoesNotEndTheProcess(t *testing.T) {
	t.Parallel()
	t.Run("page", func(t *testing.T) {
		t.Parallel()
		topic := numberedTopic(10)
		topic.during = func() { panic("defect") }
		s := serveTopic(t, topic)
		s.get(t, "/latest").want(t, 500)
		if log := s.log.String(); !strings.Contains(log, "panic: defect") || !strings.Contains(log, "memoryTopic") {
			t.Errorf("logged %s", log)
		}
		s.get(t, "/latest").want(t, 200)
	})
	t.Run("snapshot", func(t *testing.T) {
		t.Parallel()
		topic := numberedTopic(10)
		s := serveTopic(t, topic, withSnapshots())
		topic.during = func() { panic("defect") }
		if err := s.snapshots.Renew(t.Context(), dusk); err == nil || !strings.Contains(err.Error(), "panic: defect") {
			t.Errorf("got %v", err)
		}
		if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
			t.Error(err)
		}
	})
}
