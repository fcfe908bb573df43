package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source"
)

// roundTripper is a function that makes requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// panicBody panics when it is read.
type panicBody struct{ io.ReadCloser }

func (panicBody) Read([]byte) (int, error) { panic("a defect of the body") }

// A panic in the goroutine of a request ahead would end the process. It is an error of the page,
// at its turn.
func TestPanicOfARequestAhead(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*http.Response){
		"request": func(*http.Response) { panic("a defect of the request") },
		"body":    func(r *http.Response) { r.Body = panicBody{r.Body} },
	} {
		parallel.Run(t, name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.URL.Path) })
			c := newClientWith(t, source.Options{Wrap: func(transport http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					response, err := transport.RoundTrip(r)
					if err == nil && r.URL.Path == "/2" {
						spoil(response)
					}
					return response, err
				})
			}}, url)
			ahead := c.PagesAhead()
			defer ahead.Close()
			ahead.Expect(t.Context(), url+"/1", url+"/2", url+"/3")
			source.WaitAnswered(ahead)
			for _, page := range []string{"/1", "/2", "/3"} {
				body, err := readAhead(t, ahead, url+page)
				if page == "/2" {
					wantError(t, err, true, "panic: a defect of the "+name, "stack")
				} else if body != "page "+page || err != nil {
					t.Errorf("read %q, %v", body, err)
				}
			}
		})
	}
}

// readAhead gets a page and reads it to its end.
func readAhead(t *testing.T, pages *source.PagesAhead, url string) (string, error) {
	t.Helper()
	response, err := pages.Get(t.Context(), url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// An answer such as 410 that came ahead is delivered at the page's turn. The page is not requested
// again, so the result does not depend on when the answer came.
func TestPermanentErrorOfARequestAheadCountsOnce(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{404: "404", 410: "410", 403: "403", 503: "", 429: ""} {
		parallel.Run(t, fmt.Sprint(status), func(t *testing.T) {
			var requests atomic.Int32
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) == 1 {
					w.WriteHeader(status)
					return
				}
				_, _ = io.WriteString(w, "a page")
			})
			c := newClient(t, url)
			ahead := c.PagesAhead()
			defer ahead.Close()
			ahead.Expect(t.Context(), url)
			source.WaitAnswered(ahead)
			body, err := readAhead(t, ahead, url)
			if want == "" {
				if body != "a page" || err != nil || requests.Load() != 2 {
					t.Errorf("read %q, %v with %d requests", body, err, requests.Load())
				}
				return
			}
			wantError(t, err, true, want)
			if n := requests.Load(); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// A read may be started again from where it was, with another context. The requests ahead
// of the first one have ended with its context, and are made again.
func TestPagesAheadOfAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		parallel.Run(t, fmt.Sprintf("answered %v", answered), func(t *testing.T) {
			var requests atomic.Int32
			arrived := make(chan struct{})
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) == 1 {
					close(arrived)
					if !answered {
						<-r.Context().Done()
					}
				}
				_, _ = io.WriteString(w, "a page")
			})
			ahead := newClient(t, url).PagesAhead()
			defer ahead.Close()
			ctx, cancel := context.WithCancel(t.Context())
			ahead.Expect(ctx, url)
			<-arrived
			if answered {
				source.WaitAnswered(ahead)
			}
			cancel()
			if body, err := readAhead(t, ahead, url); body != "a page" || err != nil {
				t.Errorf("read %q, %v", body, err)
			}
		})
	}
}

// All feeds of a process together request a limited number of pages ahead from a host. Pages
// beyond it are requested at their turn.
func TestPagesAheadOfOneHostAreLimited(t *testing.T) {
	t.Parallel()
	const feeds, limit = 5, 16
	var mu sync.Mutex // guards requests and most
	var requests, most int
	reached, proceed := make(chan struct{}), make(chan struct{})
	reach := sync.OnceFunc(func() { close(reached) })
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests++
		if most = max(most, requests); requests == limit {
			reach()
		}
		mu.Unlock()
		<-proceed
		mu.Lock()
		requests-- // before the answer, which may let another request begin
		mu.Unlock()
		_, _ = io.WriteString(w, r.URL.Path)
	})
	hosts := &source.Hosts{}
	var all []*source.PagesAhead
	var urls [][]string
	for n := range feeds {
		c := newClientWith(t, source.Options{Hosts: hosts}, url)
		pages := c.PagesAhead()
		defer pages.Close()
		var own []string
		for i := range 10 {
			own = append(own, fmt.Sprintf("%s/%d/%d", url, n, i))
		}
		pages.Expect(t.Context(), own...)
		all, urls = append(all, pages), append(urls, own)
	}
	<-reached
	if n := source.AheadOfHost(hosts, strings.TrimPrefix(url, "http://")); n != limit {
		t.Errorf("%d pages are requested ahead, want %d", n, limit)
	}
	close(proceed)
	for n, pages := range all {
		for _, page := range urls[n] {
			if body, err := readAhead(t, pages, page); url+body != page || err != nil {
				t.Errorf("%s: read %q, %v", page, body, err)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most != limit {
		t.Errorf("%d requests at a time, want %d", most, limit)
	}
	if n := source.AheadOfHost(hosts, strings.TrimPrefix(url, "http://")); n != 0 {
		t.Errorf("%d pages still count as requested ahead", n)
	}
}

// As many pages are requested ahead as are read in the time that one needs to arrive. So the reader waits
// for the first ones only.
func TestPagesAheadFollowTheUpstream(t *testing.T) {
	t.Parallel()
	const pages, away = 200, 50 * time.Millisecond
	for _, c := range []struct {
		busy, late time.Duration // late is what every twentieth page takes longer
		want       [2]int
	}{
		{0, 0, [2]int{16, 16}},
		{5 * time.Millisecond, 0, [2]int{9, 12}},
		{20 * time.Millisecond, 0, [2]int{2, 4}},
		{20 * time.Millisecond, 4 * away, [2]int{3, 5}},
		{200 * time.Millisecond, 0, [2]int{1, 2}},
	} {
		busy, want := c.busy, c.want
		t.Run(fmt.Sprint(busy, c.late), func(t *testing.T) {
			most := 0
			handler := func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(away)
				if n, _ := strconv.Atoi(r.URL.Path[1:]); n%20 == 0 {
					time.Sleep(c.late)
				}
				_, _ = io.WriteString(w, r.URL.Path)
			}
			bubble(t, handler, func(t *testing.T, hosts *source.Hosts) {
				client := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
				defer client.CloseIdle()
				ahead := client.PagesAhead()
				defer ahead.Close()
				var urls []string
				for i := range pages {
					urls = append(urls, fmt.Sprintf("http://shop.example.com/%d", i))
				}
				start := time.Now()
				for i, url := range urls {
					if i >= pages/2 { // by now it is steady
						most = max(most, ahead.Number())
					}
					if body, err := readAhead(t, ahead, url); !strings.HasSuffix(url, body) || err != nil {
						t.Errorf("%s: read %q, %v", url, body, err)
						return
					}
					ahead.Expect(t.Context(), urls[i+1:]...)
					time.Sleep(busy)
				}
				if most < want[0] || most > want[1] {
					t.Errorf("up to %d pages are requested ahead, want %d to %d", most, want[0], want[1])
				}
				if took, most := time.Since(start), pages*max(busy, away/16)+6*away+pages/20*c.late; took > most {
					t.Errorf("it took %v, want %v at most", took, most)
				}
			})
		})
	}
}

// The error of a page ahead whose bytes came first is delivered behind them.
func TestBytesBeforeAnErrorAhead(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("a", 100_000)) })
	c := newClient(t, url, func(c *source.Config) { c.LargestPage = 99_999 })
	ahead := c.PagesAhead()
	defer ahead.Close()
	ahead.Expect(t.Context(), url)
	source.WaitAnswered(ahead)
	_, err := readAhead(t, ahead, url)
	if !errors.Is(err, source.ErrTooLarge) || !errors.Is(err, feed.ErrPermanent) {
		t.Errorf("error %v", err)
	}
}

// A page that is not expected any more, and then is again, is requested again. So is one of which the
// request has ended before: what was read of it is gone.
func TestPagesThatAreNotExpectedAnyMore(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.URL.Path) })
	hosts := &source.Hosts{}
	ahead := newClientWith(t, source.Options{Hosts: hosts}, url).PagesAhead()
	defer ahead.Close()
	for _, next := range [][]string{{"/1", "/2"}, {"/1", "/3"}, {"/4", "/1"}, {"/3"}} {
		for i, page := range next {
			next[i] = url + page
		}
		ahead.Expect(t.Context(), next...)
		source.WaitAnswered(ahead)
		if n := source.AheadOfHost(hosts, strings.TrimPrefix(url, "http://")); n != len(next) {
			t.Errorf("%d pages count as requested ahead, want %d", n, len(next))
		}
	}
	for _, page := range []string{"/2", "/3", "/1"} {
		if body, err := readAhead(t, ahead, url+page); body != "page "+page || err != nil {
			t.Errorf("%s: read %q, %v", page, body, err)
		}
	}
	if n := source.AheadOfHost(hosts, strings.TrimPrefix(url, "http://")); n != 0 {
		t.Errorf("%d pages still count as requested ahead", n)
	}
}

// recordedReads sends the size of the largest read of a body when most bytes were read.
type recordedReads struct {
	io.ReadCloser
	largest, read, most int
	reached             chan int // has a capacity of one
}

func (b *recordedReads) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	before := b.read
	b.largest, b.read = max(b.largest, len(p)), b.read+n
	if before < b.most && b.read >= b.most {
		b.reached <- b.largest
	}
	return n, err
}

// wrap records the reads of the body of the next response.
func (b *recordedReads) wrap(transport http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := transport.RoundTrip(r)
		if err == nil {
			b.ReadCloser = response.Body
			response.Body = b
		}
		return response, err
	})
}

// A page ahead is read in large pieces only if it is known to be long and there is memory for them.
// All of the memory is returned.
func TestLongPagesAheadAreReadInLargePieces(t *testing.T) {
	t.Parallel()
	const small, large = 32 << 10, 256 << 10
	for name, c := range map[string]struct {
		size    int
		unknown bool // the length of the page
		budget  int64
		ahead   int // bytes that are read ahead
		want    int
	}{
		"long":              {3 << 20, false, 16 << 20, small + 7*large, large},
		"of unknown length": {1 << 20, true, 16 << 20, 1 << 20, small},
		"little memory":     {2 << 20, false, large, large, small},
		"of 1 MiB":          {1 << 20, false, 16 << 20, 1 << 20, small},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			body := strings.Repeat("0123456789abcdef", c.size/16)
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if !c.unknown {
					w.Header().Set("Content-Length", fmt.Sprint(len(body)))
				}
				_, _ = io.WriteString(w, body)
			})
			reads := &recordedReads{most: c.ahead, reached: make(chan int, 1)}
			hosts := &source.Hosts{PageBudget: readahead.NewBudget(c.budget)}
			client := newClientWith(t, source.Options{Hosts: hosts, Wrap: reads.wrap}, url)
			ahead := client.PagesAhead()
			defer ahead.Close()
			ahead.Expect(t.Context(), url)
			if got := <-reads.reached; got != c.want {
				t.Errorf("the largest read has room for %d bytes, want %d", got, c.want)
			}
			if got, err := readAhead(t, ahead, url); got != body || err != nil {
				t.Errorf("read %d bytes of %d, %v", len(got), len(body), err)
			}
			if !hosts.PageBudget.Unused() {
				t.Error("some of the budget is not returned")
			}
		})
	}
}

// A page that is dropped while it waits for its turn returns all of its memory.
func TestDroppedLongPageReturnsItsMemory(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("0123456789abcdef", 3<<20/16)
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = io.WriteString(w, body)
	})
	hosts := &source.Hosts{PageBudget: readahead.NewBudget(16 << 20)}
	reads := &recordedReads{most: 1<<20 + 1, reached: make(chan int, 1)}
	ahead := newClientWith(t, source.Options{Hosts: hosts, Wrap: reads.wrap}, url).PagesAhead()
	ahead.Expect(t.Context(), url)
	<-reads.reached // it has more than 1 MiB
	ahead.Close()
	if !hosts.PageBudget.Unused() {
		t.Error("some of the budget is not returned")
	}
}
