package serve

import (
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

// FuzzMessage serves messages that others wrote. The documents are well-formed whatever is in them, and
// have one entry for each message that is one.
func FuzzMessage(f *testing.F) {
	for _, r := range bodies {
		contentType, _ := r.Header.Get("Content-Type")
		format, _ := r.Header.Get("Feed-Format")
		f.Add("1@x", "Feed-Title", "a", contentType, format, r.Body)
	}
	f.Fuzz(mutation.OfCorpus(40, func(t *testing.T, id, name, value, contentType, format string, body []byte) {
		message := func(body []byte) feed.Record {
			return feed.Record{Time: noon, Body: body, Header: feed.Header{
				{Name: "Content-ID", Value: id},
				{Name: name, Value: value},
				{Name: "Content-Type", Value: contentType},
				{Name: "Feed-Format", Value: format},
				{Name: "Operation-Type", Value: "http-equiv=PUT"},
				{Name: "Last-Modified", Value: "Thu, 5 Oct 2023 03:00:13 GMT"},
			}}
		}
		serveAs := func(format Format, body []byte) {
			topic := newTopic()
			topic.add(message(body))
			topic.add(messageOf("last@x", feed.Put, later(1), "last"))
			g := serveTopic(t, topic, as(format)).get(t, "/latest")
			wellFormed(t, g.body)
			if ids := idsIn(t, g.body); len(ids) == 0 || len(ids) > 2 {
				t.Fatalf("%q in %s", ids, g.body)
			}
		}
		for _, format := range []Format{Atom, RSS} {
			serveAs(format, body)
			cputime.CheckRepeated(t, string(body), func(text string) { serveAs(format, []byte(text)) })
		}
	}))
}
