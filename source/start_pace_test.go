package source

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/limit"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// requestTimes records when requests are made.
type requestTimes struct {
	mu  sync.Mutex
	all []time.Time
}

func (r *requestTimes) add() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, time.Now())
}

// most returns the largest number of requests in any second, wherever it begins.
func (r *requestTimes) most() (most int) {
	slices.SortFunc(r.all, time.Time.Compare)
	first := 0
	for i, at := range r.all {
		for at.Sub(r.all[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Each feed makes four requests one after the other, and then polls every 10 s. While feeds start,
// all of that together stays within the limit. Afterwards polls are not delayed.
func TestFeedsThatStartMakeAtMost200RequestsASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const feeds = 3000
		pace, starting, begun := &startPace{}, &requestTimes{}, time.Now()
		var started, ended sync.WaitGroup
		stop := make(chan struct{})
		var done time.Time
		for range feeds {
			started.Add(1)
			ended.Go(func() {
				var client clientStart
				request := func() {
					if err := pace.wait(t.Context(), &client); err != nil {
						t.Error(err)
					}
				}
				for range startRequests {
					request()
					starting.add()
				}
				started.Done()
				for {
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Second):
					}
					request()
					if pace.waiting.Load() > 0 {
						starting.add()
					}
				}
			})
		}
		started.Wait()
		done = time.Now()
		if most := starting.most(); most > limit.StartRequests+limit.StartBurst {
			t.Errorf("%d requests in a second, want %d at most", most, limit.StartRequests+limit.StartBurst)
		}
		if took := done.Sub(begun); took > 10*time.Minute {
			t.Errorf("the start took %v: polls kept feeds from starting", took)
		}
		time.Sleep(time.Minute) // polls that began to wait during the start have ended
		var last clientStart
		last.requests.Store(startRequests)
		asked := time.Now()
		for range 1000 {
			must.Succeed(t, pace.wait(t.Context(), &last))
			last.last.Store(0)
		}
		if waited := time.Since(asked); waited > 0 {
			t.Errorf("1000 polls after the start waited %v", waited)
		}
		close(stop)
		ended.Wait()
	})
}

// Feeds with a backlog pay for their first requests only.
func TestABacklogIsNotDelayedByAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace, begun := &startPace{}, time.Now()
		var few sync.WaitGroup
		for range 5 {
			few.Go(func() {
				var client clientStart
				for range 10_000 {
					if err := pace.wait(t.Context(), &client); err != nil {
						t.Error(err)
					}
				}
			})
		}
		few.Wait()
		if took := time.Since(begun); took > time.Second/5 {
			t.Errorf("50,000 requests of 5 feeds waited %v", took)
		}
	})
}

// Requests that wait have no times of their own: after a pause of the process those that have passed
// meanwhile would be sent at once.
func TestAPauseOfTheProcessEndsInNoBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace := &startPace{}
		var requests sync.WaitGroup
		for range 100 {
			requests.Go(func() {
				if err := pace.wait(t.Context(), new(clientStart)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if left := pace.limiter.Tokens(); left < -1 {
			t.Errorf("%.0f requests have a time already, want 1", -left)
		}
		requests.Wait()
	})
}

// A request that waits for its turn ends with its context.
func TestWaitingForAStartEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace := &startPace{}
		ctx, cancel := context.WithCancel(t.Context())
		var requests sync.WaitGroup
		for range 1000 {
			requests.Go(func() { _ = pace.wait(ctx, new(clientStart)) })
		}
		time.Sleep(time.Second / 10)
		cancel()
		begun := time.Now()
		requests.Wait()
		if took := time.Since(begun); took > 0 {
			t.Errorf("the last request ended %v after its context", took)
		}
	})
}
