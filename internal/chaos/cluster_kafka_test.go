//go:build chaos && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/sink"
)

// kafkaStoreSize is the disk space of a broker, in bytes.
const kafkaStoreSize = 1 << 30

// kafkaBus is a Kafka broker, or a cluster of three. Each node is a controller, too, unless there is a
// ZooKeeper.
type kafkaBus struct {
	nodes  []*node
	seeds  []string
	admin  *kadm.Client
	client *kgo.Client
	// versions are those of the nodes; empty for the one of the other tests.
	versions  []string
	zooKeeper *process // nil if the nodes are controllers

	mu    sync.Mutex
	tails map[string]*kafkaTail // by topic
}

func newKafka(scenario string, nodes int) (bus, error) {
	b := &kafkaBus{tails: map[string]*kafkaTail{}}
	zooKeeper, err := b.startZooKeeper(scenario)
	if err != nil {
		return nil, err
	}
	var voters []string
	ports := make([][2]int, nodes)
	for i := range nodes {
		n, err := newNode(scenario, i+1, kafkaStoreSize)
		if err != nil {
			return nil, err
		}
		for j := range ports[i] {
			if ports[i][j], err = freePort(n.listenHost()); err != nil {
				return nil, err
			}
		}
		b.nodes = append(b.nodes, n)
		b.seeds = append(b.seeds, n.address(ports[i][0]))
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, n.address(ports[i][1])))
	}
	for i, n := range b.nodes {
		server := kafkatest.Node{ZooKeeper: zooKeeper, ID: i + 1, Dir: n.dir, Store: n.store, Properties: map[string]string{
			"controller.quorum.voters": strings.Join(voters, ","),
			"listeners":                fmt.Sprintf("PLAIN://%s,CONTROLLER://%s", b.seeds[i], n.address(ports[i][1])),
			"advertised.listeners":     "PLAIN://" + b.seeds[i],
			// Little memory and few threads: several brokers share the machine.
			"num.network.threads":                 "1",
			"num.io.threads":                      "2",
			"num.recovery.threads.per.data.dir":   "1",
			"background.threads":                  "2",
			"log.segment.bytes":                   "16777216",
			"log.index.size.max.bytes":            "262144",
			"transaction.state.log.segment.bytes": "4194304",
			"metadata.log.segment.bytes":          "16777216",
		}}
		if nodes > 1 {
			for name, value := range map[string]string{
				"default.replication.factor":                       "3",
				"min.insync.replicas":                              "2",
				"offsets.topic.replication.factor":                 "3",
				"transaction.state.log.replication.factor":         "3",
				"transaction.state.log.min.isr":                    "2",
				"share.coordinator.state.topic.replication.factor": "3",
				"share.coordinator.state.topic.min.isr":            "2",
				"controller.quorum.election.timeout.ms":            "1000",
				"controller.quorum.fetch.timeout.ms":               "2000",
				"controller.quorum.election.backoff.max.ms":        "500",
				"broker.session.timeout.ms":                        "3000",
				"broker.heartbeat.interval.ms":                     "500",
				"replica.lag.time.max.ms":                          "10000",
				// Leaders move back to where they were, and do not gather on one node.
				"leader.imbalance.check.interval.seconds": "5",
				"leader.imbalance.per.broker.percentage":  "0",
			} {
				server.Properties[name] = value
			}
		}
		if zooKeeper != "" {
			server.Properties["listeners"] = "PLAIN://" + b.seeds[i]
			server.Properties["zookeeper.session.timeout.ms"] = "3000"
		}
		b.versions = append(b.versions, flags.kafka)
		n.command = func() (*exec.Cmd, error) {
			server.Version = b.versions[i]
			return server.Command("-Xmx256m", "-XX:-UsePerfData")
		}
		n.ready = func(ctx context.Context) error { return b.registered(ctx, i) }
	}
	b.client, err = kgo.NewClient(kgo.SeedBrokers(b.seeds...), kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(2*time.Second))
	if err != nil {
		return nil, err
	}
	b.admin = kadm.NewClient(b.client)
	return b, nil
}

// startZooKeeper starts a ZooKeeper for brokers of a version that needs one, and returns its address.
// Nothing is injected into it.
func (b *kafkaBus) startZooKeeper(scenario string) (address string, err error) {
	if !strings.HasPrefix(flags.kafka, "2.") {
		return "", nil
	}
	host := "127.0.0.1"
	if machine.network {
		host = hubAddress
	}
	port, err := freePort(host)
	if err != nil {
		return "", err
	}
	address = net.JoinHostPort(host, strconv.Itoa(port))
	dir := chaosDir(scenario, "zookeeper")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	cmd, err := kafkatest.ZooKeeper(flags.kafka, address, dir)
	if err == nil {
		b.zooKeeper, err = startLogged(cmd, filepath.Join(dir, "log"))
	}
	return address, err
}

// registered returns nil if a broker answers, and knows that it is part of the
// cluster.
func (b *kafkaBus) registered(ctx context.Context, i int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.seeds[i]), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	brokers, err := kadm.NewClient(cl).ListBrokers(ctx)
	if err != nil {
		return err
	}
	for _, broker := range brokers {
		if int(broker.NodeID) == i+1 {
			return nil
		}
	}
	return errors.New("it is not registered")
}

func (b *kafkaBus) servers() []*node { return b.nodes }

func (b *kafkaBus) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tails {
		t.client.Close()
	}
	b.client.Close()
	if b.zooKeeper != nil {
		b.zooKeeper.kill()
	}
}

func (b *kafkaBus) configure() string {
	return fmt.Sprintf("kafka: {brokers: [%s], timeout: 2s}", strings.Join(b.seeds, ", "))
}

func (b *kafkaBus) configureTopic(f *feed) string {
	if f.deadLetters {
		return fmt.Sprintf("kafka: {create: true, config: [max.message.bytes=%d]}", messageLimit)
	}
	return "kafka: {create: true}"
}

// checkpoints is the topic where feedbridge keeps the checkpoints of all feeds. The
// partition depends on the feed's topic.
const checkpoints = "feedbridge.checkpoints"

func (b *kafkaBus) leaders(ctx context.Context, topic string) ([]*node, error) {
	details, err := b.admin.ListTopics(ctx, topic, checkpoints)
	if err == nil {
		err = details.Error()
	}
	if err != nil {
		return nil, err
	}
	n := len(details[checkpoints].Partitions)
	partition := kgo.StickyKeyPartitioner(nil).ForTopic(checkpoints).Partition(&kgo.Record{Key: []byte(topic)}, n)
	var leaders []*node
	for _, id := range []int32{details[topic].Partitions[0].Leader, details[checkpoints].Partitions[int32(partition)].Leader} {
		leader, err := b.numbered(id)
		if err != nil {
			return nil, err
		}
		leaders = append(leaders, leader)
	}
	return leaders, nil
}

func (b *kafkaBus) controller(ctx context.Context) (*node, error) {
	if b.zooKeeper != nil {
		brokers, err := b.admin.BrokerMetadata(ctx)
		if err != nil {
			return nil, err
		}
		return b.numbered(brokers.Controller)
	}
	r := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	r.Topics = append(r.Topics, t)
	resp, err := r.RequestWith(ctx, b.client)
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) == 0 || len(resp.Topics[0].Partitions) == 0 {
		return nil, fmt.Errorf("no quorum: %w", kerr.ErrorForCode(resp.ErrorCode))
	}
	return b.numbered(resp.Topics[0].Partitions[0].LeaderID)
}

func (b *kafkaBus) numbered(id int32) (*node, error) {
	if id < 1 || int(id) > len(b.nodes) {
		return nil, fmt.Errorf("no node leads: %d", id)
	}
	return b.nodes[id-1], nil
}

// stable returns the last stable offset of a topic; -1 if there is no topic.
func (b *kafkaBus) stable(ctx context.Context, topic string) (int64, error) {
	offsets, err := b.admin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	end, ok := offsets.Lookup(topic, 0)
	if !ok || errors.Is(end.Err, kerr.UnknownTopicOrPartition) {
		return -1, nil
	}
	return end.Offset, end.Err
}

// kafkaTail counts the records that a consumer has read of a topic.
type kafkaTail struct {
	client *kgo.Client
	next   int64 // where it reads on
	n      int
	last   string
	moved  time.Time // when it last had nothing to read, or read something
}

// stuckTimeout is how long a consumer may read nothing of a topic that has more. That was
// seen, rarely, after a tail was lost or a backup was restored; a new consumer reads on.
const stuckTimeout = 10 * time.Second

func (b *kafkaBus) tip(ctx context.Context, topic string) (int, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	end, err := b.stable(ctx, topic)
	if err != nil || end < 0 {
		return 0, "", err
	}
	t := b.tails[topic]
	if t != nil && (end < t.next || time.Since(t.moved) > stuckTimeout) {
		// The topic has lost its tail, or had another one in the meantime.
		t.client.Close()
		t = nil
	}
	if t == nil {
		t = &kafkaTail{moved: time.Now()}
		if t.client, err = b.consume(topic); err != nil {
			return 0, "", err
		}
		b.tails[topic] = t
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	before := t.next
	err = t.readTo(ctx, end, func(r *kgo.Record) { t.last = header(r, contentIDHeader) })
	if t.next != before || t.next == end {
		t.moved = time.Now()
	}
	return t.n, t.last, err
}

// readTo reads until an offset or ctx ends.
func (t *kafkaTail) readTo(ctx context.Context, end int64, each func(*kgo.Record)) error {
	for t.next < end {
		fetches := t.client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			t.next = r.Offset + 1
			// Control records mark the ends of transactions.
			if !r.Attrs.IsControl() {
				t.n++
				each(r)
			}
		})
	}
	return nil
}

// consume returns a consumer of a topic from its first record. It reads committed records.
func (b *kafkaBus) consume(topic string) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(b.seeds...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.MetadataMaxAge(2*time.Second),
	)
}

func (b *kafkaBus) read(ctx context.Context, topic string, dead bool) ([]message, error) {
	if dead {
		topic += sink.DeadSuffix
	}
	end, err := b.stable(ctx, topic)
	if err != nil || end < 0 {
		return nil, err
	}
	client, err := b.consume(topic)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var all []message
	err = (&kafkaTail{client: client}).readTo(ctx, end, func(r *kgo.Record) {
		all = append(all, message{header(r, contentIDHeader), string(r.Value), header(r, deadReasonHeader)})
	})
	return all, err
}

func (b *kafkaBus) remove(ctx context.Context, topic string) error {
	b.mu.Lock()
	if t := b.tails[topic]; t != nil {
		t.client.Close()
		delete(b.tails, topic)
	}
	b.mu.Unlock()
	_, err := b.admin.DeleteTopics(ctx, topic, topic+sink.DeadSuffix) // one may be missing
	return err
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
