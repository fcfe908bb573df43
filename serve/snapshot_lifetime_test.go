package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/serve/snapshot"
)

// TestSnapshotsAreTheSame draws a topic and events. A snapshot that one copy of a server
// has built at a moment, another copy builds too, however much later it starts and whatever
// was published meanwhile; and nothing that is different has the same URL.
func TestSnapshotsAreTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		topic := newTopic()
		at := 0
		add := func() {
			for range rapid.IntRange(0, 12).Draw(t, "messages") {
				at += rapid.IntRange(0, 1200).Draw(t, "seconds")
				n := len(topic.records)
				op := rapid.SampledFrom([]feed.Operation{feed.Put, feed.Put, feed.Patch, feed.Delete}).Draw(t, "op")
				r := messageOf(fmt.Sprintf("%d@x", n%7), op, noon, fmt.Sprintf("%s:%d", rapid.StringMatching(`[a-f]`).Draw(t, "key"), n))
				r.Time = later(at)
				topic.add(r)
			}
		}
		urls := map[string]string{} // the answers
		offer := func(s *served) (latest string) {
			latest = s.get(t, "/snapshots/latest").want(t, 302).header.Get("Location")
			for _, o := range s.snapshots.All() {
				in := s.get(t, "/snapshots/"+o.ID).want(t, 200)
				all := []string{in.body}
				for k := range o.Pages() {
					g := s.get(t, fmt.Sprintf("/snapshots/%s/%d", o.ID, k)).want(t, 200)
					all = append(all, g.header.Get("Last-Modified")+g.header.Get("Content-Type")+g.body)
				}
				answer := strings.Join(all, "")
				if was, ok := urls[o.ID]; ok && was != answer {
					t.Fatalf("%s was %q and is %q", o.ID, was, answer)
				}
				urls[o.ID] = answer
			}
			return latest
		}
		start := func(edit ...func(*Snapshot)) *served {
			return serveTopic(t, topic, withSnapshots(append(edit, func(c *Snapshot) { c.Keys, c.PageBytes = 2, 9 })...))
		}
		renew := func(s *served, seconds int) {
			must.Succeed(t, s.snapshots.Renew(t.Context(), later(seconds).Add(snapshot.Settled)))
		}

		add()
		one, now := start(), at+rapid.IntRange(0, 3600).Draw(t, "idle")
		renew(one, now)
		was := offer(one)
		// An hour begins at noon. Until the next one another copy is started.
		at = now
		add()
		two := start()
		renew(two, now-now%3600+rapid.IntRange(0, 3599).Draw(t, "seconds later"))
		if is := offer(two); is != was {
			t.Fatalf("the newest was %s and is %s of another copy", was, is)
		}
		// In the next hour it is the one before, as it is for who had it all along.
		renew(one, now-now%3600+3600)
		three := start()
		renew(three, now-now%3600+rapid.IntRange(3600, 7199).Draw(t, "an hour later"))
		if is := offer(three); is != offer(one) {
			t.Fatalf("the newest is %s for one and %s for another copy", offer(one), is)
		}
		one.get(t, was).want(t, 200)
		three.get(t, was).want(t, 200)

		// What else differs has another URL.
		if len(topic.records) > 0 {
			topic.trim(rapid.Uint64Range(0, uint64(len(topic.records))).Draw(t, "first"))
		}
		four := start(func(c *Snapshot) {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				c.Key = nil
			case 1:
				c.Every = time.Minute
			}
		})
		four.cfg.PageSize = rapid.IntRange(1, 4).Draw(t, "size")
		renew(four, now)
		offer(four)
		renew(one, now)
		offer(one)
	})
}

// A client that is reading a snapshot when the server is restarted, or that asks another
// copy, gets 503 as long as the snapshot may still be built.
func TestSnapshotThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	hour := func(n int) time.Time { return noon.Add(time.Duration(n)*time.Hour + snapshot.Settled) }
	for n := range 3 {
		for i := range 3 {
			topic.add(messageOf(fmt.Sprintf("%d.%d", n, i), feed.Put, hour(n).Add(time.Duration(i)*time.Minute), "x"))
		}
	}
	renew := func(s *served, n int) (page string) {
		t.Helper()
		must.Succeed(t, s.snapshots.Renew(t.Context(), hour(n)))
		return s.load(t).index.Pages[0]
	}
	comes := func(s *served, page string) {
		t.Helper()
		if g := s.get(t, page).want(t, 503); g.header.Get("Retry-After") == "" {
			t.Errorf("got %v", g)
		}
	}
	old := serveTopic(t, topic, withSnapshots())
	one, two := renew(old, 1), renew(old, 2)
	s := serveTopic(t, topic, withSnapshots())
	for _, page := range []string{one, two} {
		comes(s, page)
	}
	s.get(t, "/snapshots/x").want(t, 404) // we have never written such an ID
	passed := false
	topic.during = func() { // while the newest is built
		comes(s, one)
		topic.set(func() {
			topic.away = true
			passed = true
		})
	}
	if err := s.snapshots.Renew(t.Context(), hour(2)); !errors.Is(err, errAway) || !passed {
		t.Fatalf("got %v", err)
	}
	topic.set(func() { topic.away = false })
	comes(s, two)
	between := false // the newest is there, and the one before is not
	var look func()
	look = func() {
		if s.get(t, two).status == 200 {
			comes(s, one)
			between = true
		}
		topic.during = look
	}
	topic.during = look
	renew(s, 2)
	topic.during = nil
	if !between {
		t.Error("nobody asked meanwhile")
	}
	s.get(t, one).want(t, 200)
	s.get(t, two).want(t, 200)
	s.get(t, two+"7").want(t, 404)

	three := renew(old, 3)
	comes(s, three)
	renew(s, 3)
	s.get(t, three).want(t, 200)
	s.get(t, one).want(t, 410)
	s.get(t, "/snapshots/e0-99-abc").want(t, 503)
	s.get(t, "/snapshots/e9-99-abc").want(t, 410) // of a topic that was there before
}

// A snapshot stays if retention deletes only messages that it does not have.
func TestSnapshotsAndRetention(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	for i, body := range []string{"a:0", "b:1", "a:2", "c:3", "in the last second"} {
		topic.add(messageOf(fmt.Sprint(i), feed.Put, later(i), body))
	}
	s := serveTopic(t, topic, sized(1), withSnapshots())
	renew := func() loaded {
		t.Helper()
		must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
		return s.load(t)
	}
	all := renew()
	topic.trim(1)
	if in := renew(); in.index.ID != all.index.ID || len(s.snapshots.All()) != 1 {
		t.Errorf("got %v, and had %v", in, all)
	}
	topic.trim(2)
	if in := renew(); in.index.ID == all.index.ID || len(in.entities) != 2 {
		t.Errorf("got %v", in)
	}
	s.get(t, all.index.Pages[0]).want(t, 200)
}

// A snapshot is gone with the topic that it is of, and the new topic has its own soon.
func TestSnapshotsOfADeletedTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := newTopic()
		fill := func() {
			for n := range 3 {
				topic.add(feed.Record{Time: time.Now().Add(time.Duration(n-3) * time.Minute), Body: []byte("a:1")})
			}
		}
		fill()
		s := serveTopic(t, topic, withSnapshots())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		time.Sleep(snapshot.Settled)
		synctest.Wait()
		old := s.get(t, "/snapshots/latest").want(t, 302).header.Get("Location")
		s.get(t, old).want(t, 200)
		topic.set(func() { topic.away = true })
		s.get(t, old).want(t, 200)
		topic.set(func() { topic.away, topic.gone = false, true })
		s.get(t, "/snapshots/latest").want(t, 404)
		s.get(t, old).want(t, 410)
		topic.renew()
		fill()
		s.get(t, "/snapshots/latest").want(t, 503)
		s.get(t, old).want(t, 410)
		s.get(t, old+"/0").want(t, 410)
		time.Sleep(snapshot.Retry)
		synctest.Wait()
		if at := s.get(t, "/snapshots/latest").want(t, 302).header.Get("Location"); !strings.Contains(at, "/snapshots/e1-") {
			t.Errorf("the newest is %s", at)
		}
		cancel()
		<-done
	})
}
