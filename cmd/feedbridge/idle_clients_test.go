//go:build unix

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// A process that may have 512 open files polls and answers while 600 clients that
// send nothing are connected to each of its servers: connections follow the limit,
// and the idle ones are disconnected for others.
func TestIdleClientsExhaustNoOpenFiles(t *testing.T) {
	t.Parallel()
	natsURL, _ := startServer(t, "nats", t.TempDir(), "-1")
	feedURL, _ := startServer(t, "upstream", "127.0.0.1:0", "10", "25", "100")
	status, served := freeAddress(t), freeAddress(t)
	log, err := os.Create(t.TempDir() + "/log")
	must.Succeed(t, err)
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -n 512 && exec "$0" run`, os.Args[0])
	cmd.Env = append(os.Environ(), testMainRole+"=feedbridge", "FEEDBRIDGE_ADMIN_LISTEN="+status, "FEEDBRIDGE_SERVE_LISTEN="+served,
		"FEEDBRIDGE_BUSES_MAIN_NATS_URL="+natsURL, "FEEDBRIDGE_FEEDS_ORDERS_URL="+feedURL, "FEEDBRIDGE_FEEDS_ORDERS_EVERY=1s",
		"FEEDBRIDGE_SERVE_FEEDS_ORDERS_FROM_TOPIC=orders")
	cmd.Stdout, cmd.Stderr = log, log
	in, err := cmd.StdinPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s", text)
		}
	})
	waitUntil(t, func() bool { return published(t, "http://"+status+"/status") == 25 })

	for _, addr := range []string{status, served} {
		for range 600 {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
			must.Succeed(t, err)
			defer conn.Close()
		}
	}
	before := polls(t, status)
	waitUntil(t, func() bool { return polls(t, status) >= before+3 })
	if code, _ := fetch(t, "http://"+served+"/feeds/orders/latest"); code != http.StatusOK {
		t.Errorf("the served feed answers %d", code)
	}
	if text, _ := os.ReadFile(log.Name()); regexp.MustCompile(`too many open files|level=ERROR`).Match(text) {
		t.Error("the process ran out of open files")
	}
}

var polled = regexp.MustCompile(`(?m)^feedbridge_polls_total\{.*outcome="unchanged".*\} (\d+)$`)

// polls returns how often the feed was polled without anything new.
func polls(t *testing.T, addr string) int {
	t.Helper()
	_, metrics := fetch(t, "http://"+addr+"/metrics")
	found := polled.FindStringSubmatch(metrics)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	must.Succeed(t, err)
	return n
}

// fetch opens a connection of its own, as probes do.
func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must.Succeed(t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	return resp.StatusCode, string(b)
}
