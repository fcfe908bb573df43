package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"sync"
	"testing"
)

// shared is the broker that the tests of this process share.
var shared struct {
	mu     sync.Mutex
	inMain bool
	tried  bool
	broker *Broker
	err    error
	dir    string
}

// Main runs the tests of a package and ends the shared broker after them:
//
//	func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }
func Main(m interface{ Run() int }) int {
	shared.mu.Lock()
	shared.inMain = true
	shared.mu.Unlock()
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.inMain = false
	if shared.broker != nil {
		shared.broker.Kill()
	}
	_ = os.RemoveAll(shared.dir)
	return code
}

// Shared returns the broker of this process, which it starts at first, with the
// default settings. It runs until the end of [Main], in which the tests must run.
// Nobody kills it, and each test has topics of its own: see [Name].
func Shared(t testing.TB) *Broker {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.inMain {
		t.Fatal("kafkatest.Shared: the package's TestMain must call kafkatest.Main, which ends the broker")
	}
	if !shared.tried {
		shared.tried = true
		shared.broker, shared.err = startShared()
	}
	if shared.err != nil {
		giveUp(t, shared.err)
	}
	shared.broker.printLogIfFailed(t)
	return shared.broker
}

// unfit are the characters that the name of a topic cannot have.
var unfit = regexp.MustCompile(`[^a-zA-Z0-9._-]+`)

// Name returns a name for a topic, a transactional id or the like that no other
// test has had. It begins with that of the test.
func Name(t testing.TB) string {
	name := unfit.ReplaceAllString(t.Name(), ".")
	return fmt.Sprintf("%s-%08x", name[:min(len(name), 200)], rand.Uint32())
}

// startShared starts the shared broker. shared.mu is held.
func startShared() (*Broker, error) {
	k, err := installed(version)
	if err != nil {
		return nil, err
	}
	// The directory of a test would go with that test.
	if shared.dir, err = os.MkdirTemp("", "kafkatest-"); err != nil {
		return nil, err
	}
	return launch(context.Background(), k, shared.dir, apply(nil))
}

// required reports whether tests fail on a machine without Kafka. It is taken out of the
// environment: a feedbridge that a test runs would refuse a variable of its own prefix that
// it does not know.
var required = func() bool {
	const name = "FEEDBRIDGE_REQUIRE_KAFKA"
	value := os.Getenv(name)
	_ = os.Unsetenv(name)
	return value == "1"
}()

// giveUp ends a test that has no broker because of err.
func giveUp(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errMissing) && !required {
		t.Skip(err)
	}
	t.Fatal(err)
}
