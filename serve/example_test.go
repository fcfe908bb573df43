package serve_test

import (
	"context"
	"fmt"
	"iter"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/serve"
)

// greetings is a topic of two messages, which sink/nats and sink/kafka have for
// real ones.
type greetings struct{}

func (greetings) Span(context.Context) (feed.Span, error) {
	return feed.Span{End: 2, Epoch: "x1"}, nil
}

func (greetings) Read(_ context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		for position := from; position < min(to, 2); position++ {
			body := []string{"hello", "goodbye"}[position]
			if !yield(feed.Record{Position: position, Time: time.Unix(1e9, 0), Body: []byte(body)}, nil) {
				return
			}
		}
	}
}

func Example() {
	greetings, err := serve.New(serve.Config{Name: "greetings", PageSize: 1}, greetings{})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := serve.NewServer(serve.ServerOptions{}, greetings)

	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest("GET", "http://feed.example/feeds/greetings/latest", nil))
	for _, link := range w.Result().Header["Link"] {
		fmt.Println("Link:", link)
	}
	lines := strings.Split(w.Body.String(), "\r\n")
	fmt.Println(strings.Join(lines[1:len(lines)-2], "\n")) // without the boundaries
	// Output:
	// Link: <http://feed.example/feeds/greetings/pages/x1-1-1>; rel=self
	// Link: <http://feed.example/feeds/greetings/pages/x1-1-0>; rel=prev
	// Content-Type: application/octet-stream
	// Content-ID: 1.x1@greetings
	// Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT
	// Operation-Type: http-equiv=PUT
	// Content-Length: 7
	//
	// goodbye
}
