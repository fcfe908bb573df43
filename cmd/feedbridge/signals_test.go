package main

import (
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestTwoSignalsWithinASecondAreOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		situation string
		after     []time.Duration // of further signals, after the first one
		ends      bool
	}{
		{"one signal", nil, false},
		{"systemd and an orchestrator send one each", []time.Duration{10 * time.Millisecond}, false},
		{"several within a second", []time.Duration{0, 300 * time.Millisecond, time.Second}, false},
		{"another one later", []time.Duration{2 * time.Second}, true},
		{"a pair, and another one later", []time.Duration{10 * time.Millisecond, 5 * time.Second}, true},
	} {
		t.Run(c.situation, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				signals := make(chan os.Signal, 2)
				first := time.Now()
				var sending sync.WaitGroup
				sending.Go(func() {
					for _, after := range c.after {
						time.Sleep(after - time.Since(first))
						signals <- syscall.SIGTERM
					}
					time.Sleep(time.Minute)
					close(signals)
				})
				if got := awaitKill(signals); got != c.ends {
					t.Errorf("got %v after %v", got, time.Since(first))
				}
				sending.Wait()
			})
		})
	}
}
