// This program prints the entities of a topic on Kafka. Usage: go run . BROKER TOPIC
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

func handle(operation, id string, body []byte) {
	fmt.Printf("%s\t%s\t%s\n", operation, id, body)
}

func consume(ctx context.Context, broker, topic string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(broker), kgo.ConsumeTopics(topic), kgo.ConsumerGroup("my-service"), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // without entities of aborted transactions
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			header := map[string]string{}
			for _, h := range slices.Backward(record.Headers) { // of several values the first
				header[h.Key] = string(h.Value)
			}
			// A nil record.Value is a tombstone, with "delete: tombstone".
			handle(header["Feedbridge-Operation"], header["Content-ID"], record.Value)
		})
		// Afterwards: a crash in between repeats messages. Better: store partition and offset
		// together with the effect of each message, and continue from there.
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
	}
}

func main() {
	log.Fatal(consume(context.Background(), os.Args[1], os.Args[2]))
}
