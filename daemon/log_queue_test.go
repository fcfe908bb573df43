package daemon_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/daemon"
)

// pipe is an output whose writes wait until they are read, or fail.
type pipe struct {
	read chan string
	gone chan struct{}
}

func (p pipe) Write(line []byte) (int, error) {
	select {
	case p.read <- string(line):
		return len(line), nil
	case <-p.gone:
		return 0, errors.New("broken pipe")
	}
}

func TestALogThatNobodyReadsStopsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := pipe{make(chan string), make(chan struct{})}
		q := daemon.NewLogQueue(out)
		line := func(i int) string { return fmt.Sprintf("%d %s\n", i, strings.Repeat("x", 1<<20-10)) }
		const kept = 4 // of 1 MiB
		for i := range kept + 3 {
			if fmt.Fprint(q, line(i)); i == 0 && q.Stuck() != 0 {
				t.Error("a line is stuck before anything tried to write it")
			}
			time.Sleep(time.Second)
		}
		if q.Dropped() != 3 || q.Stuck() != 7*time.Second {
			t.Errorf("dropped %d lines, stuck for %v; want 3 and 7s", q.Dropped(), q.Stuck())
		}
		began := time.Now()
		if q.Flush(2 * time.Second); time.Since(began) != 2*time.Second {
			t.Errorf("the end took %v, want 2s", time.Since(began))
		}
		<-out.read
		synctest.Wait()
		if q.Stuck() != 0 {
			t.Errorf("stuck for %v after a line was read", q.Stuck())
		}
		fmt.Fprint(q, line(kept)) // there is room again
		go func() {
			time.Sleep(time.Second)
			for i := 1; i <= kept; i++ {
				if got := <-out.read; got != line(i) {
					t.Errorf("read %.10q, want line %d", got, i)
				}
			}
		}()
		began = time.Now()
		if q.Flush(time.Minute); time.Since(began) != time.Second || q.Dropped() != 3 || q.Stuck() != 0 {
			t.Errorf("the end took %v, %d lines dropped, stuck for %v; want 1s, 3 and 0s", time.Since(began), q.Dropped(), q.Stuck())
		}
		close(out.gone)
		fmt.Fprint(q, "no reader\n")
		if q.Flush(time.Minute); q.Dropped() != 4 {
			t.Errorf("dropped %d lines, want also that without a reader", q.Dropped())
		}
	})
}
