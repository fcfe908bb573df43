package main

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

// BenchmarkIdle polls feeds that have nothing new every 60 seconds, with their topics in one
// stream of a NATS server. It reports what a start from nothing and a restart cost, and what the
// program costs in a minute after the restart: its share of a core, its memory, and the
// messages between it and the bus. IDLE_FEEDS, such as 1000,10000, replaces the numbers of feeds.
// IDLE_WATCH replaces the minute: each feed whose last commit was followed by others reads its checkpoint
// within 10 to 20 minutes. IDLE_STREAMS=own gives each topic a stream of its own. The upstream and the
// server are in the process of the benchmark, which is not counted. IDLE_LIST=1 names the feeds in a list, in
// place of the configuration file.
//
//	IDLE_WATCH=16m go test -run '^$' -bench 'Idle/datareplication/10000' -benchtime 1x -timeout 40m ./cmd/feedbridge
func BenchmarkIdle(b *testing.B) {
	feed := samplefeed.New(samplefeed.Options{PageSize: 100, Entity: samplefeed.Sized(100)})
	feed.SetLen(10)
	for _, upstream := range []struct {
		format, path string
		handler      http.Handler
	}{
		{"datareplication", "/feed/latest", feed},
		{"atom", "/feed", archives{size: 100, entries: 10}},
	} {
		for _, feeds := range strings.Split(cmp.Or(os.Getenv("IDLE_FEEDS"), "1000,10000"), ",") {
			n, err := strconv.Atoi(feeds)
			must.Succeed(b, err)
			b.Run(upstream.format+"/"+feeds, func(b *testing.B) { benchmarkIdle(b, upstream.handler, upstream.path, n) })
		}
	}
}

// benchmarkIdle copies feeds of 10 entities each.
func benchmarkIdle(b *testing.B, handler http.Handler, path string, feeds int) {
	watch, err := time.ParseDuration(cmp.Or(os.Getenv("IDLE_WATCH"), "1m"))
	must.Succeed(b, err)
	for b.Loop() {
		requests := &requestCounter{Handler: handler}
		upstream := httptest.NewUnstartedServer(requests)
		upstream.Config.ConnState = requests.connState
		upstream.Start()
		bus, overruns := startBus(b, feeds)
		config := writeIdleConfig(b, bus.ClientURL(), upstream.URL+path, feeds)
		begin := func(name string) (pid int, status string, stop func()) {
			requests.reset()
			start := time.Now()
			cmd, status := startProgram(b, map[string]string{"CONFIG": config})
			page := strings.TrimSuffix(status, "status")
			waitUntil(b, func() bool {
				waitFor(b, time.Second)                   // each look costs the program some milliseconds
				return countIdle(b, page) >= feeds*98/100 // some are being polled again
			})
			b.ReportMetric(time.Since(start).Seconds(), name+"-s")
			b.ReportMetric(cpuTime(b, cmd.Process.Pid).Seconds(), name+"-cpu-s")
			most, connections := requests.figures()
			b.ReportMetric(float64(most), name+"-most-requests/s")
			b.ReportMetric(float64(connections), name+"-connections")
			b.ReportMetric(memory(b, cmd.Process.Pid, "VmHWM"), name+"-MiB-peak")
			return cmd.Process.Pid, status, func() {
				_ = cmd.Process.Signal(os.Interrupt)
				_ = cmd.Wait()
			}
		}
		_, _, stop := begin("first")
		stop()
		pid, status, stop := begin("restart")
		waitFor(b, time.Minute) // all feeds poll in their own time
		requests.reset()
		cpu, messages := cpuTime(b, pid), busMessages(b, bus)
		waitFor(b, watch)
		b.ReportMetric(100*(cpuTime(b, pid)-cpu).Seconds()/watch.Seconds(), "%-of-a-core")
		b.ReportMetric(float64(busMessages(b, bus)-messages)/watch.Seconds(), "bus-messages/s")
		most, _ := requests.figures()
		b.ReportMetric(float64(most), "most-requests/s")
		b.ReportMetric(memory(b, pid, "VmRSS"), "MiB")
		metrics := strings.TrimSuffix(status, "/status") + "/metrics"
		inUse := goMemory(b, metrics)
		b.ReportMetric(memory(b, pid, "VmHWM"), "MiB-peak-with-scrape")
		b.ReportMetric(inUse/(1<<20), "MiB-heap-and-stacks")
		b.ReportMetric(inUse/float64(feeds)/(1<<10), "KiB/feed")
		b.ReportMetric(float64(overruns.Load()), "overruns")
		stop()
		upstream.CloseClientConnections()
		upstream.Close()
		bus.Shutdown()
	}
}

// writeIdleConfig writes a configuration, and returns its path. Each feed has a URL of its own, because a list has
// each URL once.
func writeIdleConfig(b *testing.B, bus, url string, feeds int) (path string) {
	dir := b.TempDir()
	write := func(name, text string) (path string) {
		path = filepath.Join(dir, name)
		must.Succeed(b, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	var file, list strings.Builder
	for n := range feeds {
		fmt.Fprintf(&file, "  f%d: {url: '%s?%[1]d', every: 60s, to: {topic: idle.f%[1]d, stream: {name: %[3]s, create: false}}}\n", n, url, idleStream(n))
		fmt.Fprintf(&list, "<outline name='f%d' xmlUrl='%s?%[1]d'/>\n", n, url)
	}
	text := fmt.Sprintf("buses: {main: {nats: {url: %q}}}\n", bus)
	if os.Getenv("IDLE_LIST") == "" {
		return write("feedbridge.yaml", text+"feeds:\n"+file.String())
	}
	opml := write("list.opml", "<opml version='2.0'><body>\n"+list.String()+"</body></opml>\n")
	stream := strings.Replace(idleStream(0), "f0", "{feed}", 1)
	return write("feedbridge.yaml", text+fmt.Sprintf(
		"feeds_from: {idle: {file: %q, defaults: {every: 60s, to: {topic: 'idle.{feed}', stream: {name: '%s', create: false}}}}}\n", opml, stream))
}

// idleStream returns the name of the stream of a topic.
func idleStream(topic int) string {
	if os.Getenv("IDLE_STREAMS") == "own" {
		return fmt.Sprintf("idle-f%d", topic)
	}
	return "idle"
}

// startBus starts a NATS server in this process, with the streams of all topics. A stream is in
// memory, unless IDLE_STORAGE is file: a server syncs a file for each commit with entities, so the
// first commits of 10,000 topics take minutes. overruns counts how often the server has dropped
// the requests of all clients because a tenth of what it accepts by default was waiting.
func startBus(b *testing.B, topics int) (bus *server.Server, overruns *atomic.Int64) {
	bus, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: b.TempDir(), NoSigs: true,
		JetStreamRequestQueueLimit: server.JSDefaultRequestQueueLimit / 10,
	})
	must.Succeed(b, err)
	log := &overrunLog{}
	bus.SetLogger(log, false, false)
	bus.Start()
	b.Cleanup(bus.Shutdown)
	if !bus.ReadyForConnections(time.Minute) {
		b.Fatal("the NATS server does not start")
	}
	nc, err := nats.Connect(bus.ClientURL())
	must.Succeed(b, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	must.Succeed(b, err)
	storage := jetstream.MemoryStorage
	if os.Getenv("IDLE_STORAGE") == "file" {
		storage = jetstream.FileStorage
	}
	for n := range topics {
		subjects := []string{"idle.>", "_feedbridge.idle.>"}
		if idleStream(n) != "idle" {
			subjects = []string{fmt.Sprintf("idle.f%d", n), fmt.Sprintf("_feedbridge.idle.f%d", n)}
		}
		if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
			Name: idleStream(n), Subjects: subjects, Storage: storage,
			AllowAtomicPublish: true, AllowRollup: true, AllowMsgTTL: true,
		}); err != nil {
			b.Fatal(err)
		}
		if idleStream(n) == "idle" {
			break
		}
	}
	return bus, &log.overruns
}

// overrunLog is a log of a NATS server that counts overruns of its queue of requests.
type overrunLog struct{ overruns atomic.Int64 }

func (l *overrunLog) Warnf(format string, args ...any) {
	if strings.Contains(fmt.Sprintf(format, args...), "queue limit reached") {
		l.overruns.Add(1)
	}
}
func (*overrunLog) Noticef(string, ...any) {}
func (*overrunLog) Errorf(string, ...any)  {}
func (*overrunLog) Fatalf(string, ...any)  {}
func (*overrunLog) Debugf(string, ...any)  {}
func (*overrunLog) Tracef(string, ...any)  {}

// busMessages returns the number of messages that clients have sent and received.
func busMessages(b *testing.B, bus *server.Server) int64 {
	v, err := bus.Varz(nil)
	must.Succeed(b, err)
	return v.InMsgs + v.OutMsgs
}

// requestCounter counts the requests of each second, and the connections.
type requestCounter struct {
	http.Handler
	mu          sync.Mutex
	seconds     map[int64]int
	connections int
}

func (c *requestCounter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.seconds[time.Now().Unix()]++
	c.mu.Unlock()
	c.Handler.ServeHTTP(w, r)
}

func (c *requestCounter) connState(_ net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == http.StateNew {
		c.connections++
	}
}

func (c *requestCounter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seconds, c.connections = map[int64]int{}, 0
}

// figures returns the number of requests in the second that had most, and that of connections.
func (c *requestCounter) figures() (most, connections int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.seconds {
		most = max(most, n)
	}
	return most, c.connections
}

// fetchText returns what the program answers; nothing if it does not answer yet.
func fetchText(b *testing.B, url string) string {
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	must.Succeed(b, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(b, err)
	return string(body)
}

// idleOnPage finds the number of idle feeds, which has spaces between its thousands.
var idleOnPage = regexp.MustCompile(`> idle</span>([^<]+)</a>`)

// countIdle returns the number of idle feeds. It reads the status page, which costs the program
// far less than all series of all feeds.
func countIdle(b *testing.B, page string) int {
	found := idleOnPage.FindStringSubmatch(fetchText(b, page))
	if found == nil {
		return 0
	}
	digits := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, found[1])
	n, err := strconv.Atoi(digits)
	must.Succeed(b, err)
	return n
}

// goMemory returns the bytes of the program's heap and stacks.
func goMemory(b *testing.B, url string) (bytes float64) {
	for line := range strings.Lines(fetchText(b, url)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.Contains([]string{"go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes"}, name) {
			n, err := strconv.ParseFloat(value, 64)
			must.Succeed(b, err)
			bytes += n
		}
	}
	return bytes
}
