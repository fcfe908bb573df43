package nats_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// shop starts a server with a stream that feedbridge has nothing to do with, and
// returns its administrator and a connection.
func shop(t *testing.T) (jetstream.JetStream, *nats.Conn) {
	t.Helper()
	server, js := newServer(t)
	createShop(t, js, "SHOP")
	return js, connect(t, nats.Config{URL: server.URL()})
}

// createShop makes a stream in memory: a server that is still removing the
// files of a stream fails to delete, and then to create, another one of its
// name (nats-server 2.15: Delete moves them to one place for each name).
func createShop(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	config := jetstream.StreamConfig{Name: name, Subjects: []string{"shop.>"}, MaxAge: time.Hour, Storage: jetstream.MemoryStorage}
	createStream(t, js, config)
}

func publish(t *testing.T, js jetstream.JetStream, subject string, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if _, err := js.Publish(t.Context(), subject, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
}

// wantNoReaders checks that no consumer of a reader is left.
func wantNoReaders(t *testing.T, js jetstream.JetStream, stream string) {
	t.Helper()
	eventually(t, "no consumer is left", func() bool {
		s, err := js.Stream(t.Context(), stream)
		must.Succeed(t, err)
		return s.CachedInfo().State.Consumers == 0
	})
}

func TestLogOfATopicThatOthersWrote(t *testing.T) {
	t.Parallel()
	js, conn := shop(t)
	log := conn.Log("shop.orders", "")
	want := func(situation string, first, end uint64, text string) {
		t.Helper()
		span := spanOf(t, log)
		if span.First != first || span.End != end {
			t.Errorf("%s: positions %+v, want %d to %d", situation, span, first, end)
		}
		wantPart(t, log, span.First, span.End, text)
	}
	want("an empty stream", 1, 1, "")
	publish(t, js, "shop.carts", "x", "y")
	want("others' messages alone", 3, 3, "")
	publish(t, js, "shop.orders", "a", "b")
	publish(t, js, "shop.carts", "z")
	publish(t, js, "shop.orders", "c")
	publish(t, js, "shop.carts", "z")
	want("others' messages around", 0, 8, "3:a 4:b 6:c ")

	stream, err := js.Stream(t.Context(), "SHOP")
	must.Succeed(t, err)
	for from, text := range map[uint64]string{4: "4:b 6:c ", 5: "6:c ", 7: "", 99: ""} {
		wantPart(t, log, from, 8, text)
	}
	must.Succeed(t, stream.DeleteMsg(t.Context(), 4))
	want("one is deleted", 0, 8, "3:a 6:c ")
	must.Succeed(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(5)))
	want("the oldest are gone", 5, 8, "6:c ")
	epoch := spanOf(t, log).Epoch
	must.Succeed(t, stream.Purge(t.Context()))
	want("all are gone", 8, 8, "")
	if now := spanOf(t, log).Epoch; now != epoch {
		t.Errorf("epoch %q after %q; a purge starts nothing over", now, epoch)
	}
}

func TestLogHasMessagesAsTheyAre(t *testing.T) {
	t.Parallel()
	js, conn := shop(t)
	began := time.Now().Add(-time.Minute)
	for _, msg := range []*natsgo.Msg{
		{Header: natsgo.Header{"b": {"2", "1"}, "B": {""}, "a": {"naïve"}}, Data: []byte("\x00\xff")},
		// A client might take these for word from the server.
		{Header: natsgo.Header{"Status": {"404"}, "Description": {"No Messages"}}},
		{Header: natsgo.Header{"Status": {"503"}}},
		{},
	} {
		msg.Subject = "shop.orders"
		publishMsg(t, js, msg)
	}
	log := conn.Log("shop.orders", "SHOP")
	got := records(t, log, 1, spanOf(t, log).End)
	for i := range got {
		if at := got[i].Time; at.Before(began) || at.After(time.Now().Add(time.Minute)) {
			t.Errorf("record %d is from %v", i, at)
		}
		got[i].Time = time.Time{}
	}
	want := []feed.Record{
		{Position: 1, Header: feed.Header{{Name: "B", Value: ""}, {Name: "a", Value: "naïve"}, {Name: "b", Value: "2"}, {Name: "b", Value: "1"}}, Body: []byte("\x00\xff")},
		{Position: 2, Header: feed.Header{{Name: "Description", Value: "No Messages"}, {Name: "Status", Value: "404"}}},
		{Position: 3, Header: feed.Header{{Name: "Status", Value: "503"}}},
		{Position: 4, Header: feed.Header{}},
	}
	must.Match(t, "records", want, got, cmp.Comparer(bytes.Equal))
}

// Who reads a work queue takes its messages from those whom they are for.
func TestLogOfAWorkQueue(t *testing.T) {
	t.Parallel()
	server, js := newServer(t)
	createStream(t, js, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"orders"}, Retention: jetstream.WorkQueuePolicy})
	_, err := connect(t, nats.Config{URL: server.URL()}).Log("orders", "").Span(t.Context())
	wantError(t, err, true, nil, "stream SHOP is a work queue", "--retention limits")
}

// A stream may keep consumers for less long than a reader asks for.
func TestLogOfAStreamThatForgetsConsumers(t *testing.T) {
	t.Parallel()
	server, js := newServer(t)
	limits := jetstream.StreamConsumerLimits{InactiveThreshold: time.Second}
	createStream(t, js, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"orders"}, ConsumerLimits: limits})
	for n := range 1500 {
		publish(t, js, "orders", fmt.Sprint(n))
	}
	n := 0
	for r, err := range connect(t, nats.Config{URL: server.URL()}).Log("orders", "").Read(t.Context(), 0, 1501) {
		must.Succeed(t, err)
		if string(r.Body) != fmt.Sprint(n) {
			t.Fatalf("record %d is %s", n, r.Body)
		}
		if n++; n == 10 {
			wantNoReaders(t, js, "SHOP")
		}
	}
	if n != 1500 {
		t.Errorf("read %d", n)
	}
}

func TestLogOfAMirror(t *testing.T) {
	t.Parallel()
	js, conn := shop(t)
	publish(t, js, "shop.carts", "x")
	publish(t, js, "shop.orders", "a", "b")
	createStream(t, js, jetstream.StreamConfig{Name: "COPY", Mirror: &jetstream.StreamSource{Name: "SHOP"}})
	log := conn.Log("shop.orders", "COPY")
	eventually(t, "the mirror has all", func() bool { return spanOf(t, log).End == 4 })
	wantPart(t, log, 1, 4, "2:a 3:b ")
}

func TestLogWithoutATopic(t *testing.T) {
	t.Parallel()
	js, conn := shop(t)
	for name, test := range map[string]struct {
		subject, stream, want string
		readable              bool
	}{
		"no stream has the subject":    {"parcels", "", "no stream has its subject", false},
		"no such stream":               {"shop.orders", "GONE", "there is no stream GONE", false},
		"a stream without the subject": {"parcels", "SHOP", "stream SHOP does not have its subject", true},
	} {
		log := conn.Log(test.subject, test.stream)
		_, err := log.Span(t.Context())
		wantError(t, err, false, feed.ErrNoTopic, test.want)
		for _, err := range log.Read(t.Context(), 1, 10) {
			if test.readable {
				t.Errorf("%s: it is read: %v", name, err)
			}
			wantError(t, err, false, feed.ErrNoTopic, test.want)
		}
	}
	// One that comes later is found, and so is one in another stream.
	log := conn.Log("shop.orders", "")
	epochs := map[string]bool{}
	for _, name := range []string{"SHOP", "SHOP", "STORE"} {
		must.Succeed(t, js.DeleteStream(t.Context(), "SHOP"))
		_, err := log.Span(t.Context())
		wantError(t, err, false, feed.ErrNoTopic)
		createShop(t, js, name)
		publish(t, js, "shop.orders", name)
		span := spanOf(t, log)
		epochs[span.Epoch] = true
		wantPart(t, log, 0, span.End, "1:"+name+" ")
	}
	if len(epochs) != 3 {
		t.Errorf("epochs %v, want three", epochs)
	}
}

func TestLogWhileTheBusIsAway(t *testing.T) {
	t.Parallel()
	dir, listen := t.TempDir(), freeAddress(t)
	server := startServer(t, dir, listen)
	url := server.URL()
	s := connect(t, nats.Config{URL: url}).Sink(orders())
	resumeAndCommit(t, s, 0, 3)
	log := connect(t, nats.Config{URL: url}).Log("shop.orders", "")
	before := spanOf(t, log)
	server.Close()
	eventually(t, "the loss is noticed", func() bool {
		_, err := log.Span(t.Context())
		return err != nil
	})
	_, err := log.Span(t.Context())
	wantError(t, err, false, nil, "no NATS server answers at")
	for _, err := range log.Read(t.Context(), 1, before.End) {
		wantError(t, err, false, nil, "no NATS server answers at")
	}
	startServer(t, dir, listen)
	eventually(t, "the server is back", func() bool {
		_, err := log.Span(t.Context())
		return err == nil
	})
	if now := spanOf(t, log); now != before {
		t.Errorf("positions %+v, want %+v", now, before)
	}
	if n := len(records(t, log, 1, before.End)); n != 3 {
		t.Errorf("%d records, want 3", n)
	}
}

func TestLogOfAClosedConnection(t *testing.T) {
	t.Parallel()
	_, conn := shop(t)
	log := conn.Log("shop.orders", "")
	conn.Close()
	_, err := log.Span(t.Context())
	if err == nil || errors.Is(err, feed.ErrNoTopic) {
		t.Errorf("error %v", err)
	}
}
