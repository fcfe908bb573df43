//go:build !noembedded

package embedded_test

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

func start(t *testing.T, dir, listen string) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Config{Dir: dir, Listen: listen, Log: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	t.Cleanup(s.Close)
	return s
}

func wantError(t *testing.T, cfg embedded.Config, want ...string) {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	s, err := embedded.Start(cfg)
	if err == nil {
		s.Close()
		t.Fatalf("no error, want one with %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q has no %q", err, w)
		}
	}
}

func open(t *testing.T, s *embedded.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute))
	must.Succeed(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	must.Succeed(t, err)
	return js
}

func TestServerKeepsItsDataFromOneStartToTheNext(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	first := start(t, dir, "127.0.0.1:0")
	js := open(t, first)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, embedded.MaxPayload-100)
	if _, err := js.Publish(t.Context(), "s", large); err != nil {
		t.Fatal(err)
	}
	first.Close()
	first.Close()

	js = open(t, start(t, dir, "127.0.0.1:0"))
	stream, err := js.Stream(t.Context(), "S")
	must.Succeed(t, err)
	if n := stream.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

func TestServerCannotShareItsDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, dir, "127.0.0.1:0")
	wantError(t, embedded.Config{Dir: dir, Listen: "127.0.0.1:0"}, "another process uses "+dir, "data_dir")
	first.Close()
	start(t, dir, "127.0.0.1:0")
}

func TestServerCannotShareItsPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	addr := l.Addr().String()
	dir := t.TempDir()
	wantError(t, embedded.Config{Dir: dir, Listen: addr}, addr+" is in use", "url: nats://"+addr)
	// What failed leaves no lock behind.
	start(t, dir, "127.0.0.1:0")
}

func TestServerRefusesInvalidConfigurations(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, filepath.Join(file, "jetstream")} {
		wantError(t, embedded.Config{Dir: dir, Listen: "127.0.0.1:0"}, "not a directory", "set data_dir to a directory that this user may write to")
	}
	lock := t.TempDir()
	must.Succeed(t, os.Mkdir(filepath.Join(lock, "lock"), 0o700))
	wantError(t, embedded.Config{Dir: lock, Listen: "127.0.0.1:0"}, "is a directory", "set data_dir to")
	wantError(t, embedded.Config{Dir: t.TempDir(), Listen: "192.0.2.1:0"}, "192.0.2.1", "set buses.NAME.embedded.listen to another address")
	wantError(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1"}, "missing port")
	wantError(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:nats"}, `"nats" is not a port`)
}

func TestServerListensAtTheConfiguredAddress(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), "127.0.0.1:0")
	addr := strings.TrimPrefix(s.URL(), "nats://")
	conn, err := net.DialTimeout("tcp", addr, time.Minute)
	must.Succeed(t, err)
	defer conn.Close()
	if !strings.HasPrefix(addr, "127.0.0.1:") {
		t.Errorf("URL %s", s.URL())
	}
}
