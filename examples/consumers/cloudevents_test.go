package consumers_test

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink/kafka"
	sinknats "github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

// An event has the attributes that a consumer prints.
type event map[string]any

const eventSource = "https://shop.example.com/orders"

// eventEntities returns entities with the events that they are: on Kafka, and what differs on NATS, where sdk-go
// does not decode attributes.
func eventEntities() (entities []feed.Entity, onKafka, onNATS []event) {
	add := func(e feed.Entity, want, differs event) {
		e.Modified = time.Date(2026, 3, 1, 12, 0, 0, 5e8, time.UTC)
		e.Header = append(feed.Header{{Name: "Content-ID", Value: e.ID}}, e.Header...)
		entities = append(entities, e)
		all := event{"source": eventSource, "time": "2026-03-01T12:00:00.5Z", "subject": want["id"], "datacontenttype": ""}
		maps.Copy(all, want)
		onKafka = append(onKafka, all)
		all = maps.Clone(all)
		maps.Copy(all, differs)
		onNATS = append(onNATS, all)
	}
	typed := func(contentType string) feed.Header {
		return feed.Header{{Name: "content-type", Value: contentType}, {Name: "ce_id", Value: "of the feed"}, {Name: "ce-source", Value: "of the feed"}}
	}
	add(feed.Entity{ID: "<1@shop>", Op: feed.Put, Header: typed("application/json"), Body: []byte(`{"id": 1}`)},
		event{"id": "<1@shop>", "type": "com.example.order.put", "datacontenttype": "application/json", "sequence": "00000000000000000001", "data": `{"id": 1}`}, nil)
	add(feed.Entity{ID: "a \"ä\" 100%", Op: feed.Patch, Header: typed("what is this?"), Body: []byte("two")},
		event{"id": "a \"ä\" 100%", "type": "com.example.order.patch", "datacontenttype": "application/octet-stream", "sequence": "00000000000000000002", "data": "two"},
		event{"id": "a%20%22%C3%A4%22%20100%25", "subject": "a%20%22%C3%A4%22%20100%25"})
	add(feed.Entity{ID: "\xff\x00", Op: feed.Put, Header: typed("text/plain"), Body: []byte("three")},
		event{"id": "%FF%00#0a99a607b6f60bea", "subject": "%FF%00", "type": "com.example.order.put", "datacontenttype": "text/plain", "sequence": "00000000000000000003", "data": "three"},
		event{"id": "%25FF%2500#0a99a607b6f60bea", "subject": "%25FF%2500"})
	add(feed.Entity{ID: "4", Op: feed.Put, Mark: "1;p;;;00;00", Body: []byte("{}"), Header: typed("application/json")},
		event{"id": "4#00000000000000000004-e1fd1bb0fa78cabb", "subject": "4", "type": "com.example.order.put", "datacontenttype": "application/json", "sequence": "00000000000000000004", "data": "{}"}, nil)
	add(feed.Entity{ID: "5", Op: feed.Delete},
		event{"id": "5", "type": "com.example.order.delete", "sequence": "00000000000000000005", "data": ""}, nil)
	return entities, onKafka, onNATS
}

func TestCloudEvents(t *testing.T) {
	t.Parallel()
	sdkGo := filepath.Join(t.TempDir(), "consumer")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "cloudevents", "-o", sdkGo, ".").CombinedOutput(); err != nil {
		missing(t, "go build examples/consumers/cloudevents: %v\n%s", err, out)
	}
	t.Run("NATS", func(t *testing.T) {
		t.Parallel()
		readFromNATS(t, sdkGo)
	})
	t.Run("Kafka", func(t *testing.T) {
		t.Parallel()
		readFromKafka(t, []consumer{
			{"sdk-go", func(*testing.T) []string { return []string{sdkGo, "kafka"} }},
			{"python", python("cloudevents.core, confluent_kafka", "python/cloudevents_consumer.py")},
		})
	})
}

func readFromNATS(t *testing.T, program string) {
	t.Helper()
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	conn, err := sinknats.Connect(t.Context(), sinknats.Config{URL: server.URL(), Timeout: time.Minute}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	entities, _, want := eventEntities()
	topic := fill(t, conn.Sink(sinknats.Topic{
		Feed: "orders", Subject: "orders", Stream: sinknats.Stream{Create: true}, Events: message.NewEvents("com.example.order", eventSource),
	}))
	topic.publish(entities[:2]...)
	topic.publish(entities[2:]...)
	start(t, "", []string{program, "nats", server.URL(), "orders", "orders"}).wantEvents(want)
}

func readFromKafka(t *testing.T, consumers []consumer) {
	t.Helper()
	for _, c := range consumers {
		for _, form := range []kafka.Delete{kafka.DeleteMessage, kafka.DeleteTombstone} {
			t.Run(c.name+"/"+string(form), func(t *testing.T) {
				t.Parallel()
				command := c.prepare(t)
				cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(cluster.Close)
				brokers := cluster.ListenAddrs()
				conn, err := kafka.Connect(t.Context(), kafka.Config{Brokers: brokers, Timeout: time.Minute, TransactionTimeout: 3 * time.Minute}, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(conn.Close)
				o := kafka.DefaultOptions()
				o.Delete = form
				to := kafka.Topic{Feed: "orders", Name: "orders", Options: o, Events: message.NewEvents("com.example.order", eventSource)}
				entities, want, _ := eventEntities()
				if form == kafka.DeleteTombstone {
					to.Key = "header:Content-Type"
					to.MissingKey = kafka.KeyNull
				}
				topic := fill(t, conn.Sink(to))
				topic.publish(entities[:2]...)
				topic.publish(entities[2:]...)
				start(t, "", append(slices.Clip(command), brokers[0], "orders")).wantEvents(want)
			})
		}
	}
}

// wantEvents reads as many events as are given, and compares them.
func (p *process) wantEvents(want []event) {
	p.t.Helper()
	deadline := time.After(patience)
	for i, want := range want {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("the consumer has ended before event %d", i)
			}
			var got event
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				p.t.Fatalf("event %d is %q: %v", i, line, err)
			}
			at, err := time.Parse(time.RFC3339Nano, got["time"].(string))
			if err != nil {
				p.t.Errorf("event %d: %v", i, err)
			}
			got["time"] = at.UTC().Format(time.RFC3339Nano) // Python writes the zone as +00:00
			if diff := cmp.Diff(want, got); diff != "" {
				p.t.Errorf("event %d (-want +got):\n%s", i, diff)
			}
		case <-deadline:
			p.t.Fatalf("the consumer does not print event %d", i)
		}
	}
}
