// This program prints the CloudEvents of a topic, one JSON object in a line.
// Usage: go run . nats URL STREAM TOPIC, or go run . kafka BROKER TOPIC
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/IBM/sarama"
	"github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// show prints the event of a message, if it is a valid one.
func show(ctx context.Context, message binding.Message) error {
	event, err := binding.ToEvent(ctx, message)
	if err != nil {
		return err
	}
	if err := event.Validate(); err != nil {
		return fmt.Errorf("event %s: %w", event.ID(), err)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"id": event.ID(), "source": event.Source(), "type": event.Type(), "subject": event.Subject(), "time": event.Time(),
		"datacontenttype": event.DataContentType(), "sequence": event.Extensions()["sequence"], "data": string(event.Data()),
	})
}

func readNATS(ctx context.Context, url, stream, topic string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	consumer, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{topic}})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	for {
		m, err := messages.Next()
		if err != nil {
			return err
		}
		if err := show(ctx, nats_jetstream.NewMessage(&nats.Msg{Header: m.Headers(), Data: m.Data()})); err != nil {
			return err
		}
	}
}

func readKafka(ctx context.Context, broker, topic string) error {
	config := sarama.NewConfig()
	config.Version = sarama.V2_5_0_0
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer([]string{broker}, config)
	if err != nil {
		return err
	}
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	for m := range partition.Messages() {
		if err := show(ctx, kafka_sarama.NewMessageFromConsumerMessage(m)); err != nil {
			return err
		}
	}
	return errors.New("the consumer has ended")
}

func main() {
	ctx := context.Background()
	if os.Args[1] == "nats" {
		log.Fatal(readNATS(ctx, os.Args[2], os.Args[3], os.Args[4]))
	}
	log.Fatal(readKafka(ctx, os.Args[2], os.Args[3]))
}
