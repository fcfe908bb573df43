package nats_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// counted counts the requests of a kind from now on.
func counted(t *testing.T, js jetstream.JetStream, subject string) func() int {
	t.Helper()
	sub, err := js.Conn().SubscribeSync(subject)
	must.Succeed(t, err)
	must.Succeed(t, js.Conn().Flush())
	n := 0
	return func() int {
		// Earlier requests have arrived before the answer to this one.
		if _, err := js.AccountInfo(t.Context()); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := sub.NextMsg(100 * time.Millisecond); err != nil {
				return n
			}
			n++
		}
	}
}

// readPage reads a page as serve does: with some positions behind it, and left at the
// first message that is there.
func readPage(t *testing.T, log *nats.Log, from, to, end uint64) (page []feed.Record) {
	t.Helper()
	for r, err := range log.Read(t.Context(), from, min(to+8, end)) {
		must.Succeed(t, err)
		if r.Position >= to {
			break
		}
		page = append(page, r)
	}
	return page
}

// The server creates one consumer for a sequential reader, not one for each page.
func TestReaderGoesOnWithItsConsumer(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	for n := 0; n < 500; n += 30 {
		commit(t, s, n, n+30) // there are gaps where the checkpoints were
	}
	log := s.Log()
	log.Conn().KeepReaders()
	log.Conn().RequestOnce()
	end := spanOf(t, log).End
	all := records(t, s.Log(), 1, end)
	created := counted(t, js, "$JS.API.CONSUMER.CREATE.>")
	var got []feed.Record
	for from := uint64(0); from < end; from += 50 {
		got = append(got, readPage(t, log, from, from+50, end)...)
	}
	must.Match(t, "page by page", all, got)
	got = nil
	for from := uint64(1); from < end; from += 31 { // page after page ends with a gap
		got = append(got, records(t, log, from, min(from+31, end))...)
	}
	must.Match(t, "without the positions behind the pages", all, got)
	if n := created(); n != 2 {
		t.Errorf("%d consumers, want one for each time", n)
	}
	// Who reads elsewhere has its own, and none disturbs the other.
	got = append(records(t, log, 100, 150), readPage(t, log, 1, 11, end)...)
	got = append(got, readPage(t, log, 200, 210, end)...)
	got = append(got, readPage(t, log, 11, 21, end)...)
	must.Match(t, "here and there", slices.Concat(between(all, 100, 150), between(all, 1, 11), between(all, 200, 210), between(all, 11, 21)), got)
}

func between(all []feed.Record, from, to uint64) (some []feed.Record) {
	for _, r := range all {
		if from <= r.Position && r.Position < to {
			some = append(some, r)
		}
	}
	return some
}

// Messages sent for a page that was not read yet belong to the deleted stream.
func TestReaderDoesNotGoOnInAnotherStream(t *testing.T) {
	t.Parallel()
	js, conn := shop(t)
	conn.KeepReaders()
	log := conn.Log("shop.orders", "SHOP")
	for _, body := range []string{"old", "new"} {
		for i := range 20 {
			publish(t, js, "shop.orders", fmt.Sprint(body, i))
		}
		end := spanOf(t, log).End
		from := uint64(1)
		if body == "new" {
			from = 11
		}
		for _, r := range readPage(t, log, from, 11+(from-1), end) {
			if !strings.HasPrefix(string(r.Body), body) {
				t.Errorf("message %d is %s", r.Position, r.Body)
			}
		}
		if body == "old" {
			if !log.Kept() {
				t.Error("nothing was kept")
			}
			must.Succeed(t, js.DeleteStream(t.Context(), "SHOP"))
			createShop(t, js, "SHOP")
		}
	}
}

// A consumer may be gone that was kept for the next page.
func TestReaderGoesOnWithoutItsConsumer(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	commit(t, s, 0, 100)
	log := s.Log()
	log.Conn().KeepReaders()
	end := spanOf(t, log).End
	n := len(readPage(t, log, 1, 11, end))
	stream := ordersStream(t, js)
	for name := range stream.ConsumerNames(t.Context()).Name() {
		must.Succeed(t, stream.DeleteConsumer(t.Context(), name))
	}
	if n += len(readPage(t, log, 11, end, end)); n != 100 {
		t.Errorf("%d records, want 100", n)
	}
}

// Messages that were in flight when the connection was lost never arrive.
func TestReaderDoesNotGoOnOverAnotherConnection(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	s := connect(t, nats.Config{URL: server.URL()}).Sink(orders())
	resumeAndCommit(t, s, 0, 400)
	p := runProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
	log := connect(t, nats.Config{URL: p.url()}).Log("shop.orders", "shop_orders")
	log.Conn().KeepReaders()
	end := spanOf(t, log).End
	p.muteAfter(30_000) // of some 150,000
	n := 0
	for _, err := range log.Read(t.Context(), 1, end) {
		must.Succeed(t, err)
		if n++; n == 10 {
			break
		}
	}
	if !log.Kept() {
		t.Error("nothing is kept")
	}
	p.set(false)
	p.cut()
	eventually(t, "there is another connection", func() bool {
		_, err := log.Span(t.Context())
		return err == nil
	})
	for _, err := range log.Read(t.Context(), 10, end) {
		must.Succeed(t, err)
		n++
	}
	if n != 401 {
		t.Errorf("%d records, want 400 and one of them twice", n)
	}
}

// Little is buffered for the next page.
func TestReaderOfLargeMessagesKeepsNone(t *testing.T) {
	t.Parallel()
	js, conn := shop(t)
	for range 20 {
		publish(t, js, "shop.orders", strings.Repeat("x", 128<<10))
	}
	log := conn.Log("shop.orders", "SHOP")
	if n := len(readPage(t, log, 1, 6, spanOf(t, log).End)); n != 5 || log.Kept() {
		t.Errorf("%d records, want 5; a consumer is kept: %v", n, log.Kept())
	}
}
