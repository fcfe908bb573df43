package kafka_test

import (
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// noise is a body that does not compress.
func noise(n int) []byte {
	random, body := rand.New(rand.NewPCG(1, 2)), make([]byte, n)
	for i := range body {
		body[i] = byte(random.Uint32())
	}
	return body
}

// fits returns the error of Fits about one entity.
func fits(s *kafka.Sink, e feed.Entity) error {
	_, err := s.Fits([]feed.Entity{e})
	return err
}

// The broker accepts every message that fits, and Fits refuses one that is a little larger. The
// limit of the topic is raised. Batches are larger from the next Resume on.
func TestLimitIsRaised(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		topic := orders()
		topic.Config = []string{"max.message.bytes=4000"}
		s, c, _ := open(t, topic)
		commit(t, s, 0, 2)
		_, adm := admin(t, c)
		limit := "40000"
		if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}}, "shop.orders"); err != nil {
			t.Fatal(err)
		}
		resume(t, s)
		entities := sinktest.Entities(2, 1)
		entities[0].Body = noise(30_000)
		must.Succeed(t, s.Commit(t.Context(), entities, sinktest.At(3)))
	})
}

func TestEntityIsTooLarge(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{"by default": "", "by the topic's limit": "4000", "by a large limit": "3000000"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				topic := orders()
				bytes := 1048588
				if limit != "" {
					topic.Config = []string{"max.message.bytes=" + limit}
					bytes = map[string]int{"4000": 4000, "3000000": 3_000_000}[limit]
				}
				s, _, _ := open(t, topic)
				entities := sinktest.Entities(0, 1)
				entities[0].Body = noise(bytes)
				wantError(t, fits(s, entities[0]), false, sink.ErrTooLarge, "with its headers, and the topic takes", "--alter --topic shop.orders --add-config max.message.bytes=")
				wantError(t, s.Commit(t.Context(), entities, sinktest.At(1)), true, sink.ErrTooLarge, `entity "<0@feed.example.com>"`)
				resume(t, s)
				// The largest that fits.
				least, most := 0, bytes
				for most-least > 1 {
					if entities[0].Body = noise((least + most) / 2); fits(s, entities[0]) == nil {
						least = len(entities[0].Body)
					} else {
						most = len(entities[0].Body)
					}
				}
				if least < bytes-1200 {
					t.Errorf("%d bytes are the most that fits", least)
				}
				entities[0].Body = noise(least)
				must.Succeed(t, s.Commit(t.Context(), entities, sinktest.At(1)))
				wantFeed(t, s, 1)
			})
		})
	}
}

func TestHeadersThatKafkaCannotCarry(t *testing.T) {
	t.Parallel()
	s := connect(t, kafka.Config{Brokers: []string{"127.0.0.1:1"}}).Sink(orders())
	e := sinktest.Entities(0, 1)[0]
	e.Header = append(e.Header, feed.Field{Name: "X-\xff", Value: "v"})
	wantError(t, fits(s, e), false, nil, `cannot carry a header of the entity: "X-\xff": its name is not UTF-8`)
}
