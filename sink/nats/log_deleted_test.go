package nats_test

import (
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/sink/nats"
)

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
		parallel.Run(t, name, func(t *testing.T) {
			server, js := newServer(t)
			cfg := jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"shop.>"}}
			test.limit(&cfg)
			createStream(t, js, cfg)
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
		parallel.Run(t, name, func(t *testing.T) {
			server, js := newServer(t)
			test.stream.Name = "SHOP"
			stream := createStream(t, js, test.stream)
			subjects := map[rune]string{'o': "orders", 'O': "orders", 'c': "carts", '_': "_feedbridge.orders"}
			for _, c := range test.messages {
				msg := &natsgo.Msg{Subject: subjects[c]}
				switch {
				case c == 'c' && test.stream.AllowMsgTTL:
					msg.Header = never
				case c == 'O':
					msg.Header = natsgo.Header{"Feedbridge-First": {"orders"}}
				}
				publishMsg(t, js, msg)
			}
			if test.purge != nil {
				purge := []jetstream.StreamPurgeOpt{test.purge}
				if test.stream.AllowMsgTTL { // as if they had expired
					purge = append(purge, jetstream.WithPurgeSubject("orders"))
				}
				must.Succeed(t, stream.Purge(t.Context(), purge...))
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
		parallel.Run(t, name, func(t *testing.T) {
			server, js := newServer(t)
			test.stream.Name, test.stream.Subjects = "SHOP", []string{"orders"}
			stream := createStream(t, js, test.stream)
			publish(t, js, "orders", "a", "b", "c", "d")
			must.Succeed(t, test.take(stream))
			span := spanOf(t, connect(t, nats.Config{URL: server.URL()}).Log("orders", ""))
			if want := max(1, test.stream.FirstSeq) + 4; span.First != test.first || span.End != want {
				t.Errorf("positions %+v, want %d to %d", span, test.first, want)
			}
		})
	}
}

// Some messages of a page are deleted while it is read, also the one that was known to be
// after the page.
func TestMessagesAreDeletedWhileALogIsRead(t *testing.T) {
	t.Parallel()
	for name, short := range map[string]uint64{"to the end": 0, "to a message that was there": 500} {
		parallel.Run(t, name, func(t *testing.T) {
			s, js, _ := open(t, orders())
			for n := 0; n < 3000; n += 500 {
				commit(t, s, n, n+500)
			}
			log := s.Log()
			end := spanOf(t, log).End
			n := 0
			for _, err := range log.Read(t.Context(), 1, end-short) {
				must.Succeed(t, err)
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
