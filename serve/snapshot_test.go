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
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// byKey takes what stands in a body in front of a colon for its key.
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

// loaded is a snapshot as a client has it.
type loaded struct {
	index   index
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
			if err != nil || at.After(pageTime) || p.Header.Get("Content-Type") == "" {
				t.Fatalf("case 139: an entity has the headers %v on a page of %v", p.Header, pageTime)
			}
			op, _ := parseOperation(p.Header.Get("Operation-Type"))
			page = append(page, string(body))
			in.entities = append(in.entities, feed.Entity{ID: p.Header.Get("Content-ID"), Op: op, Modified: at, Body: body})
		}
		in.pages = append(in.pages, page)
	}
	return in
}

// state is what entities make, by key: the bodies of the newest PUT and of what was
// patched since.
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
				topic.add(message(fmt.Sprint(i), feed.Put, later(min(i, 6)), body))
			}
			s := serveTopic(t, topic, sized(test.entities), withSnapshots(func(c *Snapshot) { c.PageBytes = test.bytes }))
			if err := s.snapshot.renew(t.Context()); err != nil {
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
		if err := s.snapshot.renew(t.Context()); !errors.Is(err, errAway) || seen != 1 {
			t.Fatalf("got %v", err)
		}
		topic.set(func() { topic.away = false })
		s.get(t, "/snapshots/latest").want(t, 503)
		if err := s.snapshot.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		one := s.load(t)
		// The next one takes its place when it is whole, and leaves it to those who
		// are in the middle of it.
		topic.numbered(1)
		topic.set(func() {
			topic.during = func() {
				if again := s.load(t); again.index.ID != one.index.ID {
					t.Errorf("there is %v already", again.index)
				}
			}
		})
		if err := s.snapshot.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if two := s.load(t); two.index.ID == one.index.ID || len(two.entities) != 10 {
			t.Errorf("got %v", two)
		}
		s.get(t, one.index.Pages[0]).want(t, 200)
		topic.numbered(1)
		if err := s.snapshot.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.get(t, one.index.Pages[0]).want(t, 410)
		// Without a change there is no other.
		three := s.load(t)
		if err := s.snapshot.renew(t.Context()); err != nil || s.load(t).index.ID != three.index.ID {
			t.Errorf("got %v, %v", s.load(t).index, err)
		}
		for _, path := range []string{"/snapshots/", "/snapshots/x", "/snapshots/" + three.index.ID + "/99", "/snapshots/" + three.index.ID + "/00", "/snapshots/" + three.index.ID + "/"} {
			s.get(t, path).want(t, 410)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
			t.Errorf("a kill would leave %v, %v", files, err)
		}
	})
	t.Run("the topic is made anew meanwhile", func(t *testing.T) {
		t.Parallel()
		topic := newTopic()
		topic.numbered(3)
		s := serveTopic(t, topic, withSnapshots())
		topic.during = func() { topic.set(func() { topic.span.Epoch = "e7" }) }
		if err := s.snapshot.renew(t.Context()); !errors.Is(err, errMoved) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an empty topic", func(t *testing.T) {
		t.Parallel()
		s := serveTopic(t, newTopic(), withSnapshots())
		if err := s.snapshot.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if g := s.get(t, s.get(t, "/snapshots/latest").header.Get("Location")); !strings.Contains(g.body, `"pages":[]`) || !strings.Contains(g.body, `"createdAt":"1970-01-01T00:00:00Z"`) {
			t.Errorf("got %v", g)
		}
	})
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
		topic.add(message(fmt.Sprint(i), feed.Put, later(i*i), body))
	}
	s := serveTopic(t, topic, sized(10), withSnapshots())
	if err := s.snapshot.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	at, in := s.snapshot.newest(), s.load(t)
	w := &inTheMiddle{httptest.NewRecorder(), func() {
		if at.reading.TryLock() {
			at.reading.Unlock()
			t.Error("its file may be closed while it is read")
		}
		s.snapshot.drop(0)
	}}
	s.ServeHTTP(w, httptest.NewRequest("GET", in.index.Pages[0], nil))
	if got := strings.Count(w.Body.String(), body); got != 7 {
		t.Errorf("got %d entities", got)
	}
}

func TestSnapshotsAreRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := newTopic()
		topic.numbered(3)
		s := serveTopic(t, topic, withSnapshots())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		synctest.Wait()
		one := s.load(t)
		topic.numbered(1)
		topic.set(func() { topic.away = true })
		time.Sleep(time.Hour)
		synctest.Wait()
		topic.set(func() { topic.away = false })
		if two := s.load(t); two.index.ID != one.index.ID {
			t.Errorf("got %v, logged %s", two, s.log)
		}
		time.Sleep(retrySnapshot)
		synctest.Wait()
		if two := s.load(t); two.index.ID == one.index.ID || len(two.entities) != 3 {
			t.Errorf("got %v", two)
		}
		cancel()
		<-done
		if got := s.log.String(); strings.Count(got, "a snapshot could not be built") != 1 {
			t.Errorf("logged %s", got)
		}
	})
}

// TestSnapshotAndFeed draws a topic with a snapshot somewhere in between, whose
// messages may be late, come twice, and have IDs that others had. Who loads the
// snapshot, and the feed from when it was created, has the same state as who reads
// all of the feed, and the same entities.
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
				r := message(fmt.Sprintf("%d@x", made%ids), op, later(at-rapid.IntRange(0, late).Draw(t, "late")), body)
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
		if err := s.snapshot.renew(t.Context()); err != nil {
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
	}
	t.Run("case 140: the feed from the snapshot on, to the second", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, property)
	})
	t.Run("case 141: changes while the snapshot is built", func(t *testing.T) {
		t.Parallel()
		topic := newTopic()
		topic.add(message("0@x", feed.Put, noon, "a:0"))
		topic.add(message("1@x", feed.Put, noon, "b:1"))
		topic.add(message("2@x", feed.Put, later(1), "c:2"))
		s := serveTopic(t, topic, withSnapshots())
		topic.during = func() {
			topic.add(message("3@x", feed.Put, later(1), "a:3"))
			topic.add(message("4@x", feed.Delete, later(2), "b:4"))
		}
		if err := s.snapshot.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		in := s.load(t)
		if fmt.Sprint(in.pages) != "[[a:0 b:1]]" || !in.created.Equal(later(2)) {
			t.Errorf("got %v", in)
		}
	})
}
