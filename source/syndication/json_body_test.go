package syndication_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/source/syndication"
)

func inJSON(c *syndication.Config) { c.Body = "json" }

// The body of every message is JSON with the ID of the message, and says which feed it is from.
func TestBodyIsJSON(t *testing.T) {
	t.Parallel()
	const complete = `<fh:complete xmlns:fh="http://purl.org/syndication/history/1.0"/>`
	u := newUpstream("/feed", atom(complete, "a@1 b@2"))
	r := u.read(t, inJSON)
	if err := r.poll(); err != nil {
		t.Fatal(err)
	}
	u.set("/feed", atom(complete, "b@2"))
	if err := r.poll(); err != nil {
		t.Fatal(err)
	}
	if len(r.messages) != 3 {
		t.Fatalf("got %d messages", len(r.messages))
	}
	for _, e := range r.messages {
		var got struct {
			ID, Title string
			Modified  string `json:"date_modified"`
			Feed      struct{ URL string }
		}
		contentType, _ := e.Header.Get("Content-Type")
		if err := json.Unmarshal(e.Body, &got); err != nil || got.ID != e.ID || got.Modified == "" || contentType != "application/json" || e.Op == feed.Put && got.Feed.URL != host+"/feed" {
			t.Errorf("%s %s: got %s, %s, %v", e.Op, e.ID, contentType, e.Body, err)
		}
	}
}

// A change of the body publishes nothing again, in either direction, and is logged once.
func TestChangeOfBodyPublishesNothing(t *testing.T) {
	t.Parallel()
	u := newUpstream("/feed", atom("", "a@1 b@2"))
	r := u.read(t)
	logs := new(logbuffer.Buffer)
	r.log = slog.New(slog.NewTextHandler(logs, nil))
	for _, body := range []syndication.BodyFormat{"xml", "json", "json", "xml"} {
		r.cfg.Body = body
		r.restart()
		for range 2 {
			if err := r.poll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(r.messages) != 2 {
		t.Errorf("published %v", r.messages)
	}
	if n := strings.Count(logs.String(), "another body"); n != 2 {
		t.Errorf("%d changes are logged, want 2:\n%s", n, logs)
	}
}
