package nats_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// shop starts a server with a stream that feedbridge has nothing to do with, and
// returns its administrator and a connection.
func shop(t *testing.T) (jetstream.JetStream, *nats.Conn) {
	t.Helper()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	js := admin(t, server.URL())
	createShop(t, js, "SHOP")
	return js, connect(t, nats.Config{URL: server.URL()})
}

// createShop makes a stream in memory: a server that is still removing the
// files of a stream fails to delete, and then to create, another one of its
// name (nats-server 2.15: Delete moves them to one place for each name).
func createShop(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	config := jetstream.StreamConfig{Name: name, Subjects: []string{"shop.>"}, MaxAge: time.Hour, Storage: jetstream.MemoryStorage}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.Consumers == 0
	})
}

// bodies are the positions and bodies of records.
func bodies(all []feed.Record) (text string) {
	for _, r := range all {
		text += fmt.Sprintf("%d:%s ", r.Position, r.Body)
	}
	return text
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
		if got := bodies(records(t, log, span.First, span.End)); got != text {
			t.Errorf("%s: %q, want %q", situation, got, text)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	for from, text := range map[uint64]string{4: "4:b 6:c ", 5: "6:c ", 7: "", 99: ""} {
		if got := bodies(records(t, log, from, 8)); got != text {
			t.Errorf("from %d: %q, want %q", from, got, text)
		}
	}
	if err := stream.DeleteMsg(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	want("one is deleted", 0, 8, "3:a 6:c ")
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(5)); err != nil {
		t.Fatal(err)
	}
	want("the oldest are gone", 5, 8, "6:c ")
	epoch := spanOf(t, log).Epoch
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("all are gone", 8, 8, "")
	if now := spanOf(t, log).Epoch; now != epoch {
		t.Errorf("epoch %q after %q; a purge starts nothing over", now, epoch)
	}
}

func TestLogReportsMessagesDeletedByLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit func(*jetstream.StreamConfig)
		first uint64
	}{
		"no limits":          {func(*jetstream.StreamConfig) {}, 0},
		"none was reached":   {func(c *jetstream.StreamConfig) { c.MaxAge, c.MaxMsgs, c.MaxBytes = time.Hour, 100, 1<<20 }, 0},
		"by number":          {func(c *jetstream.StreamConfig) { c.MaxMsgs = 3 }, 3},
		"by subject":         {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 2 }, 4},
		"not yet by subject": {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 9 }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t, t.TempDir(), "127.0.0.1:0")
			js := admin(t, server.URL())
			cfg := jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"shop.>"}}
			test.limit(&cfg)
			if _, err := js.CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			publish(t, js, "shop.carts", "x")
			publish(t, js, "shop.orders", "a", "b", "c", "d")
			if got := spanOf(t, connect(t, nats.Config{URL: server.URL()}).Log("shop.orders", "")); got.First != test.first || got.End != 6 {
				t.Errorf("positions %+v, want %d to 6", got, test.first)
			}
		})
	}
}

// Messages of other subjects that limits have deleted are no loss, and no page disappears
// with them.
func TestLimitsDeleteMessagesOfOtherSubjects(t *testing.T) {
	t.Parallel()
	never := natsgo.Header{"Nats-TTL": {"never"}}
	for name, test := range map[string]struct {
		stream   jetstream.StreamConfig
		messages string // a subject's first letter each; O is said to be the topic's first
		purge    jetstream.StreamPurgeOpt
		first    uint64
	}{
		"some of others' in front of ours": {jetstream.StreamConfig{Subjects: []string{"orders", "carts"}, MaxMsgs: 6}, "ccccccoco", nil, 4},
		"messages that never expire are before messages that do": {
			jetstream.StreamConfig{Subjects: []string{"orders", "carts"}, MaxAge: time.Hour, AllowMsgTTL: true}, "occooo", jetstream.WithPurgeKeep(2), 5,
		},
		"it is unknown whether our oldest message was the first": {
			jetstream.StreamConfig{Subjects: []string{"orders", "_feedbridge.orders"}}, "_ooo", jetstream.WithPurgeSequence(2), 2,
		},
		"checkpoints in the beginning, which is no 1": {
			jetstream.StreamConfig{Subjects: []string{"orders", "_feedbridge.orders"}, FirstSeq: 1000}, "_Ooo", jetstream.WithPurgeSequence(1001), 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t, t.TempDir(), "127.0.0.1:0")
			js := admin(t, server.URL())
			test.stream.Name = "SHOP"
			stream, err := js.CreateStream(t.Context(), test.stream)
			if err != nil {
				t.Fatal(err)
			}
			subjects := map[rune]string{'o': "orders", 'O': "orders", 'c': "carts", '_': "_feedbridge.orders"}
			for _, c := range test.messages {
				msg := &natsgo.Msg{Subject: subjects[c]}
				switch {
				case c == 'c' && test.stream.AllowMsgTTL:
					msg.Header = never
				case c == 'O':
					msg.Header = natsgo.Header{"Feedbridge-First": {"orders"}}
				}
				if _, err := js.PublishMsg(t.Context(), msg); err != nil {
					t.Fatal(err)
				}
			}
			if test.purge != nil {
				purge := []jetstream.StreamPurgeOpt{test.purge}
				if test.stream.AllowMsgTTL { // as if they had expired
					purge = append(purge, jetstream.WithPurgeSubject("orders"))
				}
				if err := stream.Purge(t.Context(), purge...); err != nil {
					t.Fatal(err)
				}
			}
			span := spanOf(t, connect(t, nats.Config{URL: server.URL()}).Log("orders", ""))
			if want := max(1, test.stream.FirstSeq) + uint64(len(test.messages)); span.First != test.first || span.End != want {
				t.Errorf("positions %+v, want %d to %d", span, test.first, want)
			}
		})
	}
}

// Messages that a person deletes from the front of a stream are gone like those that limits
// delete.
func TestLogReportsMessagesDeletedByHand(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stream jetstream.StreamConfig
		take   func(jetstream.Stream) error
		first  uint64
	}{
		"purged":  {jetstream.StreamConfig{}, func(s jetstream.Stream) error { return s.Purge(t.Context(), jetstream.WithPurgeSequence(3)) }, 3},
		"deleted": {jetstream.StreamConfig{}, func(s jetstream.Stream) error { return s.DeleteMsg(t.Context(), 1) }, 2},
		"deleted, but not in front": {
			jetstream.StreamConfig{}, func(s jetstream.Stream) error { return s.DeleteMsg(t.Context(), 2) }, 0,
		},
		"nothing, and the first is no 1": {
			jetstream.StreamConfig{FirstSeq: 1000}, func(jetstream.Stream) error { return nil }, 0,
		},
		"nothing, and the first is no 1, with limits": {
			jetstream.StreamConfig{FirstSeq: 1000, MaxAge: time.Hour, MaxMsgs: 10, MaxMsgsPerSubject: 10}, func(jetstream.Stream) error { return nil }, 0,
		},
		"purged, and the first was no 1": {
			jetstream.StreamConfig{FirstSeq: 1000}, func(s jetstream.Stream) error { return s.Purge(t.Context(), jetstream.WithPurgeSequence(1002)) }, 1002,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t, t.TempDir(), "127.0.0.1:0")
			js := admin(t, server.URL())
			test.stream.Name, test.stream.Subjects = "SHOP", []string{"orders"}
			stream, err := js.CreateStream(t.Context(), test.stream)
			if err != nil {
				t.Fatal(err)
			}
			publish(t, js, "orders", "a", "b", "c", "d")
			if err := test.take(stream); err != nil {
				t.Fatal(err)
			}
			span := spanOf(t, connect(t, nats.Config{URL: server.URL()}).Log("orders", ""))
			if want := max(1, test.stream.FirstSeq) + 4; span.First != test.first || span.End != want {
				t.Errorf("positions %+v, want %d to %d", span, test.first, want)
			}
		})
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
		if _, err := js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
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
	if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// Who reads a work queue takes its messages from those whom they are for.
func TestLogOfAWorkQueue(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	js := admin(t, server.URL())
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"orders"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
		t.Fatal(err)
	}
	_, err := connect(t, nats.Config{URL: server.URL()}).Log("orders", "").Span(t.Context())
	wantError(t, err, true, nil, "stream SHOP is a work queue", "--retention limits")
}

// A stream may keep consumers for less long than a reader asks for.
func TestLogOfAStreamThatForgetsConsumers(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	js := admin(t, server.URL())
	limits := jetstream.StreamConsumerLimits{InactiveThreshold: time.Second}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"orders"}, ConsumerLimits: limits}); err != nil {
		t.Fatal(err)
	}
	for n := range 1500 {
		publish(t, js, "orders", fmt.Sprint(n))
	}
	n := 0
	for r, err := range connect(t, nats.Config{URL: server.URL()}).Log("orders", "").Read(t.Context(), 0, 1501) {
		if err != nil {
			t.Fatal(err)
		}
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
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COPY", Mirror: &jetstream.StreamSource{Name: "SHOP"}}); err != nil {
		t.Fatal(err)
	}
	log := conn.Log("shop.orders", "COPY")
	eventually(t, "the mirror has all", func() bool { return spanOf(t, log).End == 4 })
	if got := bodies(records(t, log, 1, 4)); got != "2:a 3:b " {
		t.Errorf("%q", got)
	}
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
		if err := js.DeleteStream(t.Context(), "SHOP"); err != nil {
			t.Fatal(err)
		}
		_, err := log.Span(t.Context())
		wantError(t, err, false, feed.ErrNoTopic)
		createShop(t, js, name)
		publish(t, js, "shop.orders", name)
		span := spanOf(t, log)
		epochs[span.Epoch] = true
		if got := bodies(records(t, log, 0, span.End)); got != "1:"+name+" " {
			t.Errorf("%q", got)
		}
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
	resume(t, s)
	commit(t, s, 0, 3)
	log := connect(t, nats.Config{URL: url, Timeout: 3 * time.Second}).Log("shop.orders", "")
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

func TestLogIsReadByManyAtOnce(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	for n := 0; n < 3000; n += 300 {
		commit(t, s, n, n+300)
	}
	log := s.Log()
	span := spanOf(t, log)
	all := records(t, log, span.First, span.End)
	if len(all) != 3000 {
		t.Fatalf("%d records, want 3000", len(all))
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			var got []feed.Record
			step := uint64(100 + 250*i)
			for from := span.First; from < span.End; from += step {
				for r, err := range log.Read(t.Context(), from, min(from+step, span.End)) {
					if err != nil {
						t.Error(err)
						return
					}
					got = append(got, r)
				}
			}
			if diff := cmp.Diff(all, got); diff != "" {
				t.Errorf("in steps of %d (-want +got):\n%s", step, diff)
			}
		})
	}
	group.Wait()
	wantNoReaders(t, js, "shop_orders")
}

func TestReadersOfALogLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	s, js, _ := open(t, orders())
	commit(t, s, 0, 20)
	log := s.Log()
	spanOf(t, log)
	for _, err := range log.Read(t.Context(), 1, 20) {
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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

// Some messages of a page are deleted while it is read, also the one that was known to be
// after the page.
func TestMessagesAreDeletedWhileALogIsRead(t *testing.T) {
	t.Parallel()
	for name, short := range map[string]uint64{"to the end": 0, "to a message that was there": 500} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, js, _ := open(t, orders())
			for n := 0; n < 3000; n += 500 {
				commit(t, s, n, n+500)
			}
			log := s.Log()
			end := spanOf(t, log).End
			n := 0
			for _, err := range log.Read(t.Context(), 1, end-short) {
				if err != nil {
					t.Fatal(err)
				}
				if n++; n == 500 {
					purge(t, js, jetstream.WithPurgeSubject("shop.orders"))
				}
			}
			if n < 500 || n > 2000 {
				t.Errorf("%d records, want what was there", n)
			}
		})
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
	if err != nil {
		t.Fatal(err)
	}
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
	end := spanOf(t, log).End
	readPage(t, log, 1, 11, end)
	stream, err := js.Stream(t.Context(), "shop_orders")
	if err != nil {
		t.Fatal(err)
	}
	for name := range stream.ConsumerNames(t.Context()).Name() {
		consumer, err := stream.Consumer(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
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

// counted counts the requests of a kind from now on.
func counted(t *testing.T, js jetstream.JetStream, subject string) func() int {
	t.Helper()
	sub, err := js.Conn().SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
	end := spanOf(t, log).End
	all := records(t, s.Log(), 1, end)
	created := counted(t, js, "$JS.API.CONSUMER.CREATE.>")
	var got []feed.Record
	for from := uint64(0); from < end; from += 50 {
		got = append(got, readPage(t, log, from, from+50, end)...)
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("page by page (-want +got):\n%s", diff)
	}
	got = nil
	for from := uint64(1); from < end; from += 31 { // page after page ends with a gap
		got = append(got, records(t, log, from, min(from+31, end))...)
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("without the positions behind the pages (-want +got):\n%s", diff)
	}
	if n := created(); n != 2 {
		t.Errorf("%d consumers, want one for each time", n)
	}
	// Who reads elsewhere has its own, and none disturbs the other.
	got = append(records(t, log, 100, 150), readPage(t, log, 1, 11, end)...)
	got = append(got, readPage(t, log, 200, 210, end)...)
	got = append(got, readPage(t, log, 11, 21, end)...)
	if diff := cmp.Diff(slices.Concat(between(all, 100, 150), between(all, 1, 11), between(all, 200, 210), between(all, 11, 21)), got); diff != "" {
		t.Errorf("here and there (-want +got):\n%s", diff)
	}
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
			if err := js.DeleteStream(t.Context(), "SHOP"); err != nil {
				t.Fatal(err)
			}
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
	end := spanOf(t, log).End
	n := len(readPage(t, log, 1, 11, end))
	stream, err := js.Stream(t.Context(), "shop_orders")
	if err != nil {
		t.Fatal(err)
	}
	for name := range stream.ConsumerNames(t.Context()).Name() {
		if err := stream.DeleteConsumer(t.Context(), name); err != nil {
			t.Fatal(err)
		}
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
	resume(t, s)
	commit(t, s, 0, 500)
	p := runProxy(t, strings.TrimPrefix(server.URL(), "nats://"))
	log := connect(t, nats.Config{URL: p.url(), Timeout: 3 * time.Second}).Log("shop.orders", "shop_orders")
	end := spanOf(t, log).End
	p.muteAfter(30_000) // of some 150,000
	n := 0
	for _, err := range log.Read(t.Context(), 1, end) {
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 501 {
		t.Errorf("%d records, want 500 and one of them twice", n)
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
	log := connect(t, nats.Config{URL: url, Timeout: 3 * time.Second}).Log("shop.orders", "")
	end := spanOf(t, log).End
	n := 0
	for _, err := range log.Read(t.Context(), 1, end) {
		if err != nil {
			t.Fatal(err)
		}
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

// The state of a stream shows whether messages were deleted. Only then the oldest message
// is requested, because the server has to read it from its disk.
func TestOldestMessageIsAskedForWhenSomethingIsGone(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	js := admin(t, server.URL())
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"shop.>"}, MaxMsgsPerSubject: 3}); err != nil {
		t.Fatal(err)
	}
	publish(t, js, "shop.carts", "x")
	publish(t, js, "shop.orders", "a", "b")
	log := connect(t, nats.Config{URL: server.URL()}).Log("shop.orders", "SHOP")
	asked := counted(t, js, "$JS.API.STREAM.MSG.GET.>")
	for range 5 {
		if got := spanOf(t, log); got.First != 2 {
			t.Fatalf("positions %+v, want 2 on", got)
		}
	}
	publish(t, js, "shop.orders", "c")
	if got := spanOf(t, log); got.First != 2 || got.End != 5 {
		t.Errorf("positions %+v, want 2 to 5", got)
	}
	if n := asked(); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
	publish(t, js, "shop.orders", "d")
	if got := spanOf(t, log); got.First != 3 {
		t.Errorf("positions %+v, want 3 on", got)
	}
}

// BenchmarkLog compares reading a topic page by page with a client that reads it
// from its first message to its last.
func BenchmarkLog(b *testing.B) {
	const total, size = 50_000, 500
	server := runServer(b, &server.Options{JetStream: true})
	s := connect(b, nats.Config{URL: server.ClientURL()}).Sink(orders())
	resume(b, s)
	for n := 0; n < total; n += size {
		entities := sinktest.Entities(n, size)
		for i := range entities {
			entities[i].Body = bytes.Repeat([]byte("x"), 1024)
		}
		if err := s.Commit(b.Context(), entities, sinktest.At(n+size), nil); err != nil {
			b.Fatal(err)
		}
	}
	rate := func(b *testing.B, records int) {
		b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
	}
	b.Run("pages", func(b *testing.B) {
		log := s.Log()
		span := spanOf(b, log)
		n, from := 0, span.First
		for b.Loop() {
			n += len(records(b, log, from, min(from+size, span.End)))
			if from += size; from >= span.End {
				from = span.First
			}
		}
		rate(b, n)
	})
	b.Run("bare", func(b *testing.B) {
		js := admin(b, server.ClientURL())
		config := jetstream.ConsumerConfig{FilterSubject: "shop.orders", AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true}
		n := 0
		var consumer jetstream.Consumer
		for b.Loop() {
			if n%total == 0 {
				var err error
				if consumer, err = js.CreateConsumer(b.Context(), "shop_orders", config); err != nil {
					b.Fatal(err)
				}
			}
			batch, err := consumer.Fetch(size)
			if err != nil {
				b.Fatal(err)
			}
			for range batch.Messages() {
				n++
			}
		}
		rate(b, n)
	})
}
