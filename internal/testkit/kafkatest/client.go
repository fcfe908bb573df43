package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// answers waits until the broker counts itself among the brokers that work.
// b.mu is held.
func (b *Broker) answers(ctx context.Context) error {
	admin, err := b.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		brokers, err := admin.ListBrokers(attempt)
		cancel()
		if err == nil && len(brokers) > 0 {
			return nil
		}
		select {
		case <-b.run.done:
			return fmt.Errorf("it ended: %w", b.run.err)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// addUsers stores the users' passwords for SCRAM. Those for PLAIN are in server.properties.
func (b *Broker) addUsers(ctx context.Context, users map[string]string) error {
	if len(users) == 0 {
		return nil
	}
	admin, err := b.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	// A request may name a user once.
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		var upsert []kadm.UpsertSCRAM
		for _, name := range slices.Sorted(maps.Keys(users)) {
			upsert = append(upsert, kadm.UpsertSCRAM{
				User: name, Mechanism: mechanism, Iterations: 4096, Password: users[name],
			})
		}
		altered, err := admin.AlterUserSCRAMs(ctx, nil, upsert)
		if err == nil {
			err = altered.Error()
		}
		if err != nil {
			return fmt.Errorf("add users to Kafka: %w", err)
		}
	}
	return nil
}

func (b *Broker) admin() (*kadm.Client, error) {
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(b.Addr()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		// A connection that another program took keeps silent.
		kgo.RequestTimeoutOverhead(time.Second),
	)
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(cl), nil
}
