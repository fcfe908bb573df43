package syndication_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
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
