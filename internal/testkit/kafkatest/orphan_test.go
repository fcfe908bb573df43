//go:build integration && linux

package kafkatest_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

const childRole = "KAFKATEST_CHILD"

// TestRunBrokerUntilKilled is the child in TestBrokerDiesWithTheTests.
func TestRunBrokerUntilKilled(t *testing.T) {
	if os.Getenv(childRole) == "" {
		t.Skip("this is the child of another test")
	}
	fmt.Printf("\n%s\n", kafkatest.Start(t).Addr())
	<-t.Context().Done()
}

func TestBrokerDiesWithTheTests(t *testing.T) {
	kafkatest.Shared(t) // or skip
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunBrokerUntilKilled$")
	cmd.Env = append(os.Environ(), childRole+"=1", "TMPDIR="+t.TempDir())
	stdout, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	addr := ""
	for lines := bufio.NewScanner(stdout); addr == "" && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "127.0.0.1:") {
			addr = lines.Text()
		}
	}
	listens := func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	if !listens() {
		t.Fatalf("no broker at %q", addr)
	}
	must.Succeed(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	for range 1200 {
		if !listens() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("the broker outlives the process that started it")
}
