package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// BenchmarkMemory copies 1 GB of feed to a NATS server with the real program, and reports its
// resident memory: the peak, after the first tenth, and at the end.
//
//	go test -run '^$' -bench Memory -benchtime 1x ./cmd/feedbridge
func BenchmarkMemory(b *testing.B) {
	const length = 1_000_000
	for b.Loop() {
		natsURL, _ := startServer(b, "nats", b.TempDir(), "-1")
		feedURL, _ := startServer(b, "upstream", "127.0.0.1:0", "500", strconv.Itoa(length), "1024")
		cmd, status := startProgram(b, map[string]string{
			"BUSES_MAIN_NATS_URL":     natsURL,
			"FEEDS_BIG_URL":           feedURL,
			"FEEDS_BIG_LIMITS_RATE":   "100000",
			"FEEDS_BIG_DEDUPE_WINDOW": "100000",
		})
		reportMemory(b, cmd, status, length)
	}
}

// reportMemory reports the resident memory of the program after a tenth of a feed of 1 GB, at its
// end, and at most.
func reportMemory(b *testing.B, cmd *exec.Cmd, status string, length int) {
	waitUntil(b, func() bool { return published(b, status) >= length/10 })
	b.ReportMetric(memory(b, cmd.Process.Pid, "VmRSS"), "MiB-after-100MB")
	waitUntil(b, func() bool { return published(b, status) >= length })
	b.ReportMetric(memory(b, cmd.Process.Pid, "VmRSS"), "MiB-after-1GB")
	b.ReportMetric(memory(b, cmd.Process.Pid, "VmHWM"), "MiB-peak")
}

// startProgram starts the program with these variables, which get its prefix. It
// returns its process and the URL of its status. A benchmark runs the program itself. A test runs
// the test's binary, which takes part in race detection.
func startProgram(tb testing.TB, variables map[string]string) (cmd *exec.Cmd, status string) {
	return startBuild(tb, "", variables)
}

// startBuild is startProgram for the program with a path; "" is that of this source.
func startBuild(tb testing.TB, path string, variables map[string]string) (cmd *exec.Cmd, status string) {
	admin := freeAddress(tb)
	env := []string{"FEEDBRIDGE_ADMIN_LISTEN=" + admin, "FEEDBRIDGE_LOG_LEVEL=error"}
	for name, value := range variables {
		env = append(env, "FEEDBRIDGE_"+name+"="+value)
	}
	if path != "" {
		cmd = exec.Command(path, "run")
		cmd.Env = append(os.Environ(), env...)
		startCommand(tb, path, cmd)
		return cmd, "http://" + admin + "/status"
	}
	if _, ok := tb.(*testing.B); !ok {
		cmd, _ = spawn(tb, "feedbridge", env, "run")
		return cmd, "http://" + admin + "/status"
	}
	cmd, _ = startBuilt(tb, ".", env, "run")
	return cmd, "http://" + admin + "/status"
}

func freeAddress(tb testing.TB) string {
	addr, err := freePort()
	must.Succeed(tb, err)
	return addr
}

// published returns the number of entities that the program has published; 0 if it does not
// answer yet.
func published(b testing.TB, url string) int {
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	must.Succeed(b, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var status struct{ Feeds []struct{ Published int } }
	must.Succeed(b, json.NewDecoder(resp.Body).Decode(&status))
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
			must.Succeed(b, err)
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
		must.Succeed(b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
