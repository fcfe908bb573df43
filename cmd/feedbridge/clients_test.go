package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/serve"
)

// Far more slow clients than a server has places for ask for a page, of which they take a byte
// a second. Clients that read normally are served all the same, and the server stays within its
// bounds. Pages are of those that are held in memory, or of those that are too large for that,
// which are sent to few at a time.
//
// With ten thousand, and the places of a process that may have many open files (two minutes):
//
//	SLOW_CLIENTS=10000 go test -v -run TestSlowClients ./cmd/feedbridge
func TestSlowClients(t *testing.T) {
	t.Parallel()
	// A process with 84 open files has 12 places.
	clients, places, quick, limit := number(t, "SLOW_CLIENTS", 20), 12, 3, "ulimit -n 84; "
	if os.Getenv("SLOW_CLIENTS") != "" {
		places, quick, limit = serve.DefaultConnections, 20, ""
	}
	const length = 10_001
	natsURL, _ := startServer(t, "nats", t.TempDir(), "-1")
	feedURL, _ := startServer(t, "upstream", "127.0.0.1:0", "500", strconv.Itoa(length), "1024")
	copying, status := startProgram(t, map[string]string{"BUSES_MAIN_NATS_URL": natsURL, "FEEDS_ORDERS_URL": feedURL})
	waitUntil(t, func() bool { return published(t, status) >= length })
	_ = copying.Process.Kill()

	for _, test := range []struct{ name, pageSize string }{
		{"a page in memory", "500"}, {"a page that is too large for it", "5000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			listen := freeAddress(t)
			server := exec.Command("sh", "-c", limit+`exec "$0" run`, os.Args[0])
			server.Env = append(os.Environ(), testMainRole+"=feedbridge", "FEEDBRIDGE_DATA_DIR="+t.TempDir(), "FEEDBRIDGE_ADMIN_LISTEN=off", "FEEDBRIDGE_LOG_LEVEL=error",
				"FEEDBRIDGE_BUSES_MAIN_NATS_URL="+natsURL, "FEEDBRIDGE_SERVE_LISTEN="+listen,
				"FEEDBRIDGE_SERVE_FEEDS_ORDERS_FROM_TOPIC=orders", "FEEDBRIDGE_SERVE_FEEDS_ORDERS_PAGE_SIZE="+test.pageSize)
			startCommand(t, "feedbridge", server)
			var page string
			waitUntil(t, func() bool {
				header, _, err := readPage(t, "http://"+listen+"/feeds/orders/latest")
				self, _, _ := strings.Cut(strings.TrimPrefix(header.Get("Link"), "<"), ">")
				page = self[:strings.LastIndex(self, "-")+1] + "1"
				return err == nil
			})
			_, whole, err := readPage(t, page)
			must.Succeed(t, err)
			before := memory(t, server.Process.Pid, "VmRSS")
			_, out := spawn(t, "clients", nil, page, strconv.Itoa(clients))
			told := bufio.NewReader(out)
			if line, err := told.ReadString('\n'); err != nil {
				t.Fatal(line, err)
			}
			served := 0
			var longest time.Duration
			for range quick {
				begun := time.Now()
				switch _, n, err := readPage(t, page); {
				case err != nil:
					t.Logf("a quick client waited for %v: %v", time.Since(begun), err)
				case n != whole:
					t.Errorf("a quick client got %d bytes of %d", n, whole)
				default:
					served, longest = served+1, max(longest, time.Since(begun))
				}
				waitFor(t, time.Second/2)
			}
			var line string
			for told.Buffered() > 0 || line == "" {
				line, _ = told.ReadString('\n')
			}
			peak := memory(t, server.Process.Pid, "VmHWM")
			t.Logf("%d of %d quick clients were served, in %v at most; slow ones: %s", served, quick, longest, strings.TrimSpace(line))
			t.Logf("%.0f MiB before, %.0f MiB now, %.0f MiB at most", before, memory(t, server.Process.Pid, "VmRSS"), peak)
			// Those that wait in front of the door are let in before.
			if served < quick/2 {
				t.Errorf("%d of %d quick clients were served", served, quick)
			}
			// See docs/scaling.md#sizing.
			if bound := 350 + 0.06*float64(places); peak > bound {
				t.Errorf("it took %.0f MiB, want at most %.0f", peak, bound)
			}
		})
	}
}

// number returns the value of an environment variable.
func number(t *testing.T, variable string, otherwise int) int {
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	must.Succeed(t, err)
	return n
}

// readPage reads a page over a connection of its own, and returns how long it is.
func readPage(t *testing.T, page string) (http.Header, int64, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	must.Succeed(t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return resp.Header, n, err
}

// playClients asks for a page with many slow clients at a time, until the process is killed,
// and prints their state every second.
func playClients(page string, clients int) error {
	u, err := url.Parse(page)
	if err != nil {
		return err
	}
	var open, answered, ended, refused atomic.Int64
	ask := func() {
		conn, err := net.DialTimeout("tcp", u.Host, time.Minute)
		if err != nil {
			refused.Add(1)
			return
		}
		defer conn.Close()
		open.Add(1)
		defer open.Add(-1)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", u.Path, u.Host)
		for b, n := make([]byte, 1), 0; ; n++ {
			if _, err := conn.Read(b); err != nil {
				ended.Add(1)
				return
			}
			if n == 0 {
				answered.Add(1)
			}
			time.Sleep(time.Second)
		}
	}
	for range clients {
		go func() {
			for {
				ask()
				time.Sleep(time.Second)
			}
		}()
		time.Sleep(100 * time.Microsecond)
	}
	for {
		time.Sleep(time.Second)
		fmt.Printf("%d at a time; %d were answered, %d have come to an end, %d did not get in\n", open.Load(), answered.Load(), ended.Load(), refused.Load())
	}
}
