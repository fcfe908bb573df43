package bridge

import (
	"testing"
	"testing/synctest"
	"time"
)

// A wake during a step causes another step, because its cause may be newer than what the step
// has read.
func TestAWakeDuringAStepCausesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stepper
		begun, steps := time.Now(), []time.Duration{}
		ended := make(chan struct{})
		s.start(func() (time.Duration, bool) {
			steps = append(steps, time.Since(begun))
			time.Sleep(time.Second)
			return time.Hour, len(steps) < 3
		}, func() { close(ended) })
		time.Sleep(time.Second / 2)
		s.wake()
		s.wake()
		<-ended
		want := []time.Duration{0, time.Second, 2*time.Second + time.Hour}
		for i, at := range steps {
			if at != want[i] {
				t.Errorf("step %d began after %v, want %v", i, at, want[i])
			}
		}
	})
}
