package syndication_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// largeDocument writes an Atom document of 100,000 entries and 80 MB without
// holding it.
func largeDocument(entries int, look func()) http.HandlerFunc {
	text := strings.Repeat("A thing of beauty is a joy for ever. ", 18)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/atom+xml")
		w.Header().Set("ETag", `"large"`)
		fmt.Fprint(w, `<feed xmlns="http://www.w3.org/2005/Atom">`)
		for i := range entries {
			if i%5000 == 0 {
				look()
			}
			fmt.Fprintf(w, "<entry><id>urn:uuid:1225c695-cfb8-4ebb-aaaa-%012d</id><updated>%s</updated><content>%s</content></entry>\n",
				i, dawn.Add(-time.Duration(i)*time.Second).Format(time.RFC3339), text)
		}
		fmt.Fprint(w, "</feed>")
	}
}

// isOwnProcess runs a test in a process of its own, in which no other test has left memory that
// is freed later, and reports whether this is that process.
func isOwnProcess(t *testing.T) bool {
	t.Helper()
	const variable = "FEEDBRIDGE_TEST_OF_MEMORY"
	if os.Getenv(variable) == t.Name() {
		return true
	}
	own := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	own.Env = append(os.Environ(), variable+"="+t.Name())
	output, err := own.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()+" ") {
		t.Errorf("%v\n%s", err, output)
	}
	return false
}

// liveHeap has the size of the heap when it was created, and the largest at the calls of look. Garbage
// does not count: its amount depends on when other processes let the collector run.
type liveHeap struct {
	before int64
	most   atomic.Int64
}

func newLiveHeap() *liveHeap { return &liveHeap{before: heapBytes()} }

func (h *liveHeap) look() { h.most.Store(max(h.most.Load(), heapBytes())) }

// grown returns by how many bytes the heap has grown at most.
func (h *liveHeap) grown() int64 { return h.most.Load() - h.before }

// heapPeak watches the heap, with its garbage, until stop is called.
func heapPeak() (stop func() uint64) {
	done := make(chan struct{})
	var peak uint64
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() uint64 { close(done); group.Wait(); return peak }
}

// TestMemory reads a document of 80 MB with 100,000 entries that the topic has, and
// one that has more to publish than fits.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	if !isOwnProcess(t) {
		return
	}
	const entries = 100_000
	u := newUpstream()
	r := u.read(t)
	heap := newLiveHeap()
	for range 3 {
		u.fault("/feed", largeDocument(entries, heap.look))
	}
	start := time.Now()
	for range 3 { // the first window's batches, and the beginning of the next
		r.step()
		r.messages, r.last = nil, nil
	}
	grown := heap.grown()
	t.Logf("case 125: %d MB of heap, %v", grown>>20, time.Since(start))
	if heap.most.Load() == 0 || grown > 32<<20 {
		t.Errorf("case 125: the heap has grown by %d bytes", grown)
	}
}

// BenchmarkIdle is a poll that is answered with 304.
func BenchmarkIdle(b *testing.B) {
	u := newUpstream("/feed", atom("", "a@1"))
	r := u.read(benchTester{b})
	must.Succeed(b, r.poll())
	b.ReportAllocs()
	for b.Loop() {
		if err := r.poll(); err != nil || len(r.last) > 0 {
			b.Fatal(err)
		}
		u.log, u.asked = nil, nil
	}
}

// BenchmarkLargeDocument reads a document of 40 MB, of which the topic has
// everything but the newest entry, end to end.
func BenchmarkLargeDocument(b *testing.B) {
	const entries = 50_000
	u := newUpstream()
	r := u.read(benchTester{b}, func(c *syndication.Config) { c.Start = source.Start{At: dawn} })
	b.ReportAllocs()
	for b.Loop() {
		u.fault("/feed", largeDocument(entries, func() {}))
		r.cursor = nil
		must.Succeed(b, r.poll())
	}
	b.ReportMetric(entries*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkCold publishes a document of 80 MB with 100,000 entries, which is read
// once for each window of it. The heap includes the marks of the topic.
func BenchmarkCold(b *testing.B) {
	const entries = 100_000
	doc := largeDocument(entries, func() {})
	for _, body := range []syndication.BodyFormat{"json", "xml"} {
		b.Run(string(body), func(b *testing.B) { benchmarkCold(b, doc, entries, body) })
	}
}

func benchmarkCold(b *testing.B, doc http.HandlerFunc, entries int, body syndication.BodyFormat) {
	for b.Loop() {
		u := newUpstream()
		r := u.read(benchTester{b}, func(c *syndication.Config) { c.Body = body })
		runtime.GC()
		stop := heapPeak()
		n := 0
		for more := true; more; {
			u.mu.Lock()
			u.faults["/feed"] = []http.HandlerFunc{doc}
			u.mu.Unlock()
			var err error
			if more, err = r.next(); err != nil {
				b.Fatal(err)
			}
			n += len(r.last)
			r.messages, r.last = nil, nil
		}
		if n != entries {
			b.Fatalf("%d entries", n)
		}
		b.ReportMetric(float64(stop()>>20), "MB-heap")
		b.ReportMetric(float64(len(u.asked)), "reads")
	}
	b.ReportMetric(float64(entries*b.N)/b.Elapsed().Seconds(), "entries/s")
}

type benchTester struct{ *testing.B }
