// This program prints the entities of a topic on NATS. Usage: go run . URL STREAM TOPIC
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func handle(operation, id string, body []byte) {
	fmt.Printf("%s\t%s\t%s\n", operation, id, body)
}

func consume(ctx context.Context, url, stream, topic string) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: "my-service", FilterSubject: topic, AckPolicy: jetstream.AckExplicitPolicy,
		MaxAckPending: 1, // one message at a time: with more, one that failed comes again after its successors
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	var last uint64 // better: the sequence that you have stored together with the effect of its message
	for {
		message, err := messages.Next()
		if err != nil {
			return err
		}
		meta, err := message.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Stream > last { // otherwise the acknowledgement was lost, and it was handled before
			header := message.Headers() // its names are case-sensitive
			handle(header.Get("Feedbridge-Operation"), header.Get("Content-ID"), message.Data())
			last = meta.Sequence.Stream
		}
		if err := message.DoubleAck(ctx); err != nil {
			return err
		}
	}
}

func main() {
	log.Fatal(consume(context.Background(), os.Args[1], os.Args[2], os.Args[3]))
}
