package syndication_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// bigAtom is a document of n entries of 1 KiB, the newest first, without its end.
func bigAtom(n int) string {
	var b strings.Builder
	b.WriteString(`<feed xmlns="http://www.w3.org/2005/Atom"><id>urn:f</id><title>t</title><updated>2026-06-01T00:00:00Z</updated>`)
	text := strings.Repeat("x", 1<<10)
	for i := n; i > 0; i-- {
		fmt.Fprintf(&b, `<entry><id>urn:e:%d</id><title>e</title><updated>%s</updated><content>%s</content></entry>`,
			i, time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC).Format(time.RFC3339), text)
	}
	return b.String()
}

// slowEnd answers with a document whose end comes after a pause of that length. It
// sends a blank now and then meanwhile, so that the client does not give up.
func slowEnd(doc string, pause time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/atom+xml")
		_, _ = w.Write([]byte(doc))
		for rest := pause; rest > 0; rest -= 10 * time.Second {
			if w.(http.Flusher).Flush(); !sleepUntil(r, min(rest, 10*time.Second)) {
				return
			}
			_, _ = w.Write([]byte(" "))
		}
		_, _ = w.Write([]byte("</feed>"))
	}
}

func sleepUntil(r *http.Request, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-r.Context().Done():
		return false
	}
}

// wantInOrder compares the topic with a document of bigAtom.
func (r *reader) wantInOrder(n int) {
	r.t.Helper()
	if len(r.messages) != n {
		r.t.Fatalf("published %d entities, want %d", len(r.messages), n)
	}
	for i, e := range r.messages {
		if want := fmt.Sprintf("urn:e:%d", i+1); e.ID != want {
			r.t.Fatalf("entity %d is %s, want %s", i, e.ID, want)
		}
	}
}

func unused(t *testing.T, b *readahead.Budget, total int64) {
	t.Helper()
	if !b.TryAcquire(total) {
		t.Error("some of the budget is not returned")
		return
	}
	b.Release(total)
}

func heapBytes() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// keepBudget has sources read a document of so many entries at the same time. It compares what they hold
// while the document has not ended, which is for a second, with the budget, and what they publish with the document.
func keepBudget(t *testing.T, sources, entries int, total, most int64, serve http.HandlerFunc, limits ...feed.Limits) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		budget := readahead.NewBudget(total)
		var readers []*reader
		for range sources {
			u := newUpstream()
			u.serve("/feed", serve)
			r := u.read(t, func(c *syndication.Config) { c.Budget = budget })
			for _, l := range limits {
				r = r.inBatches(l)
			}
			readers = append(readers, r)
		}
		before := heapBytes()
		var reading sync.WaitGroup
		for _, r := range readers {
			reading.Go(func() {
				if err := r.poll(); err != nil {
					t.Errorf("error: %v", err)
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if grown := heapBytes() - before; grown > most+int64(sources)*(512<<10) {
			t.Errorf("%d sources hold %d bytes", sources, grown)
		} else {
			t.Logf("%d sources hold %d bytes", sources, grown)
		}
		reading.Wait()
		for _, r := range readers {
			r.wantInOrder(entries)
		}
		unused(t, budget, total)
	})
}

// Many sources read large documents at the same time. Their memory together is
// bounded, and each publishes its document once and in order. Each has 64 KiB
// besides, buffers, and a connection.
func TestManySourcesKeepTheBudget(t *testing.T) {
	const entries, total = 2000, 4 << 20 // 2 MiB of content
	keepBudget(t, 20, entries, total, 2*total, slowEnd(bigAtom(entries), time.Second), feed.Limits{Bytes: 64 << 10})
}

// Documents that are smaller than a batch take from the budget too.
func TestSmallDocumentsKeepTheBudget(t *testing.T) {
	const entries, total = 600, 1 << 20 // less than 1 MiB of content
	keepBudget(t, 40, entries, total, 2*total, slowEnd(bigAtom(entries), time.Second))
}

// An entry that is still arriving counts, and so does the buffer of the parser that it was
// in: otherwise each feed could hold limits.entity besides the budget. One entry may exceed the budget.
func TestALargeEntryKeepsTheBudget(t *testing.T) {
	const total = 4 << 20
	head, end := bigAtom(0)+"<entry><id>urn:e:1</id><title>e</title><updated>2026-01-01T00:00:00Z</updated><content>", "</content></entry>"
	entry := []byte(head + strings.Repeat("x", 7<<20))
	for name, first := range map[string][]byte{"within the entry": entry, "behind it": append(slices.Clone(entry), end...)} {
		t.Run(name, func(t *testing.T) {
			keepBudget(t, 20, 1, total, 2*total+16<<20, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/atom+xml")
				_, _ = w.Write(first)
				w.(http.Flusher).Flush()
				if sleepUntil(r, time.Second) {
					_, _ = io.WriteString(w, end[len(first)-len(entry):]+"</feed>")
				}
			})
		})
	}
}

// Nothing is held of an archive that is configured as the feed while the current document
// is read.
func TestAnArchiveThatLeadsToTheFeedIsNotHeld(t *testing.T) {
	const entries, size = 8000, 8 << 20
	head, _, _ := strings.Cut(bigAtom(0), "<id>")
	doc := strings.Replace(bigAtom(entries), head, head+`<archive xmlns="http://purl.org/syndication/history/1.0"/>`+link("current", "/now"), 1) + "</feed>"
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream("/feed", doc)
		u.serve("/now", slowEnd(strings.TrimSuffix(atom("", "a"), "</feed>"), time.Second))
		r := u.read(t)
		before := heapBytes()
		var reading sync.WaitGroup
		reading.Go(func() { r.want("a", "subscribed_to_archive") })
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if grown := heapBytes() - before; grown > size/2 {
			t.Errorf("%d bytes are held, and the archive has %d", grown, len(doc))
		}
		reading.Wait()
	})
}

// A source whose server never comes to an end has the whole budget. Another one reads
// and publishes.
func TestAServerWithoutEndStarvesNoOtherSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries, total = 600, 100 << 10
		budget := readahead.NewBudget(total)
		edit := func(c *syndication.Config) { c.Budget = budget }
		stuck := newUpstream()
		stuck.serve("/feed", slowEnd(bigAtom(330), 1000*time.Hour))
		held := stuck.read(t, edit).inBatches(feed.Limits{Bytes: 64 << 10})
		var reading sync.WaitGroup
		reading.Go(func() { _ = held.poll() })
		time.Sleep(time.Second)
		synctest.Wait()
		if budget.TryAcquire(total / 2) {
			t.Fatal("the source that is stuck has little of the budget")
		}
		r := newUpstream("/feed", bigAtom(entries)+"</feed>").read(t, edit).inBatches(feed.Limits{Bytes: 64 << 10})
		if err := r.poll(); err != nil {
			t.Errorf("error: %v", err)
		}
		r.wantInOrder(entries)
		if n := strings.Count(r.u.requests(), "/feed"); n > 10 {
			t.Errorf("the document was downloaded %d times for %d batches", n, r.batches)
		}
		_ = stuck.Close()
		stuck.serve("/feed", status(500))
		reading.Wait()
		unused(t, budget, total)
	})
}

// Release returns all budget in every state of a source, which then continues after the
// published entries.
func TestReleaseReturnsTheBudget(t *testing.T) {
	const total = 1 << 20
	for name, docs := range map[string][]string{
		"a document": {"/feed", bigAtom(400) + "</feed>"},
		"archives":   {"/feed", atom(prev("/b"), "d@4:1 c@3:1"), "/b", atom(archive+prev("/a"), "b@2:1"), "/a", atom(archive, "a@1:1")},
		"pages":      {"/feed", atom(link("next", "/b"), "d@4:1 c@3:1"), "/b", atom(link("next", "/a"), "b@2:1"), "/a", atom("", "a@1:1")},
		"complete":   {"/feed", atom(complete, "c@3:1 b@2:1 a@1:1")},
	} {
		t.Run(name, func(t *testing.T) {
			batch := feed.Limits{Entities: 1}
			if name == "a document" {
				batch.Entities = 20
			}
			publish := func(release bool) string {
				budget := readahead.NewBudget(total)
				r := newUpstream(docs...).read(t, func(c *syndication.Config) { c.Budget = budget }).inBatches(batch)
				took := false
				for more := true; more; {
					more = r.step()
					if free := budget.TryAcquire(total); !free {
						took = true
					} else {
						budget.Release(total)
					}
					if release {
						r.src.Release()
						unused(t, budget, total)
					}
				}
				if !took && name == "a document" {
					t.Error("it has never taken any budget")
				}
				return texts(r.messages)
			}
			if got, want := publish(true), publish(false); got != want || !bytes.Contains([]byte(got), []byte(":")) {
				t.Errorf("published %.500s, want %.500s", got, want)
			}
		})
	}
}
