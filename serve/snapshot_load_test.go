package serve

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	parts "mime/multipart"
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/serve/snapshot"
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
	must.Succeed(t, d.Decode(&in.index))
	var err error
	if in.created, err = time.Parse(time.RFC3339, in.index.CreatedAt); err != nil || g.header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %v, %v", g, err)
	}
	for _, url := range in.index.Pages {
		g := s.get(t, url).want(t, 200)
		_, params, err := mime.ParseMediaType(g.header.Get("Content-Type"))
		must.Succeed(t, err)
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
			must.Succeed(t, err)
			body, err := io.ReadAll(p)
			must.Succeed(t, err)
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

// readOnly returns the first page of the newest snapshot.
func readOnly(s *served) snapshot.Page {
	at, _ := s.snapshots.Open(s.snapshots.Newest().ID, func(*snapshot.Snapshot) bool { return true })
	defer at.Release()
	return at.Page(0)
}
