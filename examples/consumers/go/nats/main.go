// This program prints what happens to the orders of a topic on NATS. Usage: go run . URL STREAM TOPIC
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	url, stream, topic := os.Args[1], os.Args[2], os.Args[3]
	position := uint64(0)
	stored, err := os.ReadFile("position")
	if !errors.Is(err, fs.ErrNotExist) {
		check(err)
		check(json.Unmarshal(stored, &position))
	}
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	check(err)
	js, err := jetstream.New(nc)
	check(err)
	consumer, err := js.OrderedConsumer(context.Background(), stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{topic}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: position + 1,
	})
	check(err)
	messages, err := consumer.Messages()
	check(err)
	for {
		message, err := messages.Next()
		check(err)
		var order struct{ ID, Status string }
		check(json.Unmarshal(message.Data(), &order))
		fmt.Println(message.Headers().Get("Feedbridge-Operation"), order.ID, order.Status)
		meta, err := message.Metadata()
		check(err)
		// After the effect: a crash before it repeats the message.
		check(os.WriteFile("position.new", fmt.Append(nil, meta.Sequence.Stream), 0o600))
		check(os.Rename("position.new", "position"))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
