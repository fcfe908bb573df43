package admin_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

var rowName = regexp.MustCompile(`<tr id="(?:feed|served)-([^"]*)"`)

// rows returns the names of the rows of a status page.
func rows(t *testing.T, s *admin.Server, path string) string {
	t.Helper()
	code, body := get(t, s, path)
	if code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, code, body)
	}
	var names []string
	for _, m := range rowName.FindAllStringSubmatch(body, -1) {
		names = append(names, m[1])
	}
	return strings.Join(names, " ")
}

// The page of all feeds shows that a newer configuration was refused, and that of a feed its dead
// letters.
func TestPagesShowRefusedConfigurationsAndDeadLetters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		f := s.AddFeed(admin.FeedOptions{Name: "orders", URL: "https://shop.example.com/orders", Bus: "main", Topic: "orders"})
		f.Processed(feed.Batch{Entities: []feed.Entity{{Dead: &feed.DeadReason{Kind: feed.DeadTooLarge}}}}, 0)
		if _, body := get(t, s, "/"); strings.Contains(body, "was not reloaded") {
			t.Error("the page shows an error of the configuration, and there is none")
		}
		s.ConfigLoaded(errors.New("feedbridge.yaml:3: feeds.orders.evry: unknown key"))
		if _, body := get(t, s, "/"); !strings.Contains(body, "the one before stays in use: feedbridge.yaml:3: feeds.orders.evry: unknown key") ||
			!strings.Contains(body, "■</span> The configuration was not reloaded; 1 feed: nothing needs you, 0 entities since the start 0s ago</h1>") {
			t.Errorf("the page does not show the error of the configuration: %s", body)
		}
		s.ConfigLoaded(nil)
		if _, body := get(t, s, "/"); strings.Contains(body, "was not reloaded") {
			t.Error("the page shows an error of the configuration that is over")
		}
		if _, body := get(t, s, "/feed/orders"); !strings.Contains(body, "<dt>Dead letters</dt><dd>1, too_large</dd>") {
			t.Errorf("the page does not show the dead letter: %s", body)
		}
	})
}

// The summary begins with the buses that do not answer, because the feeds only wait for them.
func TestSummaryBeginsWithABusThatIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var down error
		s.AddBus(admin.Bus{Name: "main", Kind: "nats", Check: func(context.Context) error { return down }})
		addOrders(s)
		for _, test := range []struct {
			err  error
			want string
		}{
			{errDown, "Bus main is not available; 1 feed: 0 entities since the start "},
			{nil, "1 feed: nothing needs you, 0 entities since the start "},
		} {
			down = test.err
			time.Sleep(time.Minute)
			if p, _ := readStatus(t, s); !strings.HasPrefix(p.Summary.Sentence, test.want) {
				t.Errorf("the sentence is %q, want %q", p.Summary.Sentence, test.want)
			}
			if _, body := get(t, s, "/"); !strings.Contains(body, "</span> "+test.want) {
				t.Errorf("the page lacks %q: %s", test.want, body)
			}
		}
	})
}

// The card of a feed that needs a person has its error once.
func TestCardsHaveAnErrorOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		f := addOrders(s)
		enter(f, bridge.Retrying, checkpoint.Checkpoint{}, 24*time.Hour, errors.New("nothing accepts connections"))
		time.Sleep(23 * time.Hour)
		_, body := get(t, s, "/")
		_, card, _ := strings.Cut(body, "has not been read yet: ")
		if !strings.HasPrefix(card, "nothing accepts connections</p>") {
			t.Errorf("the card has something else: %s", body)
		}
	})
}

// Rows whose value is equal are sorted by name, and those whose value is not known come last.
func TestFeedsAreSortedAndSearched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		add := func(name, topic string, state bridge.State, count uint64, commit, wait, lag time.Duration, recent int) {
			f := s.AddFeed(admin.FeedOptions{Name: name, URL: "https://Shop.example.com/" + name, Bus: "main", Topic: topic, Every: time.Second})
			now := time.Now()
			cp := checkpoint.Checkpoint{Count: count - uint64(recent), Cursor: feed.Cursor(name), Writer: own}
			if commit > 0 {
				cp.At = now.Add(-commit)
			}
			enter(f, bridge.Reading, cp, 0, nil)
			if recent > 0 {
				b := batch(name, recent, true)
				b.Title = strings.ToUpper(topic) + "<i>\u202e\x00 title"
				b.Newest = b.Entities[recent-1].Modified.Add(lag)
				f.Polled(b, nil, 0)
				f.Processed(b, commit)
				cp.Count, cp.Cursor = count, b.Cursor
			}
			enter(f, state, cp, wait, errDown)
		}
		add("a", "x.1", bridge.Idle, 7, 3*time.Second, 9*time.Second, time.Minute, 5)
		add("b", "x.2", bridge.Halted, 0, 0, time.Hour, 0, 0)
		add("c", "y.3", bridge.Retrying, 7, time.Hour, 4*time.Second, time.Hour, 3)
		add("d", "y.4", bridge.Standby, 900, time.Second, 5*time.Second, 0, 0)
		add("e", "z.5", "unheard-of", 1, time.Minute, 0, time.Second, 1)
		add("f", "z.6", bridge.Reading, 2, 2*time.Minute, 0, 2*time.Hour, 2)
		for query, want := range map[string]string{
			"":                          "b c e f d a",
			"?sort=-state":              "a d f e c b",
			"?sort=name":                "a b c d e f",
			"?sort=-name":               "f e d c b a",
			"?sort=entities":            "b e f a c d",
			"?sort=-entities":           "d a c f e b",
			"?sort=lag":                 "e a c f b d",
			"?sort=-lag":                "f c a e b d",
			"?sort=recent":              "b d e f c a",
			"?sort=-recent":             "a c f e b d",
			"?sort=commit":              "c f e a d b",
			"?sort=-commit":             "d a e f c b",
			"?sort=next":                "e f c d a b",
			"?sort=-next":               "b a d c e f",
			"?q=y.3%3Ci":                "c",
			"?q=Y.":                     "c d",
			"?q=SHOP.EXAMPLE.COM%2Fe":   "e",
			"?q=main&state=halted":      "b",
			"?state=none":               "",
			"?state=unheard-of&q=z&x=y": "e",
		} {
			if got := rows(t, s, "/"+query); got != want {
				t.Errorf("%q: %s, want %s", query, got, want)
			}
		}
	})
}

// The page of all feeds and the troubles of the summary are in natural order.
func TestFeedsAreInNaturalOrder(t *testing.T) {
	t.Parallel()
	s := newServer()
	for _, i := range []int{10, 9, 2, 100} {
		enter(s.AddFeed(admin.FeedOptions{Name: fmt.Sprintf("feed-%d", i), Every: time.Second}), bridge.Halted, checkpoint.Checkpoint{}, time.Hour, errDown)
	}
	if got, want := rows(t, s, "/"), "feed-2 feed-9 feed-10 feed-100"; got != want {
		t.Errorf("the rows are %s, want %s", got, want)
	}
	p, _ := readStatus(t, s)
	if len(p.Summary.Troubles) != 4 || p.Summary.Troubles[1].Feed != "feed-9" || p.Feeds[2].Feed != "feed-10" {
		t.Errorf("the troubles are %+v", p.Summary.Troubles)
	}
}

func TestServedTopicsHavePages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var asked atomic.Int64 // the topics of a page are read concurrently
		for i := range 120 {
			s.AddServed(admin.ServedOptions{Name: fmt.Sprintf("feed-%03d", i), Topic: "t", Look: func(context.Context) (admin.ServedTopic, error) {
				asked.Add(1)
				return admin.ServedTopic{}, nil
			}})
		}
		first, last := rows(t, s, "/served"), rows(t, s, "/served?page=3")
		if !strings.HasPrefix(first, "feed-000 ") || !strings.HasSuffix(first, " feed-049") || !strings.HasPrefix(last, "feed-100 ") || !strings.HasSuffix(last, " feed-119") {
			t.Errorf("the pages have %s and %s", first, last)
		}
		if n := asked.Load(); n != 70 {
			t.Errorf("%d topics were asked for 70 rows", n)
		}
		if got := rows(t, s, "/served?q=-07"); got != "feed-070 feed-071 feed-072 feed-073 feed-074 feed-075 feed-076 feed-077 feed-078 feed-079" {
			t.Errorf("the search finds %s", got)
		}
	})
}

// A page shows the last answer of a bus and does not wait for the next one, except at first.
func TestPagesDoNotWaitForABus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := false
		s := newServer(admin.Bus{Name: "main", Kind: "nats", Check: func(ctx context.Context) error {
			if hangs {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(time.Second)
			return nil
		}})
		want := func(took time.Duration, part string) {
			t.Helper()
			begin := time.Now()
			if _, body := get(t, s, "/"); !strings.Contains(body, part) || time.Since(begin) != took {
				t.Errorf("after %v the page has no %q, or not after %v:\n%s", time.Since(begin), part, took, body)
			}
			synctest.Wait() // a check that this has started has begun
		}
		want(time.Second, "(nats) answers")
		want(0, "(nats) answers")
		hangs = true
		time.Sleep(2 * time.Second)
		want(0, "(nats) answers")
		time.Sleep(3 * time.Second)
		want(0, "Bus main fails: no answer within 2s")
		hangs = false
		time.Sleep(5 * time.Second)
		want(0, "Bus main fails: no answer within 2s")
		time.Sleep(3 * time.Second)
		want(0, "(nats) answers")
		time.Sleep(3 * time.Second) // the last check ends
	})
}

// Serve ends the live pages, and does not wait for their clients.
func TestServeEndsLivePages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		addOrders(s)
		l := newPipes()
		client := &http.Client{Transport: &http.Transport{DialContext: l.dial, DisableKeepAlives: true}}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, l) }()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://feedbridge/", nil)
		must.Succeed(t, err)
		req.Header.Set("Accept", "text/event-stream")
		resp, err := client.Do(req)
		must.Succeed(t, err)
		defer resp.Body.Close()
		read := bufio.NewReader(resp.Body)
		if line, err := read.ReadString('\n'); err != nil || line != "retry: 3000\n" {
			t.Fatalf("the stream begins with %q, %v", line, err)
		}
		rest := make(chan error, 1)
		go func() { _, err := io.Copy(io.Discard, read); rest <- err }()
		// Longer than the timeouts of the server and its clients.
		time.Sleep(10 * time.Minute)
		begin := time.Now()
		cancel()
		if err := errors.Join(<-served, <-rest); err != nil {
			t.Error(err)
		}
		// Shutdown looks for open connections from time to time.
		if took := time.Since(begin); took >= time.Second {
			t.Errorf("the stop took %v", took)
		}
	})
}

// BenchmarkPage makes a page of many feeds, as each request and each live update does.
func BenchmarkPage(b *testing.B) {
	s := newServer()
	for i := range 10_000 {
		f := addOrdersAs(s, fmt.Sprintf("feed-%05d", i))
		enter(f, bridge.Idle, checkpoint.Checkpoint{Count: rand.Uint64N(1e6), At: time.Now(), Cursor: feed.Cursor("x")}, time.Hour, nil)
	}
	for _, path := range []string{"/", "/?sort=-entities&page=100", "/?q=-0123", "/feed/feed-00001", "/status"} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				getWith(b.Context(), s, path)
			}
		})
	}
}

// A position may be a URL with a secret.
func TestPagesHideSecretsOfPositions(t *testing.T) {
	t.Parallel()
	s := newServer()
	f := s.AddFeed(admin.FeedOptions{Name: "orders", Describe: func(checkpoint.Checkpoint) admin.Description {
		return admin.Description{Format: "datareplication", Cursor: map[string]any{"page": "https://shop.example.com/7?token=geheim"}}
	}})
	enter(f, bridge.Idle, checkpoint.Checkpoint{Cursor: feed.Cursor("x")}, time.Hour, nil)
	for _, path := range []string{"/", "/feed/orders"} {
		if _, body := get(t, s, path); strings.Contains(body, "geheim") || !strings.Contains(body, "https://shop.example.com/7?token=***") {
			t.Errorf("%s has\n%s", path, body)
		}
	}
}
