// Package consumers_test runs the example consumers of docs/consuming-*.md against topics that
// the real sinks have written.
package consumers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink/kafka"
	sinknats "github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
	"github.com/feedbridge/feedbridge/source/datareplication/sample"
)

// patience limits waits on a busy machine. Nothing is measured by it.
const patience = 2 * time.Minute

// A consumer is one example. The tools that it needs, apart from Go, are looked for by
// prepare, which returns the command and its first arguments.
type consumer struct {
	name    string
	prepare func(t *testing.T) []string
}

func TestNATSConsumers(t *testing.T) {
	t.Parallel()
	for _, c := range []consumer{
		{"python", python("nats", "python/nats_consumer.py")},
		{"go", golang("./go/nats")},
		{"javascript", javascript("javascript/nats_consumer.js")},
		{"java", java("java/NatsConsumer.java")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			command := c.prepare(t)
			server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Close)
			url := server.URL()
			conn, err := sinknats.Connect(t.Context(), sinknats.Config{URL: url, Timeout: time.Minute}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Close)
			topic := fill(t, conn.Sink(sinknats.Topic{Feed: "orders", Subject: "shop.orders", Stream: sinknats.Stream{Create: true}}))
			command = append(command, url, "shop_orders", "shop.orders")

			topic.publish(first...)
			topic.publish(second...) // the stream has a checkpoint between them
			dir := t.TempDir()       // keeps the position
			running := start(t, dir, command)
			running.want(append(lines(first), lines(second)...))
			topic.publish(third...)
			running.want(lines(third))
			running.stop()
			topic.publish(fourth...)
			// A program that was stopped before it stored a position prints the last line again.
			start(t, dir, command).wantAfter(lines(third[1:]), lines(fourth))
		})
	}
}

func TestKafkaConsumers(t *testing.T) {
	t.Parallel()
	for _, c := range []consumer{
		{"python", python("confluent_kafka", "python/kafka_consumer.py")},
		{"go", golang("./go/kafka")},
		{"javascript", javascript("javascript/kafka_consumer.js")},
		{"java", java("java/KafkaConsumer.java")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			command := c.prepare(t)
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cluster.Close)
			conn, err := kafka.Connect(t.Context(), kafka.Config{Brokers: cluster.ListenAddrs(), Timeout: time.Minute, TransactionTimeout: 3 * time.Minute}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Close)
			topic := fill(t, conn.Sink(kafka.Topic{Feed: "orders", Name: "shop.orders", Options: kafka.DefaultOptions()}))

			topic.publish(first...)
			abort(t, cluster) // a reader with read_uncommitted prints it
			topic.publish(second...)
			command = append(command, cluster.ListenAddrs()[0], "shop.orders")
			running := start(t, t.TempDir(), command)
			running.want(append(lines(first), lines(second)...))
			topic.publish(third...)
			running.want(lines(third))
		})
	}
}

// The entities are those of the demo.
var (
	order  = sample.Orders(func(int) time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) })
	first  = []feed.Entity{order(0), order(1), order(2)}
	second = []feed.Entity{order(3), order(4)}
	third  = []feed.Entity{spelled("put", order(5)), spelled(`http-equiv="delete"`, order(6))}
	fourth = []feed.Entity{order(7)}
)

// spelled gives the entity a header of the feed's own with another spelling of its operation.
func spelled(operation string, e feed.Entity) feed.Entity {
	e.Header = append(slices.Clone(e.Header), feed.Field{Name: "operation-type", Value: operation})
	return e
}

// lines returns what a consumer prints of entities.
func lines(entities []feed.Entity) []string {
	var all []string
	for _, e := range entities {
		var body struct{ ID, Status string }
		if err := json.Unmarshal(e.Body, &body); err != nil {
			panic(err)
		}
		all = append(all, string(e.Op)+" "+body.ID+" "+body.Status)
	}
	return all
}

// A topic is the destination of a feed.
type topic struct {
	t     *testing.T
	sink  bridge.Sink
	count uint64
}

func fill(t *testing.T, sink bridge.Sink) *topic {
	t.Helper()
	if _, err := sink.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &topic{t: t, sink: sink}
}

// publish makes one commit.
func (p *topic) publish(entities ...feed.Entity) {
	p.t.Helper()
	p.count += uint64(len(entities))
	cp := checkpoint.Checkpoint{Feed: "orders", Source: "datareplication", Cursor: feed.Cursor("cursor"), Count: p.count, At: time.Now(), Writer: "test"}
	if err := p.sink.Commit(p.t.Context(), entities, cp); err != nil {
		p.t.Fatal(err)
	}
}

// abort writes a record to the topic in a transaction that is aborted.
func abort(t *testing.T, cluster *kfake.Cluster) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.TransactionalID("other"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	record := &kgo.Record{Topic: "shop.orders", Value: []byte(`{"id":"aborted"}`), Headers: []kgo.RecordHeader{
		{Key: "Feedbridge-Operation", Value: []byte("PUT")},
	}}
	if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := client.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
}

// A process is a running consumer.
type process struct {
	t     *testing.T
	lines chan string
	stop  func()
}

// start runs a consumer in dir.
func start(t *testing.T, dir string, command []string) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Stderr = dir, t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, lines: make(chan string)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			select {
			case p.lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	p.stop = func() {
		cancel()
		<-read
		_ = cmd.Wait() // it was killed
	}
	t.Cleanup(p.stop)
	return p
}

// want reads as many lines as are given, and compares them.
func (p *process) want(lines []string) {
	p.t.Helper()
	p.wantAfter(nil, lines)
}

// wantAfter is want for a consumer that may print the lines of again before them.
func (p *process) wantAfter(again, lines []string) {
	p.t.Helper()
	deadline := time.After(patience)
	for i := 0; i < len(lines); {
		select {
		case got, ok := <-p.lines:
			switch {
			case !ok:
				p.t.Fatalf("the consumer has ended before line %d, %q", i, lines[i])
			case got == lines[i]:
				i++
			case i == 0 && len(again) > 0 && got == again[0]:
				again = again[1:]
			default:
				p.t.Fatalf("line %d is %q, want %q", i, got, lines[i])
			}
		case <-deadline:
			p.t.Fatalf("the consumer does not print line %d, %q", i, lines[i])
		}
	}
}

// missing skips the test, or fails it if REQUIRE_CONSUMERS is set.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("REQUIRE_CONSUMERS") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func python(module, file string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		if out, err := exec.CommandContext(t.Context(), "python3", "-c", "import "+module).CombinedOutput(); err != nil {
			missing(t, "python3 cannot import %s (%v): run pip install -r examples/consumers/python/requirements.txt\n%s", module, err, out)
		}
		return []string{"python3", absolute(t, file)}
	}
}

func golang(dir string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		program := filepath.Join(t.TempDir(), "consumer")
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, dir).CombinedOutput(); err != nil {
			t.Fatalf("go build %s: %v\n%s", dir, err, out)
		}
		return []string{program}
	}
}

func javascript(file string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		if _, err := exec.LookPath("node"); err != nil {
			missing(t, "there is no node: %v", err)
		}
		if _, err := os.Stat("javascript/node_modules"); err != nil {
			missing(t, "the packages are not installed: run npm install --no-package-lock in examples/consumers/javascript")
		}
		return []string{"node", absolute(t, file)}
	}
}

func java(file string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		if _, err := exec.LookPath("java"); err != nil {
			missing(t, "there is no java: %v", err)
		}
		jars, err := filepath.Glob("java/target/dependency/*.jar")
		if err != nil || len(jars) == 0 {
			missing(t, "the jars are not there: run mvn dependency:copy-dependencies in examples/consumers/java")
		}
		for i, jar := range jars {
			jars[i] = absolute(t, jar)
		}
		return []string{"java", "-cp", strings.Join(jars, string(os.PathListSeparator)), absolute(t, file)}
	}
}

func absolute(t *testing.T, file string) string {
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
