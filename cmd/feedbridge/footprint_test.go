package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkMemory copies 1 GB of feed to a NATS server with the real program, and reports its
// resident memory: the peak, after the first tenth, and at the end.
//
//	go test -run '^$' -bench Memory -benchtime 1x ./cmd/feedbridge
func BenchmarkMemory(b *testing.B) {
	const (
		length = 1_000_000
		tenth  = length / 10
	)
	for b.Loop() {
		natsURL, _ := startServer(b, "nats", b.TempDir(), "-1")
		feedURL, _ := startServer(b, "upstream", "127.0.0.1:0", "500", strconv.Itoa(length), "1024")
		cmd, status := startProgram(b, map[string]string{
			"BUSES_MAIN_NATS_URL":     natsURL,
			"FEEDS_BIG_URL":           feedURL,
			"FEEDS_BIG_LIMITS_RATE":   "100000",
			"FEEDS_BIG_DEDUPE_WINDOW": "100000",
		})
		waitUntil(b, func() bool { return published(b, status) >= tenth })
		early := memory(b, cmd.Process.Pid, "VmRSS")
		waitUntil(b, func() bool { return published(b, status) >= length })
		b.ReportMetric(early, "MiB-after-100MB")
		b.ReportMetric(memory(b, cmd.Process.Pid, "VmRSS"), "MiB-after-1GB")
		b.ReportMetric(memory(b, cmd.Process.Pid, "VmHWM"), "MiB-peak")
	}
}

// BenchmarkIdle polls 1,000 feeds of a format every 10 seconds, all of which answer
// that nothing is new, and reports how much of a core the program takes.
//
//	go test -run '^$' -bench Idle -benchtime 1x ./cmd/feedbridge
func BenchmarkIdle(b *testing.B) {
	b.Run("datareplication", func(b *testing.B) { benchmarkIdle(b, "upstream", "100", "10", "100") })
	b.Run("atom", func(b *testing.B) { benchmarkIdle(b, "archives", "100", "10", "0") })
}

// benchmarkIdle polls feeds of 10 entities each, which an upstream in that role
// serves.
func benchmarkIdle(b *testing.B, role string, args ...string) {
	const (
		feeds = 1000
		watch = time.Minute
	)
	for b.Loop() {
		natsURL, _ := startServer(b, "nats", b.TempDir(), "-1")
		feedURL, _ := startServer(b, role, append([]string{"127.0.0.1:0"}, args...)...)
		var file bytes.Buffer
		fmt.Fprintf(&file, "buses: {main: {nats: {url: %q}}}\nfeeds:\n", natsURL)
		for n := range feeds {
			fmt.Fprintf(&file, "  feed-%d: {url: %q, every: 10s, limits: {rate: 1000}}\n", n, feedURL)
		}
		path := filepath.Join(b.TempDir(), "feedbridge.yaml")
		if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
			b.Fatal(err)
		}
		cmd, status := startProgram(b, map[string]string{"CONFIG": path})
		waitUntil(b, func() bool { return published(b, status) >= 10*feeds })
		waitFor(b, 15*time.Second) // every feed has been polled once more
		before := cpuTime(b, cmd.Process.Pid)
		waitFor(b, watch)
		b.ReportMetric((cpuTime(b, cmd.Process.Pid)-before).Seconds()/watch.Seconds(), "cores")
		b.ReportMetric(memory(b, cmd.Process.Pid, "VmRSS"), "MiB")
	}
}

// startProgram starts the program with these variables, which get its prefix. It
// returns its process and the URL of its status.
func startProgram(b testing.TB, variables map[string]string) (cmd *exec.Cmd, status string) {
	admin := freeAddress(b)
	env := []string{"FEEDBRIDGE_ADMIN_LISTEN=" + admin, "FEEDBRIDGE_LOG_LEVEL=error"}
	for name, value := range variables {
		env = append(env, "FEEDBRIDGE_"+name+"="+value)
	}
	cmd, _ = spawn(b, "feedbridge", env, "run")
	return cmd, "http://" + admin + "/status"
}

func freeAddress(tb testing.TB) string {
	addr, err := freePort()
	if err != nil {
		tb.Fatal(err)
	}
	return addr
}

// published returns the number of entities that the program has published; 0 if it does not
// answer yet.
func published(b testing.TB, url string) int {
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var status struct{ Feeds []struct{ Published int } }
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
		b.Fatal(err)
	}
	sum := 0
	for _, f := range status.Feeds {
		sum += f.Published
	}
	return sum
}

func waitUntil(b testing.TB, done func() bool) {
	for deadline := time.Now().Add(10 * time.Minute); !done(); waitFor(b, 200*time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatal("nothing came of it in ten minutes")
		}
	}
}

func waitFor(b testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-b.Context().Done():
	}
}

// memory returns a field of the process's status, in MiB.
func memory(b testing.TB, pid int, field string) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip("memory is read from /proc: ", err)
	}
	for line := range strings.Lines(string(data)) {
		if name, value, _ := strings.Cut(line, ":"); name == field {
			kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			if err != nil {
				b.Fatal(err)
			}
			return kilobytes / 1024
		}
	}
	b.Fatalf("there is no %s in %s", field, data)
	return 0
}

// cpuTime is the processor time that the process has used.
func cpuTime(b *testing.B, pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skip("processor time is read from /proc: ", err)
	}
	// Behind the name, which is in parentheses: fields 14 and 15, in ticks of
	// 10ms, counted from 3.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
