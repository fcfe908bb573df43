package source_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/httpfeed"
	"github.com/feedbridge/feedbridge/source/syndication"
)

const (
	day     = 24 * time.Hour
	trouble = 23 * time.Hour // how long things fail
	apart   = time.Minute    // between two items
)

// dayFeed is a feed that gets an item a minute. Its answers are spoiled, but no two in a row.
type dayFeed struct {
	begin   time.Time
	serve   func(w http.ResponseWriter, r *http.Request, n int) // with n items
	forgets bool                                                // some answers do not continue behind lastEventId

	mu     sync.Mutex
	random *rand.Rand
	before string // the query of the last good answer
	failed bool
	spoilt int
}

func (d *dayFeed) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.IntN(n)
}

func (d *dayFeed) items() int { return int(min(time.Since(d.begin), trouble) / apart) }

func (d *dayFeed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := d.roll(30)
	d.mu.Lock()
	query := r.URL.RawQuery
	if d.failed || kind > 4 || time.Since(d.begin) > trouble {
		d.failed, d.before, kind = false, query, -1
	} else {
		d.failed = true
		d.spoilt++
	}
	before := d.before
	d.mu.Unlock()
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, d.items()) })
	switch kind {
	case 0:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case 1:
		httpfault.Reset(w, r, h)
	case 2:
		httpfault.Cut(d.roll(4000))(w, r, h)
	case 3: // the last batch again, but none behind the one that was asked for: nothing shows that events are left out
		if d.forgets && lastEvent(before) <= lastEvent(query) {
			r.URL.RawQuery = before
		}
	case 4: // the beginning, of which an http-feed has forgotten the oldest part
		if d.forgets {
			r.URL.RawQuery = ""
		}
	}
	h.ServeHTTP(w, r)
}

// lastEvent returns the number of the event behind which a query asks; -1 if it asks for the beginning.
func lastEvent(query string) int {
	values, _ := url.ParseQuery(query)
	if last, err := strconv.Atoi(values.Get("lastEventId")); err == nil {
		return last
	}
	return -1
}

func serveEvents(w http.ResponseWriter, r *http.Request, n int) {
	from := 0
	if last := r.URL.Query().Get("lastEventId"); last != "" {
		from, _ = strconv.Atoi(last)
		from++
	}
	if wait, _ := strconv.Atoi(r.URL.Query().Get("timeout")); from >= n && wait > 0 {
		select {
		case <-time.After(time.Duration(wait) * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
	var list []string
	for i := from; i < min(n, from+50); i++ {
		event := fmt.Sprintf(`{"specversion":"1.0","id":"%d","type":"t","source":"s","time":%q,"subject":"%d"`, i, itemTime(i), i%7)
		if i%5 == 3 {
			event += `,"method":"DELETE"}`
		} else {
			event += fmt.Sprintf(`,"data":{"n":%d}}`, i)
		}
		list = append(list, event)
	}
	_, _ = w.Write([]byte("[" + strings.Join(list, ",") + "]"))
}

func itemTime(i int) string {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * apart).Format(time.RFC3339)
}

// serveItems serves a JSON Feed with so many items in a document. With pages, next_url leads to those before.
func serveItems(size int, pages bool) func(w http.ResponseWriter, r *http.Request, n int) {
	return func(w http.ResponseWriter, r *http.Request, n int) {
		if before, err := strconv.Atoi(r.URL.Query().Get("before")); err == nil {
			n = min(n, before)
		}
		next, items := "", []string{}
		for i := n - 1; i >= max(0, n-size); i-- {
			items = append(items, fmt.Sprintf(`{"id":"%d","date_published":%q,"content_text":"item %d"}`, i, itemTime(i), i))
		}
		if pages && n > size {
			next = fmt.Sprintf(`"next_url":"?before=%d",`, n-size)
		}
		fmt.Fprintf(w, `{"version":"https://jsonfeed.org/version/1.1","title":"T",%s"items":[%s]}`, next, strings.Join(items, ","))
	}
}

type deafObserver struct{}

func (deafObserver) Polled(feed.Batch, error, time.Duration) {}
func (deafObserver) Processed(feed.Batch, time.Duration)     {}
func (deafObserver) Entered(bridge.Status)                   {}

// For a day answers break off, come from the beginning or twice, commits are lost, late and torn, the topic goes back
// to a backup, and two copies end and start again. In the end the topic has each item once, in order.
func TestDayOfTroubles(t *testing.T) {
	t.Parallel()
	cfg := syndication.Defaults()
	cfg.URL, cfg.Body, cfg.Limits.Rate = "http://feed.example/feed", "source", 1e6
	for name, f := range map[string]struct {
		feed *dayFeed
	}{
		"http-feeds":           {&dayFeed{serve: serveEvents, forgets: true}},
		"JSON Feed":            {&dayFeed{serve: serveItems(60, false)}},
		"JSON Feed with pages": {&dayFeed{serve: serveItems(20, true)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, f.feed.ServeHTTP, func(t *testing.T, hosts *source.Hosts) {
				log := slog.New(slog.DiscardHandler)
				f.feed.begin, f.feed.random = time.Now(), rand.New(rand.NewPCG(26, 9))
				client, err := source.NewClient(cfg.Config, source.Options{Hosts: hosts})
				must.Succeed(t, err)
				var topic sinktest.Memory
				failing := func() bool { return time.Since(f.feed.begin) < trouble && f.feed.roll(10) == 0 }
				faults := sinktest.Faults{
					Resume: func() error {
						if failing() {
							return errors.New("no answer")
						}
						return nil
					},
					Commit: func() sinktest.Fault {
						if !failing() {
							return sinktest.Fault{}
						}
						kinds := []sinktest.Kind{sinktest.FailBefore, sinktest.FailAfter, sinktest.Late, sinktest.Torn}
						return sinktest.Fault{Kind: kinds[f.feed.roll(len(kinds))], After: time.Duration(f.feed.roll(20_000)) * time.Millisecond}
					},
				}
				for at := time.Hour; at < trouble-time.Hour; at += 2 * time.Hour {
					time.AfterFunc(at, func() { time.AfterFunc(time.Duration(1+f.feed.roll(600))*time.Second, topic.Backup()) })
				}
				var copies sync.WaitGroup
				for n := range 2 {
					copies.Go(func() {
						for time.Since(f.feed.begin) < day {
							life := day - time.Since(f.feed.begin)
							if life > day-trouble {
								life = time.Duration(1+f.feed.roll(3600)) * time.Second
							}
							ctx, cancel := context.WithTimeout(t.Context(), life)
							snk := topic.Open(faults)
							var src feed.Source = syndication.New(cfg, client, snk.IDs(), log)
							if f.feed.forgets {
								src = httpfeed.New(httpfeed.Config{Config: cfg.Config}, client, snk.IDs().Committed, nil, log)
							}
							gate := &sink.Gate{Source: src, IDs: snk.IDs(), Log: log, Fits: func(e []feed.Entity) (int, error) { return len(e), nil }}
							b := &bridge.Bridge{
								Feed: "f", Writer: fmt.Sprintf("copy-%d", n), Sink: snk, Every: 40 * time.Second, ReadAhead: 1 << 20,
								Limits: feed.Limits{Entities: 100, Bytes: 1 << 20}, Log: log, Observer: deafObserver{},
								Open: func(context.Context, string) (feed.Source, string, error) { return gate, "x", nil },
							}
							stopped := make(chan struct{})
							b.Start(ctx, func() { close(stopped) })
							<-stopped
							cancel()
						}
					})
				}
				copies.Wait()
				client.CloseIdle()
				must.Succeed(t, topic.Err())
				var got, want []string
				for _, e := range topic.Entities() {
					got = append(got, e.ID)
				}
				for i := range f.feed.items() {
					want = append(want, strconv.Itoa(i))
				}
				if !slices.Equal(got, want) {
					at := 0
					for at < min(len(got), len(want)) && got[at] == want[at] {
						at++
					}
					t.Errorf("the topic has %d items of %d, and differs from item %d on: %v", len(got), len(want), at, got[max(0, at-3):min(len(got), at+20)])
				}
				if f.feed.spoilt < 100 {
					t.Errorf("only %d answers were spoilt", f.feed.spoilt)
				}
			})
		})
	}
}
