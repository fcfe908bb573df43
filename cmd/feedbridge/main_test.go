package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

// testMainRole makes the test's own binary play another part, in a process of
// its own: the program, a NATS server, or an upstream.
const testMainRole = "FEEDBRIDGE_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(testMainRole)
	if role == "" {
		// In scripts the parts are commands.
		commands := map[string]func(){}
		for _, role := range []string{"feedbridge", "nats", "kafka"} {
			commands[role] = func() { begin(role) }
		}
		testscript.Main(testRun{m}, commands)
	}
	// Variables with the program's prefix belong to its configuration.
	_ = os.Unsetenv(testMainRole)
	begin(role)
}

func begin(role string) {
	if err := play(role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(role string) error {
	switch role {
	case "memory-limit":
		daemon.LimitMemory()
		fmt.Println(debug.SetMemoryLimit(-1))
		return nil
	case "feedbridge":
		main()
	case "nats":
		// nats DIR PORT: a server as it is without a configuration
		port, err := strconv.Atoi(os.Args[2])
		if err != nil {
			return err
		}
		srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: os.Args[1], NoSigs: true})
		if err != nil {
			return err
		}
		srv.Start()
		if !srv.ReadyForConnections(time.Minute) {
			return errors.New("the NATS server does not start")
		}
		fmt.Println(srv.ClientURL())
	case "kafka":
		// kafka DIR 127.0.0.1:PORT: a broker that stores its data in DIR
		_, number, err := net.SplitHostPort(os.Args[2])
		if err != nil {
			return err
		}
		port, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(os.Args[1]))
		if err != nil {
			return err
		}
		fmt.Println(cluster.ListenAddrs()[0])
	case "upstream":
		// upstream LISTEN PAGE-SIZE ENTITIES BODY-BYTES
		var numbers [3]int
		for i, arg := range os.Args[2:] {
			var err error
			if numbers[i], err = strconv.Atoi(arg); err != nil {
				return err
			}
		}
		listener, err := net.Listen("tcp", os.Args[1])
		if err != nil {
			return err
		}
		feed := samplefeed.New(samplefeed.Options{PageSize: numbers[0], Entity: samplefeed.Sized(numbers[2])})
		feed.SetLen(numbers[1])
		fmt.Println("http://" + listener.Addr().String() + "/feed/latest")
		go func() { _ = serveUntil(context.Background(), listener, feed) }()
	case "archives":
		// archives LISTEN PAGE-SIZE ENTRIES MILLISECONDS: an Atom feed
		var numbers [3]int
		for i, arg := range os.Args[2:] {
			var err error
			if numbers[i], err = strconv.Atoi(arg); err != nil {
				return err
			}
		}
		listener, err := net.Listen("tcp", os.Args[1])
		if err != nil {
			return err
		}
		fmt.Println("http://" + listener.Addr().String() + "/feed")
		feed := archives{size: numbers[0], entries: numbers[1], slow: time.Duration(numbers[2]) * time.Millisecond}
		go func() { _ = serveUntil(context.Background(), listener, feed) }()
	case "bare-nats", "bare-kafka":
		// bare-nats URL TOPIC MESSAGES, bare-kafka BROKER TOPIC RECORDS: reads them, and ends
		bare := bareNATS
		if role == "bare-kafka" {
			bare = bareKafka
		}
		number, err := strconv.Atoi(os.Args[3])
		if err != nil {
			return err
		}
		return playBare(func() (func() error, error) { return bare(os.Args[1], os.Args[2], number) })
	case "clients":
		// clients PAGE NUMBER: slow ones
		number, err := strconv.Atoi(os.Args[2])
		if err != nil {
			return err
		}
		return playClients(os.Args[1], number)
	default:
		return fmt.Errorf("there is no role %q", role)
	}
	// Until the test that started it ends, and with it standard input.
	_, err := os.Stdin.Read(make([]byte, 1))
	_ = err
	return nil
}

// spawn starts a process of the test's own binary that plays a part, with more
// variables in its environment. If the test fails while it runs, the end of its
// log is shown.
func spawn(tb testing.TB, role string, env []string, args ...string) (*exec.Cmd, io.Reader) {
	tb.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), testMainRole+"="+role), env...)
	return cmd, startCommand(tb, role, cmd)
}

// startCommand starts a process that ends with the test. It returns what the process prints.
func startCommand(tb testing.TB, name string, cmd *exec.Cmd) io.Reader {
	tb.Helper()
	in, err := cmd.StdinPipe()
	must.Succeed(tb, err)
	out, err := cmd.StdoutPipe()
	must.Succeed(tb, err)
	log, err := os.Create(filepath.Join(tb.TempDir(), "log"))
	must.Succeed(tb, err)
	defer func() { _ = log.Close() }() // the child has it
	cmd.Stderr = log
	must.Succeed(tb, cmd.Start())
	tb.Cleanup(func() {
		in.Close()
		alive := cmd.Process.Kill() == nil
		_ = cmd.Wait()
		if alive && tb.Failed() {
			text, _ := os.ReadFile(log.Name())
			lines := strings.SplitAfter(string(text), "\n")
			tb.Logf("the end of the log of %s, process %d:\n%s", name, cmd.Process.Pid, strings.Join(lines[max(0, len(lines)-40):], ""))
		}
	})
	return out
}

// startServer starts one of the servers, and returns the URL that it prints
// when it is ready.
func startServer(tb testing.TB, role string, args ...string) (url string, cmd *exec.Cmd) {
	tb.Helper()
	cmd, out := spawn(tb, role, nil, args...)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatalf("%s did not start: %v", role, err)
	}
	return strings.TrimSpace(line), cmd
}

// serveUntil serves handler until ctx ends.
func serveUntil(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
