package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

func TestReadersOfALogLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	commit(t, s, 0, 20)
	log := s.Log()
	spanOf(t, log)
	for _, err := range log.Read(t.Context(), 1, 20) {
		must.Succeed(t, err)
		break
	}
	wantNoReaders(t, js, "shop_orders")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, err := range log.Read(ctx, 1, 20) {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		cancel()
	}
	wantNoReaders(t, js, "shop_orders")
}

// A reader may take its time, for a client that is slow, and the server forgets
// consumers that ask for nothing.
func TestLogIsReadSlowly(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	for n := 0; n < 2500; n += 500 {
		commit(t, s, n, n+500)
	}
	log := s.Log()
	log.Conn().SetConsumerTTL(500 * time.Millisecond)
	n := 0
	for r, err := range log.Read(t.Context(), 0, spanOf(t, log).End) {
		must.Succeed(t, err)
		if want := fmt.Sprintf(`{"n":%d}`, n); string(r.Body) != want {
			t.Fatalf("record %d is %s", n, r.Body)
		}
		if n++; n == 10 || n == 1200 {
			wantNoReaders(t, js, "shop_orders")
		}
	}
	if n != 2500 {
		t.Errorf("%d records, want 2500", n)
	}
}

// The server that has the consumer may have stored no messages yet, though the stream's leader has.
// Then the next pull is not one for a large message.
func TestPullWithoutMessagesKeepsTheLimit(t *testing.T) {
	t.Parallel()
	js, conn := shop(t)
	publish(t, js, "shop.orders", "x")
	log := conn.Log("shop.orders", "")
	if limit, err := log.LimitAfterNone(t.Context(), spanOf(t, log).End); err != nil || limit > 4<<20 {
		t.Errorf("limit %d, want 4 MiB: %v", limit, err)
	}
}

func TestLogHoldsLittleOfALongTopic(t *testing.T) {
	t.Parallel()
	js, conn := shop(t)
	body := strings.Repeat("x", 512<<10)
	for range 20 {
		publish(t, js, "shop.orders", body)
	}
	log := conn.Log("shop.orders", "")
	end := spanOf(t, log).End
	before := conn.Received()
	for _, err := range log.Read(t.Context(), 1, end) {
		must.Succeed(t, err)
		break
	}
	if got := conn.Received() - before; got > 6<<20 {
		t.Errorf("the first record of many took %d bytes", got)
	}
	// One message may be larger than the usual limit of the buffer.
	publish(t, js, "shop.orders", strings.Repeat("x", 6<<20), "last")
	if n := len(records(t, log, 1, end+2)); n != 22 {
		t.Errorf("%d records, want 22", n)
	}
}

func TestLogAsksForNoMoreThanAPage(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t, orders())
	for n := 0; n < 1000; n += 500 {
		commit(t, s, n, n+500)
	}
	log := s.Log()
	log.Conn().RequestOnce()
	before := log.Conn().Received()
	if n := len(records(t, log, 1, 11)); n != 10 {
		t.Fatalf("%d records, want 10", n)
	}
	if got := log.Conn().Received() - before; got > 10<<10 {
		t.Errorf("ten records took %d bytes", got)
	}
}

func TestTopicGrowsWhileItsEndIsRead(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t, orders())
	commit(t, s, 0, 2)
	commit(t, s, 2, 3) // there is a gap where the checkpoint was
	log := s.Log()
	end := spanOf(t, log).End
	n := 3
	for r, err := range log.Read(t.Context(), 1, end) {
		must.Succeed(t, err)
		if r.Position >= end {
			t.Errorf("position %d, want less than %d", r.Position, end)
		}
		commit(t, s, n, n+3)
		n += 3
	}
	if n != 12 {
		t.Errorf("%d records, want 3", n/3-1)
	}
}

// Somebody may take a message from the consumer, or the way from the server may lose
// it.
// A server gives the reason why it has not sent all requested messages, but not if it stops
// where a message ends.
func TestPullEndsWithAMessage(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t, orders())
	commit(t, s, 0, 9)
	sizes, err := s.Log().ReadInPulls(t.Context(), 1<<20, 9)
	must.Succeed(t, err)
	// They are the same each time but for the server's time, which is of one length.
	again, err := s.Log().ReadInPulls(t.Context(), sizes[0]+sizes[1]+sizes[2], 9)
	if diff := cmp.Diff(sizes, again); err != nil || diff != "" {
		t.Errorf("%v (-whole +in pulls):\n%s", err, diff)
	}
}

func TestMessageIsLostOnItsWay(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	commit(t, s, 0, 100)
	log := s.Log()
	log.Conn().KeepReaders()
	end := spanOf(t, log).End
	readPage(t, log, 1, 11, end)
	stream := ordersStream(t, js)
	for name := range stream.ConsumerNames(t.Context()).Name() {
		consumer, err := stream.Consumer(t.Context(), name)
		must.Succeed(t, err)
		if _, err := consumer.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for r, err := range log.Read(t.Context(), 11, end) {
		if err != nil {
			wantError(t, err, false, nil, "lost on the way")
			return
		}
		if r.Position > 20 {
			t.Fatal("nothing is said")
		}
	}
}

// The server forgets consumers when it ends.
func TestServerRestartsWhileALogIsRead(t *testing.T) {
	t.Parallel()
	dir, listen := t.TempDir(), freeAddress(t)
	server := startServer(t, dir, listen)
	url := server.URL()
	s := connect(t, nats.Config{URL: url}).Sink(orders())
	resume(t, s)
	for n := 0; n < 1500; n += 500 {
		commit(t, s, n, n+500)
	}
	log := connect(t, nats.Config{URL: url}).Log("shop.orders", "")
	end := spanOf(t, log).End
	n := 0
	for _, err := range log.Read(t.Context(), 1, end) {
		must.Succeed(t, err)
		if n++; n == 1000 { // and all has come that was asked for
			server.Close()
			startServer(t, dir, listen)
			eventually(t, "the server is back", func() bool {
				_, err := log.Span(t.Context())
				return err == nil
			})
		}
	}
	if n != 1500 {
		t.Errorf("%d records, want 1500", n)
	}
}

func BenchmarkLog(b *testing.B) {
	server := runServer(b, &server.Options{JetStream: true})
	s := connect(b, nats.Config{URL: server.ClientURL()}).Sink(orders())
	resume(b, s)
	js := admin(b, server.ClientURL())
	config := jetstream.ConsumerConfig{FilterSubject: "shop.orders", AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true}
	var consumer jetstream.Consumer
	sinktest.BenchmarkLog(b, s, s.Log(), func(b *testing.B, n, read, total int) int {
		var err error
		if read%total == 0 {
			consumer, err = js.CreateConsumer(b.Context(), "shop_orders", config)
			must.Succeed(b, err)
		}
		batch, err := consumer.Fetch(n)
		must.Succeed(b, err)
		got := 0
		for range batch.Messages() {
			got++
		}
		return got
	})
}
