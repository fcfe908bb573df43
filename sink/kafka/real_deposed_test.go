//go:build integration && linux

package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// The leader of the checkpoint's partition is frozen until another one is elected, and goes
// on. For a moment it answers copies that are stale with old offsets. They do not commit.
func TestRealStaleCopiesDoNotCommitWhenAFrozenLeaderGoesOn(t *testing.T) {
	t.Parallel()
	const frozen, stale, rounds = 2, 5, 4
	seeds, nodes := startNodes(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds[0]), kgo.MetadataMinAge(50*time.Millisecond))
	must.Succeed(t, err)
	t.Cleanup(cl.Close)
	createOn(t, cl, "feedbridge.checkpoints", map[string]string{"cleanup.policy": "compact"}, frozen, 1, 3)
	createOn(t, cl, "shop.orders", nil, 1, 2, 3)
	open := func(addrs ...string) *kafka.Sink {
		return connect(t, kafka.Config{Brokers: addrs, Timeout: 10 * time.Second}).Sink(orders())
	}
	s := open(seeds...)
	resumeSoon(t, s)
	commit(t, s, 0, 2)
	n, refused := 2, 0
	for range rounds {
		electPreferred(t, cl, "feedbridge.checkpoints", frozen)
		var copies []*kafka.Sink
		for range stale {
			late := open(seeds[frozen-1])
			resumeSoon(t, late)
			copies = append(copies, late)
		}
		must.Succeed(t, nodes[frozen-1].Signal(syscall.SIGSTOP))
		until(t, func() bool { return leaderOf(t, cl, "feedbridge.checkpoints") != frozen })
		s := open(seeds[0], seeds[2])
		resumeSoon(t, s)
		commit(t, s, n, n+3)
		var group sync.WaitGroup
		errs := make([]error, stale)
		for i, late := range copies {
			group.Go(func() { errs[i] = late.Commit(t.Context(), sinktest.Entities(n, 2), sinktest.At(n+2)) })
		}
		time.Sleep(200 * time.Millisecond) // their requests wait at the frozen leader
		must.Succeed(t, nodes[frozen-1].Signal(syscall.SIGCONT))
		group.Wait()
		n += 3
		for _, err := range errs {
			if err == nil {
				t.Error("a stale copy has committed")
			}
			if errors.Is(err, checkpoint.ErrConflict) {
				refused++
			}
		}
		fresh := open(seeds...)
		if cp := resumeSoon(t, fresh); cp.Count != uint64(n) {
			t.Fatalf("checkpoint %+v, want %d entities", cp, n)
		}
		wantFeed(t, fresh, n)
	}
	if refused == 0 {
		t.Error("no copy was refused")
	}
}

// resumeSoon resumes, and tries again while brokers come and go.
func resumeSoon(t *testing.T, s *kafka.Sink) (cp checkpoint.Checkpoint) {
	t.Helper()
	until(t, func() bool {
		var err error
		if cp, err = s.Resume(t.Context()); err != nil {
			t.Log(err)
		}
		return err == nil
	})
	return cp
}

// startNodes starts three brokers. The first one is the controller, too, and is never frozen.
func startNodes(t *testing.T) (seeds []string, nodes []*process) {
	t.Helper()
	if missing, err := kafkatest.Install(""); err != nil {
		t.Fatal(err)
	} else if missing != "" {
		t.Skip(missing)
	}
	controller := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	for i := range 3 {
		seed := fmt.Sprintf("127.0.0.1:%d", freePort(t))
		properties := map[string]string{
			"controller.quorum.voters":                 "1@" + controller,
			"listeners":                                "PLAIN://" + seed,
			"advertised.listeners":                     "PLAIN://" + seed,
			"process.roles":                            "broker",
			"default.replication.factor":               "3",
			"min.insync.replicas":                      "2",
			"transaction.state.log.replication.factor": "3",
			"transaction.state.log.min.isr":            "2",
			"auto.leader.rebalance.enable":             "false",
		}
		if i == 0 {
			properties["process.roles"] = "broker,controller"
			properties["listeners"] += ",CONTROLLER://" + controller
		}
		dir := t.TempDir()
		cmd, err := kafkatest.Node{ID: i + 1, Dir: dir, Store: filepath.Join(dir, "store"), Properties: properties}.Command("-Xmx256m")
		must.Succeed(t, err)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		must.Succeed(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		seeds, nodes = append(seeds, seed), append(nodes, &process{cmd})
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds[0]), kgo.MetadataMinAge(50*time.Millisecond))
	must.Succeed(t, err)
	defer cl.Close()
	until(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl)
		return err == nil && len(resp.Brokers) == 3
	})
	return seeds, nodes
}

type process struct{ cmd *exec.Cmd }

func (p *process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// createOn creates a topic of one partition on brokers, the first of which leads it.
func createOn(t *testing.T, cl *kgo.Client, name string, config map[string]string, brokers ...int32) {
	t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	assigned := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	assigned.Replicas = brokers
	topic.ReplicaAssignment = append(topic.ReplicaAssignment, assigned)
	for name, value := range config {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, &value
		topic.Configs = append(topic.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.TimeoutMillis = append(req.Topics, topic), 30_000
	resp, err := req.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	must.Succeed(t, err)
	until(t, func() bool { return leaderOf(t, cl, name) == brokers[0] })
}

// leaderOf returns the leader of a topic's first partition, as the controller's broker knows.
func leaderOf(t *testing.T, cl *kgo.Client, name string) int32 {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	req.Topics = append(req.Topics, topic)
	answer, err := cl.Broker(1).RetriableRequest(t.Context(), req)
	if err != nil {
		return -1
	}
	resp := answer.(*kmsg.MetadataResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return -1
	}
	return resp.Topics[0].Partitions[0].Leader
}

// electPreferred gives the lead of a topic's first partition back to its first replica.
func electPreferred(t *testing.T, cl *kgo.Client, name string, leader int32) {
	t.Helper()
	until(t, func() bool {
		req := kmsg.NewPtrElectLeadersRequest()
		topic := kmsg.NewElectLeadersRequestTopic()
		topic.Topic, topic.Partitions = name, []int32{0}
		req.Topics, req.TimeoutMillis = append(req.Topics, topic), 30_000
		_, _ = req.RequestWith(t.Context(), cl)
		return leaderOf(t, cl, name) == leader
	})
}
