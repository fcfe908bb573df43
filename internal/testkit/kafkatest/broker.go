package kafkatest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	// startTimeout limits the start of a broker. It allows for a JVM on a busy machine.
	startTimeout = 2 * time.Minute
	stopTimeout  = time.Minute
	// tailSize limits the part of a broker's log that a failed test prints, in bytes.
	tailSize = 8 << 10
)

// Broker is one node of Kafka. Its methods may be called from any goroutine.
type Broker struct {
	kit   kit
	dir   string // has server.properties, log and store
	ports ports
	jvm   []string

	mu  sync.Mutex
	run *process // nil when none runs
}

// Start runs a broker until the test ends. It skips the test where there is no
// JDK or no Maven, or fails it: see the package comment.
func Start(t testing.TB, options ...Option) *Broker {
	t.Helper()
	k, err := installed(version)
	if err != nil {
		giveUp(t, err)
	}
	b, err := launch(t.Context(), k, t.TempDir(), apply(options))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Kill)
	b.printLogIfFailed(t)
	return b
}

func apply(options []Option) settings {
	s := settings{properties: map[string]string{}, users: map[string]string{}}
	for _, option := range options {
		option(&s)
	}
	return s
}

// launch starts a broker with a new store in dir.
func launch(ctx context.Context, k kit, dir string, s settings) (*Broker, error) {
	b := &Broker{kit: k, dir: dir, jvm: s.jvm}
	store := filepath.Join(dir, "store")
	if err := os.CopyFS(store, os.DirFS(k.store)); err != nil {
		return nil, err
	}
	var err error
	if b.ports, err = reservePorts(); err != nil {
		return nil, err
	}
	text := properties(store, b.ports, s)
	if err := os.WriteFile(b.file("server.properties"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err = b.Restart(ctx); err == nil {
		err = b.addUsers(ctx, s.users)
	}
	if err != nil {
		b.Kill()
		return nil, err
	}
	return b, nil
}

// Addr is the host and port where everyone may do everything.
func (b *Broker) Addr() string { return address(b.ports.plain) }

// SASLAddr is the host and port for users: see [User].
func (b *Broker) SASLAddr() string { return address(b.ports.sasl) }

// Kill ends the broker by SIGKILL. Acknowledged records survive in the kernel's page cache. It
// does nothing if the broker does not run.
func (b *Broker) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run != nil {
		b.run.kill()
		b.run = nil
	}
}

// Stop ends the broker by SIGTERM, as an operator does, and waits until it has ended. It does
// nothing if the broker does not run.
func (b *Broker) Stop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run == nil {
		return nil
	}
	err := b.run.terminate(stopTimeout)
	b.run = nil
	if err != nil {
		return fmt.Errorf("stop Kafka: %w", err)
	}
	return nil
}

// Restart runs the broker again, on the same ports and the same store, and
// returns when it answers. One that still runs is stopped before.
func (b *Broker) Restart(ctx context.Context) error {
	if err := b.Stop(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	log, err := os.OpenFile(b.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has it
	flags := append(b.kit.archived(), logging...)
	// The broker runs on when the caller's context has ended.
	cmd := b.kit.jvm(context.WithoutCancel(ctx), append(flags, b.jvm...), "kafka.Kafka", b.file("server.properties"))
	cmd.Stdout, cmd.Stderr = log, log
	if b.run, err = start(cmd); err != nil {
		return fmt.Errorf("start Kafka: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := b.answers(ctx); err != nil {
		b.run.kill()
		b.run = nil
		return fmt.Errorf("start Kafka: %w\n%s", err, b.tail())
	}
	return nil
}

func (b *Broker) file(name string) string { return filepath.Join(b.dir, name) }

// logging limits the broker's log mostly to warnings and errors, so that the tail of the log
// has the reason of a failure.
var logging = []string{
	"-Dorg.slf4j.simpleLogger.showDateTime=true",
	"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
	"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
	"-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
	"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.coordinator.transaction=info",
}

// tail is the end of the broker's log.
func (b *Broker) tail() string {
	text, err := os.ReadFile(b.file("log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-tailSize):])
}

func (b *Broker) printLogIfFailed(t testing.TB) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of Kafka at %s:\n%s", b.Addr(), b.tail())
		}
	})
}
