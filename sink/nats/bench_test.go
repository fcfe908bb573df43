package nats_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	codec "github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// BenchmarkCommit compares the sink with a bare publisher that sends the same
// bytes, which it has converted beforehand, in the same batches over the same
// kind of connection.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 100, 500, nats.MaxEntities} {
		entities, body := sinktest.Entities(0, n), samplefeed.Sized(1<<10)
		for i := range entities {
			entities[i].Body = body(i).Body
		}
		b.Run(fmt.Sprintf("sink/%d", n), func(b *testing.B) {
			server := runServer(b, &server.Options{JetStream: true})
			s := connect(b, nats.Config{URL: server.ClientURL()}).Sink(orders())
			resume(b, s)
			b.ReportAllocs()
			for b.Loop() {
				must.Succeed(b, s.Commit(b.Context(), entities, sinktest.At(n)))
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "entities/s")
		})
		b.Run(fmt.Sprintf("bare/%d", n), func(b *testing.B) {
			server := runServer(b, &server.Options{JetStream: true})
			p := newBare(b, server.ClientURL(), entities)
			b.ReportAllocs()
			for b.Loop() {
				p.commit(b)
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "entities/s")
		})
	}
}

// BenchmarkRestart resumes a topic of Atom or RSS after a restart: it reads the headers of all
// messages. The larger topics take minutes to write.
func BenchmarkRestart(b *testing.B) {
	for _, n := range []int{100_000, 500_000, 2_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			if testing.Short() && n > 100_000 {
				b.Skip("it takes minutes")
			}
			server := runServer(b, &server.Options{JetStream: true})
			writer := connect(b, nats.Config{URL: server.ClientURL()}).Sink(orders())
			resume(b, writer)
			for from := 0; from < n; from += nats.MaxEntities {
				entities := markedEntities(from, min(n, from+nats.MaxEntities))
				must.Succeed(b, writer.Commit(b.Context(), entities, sinktest.At(from+len(entities))))
			}
			writer.IDs().Reset()
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				fresh := connect(b, nats.Config{URL: server.ClientURL()}).Sink(orders())
				b.StartTimer()
				resume(b, fresh)
				if held := fresh.IDs().Len(); held != n {
					b.Fatalf("%d IDs are known, want %d", held, n)
				}
				fresh.IDs().Reset()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// markedEntities returns the entities of a feed of Atom from one number on and before another.
func markedEntities(from, to int) []feed.Entity {
	entities := sinktest.Entities(0, to-from)
	for i := range entities {
		at := 1_700_000_000 + from + i
		e := &entities[i]
		e.ID = fmt.Sprintf("urn:uuid:1225c695-cfb8-4ebb-aaaa-%012d", from+i)
		e.Header[0].Value = e.ID
		e.Mark = fmt.Sprintf("1;p;%d000000000;%d000000000;%016x%016x;%08x", at, at, uint64(at)*0x9E3779B97F4A7C15, uint64(at)*0xC2B2AE3D27D4EB4F, at/100)
		e.Body = bytes.Repeat([]byte("x"), 500)
	}
	return entities
}

// bare has the messages of a batch, ready but for the batch's ID and the fence.
type bare struct {
	nc    *natsgo.Conn
	fence uint64
	msgs  []*natsgo.Msg
	last  *natsgo.Msg
}

func newBare(b *testing.B, url string, entities []feed.Entity) *bare {
	js := admin(b, url)
	if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name: "bare", Subjects: []string{"shop.orders", "_feedbridge.shop.orders"},
		AllowAtomicPublish: true, AllowRollup: true, AllowMsgTTL: true,
	}); err != nil {
		b.Fatal(err)
	}
	p := &bare{nc: js.Conn()}
	for i, e := range entities {
		msg := &natsgo.Msg{Subject: "shop.orders", Data: e.Body, Header: natsgo.Header{"Nats-Batch-Sequence": {strconv.Itoa(i + 1)}}}
		for _, f := range codec.Header("orders", e) {
			msg.Header[f.Name] = append(msg.Header[f.Name], f.Value)
		}
		p.msgs = append(p.msgs, msg)
	}
	p.last = &natsgo.Msg{
		Subject: "_feedbridge.shop.orders", Data: checkpoint.Encode(sinktest.At(len(entities))),
		Header: natsgo.Header{
			"Nats-Batch-Sequence": {strconv.Itoa(len(entities) + 1)}, "Nats-Batch-Commit": {"1"},
			"Nats-Rollup": {"sub"}, "Nats-TTL": {"never"},
		},
	}
	return p
}

func (p *bare) commit(b *testing.B) {
	id := []string{nuid.Next()}
	for _, msg := range p.msgs {
		msg.Header["Nats-Batch-Id"] = id
		must.Succeed(b, p.nc.PublishMsg(msg))
	}
	p.last.Header["Nats-Batch-Id"] = id
	p.last.Header["Nats-Expected-Last-Subject-Sequence"] = []string{strconv.FormatUint(p.fence, 10)}
	reply, err := p.nc.RequestMsgWithContext(b.Context(), p.last)
	must.Succeed(b, err)
	var ack struct {
		Seq   uint64
		Count int
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil || ack.Count != len(p.msgs)+1 {
		b.Fatalf("%s: %v", reply.Data, err)
	}
	p.fence = ack.Seq
}
