//go:build chaos && linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	entity "github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/httpfault"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

const (
	// firstLength is the number of entities that the first feeds of a scenario have at least. A
	// defect that strikes one entity in some thousand is seen in the shortest run.
	firstLength = 20_000
	// fullLength is the number of entities from which on a feed is replaced: it would take
	// ever longer to compare.
	fullLength = 40_000
	// smallWindow is the dedupe window of the feeds that repeat IDs, and lastRepeat the largest
	// distance between two entities with one ID.
	smallWindow, lastRepeat = 10, 9
)

// feed is a feed that the test serves. It knows what its topic has to hold.
type feed struct {
	name  string
	topic string
	url   string
	*samplefeed.Feed
	pageSize int
	traits

	// base is the number of entities that the feed had when it was first read, if it is read from
	// then on. Until held is false it does not grow.
	base int
	held atomic.Bool

	// paused is set while the feed may be paused.
	paused atomic.Bool

	// slow is the time that the server takes for a page, in nanoseconds. Commits are larger
	// when it is 0.
	slow atomic.Int64

	// endless makes the feed grow by a page before each answer.
	endless atomic.Bool

	// torn makes every second answer or so break off.
	torn atomic.Bool

	mu  sync.Mutex
	tip tip
}

// traits are what feeds differ in, besides the size of their pages.
type traits struct {
	// format is empty for datareplication, or httpFeeds or jsonFeed.
	format string
	// deadLetters reports that some entities are too large for the bus and become dead letters.
	deadLetters bool
	// repeats reports that some entities have the ID and the body of an earlier one, and that
	// the dedupe window is small.
	repeats bool
	// startNow reports that the topic begins with the entities that come after the first poll.
	startNow bool
}

const (
	httpFeeds = "http-feeds"
	jsonFeed  = "JSON Feed" // with next_url
	// leastItems is the minimum number of items on a page of a JSON Feed, which is read from its newest page back.
	leastItems = 50
)

// traitsOf returns the traits of feed number n. drawn selects which of two feeds without repeated IDs is no
// datareplication, and its format.
func traitsOf(n, drawn int) traits {
	t := traits{deadLetters: n/2%2 == 0, repeats: n%2 == 0, startNow: n%4 == 3}
	if n%4 == 1+drawn%2*2 {
		t.format = []string{httpFeeds, jsonFeed}[(drawn/2+n/4)%2]
	}
	return t
}

// tip is the observed end of a topic, see scenario.watch.
type tip struct {
	n        int    // entities
	last     string // Content-ID
	progress time.Time
	stalled  time.Duration // the longest stall of this round
}

// grow adds n entities.
func (f *feed) grow(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.held.Load() {
		f.SetLen(f.Len() + n)
	}
}

// slowDown makes the server take some time for each entity.
func (f *feed) slowDown(each time.Duration) { f.slow.Store(int64(f.pageSize) * int64(each)) }

// observe records the end of the topic, or that it cannot be read. The topic cannot move before
// since: too much of the cluster was away.
func (f *feed) observe(n int, last string, err error, since time.Time) {
	length, newest := f.newest()
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	moved := err == nil && (n != f.tip.n || last != f.tip.last)
	if err == nil {
		f.tip.n, f.tip.last = n, last
	}
	if moved || length == f.base || f.paused.Load() || err == nil && last == newest {
		f.tip.progress = now
		return
	}
	if since.After(f.tip.progress) {
		f.tip.progress = since
	}
	f.tip.stalled = max(f.tip.stalled, now.Sub(f.tip.progress))
}

// end returns the end of the topic as it was seen last.
func (f *feed) end() tip {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tip
}

// takeStall returns the longest stall since it was called last.
func (f *feed) takeStall() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.tip.stalled
	f.tip.stalled = 0
	return d
}

// upstream serves the feeds of a scenario.
type upstream struct {
	mux    *http.ServeMux
	server *httptest.Server
}

func newUpstream() *upstream {
	mux := http.NewServeMux()
	return &upstream{mux, httptest.NewServer(mux)}
}

var feedsBegin = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// add adds a feed with so many entities on a page, which is empty unless its topic begins later. Each entity has an ID and a
// body that no other feed of the scenario has.
func (u *upstream) add(name string, pageSize int, t traits) *feed {
	if t.format == jsonFeed {
		pageSize = max(pageSize, leastItems)
	}
	f := &feed{name: name, topic: name, url: u.server.URL + "/" + name + "/latest", pageSize: pageSize, traits: t, tip: tip{progress: time.Now()}}
	f.Feed = samplefeed.New(samplefeed.Options{PageSize: pageSize, Base: "/" + name, Entity: func(i int) entity.Entity {
		original := i - f.repeated(i)
		return entity.Entity{
			ID: contentIDOf(name, original), Op: entity.Put,
			Modified: timeOf(i),
			Body:     []byte(f.body(original)),
		}
	}})
	if f.startNow {
		f.base = 100
		f.SetLen(f.base)
		f.held.Store(true)
	}
	u.mux.HandleFunc("/"+name+"/", func(w http.ResponseWriter, r *http.Request) {
		_ = pause(r.Context(), time.Duration(f.slow.Load()))
		if f.endless.Load() {
			f.grow(pageSize)
		}
		if f.torn.Load() && rand.IntN(2) == 0 {
			httpfault.Cut(rand.IntN(10_000))(w, r, f) // panics with http.ErrAbortHandler
		}
		f.ServeHTTP(w, r)
	})
	return f
}

// ServeHTTP serves the feed in its format.
func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var list []string
	switch f.format {
	case httpFeeds:
		from := 0
		if last := query.Get("lastEventId"); last != "" {
			from = f.numberOf(last) + 1
		}
		wait, _ := strconv.Atoi(query.Get("timeout"))
		for end := time.Now().Add(time.Duration(wait) * time.Millisecond); f.Len() <= from && time.Now().Before(end); {
			if pause(r.Context(), 20*time.Millisecond) != nil {
				return
			}
		}
		for i := from; i < min(f.Len(), from+f.pageSize); i++ {
			list = append(list, fmt.Sprintf(`{"specversion":"1.0","id":%q,"type":"t","source":"s","time":%q,"data":%s}`,
				contentIDOf(f.name, i), timeOf(i).Format(time.RFC3339), f.body(i)))
		}
		fmt.Fprintf(w, "[%s]", strings.Join(list, ","))
	case jsonFeed:
		n, next := f.Len(), ""
		if before, err := strconv.Atoi(query.Get("before")); err == nil {
			n = before
		}
		oldest := max(0, n-f.pageSize)
		for i := n - 1; i >= oldest; i-- {
			list = append(list, f.body(i))
		}
		if oldest > 0 {
			next = fmt.Sprintf(`"next_url":"?before=%d",`, oldest)
		}
		fmt.Fprintf(w, `{"version":"https://jsonfeed.org/version/1.1","title":"T",%s"items":[%s]}`, next, strings.Join(list, ","))
	default:
		f.Feed.ServeHTTP(w, r)
	}
}

// timeOf returns the time of entity i. Four share a second.
func timeOf(i int) time.Time { return feedsBegin.Add(time.Duration(i/4) * time.Second) }

func contentIDOf(feed string, i int) string { return fmt.Sprintf("%d@%s", i, feed) }

// numberOf returns the number of the entity with an ID; -1 if it is none of the feed's.
func (f *feed) numberOf(id string) int {
	digits, isOurs := strings.CutSuffix(id, "@"+f.name)
	i, err := strconv.Atoi(digits)
	if !isOurs || err != nil || i < 0 {
		return -1
	}
	return i
}

// body returns a body of 20 to 600 bytes, or of more than the bus takes. In a JSON Feed it is an item.
func (f *feed) body(i int) string {
	fill := i * 7919 % 480
	if f.isDead(i) {
		fill += messageLimit
	}
	if f.format == jsonFeed {
		return fmt.Sprintf(`{"id":%q,"date_published":%q,"content_text":%q}`, contentIDOf(f.name, i), timeOf(i).Format(time.RFC3339), strings.Repeat("x", fill))
	}
	return fmt.Sprintf(`{"feed":%q,"number":%d,"fill":%q}`, f.name, i, strings.Repeat("x", fill))
}

// isDead reports whether an entity becomes a dead letter. In some places several do in a row.
func (f *feed) isDead(i int) bool { return f.deadLetters && (i%41 == 17 || i%500 > 496) }

// repeated returns how many entities before i the one is whose ID entity i repeats; 0 if it has an
// ID of its own. No dead letter is repeated.
func (f *feed) repeated(i int) int {
	distance := 1 + i%lastRepeat
	if !f.repeats || i%29 != 13 || i < distance || f.isDead(i) || f.isDead(i-distance) {
		return 0
	}
	return distance
}

// destination is where an entity has to be.
type destination int

const (
	nowhere destination = iota // it was in the feed before the feed was read, or repeats an ID
	published
	dead
)

func (f *feed) destinationOf(i int) destination {
	switch {
	case i < f.base || f.repeated(i) > 0:
		return nowhere
	case f.isDead(i):
		return dead
	default:
		return published
	}
}

// live returns the number of entities among the first n that are in the topic.
func (f *feed) live(n int) (live int) {
	for i := range n {
		if f.destinationOf(i) == published {
			live++
		}
	}
	return live
}

// endLive makes the newest entity one that is in the topic, whose end shows then that the topic
// has caught up.
func (f *feed) endLive() {
	for f.Len() > f.base && f.destinationOf(f.Len()-1) != published {
		f.grow(1)
	}
}

// position returns entity i as "feedbridge checkpoint set" takes it: reading goes on
// behind it. A JSON Feed is read on from the time of the next entity; those of that second that the topic has
// are left out.
func (f *feed) position(i int) string {
	id := contentIDOf(f.name, i)
	switch f.format {
	case httpFeeds:
		return "after:" + id
	case jsonFeed:
		return timeOf(i + 1).Format(time.RFC3339)
	}
	return "id:" + id + "@" + timeOf(i).Format(time.RFC3339)
}

// newest returns the number of entities and the ID of the last that is in the topic.
func (f *feed) newest() (n int, id string) {
	n = f.Len()
	last := n - 1
	for last >= f.base && f.destinationOf(last) != published {
		last--
	}
	if last < f.base {
		return n, ""
	}
	return n, contentIDOf(f.name, last)
}

// defects are the differences between a topic and its feed.
type defects struct{ lost, repeated, disordered, foreign int }

func (d defects) String() string {
	return fmt.Sprintf("%d lost, %d repeated, %d out of order, %d not of the feed", d.lost, d.repeated, d.disordered, d.foreign)
}

func (d *defects) add(more defects) {
	d.lost += more.lost
	d.repeated += more.repeated
	d.disordered += more.disordered
	d.foreign += more.foreign
}

// compareAll compares a topic and its dead letters with the first n entities of the feed.
func (f *feed) compareAll(topic, letters []message, n int) (d defects, where string) {
	d, where = f.compare(topic, n, published)
	if more, first := f.compare(letters, n, dead); more != (defects{}) {
		d.add(more)
		where = strings.TrimPrefix(where+"; dead letters: "+first, "; ")
	}
	return d, where
}

// compare compares a topic, or its dead letters, with those of the first n entities of the feed
// that belong there. An entity is
// repeated if it is there a second time, and out of order if its first message is
// behind that of a later entity. Where is the first difference, in words.
func (f *feed) compare(topic []message, n int, to destination) (d defects, where string) {
	seen := make([]bool, n)
	note := func(position int, what string, m message) {
		if where == "" {
			where = fmt.Sprintf("message %d, %s, is %s", position, m.id, what)
		}
	}
	next := 0 // behind the latest entity so far
	for next < n && f.destinationOf(next) != to {
		next++
	}
	for position, m := range topic {
		i := f.numberOf(m.id)
		switch {
		case i < 0 || i >= n || f.destinationOf(i) != to || !f.isMessage(i, m):
			d.foreign++
			note(position, "not of the feed", m)
			continue
		case seen[i]:
			d.repeated++
			note(position, "repeated", m)
			continue
		case i < next:
			d.disordered++
			note(position, "out of order", m)
		case i > next:
			note(position, fmt.Sprintf("not entity %d", next), m)
		}
		seen[i] = true
		next = max(next, i+1)
		for next < n && f.destinationOf(next) != to {
			next++
		}
	}
	for i, ok := range seen {
		if !ok && f.destinationOf(i) == to {
			d.lost++
			if where == "" {
				where = fmt.Sprintf("the topic ends before entity %d", i)
			}
		}
	}
	return d, where
}

// isMessage reports whether m is the message of entity i. The body of a dead letter is a part of
// the entity's.
func (f *feed) isMessage(i int, m message) bool {
	if !f.isDead(i) {
		return m.body == f.body(i) && m.dead == ""
	}
	return len(m.body) > messageLimit/2 && strings.HasPrefix(f.body(i), m.body) && m.dead != ""
}
