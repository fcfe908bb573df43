package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/serve/snapshot"
)

func TestSnapshotIsSeenWhenItIsWhole(t *testing.T) {
	t.Parallel()
	parallel.Run(t, "case 138: while it is built, and when that fails", func(t *testing.T) {
		dir := t.TempDir()
		topic := numberedTopic(10)
		s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) { c.Dir = dir }))
		seen := 0
		topic.during = func() {
			seen++
			if g := s.get(t, "/snapshots/latest").want(t, 503); g.header.Get("Retry-After") == "" {
				t.Errorf("got %v", g)
			}
			topic.set(func() { topic.away = true })
		}
		if err := s.snapshots.Renew(t.Context(), dusk); !errors.Is(err, errAway) || seen != 1 {
			t.Fatalf("got %v", err)
		}
		topic.set(func() { topic.away = false })
		s.get(t, "/snapshots/latest").want(t, 503)
		must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
		one := s.load(t)
		// The next one replaces it when it is complete. Clients that are reading the old
		// one can finish.
		topic.numbered(1)
		topic.set(func() {
			topic.during = func() {
				if again := s.load(t); again.index.ID != one.index.ID {
					t.Errorf("there is %v already", again.index)
				}
			}
		})
		must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
		if two := s.load(t); two.index.ID == one.index.ID || len(two.entities) != 10 {
			t.Errorf("got %v", two)
		}
		s.get(t, one.index.Pages[0]).want(t, 200)
		topic.numbered(1)
		must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
		s.get(t, one.index.Pages[0]).want(t, 410)
		// Without a change there is no other.
		three := s.load(t)
		if err := s.snapshots.Renew(t.Context(), dusk); err != nil || s.load(t).index.ID != three.index.ID {
			t.Errorf("got %v, %v", s.load(t).index, err)
		}
		for _, path := range []string{"", "/", "/x", "/x/0", "/" + three.index.ID + "/99", "/" + three.index.ID + "/-1", "/" + three.index.ID + "/00", "/" + three.index.ID + "/"} {
			s.get(t, "/snapshots"+path).want(t, 404)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
			t.Errorf("a kill would leave %v, %v", files, err)
		}
	})
	parallel.Run(t, "the topic is created again meanwhile", func(t *testing.T) {
		topic := numberedTopic(3)
		s := serveTopic(t, topic, withSnapshots())
		topic.during = func() { topic.set(func() { topic.span.Epoch = "e7" }) }
		if err := s.snapshots.Renew(t.Context(), dusk); !errors.Is(err, snapshot.ErrMoved) {
			t.Errorf("got %v", err)
		}
	})
	parallel.Run(t, "an empty topic", func(t *testing.T) {
		s := serveTopic(t, newTopic(), withSnapshots())
		must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
		empty := func() loaded {
			t.Helper()
			in := s.load(t)
			if len(in.entities) != 0 || in.index.Pages == nil || in.index.CreatedAt != "1970-01-01T00:00:00Z" {
				t.Errorf("got %v", in)
			}
			// Not that of the machine: every copy has the same.
			if zone := s.snapshots.Newest().Created.Location(); zone != time.UTC {
				t.Errorf("its time is that of the zone %v", zone)
			}
			return in
		}
		one := empty()
		// Nor is there anything before the first second with messages. The snapshot stays
		// the same, whatever retention deletes.
		topic := s.topic
		for i := range 3 {
			topic.add(messageOf(fmt.Sprint(i), feed.Put, noon, "x"))
		}
		for first := range uint64(3) {
			topic.trim(first)
			must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
			if in := empty(); in.index.ID != one.index.ID {
				t.Errorf("it is %s, and was %s", in.index.ID, one.index.ID)
			}
		}
	})
}

// Retention may take a message while a snapshot is built. What changes it has nothing
// to change then.
func TestRetentionTakesAPutWhileASnapshotIsBuilt(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	topic.add(messageOf("0", feed.Put, later(0), "a:0"))
	topic.add(messageOf("1", feed.Put, later(1), "b:1"))
	topic.add(messageOf("2", feed.Patch, later(2), "a:2"))
	topic.add(messageOf("3", feed.Patch, later(3), "b:3"))
	topic.add(messageOf("4", feed.Put, later(4), "in the last second"))
	s := serveTopic(t, topic, withSnapshots())
	topic.during = func() { // its end is sought
		topic.during = func() { topic.trim(1) } // the keys have been read
	}
	must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
	if in := s.load(t); fmt.Sprint(in.pages) != "[[b:1 b:3]]" {
		t.Errorf("got %v", in)
	}
}

// inTheMiddle is a ResponseWriter that does something when it gets its first bytes.
type inTheMiddle struct {
	*httptest.ResponseRecorder
	do func()
}

func (w *inTheMiddle) Write(b []byte) (int, error) {
	if do := w.do; do != nil {
		w.do = nil
		do()
	}
	return w.ResponseRecorder.Write(b)
}

func TestSnapshotsAreRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		midnight := time.Now()
		topic := newTopic()
		add := func(at time.Duration) {
			r := messageOf(fmt.Sprint(at), feed.Put, noon, "x")
			r.Time = midnight.Add(at)
			topic.add(r)
		}
		for n := range 3 {
			add(time.Duration(n-3) * time.Minute)
		}
		s := serveTopic(t, topic, withSnapshots())
		wait := func(until time.Duration) loaded {
			time.Sleep(until - time.Since(midnight))
			synctest.Wait()
			return s.load(t)
		}
		time.Sleep(snapshot.Settled - 1) // messages from before midnight may still come
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		if in := wait(snapshot.Settled - 1); len(in.entities) != 0 || in.created.Unix() != 0 {
			t.Errorf("before its time there is %v", in)
		}
		one := wait(snapshot.Settled)
		if len(one.entities) != 2 || !one.created.Equal(midnight.Add(-time.Minute)) {
			t.Errorf("got %v", one)
		}
		add(time.Minute)
		if in := wait(time.Hour + snapshot.Settled - 1); in.index.ID != one.index.ID {
			t.Errorf("got %v", in)
		}
		topic.set(func() { topic.away = true })
		if in := wait(time.Hour + snapshot.Settled); in.index.ID != one.index.ID {
			t.Errorf("got %v, logged %s", in, s.log)
		}
		topic.set(func() { topic.away = false })
		if in := wait(time.Hour + snapshot.Settled + snapshot.Retry); in.index.ID == one.index.ID || len(in.entities) != 3 {
			t.Errorf("got %v", in)
		}
		cancel()
		<-done
		if got := s.log.String(); strings.Count(got, "a snapshot could not be built") != 1 {
			t.Errorf("logged %s", got)
		}
		s.get(t, "/snapshots/latest").want(t, 503)
		s.get(t, "/snapshots/"+one.index.ID).want(t, 503) // another copy may take over
	})
}

// A topic may be missing for a long time, or the bus may be away. That is logged once.
func TestSnapshotsThatCannotBeBuilt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := numberedTopic(3)
		topic.away = true
		s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) { c.Every = time.Minute }))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		for _, away := range []bool{true, false, true, false} {
			topic.set(func() { topic.away = away })
			time.Sleep(10 * time.Minute)
			synctest.Wait()
		}
		topic.set(func() { topic.away = true })
		cancel()
		<-done
		log := s.log.String()
		if failed, mended := strings.Count(log, "a snapshot could not be built"), strings.Count(log, "snapshots can be built again"); failed != 2 || mended != 2 {
			t.Errorf("logged %d times that it failed and %d times that it does no more:\n%s", failed, mended, log)
		}
	})
}

// The moments of all feeds are the same, and memory is for one snapshot.
func TestSnapshotsAreBuiltInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := NewPageCache(0)
		start := func() *served {
			topic := numberedTopic(3)
			return serveTopic(t, topic, withSnapshots(), func(c *Config) { c.Memory = memory })
		}
		one, two := start(), start()
		one.topic.during = func() {
			one.topic.during = func() { // while it is built, and not while its end is sought
				go func() {
					if err := two.snapshots.Renew(t.Context(), dusk); err != nil {
						t.Error(err)
					}
				}()
				synctest.Wait()
				two.get(t, "/snapshots/latest").want(t, 503)
			}
		}
		must.Succeed(t, one.snapshots.Renew(t.Context(), dusk))
		synctest.Wait()
		two.get(t, "/snapshots/latest").want(t, 302)
	})
}

// The topic is missing first, and then the directory.
func TestSnapshotsFailForAnotherReason(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	synctest.Test(t, func(t *testing.T) {
		topic := numberedTopic(3)
		topic.gone = true
		s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) { c.Every = time.Minute; c.Dir = dir }))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		topic.set(func() { topic.gone = false })
		time.Sleep(9 * time.Minute)
		cancel()
		<-done
		if log := s.log.String(); strings.Count(log, "could not be built") != 2 || !strings.Contains(log, dir) {
			t.Errorf("got %s, want a line for the topic and one for the directory", log)
		}
	})
}
