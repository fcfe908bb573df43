package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
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
// after the other, and of the peaks of resident memory, and what snappy leaves of the bodies.
//
// BENCH_MEMORY sets memory, in bytes. BENCH_AGAINST is the path of another build of
// feedbridge, which then runs in place of the floor program. BENCH_DOCS is the directory of the
// documents, whose tables and charts get the results.
//
//	BENCH_DOCS=$PWD/docs go test -tags integration -run '^$' -bench CopyTo -benchtime 9x ./cmd/feedbridge
func BenchmarkCopyToNATS(b *testing.B) {
	results := copyResults{bus: "NATS", versions: "nats-server " + server.VERSION}
	for _, size := range copySizes {
		b.Run(size.name, func(b *testing.B) {
			natsURL, _ := startServer(b, "nats", b.TempDir(), "-1")
			_, js := openJetStream(b, natsURL)
			results.add(size.name, compareCopies(b, copyComparison{
				body: size.body, length: size.length, kind: "nats", bus: natsURL,
				env:     map[string]string{"BUSES_MAIN_NATS_URL": natsURL},
				rate:    func(topic string) float64 { return streamRate(b, js, topic, size.length) },
				arrived: func(topic string) int { return streamLength(b, js, topic) },
			}))
		})
	}
	results.write(b)
}

// copyComparison is a feed and a bus.
type copyComparison struct {
	body, length int    // of the feed: the size of a body in bytes, and the number of entities
	kind         string // of the bus: nats or kafka
	bus          string // its URL or broker
	env          map[string]string
	// newTopic creates a topic and returns its name; nil if the programs create it.
	newTopic func() string
	// arrived returns the number of messages in a topic, checkpoints and markers included; 0 if there is
	// no such topic yet.
	arrived func(topic string) int
	// commits returns the number of commits that a topic has; nil if it is not counted.
	commits func(topic, feed string) int
	rate    func(topic string) float64 // also deletes the topic

	feedURL string // set by compareCopies
}

// copyResult is the result of one copy, or the medians of several.
type copyResult struct {
	rate    float64 // entities per second
	cpu     float64 // seconds of processor time for 100,000 entities
	peak    float64 // resident memory, MiB
	commits float64 // entities for each commit; 0 if unknown
}

// copyMedians are the medians of copies by two programs.
type copyMedians struct {
	floor, bridged copyResult
	rate, cpu      float64 // of the ratios of copies that ran one after the other
	compressed     float64 // percent of the bodies that snappy leaves
	pairs          int
}

// compareCopies copies the feed in turn with the floor program and with feedbridge, and reports
// the medians.
func compareCopies(b *testing.B, c copyComparison) copyMedians {
	var floor, bridged []copyResult
	topics, newTopic := 0, c.newTopic
	if newTopic == nil {
		newTopic = func() string {
			topics++
			return fmt.Sprintf("bench-%d", topics)
		}
	}
	c.feedURL, _ = startServer(b, "upstream", "127.0.0.1:0", "500", strconv.Itoa(c.length), strconv.Itoa(c.body))
	runFloor, name := c.runFloor, "floor"
	if program := os.Getenv("BENCH_AGAINST"); program != "" {
		runFloor, name = func(b *testing.B, topic string) copyResult { return c.runFeedbridge(b, program, topic) }, "other"
	}
	if c.kind == "kafka" {
		// The broker's JIT compiler needs some load to optimize the hot code, and feedbridge
		// creates the topic of the checkpoints.
		c.runFeedbridge(b, "", newTopic())
	}
	for b.Loop() {
		floor = append(floor, runFloor(b, newTopic()))
		bridged = append(bridged, c.runFeedbridge(b, "", newTopic()))
	}
	m := copyMedians{
		floor: medianResult(floor), bridged: medianResult(bridged), compressed: compressedBodies(c.body), pairs: len(floor),
		rate: medianRatio(bridged, floor, func(r copyResult) float64 { return r.rate }),
		cpu:  medianRatio(bridged, floor, func(r copyResult) float64 { return r.cpu }),
	}
	for name, r := range map[string]copyResult{name: m.floor, "feedbridge": m.bridged} {
		b.ReportMetric(r.rate, name+"/s")
		b.ReportMetric(r.cpu, name+"-cpu-s/100k")
		b.ReportMetric(r.peak, name+"-MiB-peak")
		if c.commits != nil {
			b.ReportMetric(r.commits, name+"-entities/commit")
		}
	}
	b.ReportMetric(m.rate, "of-"+name)
	b.ReportMetric(m.cpu, "cpu-of-"+name)
	b.ReportMetric(m.compressed, "snappy-%")
	b.ReportMetric(0, "ns/op")
	return m
}

// compressedBodies returns the percentage to which snappy compresses a megabyte of bodies of this size.
func compressedBodies(size int) float64 {
	entity := samplefeed.Sized(size)
	var bodies []byte
	for i := 0; len(bodies) < 1_000_000; i++ {
		bodies = append(bodies, entity(i).Body...)
	}
	return 100 * float64(len(snappy.Encode(nil, bodies))) / float64(len(bodies))
}

// medianResult returns the medians of each field.
func medianResult(of []copyResult) copyResult {
	return copyResult{
		rate:    medianOf(of, func(r copyResult) float64 { return r.rate }),
		cpu:     medianOf(of, func(r copyResult) float64 { return r.cpu }),
		peak:    medianOf(of, func(r copyResult) float64 { return r.peak }),
		commits: medianOf(of, func(r copyResult) float64 { return r.commits }),
	}
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
	return c.result(cmd, topic, "floor", peak/1024)
}

// startFloor starts the floor program.
func startFloor(tb testing.TB, kind, bus, feedURL, topic string) (*exec.Cmd, io.Reader) {
	tb.Helper()
	return startBuilt(tb, "../../internal/testkit/floor", nil, kind, bus, feedURL, topic)
}

// runFeedbridge runs a program; "" is that of this source.
func (c copyComparison) runFeedbridge(b *testing.B, program, topic string) copyResult {
	env := map[string]string{
		"FEEDS_BENCH_URL":         c.feedURL,
		"FEEDS_BENCH_TO_TOPIC":    topic,
		"FEEDS_BENCH_LIMITS_RATE": "100000",
	}
	for name, value := range c.env {
		env[name] = value
	}
	cmd, status := startBuild(b, program, readingAhead(env))
	// The bus is asked first: each answer of feedbridge would count as processor time of the copy.
	waitUntil(b, func() bool { return c.arrived(topic) >= c.length && published(b, status) >= c.length })
	peak := memory(b, cmd.Process.Pid, "VmHWM")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return c.result(cmd, topic, "bench", peak)
}

// result returns the result of a process that has ended. Its processor time includes its start.
func (c copyComparison) result(cmd *exec.Cmd, topic, feed string, peak float64) copyResult {
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	r := copyResult{cpu: cpu.Seconds() * 100_000 / float64(c.length), peak: peak}
	if c.commits != nil {
		r.commits = float64(c.length) / float64(c.commits(topic, feed))
	}
	r.rate = c.rate(topic)
	return r
}

// readingAhead adds memory to the variables of the program, if BENCH_MEMORY has a value.
func readingAhead(env map[string]string) map[string]string {
	if bytes := os.Getenv("BENCH_MEMORY"); bytes != "" {
		env["MEMORY"] = bytes
	}
	return env
}
