package source_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source"
)

func wantWait(t *testing.T, err error, want time.Duration) {
	t.Helper()
	if got := feed.RetryDelay(err); got != want {
		t.Errorf("RetryDelay of %v is %v, want %v", err, got, want)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	const date = "Thu, 05 Oct 2023 03:00:10 GMT"
	for name, test := range map[string]struct {
		value string
		want  time.Duration
	}{
		"absent":                         {"", 0},
		"seconds":                        {"120", 2 * time.Minute},
		"no seconds":                     {"0", 0},
		"a date by the server's clock":   {"Thu, 05 Oct 2023 03:01:00 GMT", 50 * time.Second},
		"a date that has passed":         {"Thu, 05 Oct 2023 03:00:00 GMT", 0},
		"more than an hour":              {"86400", time.Hour},
		"a date in more than an hour":    {"Thu, 12 Oct 2023 03:00:00 GMT", time.Hour},
		"a date in a form of mail":       {"Thu, 5 Oct 2023 05:01 +0200", 50 * time.Second},
		"four digits, which are no year": {"2030", 2030 * time.Second},
		"more than fits into an integer": {"99999999999999999999999999", time.Hour},
		"negative":                       {"-5", 0},
		"a fraction":                     {"1.5", 0},
		"an exponent":                    {"1e3", 0},
		"rubbish":                        {"soon", 0},
	} {
		parallel.Run(t, "case 85: "+name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", date)
				if test.value != "" {
					w.Header().Set("Retry-After", test.value)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			_, _, err := get(t, newClient(t, url), url)
			wantError(t, err, false, "503 Service Unavailable")
			wantWait(t, err, test.want)
		})
	}
}

// A quota that is used up has the same effect as Retry-After, which goes before it.
func TestUsedQuota(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status  int
		headers []string // names and values
		want    time.Duration
		refused bool
	}{
		"seconds":                    {429, []string{"X-RateLimit-Remaining", "0.0", "X-RateLimit-Reset", "50"}, 50 * time.Second, true},
		"a time":                     {429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1696474860"}, 50 * time.Second, true},
		"a time that has passed":     {429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1696474800"}, 0, true},
		"rubbish":                    {429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "NaN"}, 0, true},
		"something left":             {429, []string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "50"}, 0, true},
		"only a reset":               {429, []string{"X-RateLimit-Reset", "50"}, 50 * time.Second, true},
		"after Retry-After":          {429, []string{"Retry-After", "7", "X-RateLimit-Reset", "50"}, 7 * time.Second, true},
		"more than an hour":          {429, []string{"X-RateLimit-Reset", "80000"}, time.Hour, true},
		"negative":                   {429, []string{"X-RateLimit-Reset", "-80000"}, 0, true},
		"403 with a quota":           {403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "50"}, 50 * time.Second, true},
		"403 with a quota left":      {403, []string{"X-RateLimit-Remaining", "4", "X-RateLimit-Reset", "50"}, 0, false},
		"403 with only a reset":      {403, []string{"X-RateLimit-Reset", "50"}, 0, false},
		"an error that is not about": {404, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "50"}, 0, false},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", "Thu, 05 Oct 2023 03:00:10 GMT")
				for i := 0; i < len(test.headers); i += 2 {
					w.Header().Add(test.headers[i], test.headers[i+1])
				}
				w.WriteHeader(test.status)
			})
			_, _, err := get(t, newClient(t, url), url)
			wantError(t, err, !test.refused, strconv.Itoa(test.status))
			wantWait(t, err, test.want)
		})
	}
}

// 503 with Retry-After pauses the feed that got it, and so does 429. 410 speaks for one page.
func TestPause(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	handler := func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if status, err := strconv.Atoi(strings.Trim(r.URL.Path, "/")); err == nil {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(status)
		}
	}
	bubble(t, handler, func(t *testing.T, hosts *source.Hosts) {
		other := newClientWith(t, source.Options{Hosts: hosts}, "http://SHOP.example.com:80/other")
		defer other.CloseIdle()
		for _, status := range []string{"503", "429"} {
			c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
			asked.Store(0)
			for _, path := range []string{"410", status} {
				_, _, err := get(t, c, "http://shop.example.com/"+path)
				wantWait(t, err, time.Minute)
			}
			time.Sleep(20 * time.Second)
			_, _, err := get(t, c, feedURL)
			wantError(t, err, false, "GET http://shop.example.com/feed: not requested: shop.example.com:80 asked to wait another 40s")
			wantWait(t, err, 40*time.Second)
			if !errors.Is(err, feed.ErrNotRequested) {
				t.Errorf("%v is not ErrNotRequested", err)
			}
			if n := asked.Load(); n != 2 {
				t.Errorf("case 85: %d requests, want 2: the feed was requested during its pause", n)
			}
			if _, _, err := get(t, other, "http://SHOP.example.com:80/other"); err != nil {
				t.Errorf("another feed of the host must wait too: %v", err)
			}
			time.Sleep(40 * time.Second)
			if _, _, err := get(t, c, feedURL); err != nil {
				t.Errorf("after the pause: %v", err)
			}
		}
	})
}

// pollHost polls feeds of a host in virtual time, one second after the other, and returns the
// number of good answers and of requests for each. answer is that of a request for a feed.
func pollHost(t *testing.T, feeds int, every, long time.Duration, answer func(feed int, w http.ResponseWriter)) (good, asked []int) {
	good, asked = make([]int, feeds), make([]int, feeds)
	var mu sync.Mutex
	handler := func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(path.Base(r.URL.Path))
		mu.Lock()
		defer mu.Unlock()
		asked[n]++
		answer(n, w)
	}
	bubble(t, handler, func(t *testing.T, hosts *source.Hosts) {
		end := time.Now().Add(long)
		var polls sync.WaitGroup
		for n := range feeds {
			url := fmt.Sprint("http://shop.example.com/", n)
			c := newClientWith(t, source.Options{Hosts: hosts}, url)
			polls.Go(func() {
				defer c.CloseIdle()
				time.Sleep(time.Duration(n) * time.Second)
				for time.Now().Before(end) {
					_, _, err := get(t, c, url)
					if err == nil {
						good[n]++
					}
					time.Sleep(max(every, feed.RetryDelay(err)))
				}
			})
		}
		polls.Wait()
	})
	return good, asked
}

// The others answer anything, and change their minds.
func TestFeedsThatAreAnsweredArePolledAtTheirInterval(t *testing.T) {
	t.Parallel()
	for seed := range uint64(15) {
		parallel.Run(t, fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			feeds := 2 + random.IntN(29)
			healthy := 1 + random.IntN(feeds-1)
			const every, long = 10 * time.Second, 10 * time.Minute
			good, _ := pollHost(t, feeds, every, long, func(feed int, w http.ResponseWriter) {
				if (feed+int(seed))%feeds < healthy {
					return
				}
				wait := strconv.Itoa(random.IntN(4000))
				switch random.IntN(6) {
				case 0:
					w.Header().Set("Retry-After", wait)
				case 1:
					w.Header().Set("X-RateLimit-Reset", wait)
				}
				w.WriteHeader([]int{200, 301, 403, 404, 410, 429, 429, 429, 500, 503, 503, 503}[random.IntN(12)])
			})
			for n, polls := range good {
				if want := int((long - time.Duration(n)*time.Second + every - 1) / every); (n+int(seed))%feeds < healthy && polls != want {
					t.Errorf("case 85: feed %d of %d, of which %d are healthy, was polled %d times, want %d", n, feeds, healthy, polls, want)
				}
			}
		})
	}
}

// Requests that are under way when a host asks for a pause may bring answers of
// their own.
func TestShorterPauseEndsNoLongerOne(t *testing.T) {
	t.Parallel()
	handler := func(w http.ResponseWriter, r *http.Request) {
		wait := "60"
		if r.URL.Path == "/late" {
			time.Sleep(time.Second)
			wait = "1"
		}
		w.Header().Set("Retry-After", wait)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	bubble(t, handler, func(t *testing.T, hosts *source.Hosts) {
		c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
		defer c.CloseIdle()
		late := make(chan error)
		go func() {
			_, _, err := get(t, c, "http://shop.example.com/late")
			late <- err
		}()
		time.Sleep(time.Millisecond)
		_, _, err := get(t, c, feedURL)
		wantWait(t, err, time.Minute)
		wantWait(t, <-late, time.Second)
		time.Sleep(10 * time.Second)
		_, _, err = get(t, c, feedURL)
		wantError(t, err, false, "not requested: shop.example.com:80 asked to wait")
	})
}

func TestRate(t *testing.T) {
	t.Parallel()
	bubble(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, hosts *source.Hosts) {
		client := func(url string) *source.Client {
			return newClientWith(t, source.Options{Hosts: hosts}, url, func(c *source.Config) { c.Limits.Rate = 2 })
		}
		one, two, other := client(feedURL), client("http://shop.example.com/two"), client("http://other.example.com/")
		defer one.CloseIdle()
		start := time.Now()
		for range 5 {
			for c, url := range map[*source.Client]string{one: feedURL, two: "http://shop.example.com/two", other: "http://other.example.com/"} {
				if _, _, err := get(t, c, url); err != nil {
					t.Fatal(err)
				}
			}
		}
		// Ten requests to the host that two clients share; the first is free.
		if took, want := time.Since(start), 4500*time.Millisecond; took != want {
			t.Errorf("it took %v, want %v", took, want)
		}
	})
}

// Idle feeds must not hold a connection each.
func TestClientsShareConnections(t *testing.T) {
	t.Parallel()
	page := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") }
	bubble(t, page, func(t *testing.T, hosts *source.Hosts) {
		connections := countConnections(hosts)
		for range 50 {
			c := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
			defer c.CloseIdle()
			if _, _, err := get(t, c, feedURL); err != nil {
				t.Fatal(err)
			}
		}
		if n := connections.Load(); n != 1 {
			t.Errorf("50 clients, one after the other, made %d connections", n)
		}
		other := newClientWith(t, source.Options{Hosts: hosts}, feedURL, func(c *source.Config) { c.Timeout = time.Second })
		defer other.CloseIdle()
		if _, _, err := get(t, other, feedURL); err != nil {
			t.Fatal(err)
		}
		if connections.Load() != 2 {
			t.Error("a client with other limits was given a connection that does not keep them")
		}
	})
}
