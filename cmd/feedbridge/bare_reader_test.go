package main

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// readResult is the time that a reader took, and its processor time.
type readResult struct{ took, cpu time.Duration }

// readBare reads a topic with a bare client that is a process of its own and was just started, as
// is the program that it is compared with.
func readBare(b *testing.B, role, address, topic string, length int) (r readResult) {
	b.Helper()
	cmd, out := spawn(b, role, nil, address, topic, strconv.Itoa(length))
	line, err := bufio.NewReader(out).ReadString('\n')
	must.Succeed(b, err)
	_ = cmd.Wait()
	if _, err := fmt.Sscan(line, (*int64)(&r.took), (*int64)(&r.cpu)); err != nil {
		b.Fatal(err)
	}
	return r
}

// playBare connects, then reads the first messages of a topic, and prints the nanoseconds
// that these took, and those of the processor.
func playBare(connect func() (read func() error, err error)) error {
	read, err := connect()
	if err != nil {
		return err
	}
	begun, used := time.Now(), ownCPU()
	if err := read(); err != nil {
		return err
	}
	fmt.Println(time.Since(begun).Nanoseconds(), (ownCPU() - used).Nanoseconds())
	return nil
}

// ownCPU returns the processor time of this process.
func ownCPU() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// bareNATS reads with an ordered consumer.
func bareNATS(address, topic string, length int) (read func() error, err error) {
	nc, err := nats.Connect(address)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return func() error {
		consumer, err := js.OrderedConsumer(context.Background(), topic, jetstream.OrderedConsumerConfig{FilterSubjects: []string{topic}})
		if err != nil {
			return err
		}
		messages, err := consumer.Messages()
		if err != nil {
			return err
		}
		defer messages.Stop()
		for range length {
			if _, err := messages.Next(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// bareKafka reads with a consumer of franz-go.
func bareKafka(address, topic string, length int) (read func() error, err error) {
	ctx := context.Background()
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	return func() error {
		client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}})
		for n := 0; n < length; {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return err
			}
			n += fetches.NumRecords()
		}
		return nil
	}, client.Ping(ctx)
}
