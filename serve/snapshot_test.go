package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	parts "mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/serve/snapshot"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// byKey takes the text before the colon in a body as its key.
func byKey(_ feed.Header, body []byte) (string, bool) {
	key, _, ok := strings.Cut(string(body), ":")
	return key, ok
}

func withSnapshots(edit ...func(*Snapshot)) func(*Config) {
	return func(c *Config) {
		c.Snapshot = Snapshot{Every: time.Hour, Key: byKey}
		for _, edit := range edit {
			edit(&c.Snapshot)
		}
	}
}

// dusk is behind all messages of tests.
var dusk = noon.Add(7 * time.Hour)

// loaded is a snapshot as a client has it.
type loaded struct {
	index   snapshotIndex
	created time.Time
	// pages has the bodies of each page.
	pages    [][]string
	entities []feed.Entity
}

// load loads the newest snapshot.
func (s *served) load(t tester) loaded {
	t.Helper()
	var in loaded
	g := s.get(t, s.get(t, "/snapshots/latest").want(t, 302).header.Get("Location")).want(t, 200)
	d := json.NewDecoder(strings.NewReader(g.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&in.index); err != nil {
		t.Fatal(err)
	}
	var err error
	if in.created, err = time.Parse(time.RFC3339, in.index.CreatedAt); err != nil || g.header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %v, %v", g, err)
	}
	for _, url := range in.index.Pages {
		g := s.get(t, url).want(t, 200)
		_, params, err := mime.ParseMediaType(g.header.Get("Content-Type"))
		if err != nil {
			t.Fatal(err)
		}
		pageTime, err := http.ParseTime(g.header.Get("Last-Modified"))
		if err != nil {
			t.Fatalf("case 139: %v", err)
		}
		var page []string
		var newest time.Time
		for r := parts.NewReader(strings.NewReader(g.body), params["boundary"]); ; {
			p, err := r.NextRawPart()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(p)
			if err != nil {
				t.Fatal(err)
			}
			at, err := http.ParseTime(p.Header.Get("Last-Modified"))
			if newest.Before(at) {
				newest = at
			}
			if err != nil || p.Header.Get("Content-Type") == "" {
				t.Fatalf("case 139: an entity has the headers %v on a page of %v", p.Header, pageTime)
			}
			op, _ := message.ParseOperation(p.Header.Get("Operation-Type"))
			page = append(page, string(body))
			in.entities = append(in.entities, feed.Entity{ID: p.Header.Get("Content-ID"), Op: op, Modified: at, Body: body})
		}
		if !newest.Equal(pageTime) {
			t.Fatalf("case 139: a page is of %v, and its newest entity of %v", pageTime, newest)
		}
		in.pages = append(in.pages, page)
	}
	return in
}

// state returns the state that entities produce, by key: the bodies of the newest PUT and
// of the PATCHes after it.
func state(entities []feed.Entity) map[string]string {
	made := map[string]string{}
	for _, e := range entities {
		key, _ := byKey(nil, e.Body)
		switch e.Op {
		case feed.Put:
			made[key] = string(e.Body)
		case feed.Patch:
			if made[key] != "" {
				made[key] += " " + string(e.Body)
			}
		case feed.Delete:
			delete(made, key)
		}
	}
	return made
}

func equal(a, b feed.Entity) bool {
	return a.ID == b.ID && a.Op == b.Op && a.Modified.Equal(b.Modified) && bytes.Equal(a.Body, b.Body)
}

func TestSnapshotPages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bytes, entities int
		want            string
	}{
		"case 137: by bytes":            {5, 100, "[[Hello] [World] [I am a] [Snapshot]]"},
		"case 137: by number":           {1000, 2, "[[Hello World] [I am] [a Snapshot]]"},
		"case 137: whichever is first":  {10, 3, "[[Hello World] [I am a] [Snapshot]]"},
		"case 139: times of everything": {1000, 100, "[[Hello World I am a Snapshot]]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := newTopic()
			for i, body := range strings.Fields("Hello World I am a Snapshot and what is in the last second") {
				topic.add(messageOf(fmt.Sprint(i), feed.Put, later(min(i, 6)), body))
			}
			s := serveTopic(t, topic, sized(test.entities), withSnapshots(func(c *Snapshot) { c.PageBytes = test.bytes }))
			if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(s.load(t).pages); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestSnapshotIsSeenWhenItIsWhole(t *testing.T) {
	t.Parallel()
	t.Run("case 138: while it is built, and when that fails", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		topic := newTopic()
		topic.numbered(10)
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
		if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
			t.Fatal(err)
		}
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
		if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
			t.Fatal(err)
		}
		if two := s.load(t); two.index.ID == one.index.ID || len(two.entities) != 10 {
			t.Errorf("got %v", two)
		}
		s.get(t, one.index.Pages[0]).want(t, 200)
		topic.numbered(1)
		if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
			t.Fatal(err)
		}
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
	t.Run("the topic is created again meanwhile", func(t *testing.T) {
		t.Parallel()
		topic := newTopic()
		topic.numbered(3)
		s := serveTopic(t, topic, withSnapshots())
		topic.during = func() { topic.set(func() { topic.span.Epoch = "e7" }) }
		if err := s.snapshots.Renew(t.Context(), dusk); !errors.Is(err, snapshot.ErrMoved) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an empty topic", func(t *testing.T) {
		t.Parallel()
		s := serveTopic(t, newTopic(), withSnapshots())
		if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
			t.Fatal(err)
		}
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
			if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
				t.Fatal(err)
			}
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
	if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
		t.Fatal(err)
	}
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

func TestSnapshotIsReadUntilItsEnd(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	body := strings.Repeat("x", 50_000)
	for i := range 8 {
		topic.add(messageOf(fmt.Sprint(i), feed.Put, later(i*i), body))
	}
	s := serveTopic(t, topic, sized(10), withSnapshots())
	if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
		t.Fatal(err)
	}
	in := s.load(t)
	w := &inTheMiddle{httptest.NewRecorder(), func() { s.snapshots.Drop(0) }}
	s.ServeHTTP(w, httptest.NewRequest("GET", in.index.Pages[0], nil))
	if got := strings.Count(w.Body.String(), body); got != 7 {
		t.Errorf("got %d entities", got)
	}
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
		topic := newTopic()
		topic.numbered(3)
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
			topic := newTopic()
			topic.numbered(3)
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
		if err := one.snapshots.Renew(t.Context(), dusk); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		two.get(t, "/snapshots/latest").want(t, 302)
	})
}

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
			if err := s.snapshots.Renew(t.Context(), later(seconds).Add(snapshot.Settled)); err != nil {
				t.Fatal(err)
			}
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
		if err := s.snapshots.Renew(t.Context(), hour(n)); err != nil {
			t.Fatal(err)
		}
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
		if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
			t.Fatal(err)
		}
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

// A snapshot has the entities of the feed's pages, from wherever it is read. There the
// handling of times that run back and of repeated IDs depends on the entities before them,
// also on the page before.
func TestSnapshotsAreMadeOfTheFeed(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		topic := newTopic()
		for n := range rapid.IntRange(1, 25).Draw(t, "messages") {
			if rapid.IntRange(0, 9).Draw(t, "a hole") == 0 {
				topic.skip(rapid.Uint64Range(1, 12).Draw(t, "positions"))
			}
			r := messageOf(rapid.StringMatching(`[a-c]@x`).Draw(t, "ID"), feed.Put, noon, rapid.StringMatching(`[a-b]`).Draw(t, "body"))
			r.Time = later(10 + n - rapid.IntRange(0, size).Draw(t, "late"))
			topic.add(r)
		}
		s := serveTopic(t, topic, sized(size), withSnapshots())
		site.feed.Store(s.Feed)
		c := site.crawl(t)
		defer c.client.CloseIdle()
		c.all(t)
		read := func(from uint64) (all []feed.Entity, positions []uint64) {
			reads := snapshotTopic{s.builder}
			for e, err := range reads.Entities(t.Context(), topic.span, from, topic.span.End) {
				if err != nil {
					t.Fatal(err)
				}
				_, part, _ := strings.Cut(string(e.AppendPart(nil, "b")), "Content-ID: ")
				id, _, _ := strings.Cut(part, "\r\n")
				all = append(all, feed.Entity{ID: id, Op: e.Op, Modified: e.Modified, Body: e.Body})
				positions = append(positions, e.Position)
			}
			return all, positions
		}
		all, positions := read(0)
		if !slices.EqualFunc(all, c.got, equal) {
			t.Fatalf("there are %v, and on the feed %v", all, c.got)
		}
		for from := range topic.span.End {
			i, _ := slices.BinarySearch(positions, from)
			if got, _ := read(from); !slices.EqualFunc(got, all[i:], equal) {
				t.Fatalf("from %d on there are %v, and all are %v", from, got, all)
			}
		}
	})
}

// In a feed of events no message has the Content-ID of another, so by that key nothing
// is changed or deleted by anything. A warning is logged.
func TestSnapshotByKeysThatAreNotRight(t *testing.T) {
	t.Parallel()
	const warning = "set snapshot.key"
	for name, test := range map[string]struct {
		topic string // an operation and a body each, whose first letter is the key
		byID  bool
		keys  int
		first uint64
		want  string // in the log; empty if there is to be no warning
	}{
		"by the Content-ID":                      {"Pa Pb Ca Db Cb", true, 100, 0, "patches=2 deletes=1 matching=0"},
		"by their keys":                          {"Pa Pb Ca Db", false, 100, 0, ""},
		"nothing but PUTs":                       {"Pa Pa Pa", true, 100, 0, ""},
		"nothing was ever PUT":                   {"Ca Db Da", false, 100, 0, "patches=1 deletes=2 matching=0"},
		"deleted twice, and patched then":        {"Pa Da Da Ca", false, 100, 0, ""},
		"some are of nothing":                    {"Pa Ca Cb", false, 100, 0, "patches=1 deletes=0 matching=1"},
		"some have a PUT that retention deleted": {"Pb Pa Ca Cb Db", false, 100, 1, ""},
		"retention, and none is of a PUT":        {"Px Pa Pb Ca Db", true, 100, 1, "patches=1 deletes=1 matching=0"},
		"deleted keys are dropped":               {"Pa Da Pb Db Pc Dc Da Ca", false, 2, 0, ""},
		"but not that there was no PUT":          {"Pa Pb Pc Pd Da Cb", true, 2, 0, "patches="},
		"of many keys, all of a PUT":             {"Pa Pb Pc Pd Pe Pf Ca Cb Cc Cd Ce Cf Da Db Dc", false, 2, 0, ""},
		"of many keys, some of nothing":          {"Pa Pb Pc Pd Pe Pf Cu Cv Cw Cx Cy Cz", false, 2, 0, "patches=6 deletes=0 matching=0"},
		"before there are many keys":             {"Cu Cv Cw Cx Cy Cz Pa Pb Pc Pd Pe Pf", false, 2, 0, "patches=1 deletes=0 matching=0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := newTopic()
			ops := map[byte]feed.Operation{'P': feed.Put, 'C': feed.Patch, 'D': feed.Delete}
			for i, m := range strings.Fields(test.topic + " Cq") { // the last is behind the end
				topic.add(messageOf(fmt.Sprint(i), ops[m[0]], later(i), m[1:]+":"))
			}
			topic.trim(test.first)
			s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) {
				c.Keys = test.keys
				if test.byID {
					c.Key = nil
				}
			}))
			if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
				t.Fatal(err)
			}
			log := s.log.String()
			if strings.Contains(log, warning) != (test.want != "") || !strings.Contains(log, test.want) {
				t.Errorf("logged %s, want %q", log, test.want)
			}
			if view, err := s.View(t.Context()); err != nil || (view.Unmatched > 0) != (test.want != "" && view.Snapshot != "") {
				t.Errorf("got %+v, %v", view, err)
			}
		})
	}
}

// TestTombstonesInSnapshots draws a topic whose records have keys, which may differ from
// the snapshot's keys. A tombstone deletes the PUTs under its record's key, unless it
// identifies its entity itself, however few keys are held in memory.
func TestTombstonesInSnapshots(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type thing struct{ record, body string }
		things := map[string]thing{} // by their keys
		topic := newTopic()
		for n := range rapid.IntRange(0, 40).Draw(t, "messages") {
			key, record := rapid.StringMatching(`[a-h]`).Draw(t, "key"), rapid.StringMatching(`[A-F]?`).Draw(t, "record's key")
			op := rapid.SampledFrom([]feed.Operation{feed.Put, feed.Put, feed.Patch, feed.Delete}).Draw(t, "op")
			body := fmt.Sprintf("%s:%d", key, n)
			r := messageOf(fmt.Sprint(n), op, later(n), body)
			if record != "" {
				r.Key = []byte(record)
			}
			has, ok := things[key]
			switch {
			case op == feed.Put:
				things[key] = thing{record, body}
			case op == feed.Patch && ok:
				things[key] = thing{has.record, has.body + " " + body}
			case op == feed.Delete:
				switch rapid.IntRange(0, 3).Draw(t, "how") {
				case 0:
					r.Body, r.Tombstone = nil, true
					maps.DeleteFunc(things, func(_ string, of thing) bool { return record != "" && of.record == record })
				case 1: // of others there may be several in a record with that key
					r.Body, r.Tombstone = nil, true
					r.Header = append(r.Header, feed.Field{Name: "X-Key", Value: key})
					delete(things, key)
				case 2: // a message like any other, without the snapshot's key
					r.Body = nil
				case 3:
					delete(things, key)
				}
			}
			if op == feed.Patch && !ok && rapid.Bool().Draw(t, "null") {
				r.Body, r.Tombstone = nil, true
			}
			topic.add(r)
		}
		topic.add(messageOf("last", feed.Put, later(100), "in the last second"))
		s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) {
			c.Keys = rapid.SampledFrom([]int{1, 2, 3, 30}).Draw(t, "keys held")
			c.Key = func(header feed.Header, body []byte) (string, bool) {
				if key, ok := header.Get("X-Key"); ok {
					return key, true
				}
				return byKey(header, body)
			}
		}))
		if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for key, of := range things {
			want[key] = of.body
		}
		if got := state(s.load(t).entities); !maps.Equal(got, want) {
			t.Fatalf("the snapshot has %v, want %v", got, want)
		}
	})
}

// Most deleted keys are read in another pass than the keys that the tombstones themselves
// would have.
func TestTombstonesOfManyKeys(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	want := map[string]string{}
	for n := range 30 {
		r := messageOf(fmt.Sprint(n), feed.Put, later(n), fmt.Sprintf("%d:x", n))
		r.Key = fmt.Append(nil, n)
		topic.add(r)
		if n%3 == 0 {
			want[fmt.Sprint(n)] = string(r.Body)
			continue
		}
		r = messageOf(fmt.Sprint(n, " is gone"), feed.Delete, later(n), "")
		r.Key, r.Body, r.Tombstone = fmt.Append(nil, n), nil, true
		topic.add(r)
	}
	topic.add(messageOf("last", feed.Put, later(100), "in the last second"))
	s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) { c.Keys = 2 }))
	if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
		t.Fatal(err)
	}
	if got := state(s.load(t).entities); !maps.Equal(got, want) {
		t.Errorf("the snapshot has %v, want %v", got, want)
	}
}

// A snapshot and the feed behind it are divided by time. If time runs back by more than a
// page can correct, a warning is logged.
func TestSnapshotOfATopicWhoseTimesRunBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		seconds []int
		want    string // in the log; empty if there is to be no warning
	}{
		"they do not":                 {[]int{1, 2, 3, 4, 5, 6, 7, 8, 9}, ""},
		"by less than a page":         {[]int{1, 5, 2, 6, 7, 4, 8, 9}, ""},
		"by more than a page":         {[]int{1, 90, 2, 3, 4, 5, 6, 7, 8, 91}, "messages=3"},
		"and there are too many keys": {[]int{1, 90, 2, 3, 4, 5, 6, 7, 8, 91, 92, 93, 94, 95}, "messages=3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := newTopic()
			for i, at := range test.seconds {
				topic.add(messageOf(fmt.Sprint(i), feed.Put, later(at), "x"))
			}
			s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) { c.Key, c.Keys = nil, 4 }))
			if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
				t.Fatal(err)
			}
			log := s.log.String()
			if strings.Contains(log, "LogAppendTime") != (test.want != "") || !strings.Contains(log, test.want) {
				t.Errorf("logged %s, want %q", log, test.want)
			}
		})
	}
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

// Those who write to the topic may know how boundaries are made.
func TestSnapshotBoundaries(t *testing.T) {
	t.Parallel()
	guess := pageBoundary(pageID{}, nil)
	for range 3 {
		topic := newTopic()
		bodies := []string{"a", guess, "--" + guess + "\r\n\r\n", "\r\n--" + guess + "--", "in the last second"}
		for i, body := range bodies {
			topic.add(messageOf(fmt.Sprint(i), feed.Put, later(i), body, feed.Field{Name: "X", Value: guess}))
		}
		s := serveTopic(t, topic, sized(10), withSnapshots(func(c *Snapshot) { c.Key = nil }))
		if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprintf("%q", s.load(t).pages), fmt.Sprintf("%q", [][]string{bodies[:4]}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		guess = readOnly(s).Boundary
	}
}

// TestSnapshotAndFeed draws a topic with a snapshot somewhere in between, whose
// messages may be late, come twice, and have IDs that others had. A client that loads the
// snapshot, and the feed from when it was created, has the same state as who reads all of
// the feed, and the same entities.
func TestSnapshotAndFeed(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	property := func(t *rapid.T) {
		topic := newTopic()
		late := rapid.SampledFrom([]int{0, 5, 1e8}).Draw(t, "seconds that a message may be late")
		ids := rapid.SampledFrom([]int{3, 1e6}).Draw(t, "IDs")
		at, made := 0, 0
		add := func(label string) {
			for range rapid.IntRange(0, 20).Draw(t, label) {
				at += rapid.IntRange(0, 2).Draw(t, "seconds")
				op := rapid.SampledFrom([]feed.Operation{feed.Put, feed.Put, feed.Patch, feed.Delete}).Draw(t, "op")
				body := fmt.Sprintf("%s:%d", rapid.StringMatching(`[a-h]`).Draw(t, "key"), made)
				r := messageOf(fmt.Sprintf("%d@x", made%ids), op, later(at-rapid.IntRange(0, late).Draw(t, "late")), body)
				if n := len(topic.records); n > 0 && rapid.IntRange(0, 9).Draw(t, "again") == 0 {
					r = topic.records[rapid.IntRange(max(0, n-5), n-1).Draw(t, "which")]
				}
				r.Time = later(at)
				topic.add(r)
				made++
			}
		}
		s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) {
			c.Keys = rapid.IntRange(1, 9).Draw(t, "keys held")
			c.PageBytes = rapid.IntRange(1, 40).Draw(t, "bytes")
		}))
		site.feed.Store(s.Feed)
		add("before")
		topic.during = func() { add("while it is built") }
		if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
			t.Fatal(err)
		}
		add("after")
		in := s.load(t)
		reader := site.crawl(t)
		defer reader.client.CloseIdle()
		reader.all(t)
		all := reader.got
		for i, e := range in.entities {
			if e.Op == feed.Delete || !e.Modified.Before(in.created) {
				t.Fatalf("the snapshot of %v has %v", in.created, e)
			}
			if key, _ := byKey(nil, e.Body); e.Op == feed.Patch && state(in.entities[:i])[key] == "" {
				t.Fatalf("the snapshot has %v, and nothing that it patches", e)
			}
			if !slices.ContainsFunc(all, func(o feed.Entity) bool { return equal(e, o) }) {
				t.Fatalf("the snapshot has %v, and the feed has not", e)
			}
		}
		puts := map[string]bool{}
		for _, e := range in.entities {
			if key, _ := byKey(nil, e.Body); e.Op == feed.Put {
				if puts[key] {
					t.Fatalf("the snapshot has %s twice", key)
				}
				puts[key] = true
			}
		}
		before := slices.DeleteFunc(slices.Clone(all), func(e feed.Entity) bool { return !e.Modified.Before(in.created) })
		if got, want := state(in.entities), state(before); !maps.Equal(got, want) {
			t.Fatalf("the snapshot has %v, want %v", got, want)
		}
		c := site.crawl(t)
		defer c.client.CloseIdle()
		c.cfg.Start = datareplication.Start{At: in.created}
		c.restart()
		c.all(t)
		for _, e := range c.got {
			if slices.ContainsFunc(in.entities, func(o feed.Entity) bool { return equal(e, o) }) {
				t.Fatalf("%s comes twice", e.ID)
			}
		}
		if got, want := state(append(in.entities, c.got...)), state(all); !maps.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}

		// So does our own source, which starts the feed somewhat earlier.
		c = site.crawl(t)
		defer c.client.CloseIdle()
		var err error
		if c.cfg.Start, err = datareplication.ParseStart("snapshot:" + site.URL + "/feeds/orders/snapshots/latest"); err != nil {
			t.Fatal(err)
		}
		c.restart()
		c.all(t)
		if got, want := state(c.got), state(all); !maps.Equal(got, want) {
			t.Fatalf("our source has %v, want %v", got, want)
		}
		// However young the topic is, nothing is missing behind its snapshot.
		if len(c.violations) > 0 {
			t.Fatalf("our source reports %v of the snapshot of %v", c.violations, in.created)
		}
	}
	t.Run("case 140: the feed from the snapshot on, to the second", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, property)
	})
	t.Run("case 141: changes while the snapshot is built", func(t *testing.T) {
		t.Parallel()
		topic := newTopic()
		topic.add(messageOf("0@x", feed.Put, noon, "a:0"))
		topic.add(messageOf("1@x", feed.Put, noon, "b:1"))
		topic.add(messageOf("2@x", feed.Put, later(1), "c:2"))
		s := serveTopic(t, topic, withSnapshots())
		topic.during = func() {
			topic.add(messageOf("3@x", feed.Put, later(1), "a:3"))
			topic.add(messageOf("4@x", feed.Delete, later(2), "b:4"))
		}
		if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
			t.Fatal(err)
		}
		in := s.load(t)
		if fmt.Sprint(in.pages) != "[[a:0 b:1]]" || !in.created.Equal(later(2)) {
			t.Errorf("got %v", in)
		}
	})
}

// Versions share their Content-IDs, and the records are keyed by customer, for the
// partitions: a tombstone deletes only the entity that it names.
func TestTombstoneOfOneOfManyUnderARecordKey(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	add := func(n int, id string, op feed.Operation, body string) {
		r := messageOf(id, op, later(n), body)
		r.Key = []byte("customer 1")
		if op == feed.Delete {
			r.Body, r.Tombstone = nil, true
		}
		topic.add(r)
	}
	add(0, "order-1", feed.Put, "1:x")
	add(1, "order-2", feed.Put, "2:x")
	add(2, "order-1", feed.Delete, "")
	topic.add(messageOf("last", feed.Put, later(100), "in the last second"))
	s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) { c.Key = nil }))
	if err := s.snapshots.Renew(t.Context(), dusk); err != nil {
		t.Fatal(err)
	}
	got, want := s.load(t).entities, map[string]string{"2": "2:x"}
	if st := state(got); !maps.Equal(st, want) {
		t.Errorf("the snapshot has %v, want %v", st, want)
	}
}

// The topic is missing first, and then the directory.
func TestSnapshotsFailForAnotherReason(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	synctest.Test(t, func(t *testing.T) {
		topic := newTopic()
		topic.numbered(3)
		topic.gone = true
		s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) { c.Every = time.Minute; c.Dir = dir }))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		topic.set(func() { topic.gone = false })
		time.Sleep(10 * time.Hour)
		cancel()
		<-done
		if log := s.log.String(); strings.Count(log, "could not be built") != 2 || !strings.Contains(log, dir) {
			t.Errorf("got %s, want a line for the topic and one for the directory", log)
		}
	})
}

// readOnly returns the first page of the newest snapshot.
func readOnly(s *served) snapshot.Page {
	at, _ := s.snapshots.Open(s.snapshots.Newest().ID, func(*snapshot.Snapshot) bool { return true })
	defer at.Release()
	return at.Page(0)
}
