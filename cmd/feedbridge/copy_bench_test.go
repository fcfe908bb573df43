package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// copySizes are the sizes of the entities that the copies of a benchmark have, in bytes, with
// their number. A page has 500 of them. A copy takes seconds, so that the start of a process, about
// 0.03 s of processor time, hardly counts.
var copySizes = []struct {
	name         string
	body, length int
}{
	{"100B", 100, 400_000},
	{"1KiB", 1 << 10, 400_000},
	{"10KiB", 10 << 10, 100_000},
}

// BenchmarkCopyToNATS copies feeds of entities of three sizes to a NATS server, in turn with
// the floor program (internal/testkit/floor) and with feedbridge. Each copy, the server and the
// upstream are processes of their own. See [streamRate] for the rate. It reports the medians of the
// rates, of the processor time for 100,000 entities, of the ratios of the two copies that ran one
// after the other, and of the peaks of resident memory.
//
// BENCH_READ_AHEAD sets read_ahead.feed, in bytes. BENCH_CHARTS is a directory in which the rates
// are written as a chart.
//
//	BENCH_CHARTS=$PWD/docs go test -run '^$' -bench CopyToNATS -benchtime 9x ./cmd/feedbridge
func BenchmarkCopyToNATS(b *testing.B) {
	rates := chart{title: "Feed to NATS", series: []string{"floor", "feedbridge"}}
	for _, size := range copySizes {
		b.Run(size.name, func(b *testing.B) {
			natsURL, _ := startServer(b, "nats", b.TempDir(), "-1")
			feedURL, _ := startServer(b, "upstream", "127.0.0.1:0", "500", strconv.Itoa(size.length), strconv.Itoa(size.body))
			_, js := openJetStream(b, natsURL)
			rate := func(topic string) float64 { return streamRate(b, js, topic, size.length) }
			medians := compareCopies(b, copyComparison{
				feedURL: feedURL, length: size.length, kind: "nats", bus: natsURL,
				env: map[string]string{"BUSES_MAIN_NATS_URL": natsURL}, rate: rate,
				arrived: func(topic string) int { return streamLength(b, js, topic) },
			})
			rates.groups = append(rates.groups, chartGroup{size.name, medians})
		})
	}
	writeChart(b, "copy-to-nats.svg", rates)
}

// copyComparison is a feed and a bus.
type copyComparison struct {
	feedURL string
	length  int
	kind    string // of the bus: nats or kafka
	bus     string // its URL or broker
	env     map[string]string
	// newTopic creates a topic and returns its name; nil if the programs create it.
	newTopic func() string
	// arrived returns the number of messages in a topic, checkpoints and markers included; 0 if there is
	// no such topic yet.
	arrived func(topic string) int
	rate    func(topic string) float64 // also deletes the topic
}

// copyResult is the result of one copy.
type copyResult struct {
	rate float64 // entities per second
	cpu  float64 // seconds of processor time for 100,000 entities
	peak float64 // resident memory, MiB
}

// compareCopies copies the feed in turn with the floor program and with feedbridge, and reports
// the medians. It returns those of the rates.
func compareCopies(b *testing.B, c copyComparison) (rates []float64) {
	var floor, bridged []copyResult
	topics, newTopic := 0, c.newTopic
	if newTopic == nil {
		newTopic = func() string {
			topics++
			return fmt.Sprintf("bench-%d", topics)
		}
	}
	for b.Loop() {
		floor = append(floor, c.runFloor(b, newTopic()))
		bridged = append(bridged, c.runFeedbridge(b, newTopic()))
	}
	rate := func(r copyResult) float64 { return r.rate }
	cpu := func(r copyResult) float64 { return r.cpu }
	b.ReportMetric(medianOf(floor, rate), "floor/s")
	b.ReportMetric(medianOf(bridged, rate), "feedbridge/s")
	b.ReportMetric(medianRatio(bridged, floor, rate), "of-floor")
	b.ReportMetric(medianOf(floor, cpu), "floor-cpu-s/100k")
	b.ReportMetric(medianOf(bridged, cpu), "feedbridge-cpu-s/100k")
	b.ReportMetric(medianRatio(bridged, floor, cpu), "cpu-of-floor")
	peak := func(r copyResult) float64 { return r.peak }
	b.ReportMetric(medianOf(floor, peak), "floor-MiB-peak")
	b.ReportMetric(medianOf(bridged, peak), "feedbridge-MiB-peak")
	b.ReportMetric(0, "ns/op")
	return []float64{medianOf(floor, rate), medianOf(bridged, rate)}
}

func medianOf(of []copyResult, field func(copyResult) float64) float64 {
	values := make([]float64, len(of))
	for i, r := range of {
		values[i] = field(r)
	}
	return median(values)
}

// medianRatio returns the median of the ratios of a field in results that follow each other.
func medianRatio(of, to []copyResult, field func(copyResult) float64) float64 {
	values := make([]float64, len(of))
	for i := range of {
		values[i] = field(of[i]) / field(to[i])
	}
	return median(values)
}

func (c copyComparison) runFloor(b *testing.B, topic string) copyResult {
	cmd, out := startFloor(b, c.kind, c.bus, c.feedURL, topic)
	var peak float64 // KiB
	_, scanErr := fmt.Fscan(out, &peak)
	if err := errors.Join(cmd.Wait(), scanErr); err != nil {
		b.Fatalf("the floor program: %v", err)
	}
	return copyResult{rate: c.rate(topic), cpu: c.cpuTime(cmd), peak: peak / 1024}
}

// startFloor starts the floor program.
func startFloor(tb testing.TB, kind, bus, feedURL, topic string) (*exec.Cmd, io.Reader) {
	tb.Helper()
	return startBuilt(tb, "../../internal/testkit/floor", nil, kind, bus, feedURL, topic)
}

func (c copyComparison) runFeedbridge(b *testing.B, topic string) copyResult {
	env := map[string]string{
		"FEEDS_BENCH_URL":         c.feedURL,
		"FEEDS_BENCH_TO_TOPIC":    topic,
		"FEEDS_BENCH_LIMITS_RATE": "100000",
	}
	for name, value := range c.env {
		env[name] = value
	}
	cmd, status := startProgram(b, readingAhead(env))
	// The bus is asked first: each answer of feedbridge would count as processor time of the copy.
	waitUntil(b, func() bool { return c.arrived(topic) >= c.length && published(b, status) >= c.length })
	peak := memory(b, cmd.Process.Pid, "VmHWM")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return copyResult{rate: c.rate(topic), cpu: c.cpuTime(cmd), peak: peak}
}

// cpuTime returns the seconds of processor time that a process took for 100,000 entities, with
// its start.
func (c copyComparison) cpuTime(cmd *exec.Cmd) float64 {
	total := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return total.Seconds() * 100_000 / float64(c.length)
}

// readingAhead adds read_ahead.feed to the variables of the program, if BENCH_READ_AHEAD has a value.
func readingAhead(env map[string]string) map[string]string {
	if bytes := os.Getenv("BENCH_READ_AHEAD"); bytes != "" {
		env["READ_AHEAD_FEED"] = bytes
	}
	return env
}
