package main

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/verify"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/serve"
)

// spelledDates are spellings of one second that feeds contain, and
// spelledOperations those of operations.
var (
	spelledAt    = time.Date(2023, 10, 5, 3, 0, 13, 0, time.UTC)
	spelledDates = []string{
		"Thu, 05 Oct 2023 03:00:13 GMT",
		"Thu, 5 Oct 2023 03:00:13 GMT",
		"Thu, 05 Oct 2023 03:00:13 gmt",
		"thu, 05 oct 2023 03:00:13 gmt",
		"Thu, 05 Oct 2023 03:00:13 UTC",
		"Thu, 05 Oct 2023 03:00:13 UT",
		"Thu, 05 Oct 2023 03:00:13 Z",
		"Thu, 05 Oct 2023 03:00:13 +0000",
		"Thu, 05 Oct 2023 05:00:13 +0200",
		"Thu, 05 Oct 2023 05:00:13 +02:00",
		"Wed, 04 Oct 2023 22:00:13 EST",
		"Wed, 04 Oct 2023 20:00:13 PDT",
		"Fri, 05 Oct 2023 03:00:13 GMT", // a wrong weekday
		"Thursday, 05-Oct-23 03:00:13 GMT",
		"Thursday, 05-Oct-2023 03:00:13 GMT",
		"Thu Oct  5 03:00:13 2023",
		"Thu Oct 05 03:00:13 2023",
		"05 Oct 2023 03:00:13 GMT",
		"Thu, 05 Oct 2023 3:00:13 GMT",
		"Thu, 05 Oct 2023 03:00:13.75 GMT",
		"Thu, 05 Oct 2023 03:00:13",
		"Thu, 05 Oct 2023 03:00:13 GMT (a comment)",
	}
	spelledOperations = []string{
		"http-equiv=PUT", "PUT", "put", `http-equiv="PUT"`, `"http-equiv=PUT"`, "HTTP-EQUIV = put", " http-equiv= PUT ", `"Put"`,
	}
)

// spelled serves a datareplication feed of one page that has every spelling.
func spelled(t *testing.T) (url string) {
	t.Helper()
	var b strings.Builder
	for i := range max(len(spelledDates), len(spelledOperations)) {
		fmt.Fprintf(&b, "--b\r\ncontent-type: text/plain\r\nContent-Id: <%d@x>\r\nLAST-MODIFIED: %s\r\noperation-type: %s\r\nX-Own: a\r\n\r\nbody %d\r\n",
			i, spelledDates[i%len(spelledDates)], spelledOperations[i%len(spelledOperations)], i)
	}
	b.WriteString("--b--\r\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Link"] = []string{"<http://" + r.Host + "/1>; rel=self"}
		w.Header().Set("Content-Type", "multipart/mixed; boundary=b")
		w.Header().Set("Last-Modified", spelledDates[0])
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(b.String()))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/1"
}

// Every spelling is read in the same way by the source, by verify, and by a served
// feed, also where the well-known names are not in their canonical case.
func TestSpellingsOfDatesAndOperationsAreReadAlike(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	source, err := feedStream(t.Context(), &app{}, spelled(t), &verification{}, log)
	must.Succeed(t, err)
	var entities []feed.Entity
	var topic filled
	for e, err := range source.entities {
		must.Succeed(t, err)
		if !e.Modified.Equal(spelledAt) || e.Op != feed.Put {
			t.Errorf("the source reads %v as %v %v", e.Header, e.Modified, e.Op)
		}
		entities = append(entities, e)
		topic = append(topic, feed.Record{Position: uint64(len(topic)), Time: spelledAt.Add(time.Hour), Header: message.Header("orders", e), Body: e.Body})
	}
	if len(entities) != len(spelledDates) {
		t.Fatalf("got %d entities", len(entities))
	}
	for _, r := range topic {
		for _, name := range []string{"Content-ID", "Content-Type", "Last-Modified", "Operation-Type"} {
			if !bytes.Contains(fmt.Append(nil, r.Header), []byte("{"+name+" ")) {
				t.Fatalf("no %s in its canonical case: %v", name, r.Header)
			}
		}
	}

	foreign := 0
	recorded, err := (&verification{}).topicEntities(t.Context(), topic, &foreign)
	must.Succeed(t, err)
	same(t, "the topic", entities, recorded)

	for e, err := range recorded {
		if err != nil || !e.Modified.Equal(spelledAt) {
			t.Errorf("verify reads %v as %v, %v", e.Header, e.Modified, err)
		}
	}
	served, err := serve.New(serve.Config{Name: "orders"}, topic)
	must.Succeed(t, err)
	read, err := served.Entities(t.Context(), func() { t.Error("the served feed leaves an entity out") })
	must.Succeed(t, err)
	n := 0
	for e, err := range read {
		must.Succeed(t, err)
		if !e.Modified.Equal(spelledAt) || e.Op != feed.Put {
			t.Errorf("the served feed has %v as %v %v", topic[n].Header, e.Modified, e.Op)
		}
		// A feed has the names in its own case.
		if e.Header[1].Name != "Content-Id" || e.Header[2].Name != "LAST-MODIFIED" {
			t.Errorf("the served feed has the names %v", e.Header)
		}
		n++
	}
	if n != len(entities) {
		t.Errorf("the served feed has %d entities", n)
	}
}

// same compares entities with a stream, header by header.
func same(t *testing.T, what string, want []feed.Entity, got iter.Seq2[feed.Entity, error]) {
	t.Helper()
	sum, err := verify.Compare(func(yield func(feed.Entity, error) bool) {
		for _, e := range want {
			if !yield(e, nil) {
				return
			}
		}
	}, got, 0, func(d verify.Difference) bool {
		t.Errorf("%s: %v", what, d)
		return true
	})
	if err != nil || !sum.Same() || sum.Equal != len(want) {
		t.Errorf("%s: %+v, %v", what, sum, err)
	}
}

// filled is a topic of the records at positions from 0 on.
type filled []feed.Record

func (f filled) Span(context.Context) (feed.Span, error) {
	return feed.Span{End: uint64(len(f)), Epoch: "e"}, nil
}

func (f filled) Read(_ context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		for _, r := range f[from:to] {
			if !yield(r, nil) {
				return
			}
		}
	}
}
