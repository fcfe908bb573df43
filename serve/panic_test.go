package serve

import (
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// A page or a snapshot is built in a goroutine of its own, where a panic would end the
// process, and with it all feeds.
func TestPanicWhileATopicIsReadDoesNotEndTheProcess(t *testing.T) {
	t.Parallel()
	parallel.Run(t, "page", func(t *testing.T) {
		topic := numberedTopic(10)
		topic.during = func() { panic("defect") }
		s := serveTopic(t, topic)
		s.get(t, "/latest").want(t, 500)
		if log := s.log.String(); !strings.Contains(log, "panic: defect") || !strings.Contains(log, "memoryTopic") {
			t.Errorf("logged %s", log)
		}
		s.get(t, "/latest").want(t, 200)
	})
	parallel.Run(t, "snapshot", func(t *testing.T) {
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
