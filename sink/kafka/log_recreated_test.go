package kafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

func TestLogOfATopicThatIsMadeAnew(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, conn := shop(t)
		log := conn.Log("shop.orders", 1)
		produceBatch(t, c, "a", "b", "b")
		before := spanOf(t, log).Epoch
		// The rest of the batch is at hand now.
		wantPart(t, log, 0, 1, "0:a ")
		must.Succeed(t, errors.Join(c.DeleteTopic("shop.orders"), c.CreateTopic("shop.orders", 2, nil)))
		produceBatch(t, c, "c", "d", "e")
		if now := spanOf(t, log).Epoch; now == before {
			t.Errorf("the epoch is %q still", now)
		}
		wantPart(t, log, 1, 2, "1:d ")
		wantLog(t, log, 0, 3, "0:c 1:d 2:e ")
	})
}

// Who has not asked for the span again is not given messages of both.
func TestLogOfATopicThatIsMadeAnewIsOfOneTopic(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]*kversion.Versions{"fetched by id": kversion.Stable(), "fetched by name": kversion.V3_0_0()} {
		t.Run(name, bubbled(func(t *testing.T) {
			c, conn := shop(t, kfake.MaxVersions(version))
			log := conn.Log("shop.orders", 1)
			produceBatch(t, c, "a", "b")
			produceBatch(t, c, "a", "b")
			wantPart(t, log, 0, 1, "0:a ")
			must.Succeed(t, errors.Join(c.DeleteTopic("shop.orders"), c.CreateTopic("shop.orders", 2, nil)))
			produceBatch(t, c, "c", "d", "e", "f")
			read := func() (got string, err error) {
				var all []feed.Record
				for r, err := range log.Read(t.Context(), 1, 4) {
					if err != nil {
						return bodies(all), err
					}
					all = append(all, r)
				}
				return bodies(all), nil
			}
			// The topic was looked at less than a second ago.
			got, err := read()
			wantError(t, err, false, feed.ErrNoTopic, "was deleted and created again while it was read")
			if got != "1:b " {
				t.Errorf("%q", got)
			}
			time.Sleep(2 * time.Second)
			if got, err := read(); got != "1:d 2:e 3:f " || err != nil {
				t.Errorf("after a while: %q, %v", got, err)
			}
		}))
	}
}

// A cluster before Kafka 2.8 gives topics no ids. A topic that was created again cannot be
// detected there, so no records are kept: they could be another topic's.
func TestLogOfATopicThatIsMadeAnewWithoutIDs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, conn := shop(t, kfake.MaxVersions(kversion.V2_7_0()))
		log := conn.Log("shop.orders", 1)
		produceBatch(t, c, "a", "b", "b")
		wantPart(t, log, 0, 1, "0:a ")
		must.Succeed(t, errors.Join(c.DeleteTopic("shop.orders"), c.CreateTopic("shop.orders", 2, nil)))
		produceBatch(t, c, "c", "d", "e")
		wantPart(t, log, 1, 2, "1:d ")
	})
}

func TestTopicIsMadeAnewWhileALogIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, conn := shop(t)
		produceLarge(t, c, 4)
		n := 0
		for _, err := range conn.Log("shop.orders", 1).Read(t.Context(), 0, 4) {
			if n++; n == 1 {
				must.Succeed(t, errors.Join(err, c.DeleteTopic("shop.orders"), c.CreateTopic("shop.orders", 2, nil)))
				produce(t, c, nil, "0", "1", "2", "3")
				continue
			}
			if err != nil {
				wantError(t, err, false, nil, "was deleted and created again while it was read")
				return
			}
		}
		t.Errorf("%d records and no error", n)
	})
}

// A topic that was created again is checked as a new one.
func TestLogOfATopicThatIsMadeAnewCompacted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, conn := shop(t)
		produce(t, c, nil, "a", "b")
		log := conn.Log("shop.orders", 1)
		spanOf(t, log)
		spanOf(t, log)
		must.Succeed(t, errors.Join(c.DeleteTopic("shop.orders"), c.CreateTopic("shop.orders", 2, map[string]string{"cleanup.policy": "compact"})))
		produce(t, c, nil, "c", "d", "e")
		for i := range 3 {
			_, err := log.Span(t.Context())
			wantError(t, err, true, nil, "it is compacted")
			for r, err := range log.Read(t.Context(), 0, 3) {
				if err == nil {
					t.Errorf("look %d: message %d is read", i, r.Position)
				}
			}
		}
	})
}
