//go:build chaos && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/feedbridge/feedbridge/sink"
)

// limitProducers gives all producers a quota of some kilobytes a second for some time.
func limitProducers(ctx context.Context, s *scenario) error {
	b := s.bus.(*kafkaBus)
	set := func(rate float64) error {
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		altered, err := b.admin.AlterClientQuotas(attempt, []kadm.AlterClientQuotaEntry{{
			Entity: kadm.ClientQuotaEntity{{Type: "client-id"}}, // nil is the default of all
			Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: rate, Remove: rate == 0}},
		}})
		for _, a := range altered {
			err = errors.Join(err, a.Err)
		}
		return err
	}
	if err := set(float64(20_000 + s.random.IntN(180_000))); err != nil {
		return fmt.Errorf("%w: %w", errNotInjected, err)
	}
	s.burst()
	_ = pause(ctx, s.between(1000, 9000))
	return set(0)
}

// mostCheckpointPartitions limits the number of partitions that are made in a long run.
const mostCheckpointPartitions = 90

// addPartitions adds partitions to the topic for checkpoints. No feed publishes for the first time.
func addPartitions(ctx context.Context, s *scenario) error {
	b := s.bus.(*kafkaBus)
	attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	details, err := b.admin.ListTopics(attempt, checkpoints)
	if err == nil && len(details[checkpoints].Partitions) >= mostCheckpointPartitions {
		err = errors.New("it has many")
	}
	if err == nil {
		var created kadm.CreatePartitionsResponses
		if created, err = b.admin.CreatePartitions(attempt, 1+s.random.IntN(3), checkpoints); err == nil {
			err = created.Error()
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotInjected, err)
	}
	s.burst()
	return nil
}

// coordinator returns the coordinator of the fleet's group, or that of the transactions if there is
// no fleet.
func (s *scenario) coordinator(ctx context.Context) (*node, error) {
	topic := "__transaction_state"
	if s.copies[0].fleet {
		topic = "__consumer_offsets"
	}
	return s.firstLeader(ctx, topic)
}

// firstLeader returns the leader of the first partition of a topic on Kafka. The topics of the coordinators have no
// other.
func (s *scenario) firstLeader(ctx context.Context, topic string) (*node, error) {
	b := s.bus.(*kafkaBus)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	details, err := b.admin.ListTopicsWithInternal(ctx, topic)
	if err == nil {
		err = details.Error()
	}
	var n *node
	if err == nil {
		n, err = b.numbered(details[topic].Partitions[0].Leader)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotInjected, err)
	}
	return n, nil
}

func freezeCoordinator(ctx context.Context, s *scenario) error {
	n, err := s.coordinator(ctx)
	if err != nil {
		return err
	}
	return freeze(ctx, s, n, s.between(500, 9000))
}

func killCoordinator(ctx context.Context, s *scenario) error {
	n, err := s.coordinator(ctx)
	if err != nil {
		return err
	}
	return restart(ctx, s, n, (*node).kill)
}

// deposeLeaderOfDeadLetters freezes the leader of a topic's dead letters until another node leads and
// has more of them. When it continues and has not noticed that yet, the copies start, and read the
// end of the feed again.
func deposeLeaderOfDeadLetters(ctx context.Context, s *scenario) error {
	f := s.feedToMove()
	for !f.deadLetters {
		f = s.feedToMove()
	}
	n, err := s.firstLeader(ctx, f.topic+sink.DeadSuffix)
	if err != nil {
		return err
	}
	defer s.rest(ctx)()
	known := f.end().last
	awake, thaw := s.freezeAllButOne()
	defer thaw()
	n.freeze()
	f.grow(200)
	for range 100 {
		if f.end().last != known {
			break
		}
		_ = pause(ctx, 100*time.Millisecond)
	}
	_ = pause(ctx, s.between(1000, 3000))
	// The feed has dead letters behind this position.
	var set error
	for range 3 { // another node may have to be elected for its partition, too
		if _, set = awake.checkpoint(ctx, "set", "--yes", f.name, f.position(max(f.base, f.numberOf(f.end().last)-150))); set == nil {
			break
		}
	}
	awake.mu.Lock()
	defer awake.mu.Unlock()
	for _, p := range s.copies {
		p.run.kill()
	}
	n.run.signal(syscall.SIGCONT)
	for _, p := range s.copies {
		if err := p.start(); err != nil {
			return err
		}
	}
	thaw()
	if err := n.waitReady(ctx); err != nil {
		return err
	}
	if set != nil {
		return fmt.Errorf("%w: %w", errNotInjected, set)
	}
	return nil
}

func needsUpgrade() string {
	if flags.upgrade == "" {
		return "-upgrade names no version"
	}
	return ""
}

// upgradeNode stops a node as an operator does, and starts it with the version of -upgrade.
func upgradeNode(ctx context.Context, s *scenario) error {
	b := s.bus.(*kafkaBus)
	for i, n := range b.nodes {
		if b.versions[i] != flags.upgrade {
			b.versions[i] = flags.upgrade
			return restart(ctx, s, n, (*node).stop)
		}
	}
	return fmt.Errorf("%w: all nodes are upgraded", errNotInjected)
}
