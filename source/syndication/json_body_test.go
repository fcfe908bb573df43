package syndication_test

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/source/syndication"
)

func inJSON(c *syndication.Config) { c.Body = "json" }

// The body of every message is JSON with the ID of the message, which the key /id finds, and says which feed it is from.
func TestBodyIsJSON(t *testing.T) {
	t.Parallel()
	const complete = `<fh:complete xmlns:fh="http://purl.org/syndication/history/1.0"/>`
	find := kafka.Key("/id").Find()
	for name, tt := range map[string]struct{ docs, ids []string }{
		"Atom and a DELETE":  {[]string{atom(complete, "a@1 b@2"), atom(complete, "b@2")}, []string{"a", "b", "a"}},
		"RSS":                {[]string{rss("", "a b")}, []string{"b", "a"}},
		"IDs are not UTF-8":  {[]string{rss("", "a\xff b\xc3")}, []string{"bÃ", "aÿ"}},
		"an item without ID": {[]string{"<rss version='2.0'><channel><title>x</title><item><link>http://x.example/1</link></item></channel></rss>"}, []string{"http://x.example/1"}},
		"not well-formed":    {[]string{"<rss version='2.0'><channel><title>x</title><item><guid>a</guid><description>&nope; <b></description></item></channel></rss>"}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream()
			r := u.read(t, inJSON)
			for _, doc := range tt.docs {
				u.set("/feed", doc)
				must.Succeed(t, r.poll())
			}
			var ids []string
			for _, e := range r.messages {
				var got struct {
					Modified string `json:"date_modified"`
					Feed     struct{ URL string }
				}
				must.Succeed(t, json.Unmarshal(e.Body, &got))
				contentType, _ := e.Header.Get("Content-Type")
				if key, _ := find(e.Header, e.Body); key != e.ID || contentType != "application/json" || e.Op == feed.Put && got.Feed.URL != host+"/feed" || e.Op == feed.Delete && got.Modified == "" {
					t.Errorf("%s %q: the key is %q: %s, %s", e.Op, e.ID, key, contentType, e.Body)
				}
				ids = append(ids, e.ID)
			}
			if !slices.Equal(ids, tt.ids) {
				t.Errorf("got %q, want %q", ids, tt.ids)
			}
		})
	}
}

// A change of the body publishes nothing again, in either direction, and is logged once: not by a process that cannot
// read the feed, and not by those after the one that did.
func TestChangeOfBodyPublishesNothing(t *testing.T) {
	t.Parallel()
	u := newUpstream("/feed", atom("", "a@1 b@2"))
	r := u.read(t)
	logs := new(logbuffer.Buffer)
	r.log = slog.New(slog.NewTextHandler(logs, nil))
	for _, body := range []syndication.BodyFormat{"xml", "json", "json", "xml"} {
		r.cfg.Body = body
		if r.cursor != nil {
			r.restart()
			u.fault("/feed", status(503))
			if err := r.poll(); err == nil {
				t.Fatal("no error")
			}
		}
		r.restart()
		for range 2 {
			must.Succeed(t, r.poll())
		}
	}
	if len(r.messages) != 2 {
		t.Errorf("published %v", r.messages)
	}
	if n := strings.Count(logs.String(), "another body"); n != 2 {
		t.Errorf("%d changes are logged, want 2:\n%s", n, logs)
	}
}
