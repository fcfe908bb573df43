// This program prints what happens to the orders of a topic on Kafka. Usage: go run . BROKER TOPIC
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, broker, topic := context.Background(), os.Args[1], os.Args[2]
	client, err := kgo.NewClient(
		kgo.SeedBrokers(broker), kgo.ConsumeTopics(topic), kgo.ConsumerGroup("my-service"), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // without entities of aborted transactions
	)
	check(err)
	for {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		for record := range fetches.RecordsAll() {
			var order struct{ ID, Status string }
			check(json.Unmarshal(record.Value, &order))
			for _, header := range record.Headers {
				if header.Key == "Feedbridge-Operation" {
					fmt.Println(string(header.Value), order.ID, order.Status)
				}
			}
		}
		check(client.CommitUncommittedOffsets(ctx)) // the positions; a crash before it repeats these messages
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
