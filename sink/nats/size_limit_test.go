package nats_test

import (
	"errors"
	"sort"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// largest returns the largest n up to limit for which Fits lets of(n) pass.
func largest(t *testing.T, s *nats.Sink, limit int, of func(n int) feed.Entity) int {
	t.Helper()
	return sort.Search(limit, func(n int) bool {
		err := fits(s, of(n+1))
		if err != nil && !errors.Is(err, sink.ErrTooLarge) {
			t.Fatal(err)
		}
		return err != nil
	})
}

// fits returns the error of Fits about one entity.
func fits(s *nats.Sink, e feed.Entity) error {
	_, err := s.Fits([]feed.Entity{e})
	return err
}

// withBody returns e with bodies of the size that it is asked for.
func withBody(e feed.Entity) func(int) feed.Entity {
	return func(n int) feed.Entity {
		e.Body = make([]byte, n)
		return e
	}
}

func TestLargestEntityThatFitsIsPublished(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		maxPayload int32
		maxMsgSize int32
	}{
		"the server's limit": {maxPayload: 2000},
		"the stream's limit": {maxMsgSize: 3000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := runServer(t, &server.Options{JetStream: true, MaxPayload: test.maxPayload})
			config := fitting()
			config.MaxMsgSize = test.maxMsgSize
			createStream(t, admin(t, server.ClientURL()), config)
			s := connect(t, nats.Config{URL: server.ClientURL()}).Sink(orders())
			resume(t, s)
			e := sinktest.Entities(0, 1)
			limit := int(max(test.maxPayload, test.maxMsgSize))
			n := largest(t, s, 2*limit, withBody(e[0]))
			// The sequence of a batch has one digit here where Fits allows for
			// three: an entity at the limit must pass, and the limit must be almost the
			// real one.
			if n > limit || n < limit-600 {
				t.Errorf("the largest body is %d bytes where messages have %d", n, limit)
			}
			e[0].Body = make([]byte, n)
			must.Succeed(t, s.Commit(t.Context(), e, sinktest.At(1)))
			e[0].Body = make([]byte, n+1)
			err := s.Commit(t.Context(), e, sinktest.At(2))
			wantError(t, err, true, sink.ErrTooLarge, `entity "<0@feed.example.com>"`, "raise max_payload in the server's configuration")
			resume(t, s)
			wantFeed(t, s, 1)
		})
	}
}

func TestWholeBatchOfTheLargestEntitiesIsPublished(t *testing.T) {
	t.Parallel()
	server := runServer(t, &server.Options{JetStream: true, MaxPayload: 1024})
	s := connect(t, nats.Config{URL: server.ClientURL()}).Sink(orders())
	resume(t, s)
	entities := sinktest.Entities(0, nats.MaxEntities)
	for i := range entities {
		entities[i].Body = make([]byte, largest(t, s, 2000, withBody(entities[i])))
	}
	must.Succeed(t, s.Commit(t.Context(), entities, sinktest.At(nats.MaxEntities)))
	wantFeed(t, s, nats.MaxEntities)
}

func TestLargestHeaderThatFitsIsPublished(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	s := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	resume(t, s)
	e := sinktest.Entities(0, 1)
	own := e[0].Header
	with := func(n int) feed.Entity {
		e[0].Header = append(own[:len(own):len(own)], feed.Field{Name: "X", Value: strings.Repeat("x", n)})
		return e[0]
	}
	n := largest(t, s, 1<<20, with)
	with(n)
	must.Succeed(t, s.Commit(t.Context(), e, sinktest.At(1)))
	wantError(t, fits(s, with(n+1)), false, sink.ErrTooLarge, "its headers have 65536 bytes and NATS accepts 65535")
	wantFeed(t, s, 1)
}

func TestHeadersThatNATSCannotCarry(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t, orders())
	for _, test := range []struct {
		field feed.Field
		want  string
	}{
		{feed.Field{Name: "", Value: "x"}, "the bus cannot carry a header of the entity: it has no name"},
		{feed.Field{Name: "X Y", Value: "x"}, `cannot carry a header of the entity: "X Y": NATS has no ' ' in names`},
		{feed.Field{Name: "X(Y)", Value: "x"}, `NATS has no '(' in names`},
		{feed.Field{Name: "Ü", Value: "x"}, `"Ü": NATS has no`},
		{feed.Field{Name: "X", Value: "a\nb"}, `"X": its value has a line break`},
	} {
		e := sinktest.Entities(0, 1)
		e[0].Header = append(e[0].Header, test.field)
		err := fits(s, e[0])
		if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, sink.ErrHeader) || errors.Is(err, sink.ErrTooLarge) {
			t.Errorf("%q: %v, want %s", test.field, err, test.want)
		}
		wantError(t, s.Commit(t.Context(), e, sinktest.At(1)), true, nil, test.want)
		resume(t, s)
	}
	wantFeed(t, s, 0)
}

// The names of an entity are not checked if they are those of the entity before it; its values are.
func TestHeadersOfALaterEntityThatNATSCannotCarry(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t, orders())
	for _, test := range []struct {
		field feed.Field
		want  string
	}{
		{feed.Field{Name: "X", Value: "a\rb"}, `"X": its value has a line break`},
		{feed.Field{Name: "X Y", Value: "a"}, `"X Y": NATS has no ' ' in names`},
	} {
		e := sinktest.Entities(0, 3)
		for i := range e {
			e[i].Header = append(e[i].Header, feed.Field{Name: "X", Value: "a"})
		}
		e[2].Header[len(e[2].Header)-1] = test.field
		n, err := s.Fits(e)
		if n != 2 {
			t.Errorf("%q: %d entities fit, want 2", test.field, n)
		}
		wantError(t, err, false, sink.ErrHeader, test.want)
		wantError(t, s.Commit(t.Context(), e, sinktest.At(3)), true, sink.ErrHeader, test.want)
		resume(t, s)
	}
	wantFeed(t, s, 0)
}
