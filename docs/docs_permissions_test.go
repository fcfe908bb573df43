package docs_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// The documented permissions are sufficient for a sink, and each line is necessary:
// without it something fails, or the server logs a warning.
func TestDocumentedPermissionsAreRight(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, permissionsPage), "## Permissions")
	_, block, _ := strings.Cut(section, "```\n")
	block, _, _ = strings.Cut(block, "```")
	block = strings.ReplaceAll(block, "$BRIDGE_PASSWORD", "secret")

	if err := useTopic(t, block, time.Minute, 100*time.Millisecond); err != nil {
		t.Errorf("with the permissions of %s: %v", permissionsPage, err)
	}
	lines := regexp.MustCompile(`(?m)^\s+"\S+"$`).FindAllString(block, -1)
	if len(lines) < 5 {
		t.Fatalf("%s has %d permissions to publish", permissionsPage, len(lines))
	}
	for _, line := range lines {
		parallel.Run(t, strings.Trim(line, "\" \n"), func(t *testing.T) {
			if err := useTopic(t, strings.Replace(block, line, "", 1), time.Second, 20*time.Second); err == nil {
				t.Error("it works without this permission")
			}
		})
	}
}

// The permissions of docs/scaling.md#fleets are sufficient, besides those for topics, to join a fleet and
// leave it.
func TestDocumentedPermissionsOfAFleetAreSufficient(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, permissionsPage), "## Permissions")
	_, block, _ := strings.Cut(section, "```\n")
	block, _, _ = strings.Cut(block, "```")
	block = strings.ReplaceAll(block, "$BRIDGE_PASSWORD", "secret")
	lines := regexp.MustCompile(`(?m)^"\S+"$`).FindAllString(read(t, "docs/scaling.md"), -1)
	if len(lines) < 5 {
		t.Fatalf("docs/scaling.md#fleets has %d permissions", len(lines))
	}
	join := func(lines []string, timeout time.Duration) error {
		block := strings.Replace(block, `"_feedbridge.orders"`, `"_feedbridge.orders"`+"\n"+strings.Join(lines, "\n"), 1)
		conn, warnings, stop, err := connectAs(t, block, timeout)
		if err != nil {
			return err
		}
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		joined, left := make(chan fleet.Report, 10), make(chan error, 1)
		go func() {
			self := fleet.Self{Name: "a", Value: func() []byte { return []byte("{}") }}
			left <- conn.Fleet(nats.FleetOptions{Name: "feedbridge"}).Join(ctx, self, func(r fleet.Report) { joined <- r })
		}()
		select {
		case <-joined:
			cancel()
			return errors.Join(<-left, warnings.first(100*time.Millisecond))
		case err := <-left:
			return err
		case <-time.After(time.Minute):
			return errors.Join(errors.New("it does not join"), warnings.first(time.Millisecond))
		}
	}
	if err := join(lines, time.Minute); err != nil {
		t.Errorf("with the permissions of docs/scaling.md#fleets: %v", err)
	}
	for _, needed := range []string{"STREAM.CREATE", "CONSUMER.CREATE", `"$KV.`} {
		fewer := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.Contains(line, needed) })
		if err := join(fewer, 15*time.Second); err == nil || !strings.Contains(err.Error(), "/docs/scaling.md#nats lists") {
			t.Errorf("without %s: error %v", needed, err)
		}
	}
}

// useTopic runs a server with that authorization, does all that a bridge does
// with a topic, and returns the first error or warning. Some requests have no answer,
// and are given up after timeout; a refusal comes later, and is waited for as long as
// patience.
func useTopic(t *testing.T, authorization string, timeout, patience time.Duration) error {
	conn, warnings, stop, err := connectAs(t, authorization, timeout)
	if err != nil {
		return err
	}
	defer stop()
	topic := nats.Topic{Feed: "orders", Subject: "orders", Stream: nats.Stream{Create: true}}
	first, second := conn.Sink(topic), conn.Sink(topic)
	for _, step := range []func() error{
		func() error { return conn.Check(t.Context()) },
		func() error { _, err := first.Resume(t.Context()); return err },
		func() error { return first.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2)) },
		func() error { _, err := second.Resume(t.Context()); return err },
		func() error { return second.Overwrite(t.Context(), sinktest.MoveTo(sinktest.At(1))) },
		func() error { return conn.Check(t.Context()) },
		func() error { return warnings.first(patience) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// connectAs runs a server with that authorization and connects to it. Each of the requests has
// the time limit. warnings gets the log of the connection.
func connectAs(t *testing.T, authorization string, timeout time.Duration) (conn *nats.Conn, log warnings, stop func(), err error) {
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(authorization), 0o600); err != nil {
		return nil, nil, nil, err
	}
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		return nil, nil, nil, err
	}
	opts.Host, opts.Port, opts.JetStream, opts.StoreDir, opts.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, t.TempDir(), true
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, nil, nil, err
	}
	srv.Start()
	stopServer := func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
	if !srv.ReadyForConnections(time.Minute) {
		stopServer()
		return nil, nil, nil, errors.New("the server does not start")
	}
	log = make(warnings, 1)
	cfg := nats.Config{URL: srv.ClientURL(), Username: "bridge", Password: "secret", Timeout: timeout}
	conn, err = nats.Connect(t.Context(), cfg, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		stopServer()
		return nil, nil, nil, err
	}
	return conn, log, func() {
		conn.Close()
		stopServer()
	}, nil
}

// warnings keeps the first line of a log.
type warnings chan string

func (w warnings) Write(line []byte) (int, error) {
	select {
	case w <- string(line):
	default:
	}
	return len(line), nil
}

func (w warnings) first(patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line := <-w:
		return errors.New(line)
	case <-timer.C:
		return nil
	}
}
