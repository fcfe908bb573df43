package source_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
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
		t.Run("case 85: "+name, func(t *testing.T) {
			t.Parallel()
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

func TestPause(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	handler := func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch r.URL.Path {
		case "/busy":
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/gone":
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusGone)
		}
	}
	bubble(t, handler, func(t *testing.T, hosts *source.Hosts) {
		one := newClientWith(t, source.Options{Hosts: hosts}, feedURL)
		two := newClientWith(t, source.Options{Hosts: hosts}, "http://SHOP.example.com:80/other")
		other := newClientWith(t, source.Options{Hosts: hosts}, "http://other.example.com/feed")
		defer one.CloseIdle()

		_, _, err := get(t, one, "http://shop.example.com/gone")
		wantWait(t, err, time.Minute)
		_, _, err = get(t, one, "http://shop.example.com/busy") // 410 speaks for one page, 429 for the host
		wantWait(t, err, time.Minute)
		if n := asked.Load(); n != 2 {
			t.Fatalf("%d requests arrived, want 2", n)
		}

		time.Sleep(20 * time.Second)
		_, _, err = get(t, two, "http://SHOP.example.com:80/other")
		wantError(t, err, false, "GET http://SHOP.example.com:80/other: not requested: shop.example.com:80 asked to wait another 40s")
		wantWait(t, err, 40*time.Second)
		if n := asked.Load(); n != 2 {
			t.Errorf("case 85: the host was asked during its pause")
		}
		if _, _, err := get(t, other, "http://other.example.com/feed"); err != nil {
			t.Errorf("another host must wait too: %v", err)
		}

		time.Sleep(40 * time.Second)
		if _, _, err := get(t, two, "http://SHOP.example.com:80/other"); err != nil {
			t.Errorf("after the pause: %v", err)
		}
	})
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
		other := newClientWith(t, source.Options{Hosts: hosts}, feedURL, func(c *source.Config) { c.Limits.Header++ })
		defer other.CloseIdle()
		if _, _, err := get(t, other, feedURL); err != nil {
			t.Fatal(err)
		}
		if connections.Load() != 2 {
			t.Error("a client with other limits was given a connection that does not keep them")
		}
	})
}
