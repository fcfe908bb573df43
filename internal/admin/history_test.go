package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// details returns the answer of /status/orders.
func details(t *testing.T, s *admin.Server) (row status.Feed) {
	t.Helper()
	_, body := get(t, s, "/status/orders")
	must.Succeed(t, json.Unmarshal([]byte(body), &row))
	return row
}

// The minutes are those of the clock; what is older than 15 of them is forgotten, also while
// nothing is published.
func TestRecentlyPublished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // it begins at a full minute
		s := newServer()
		f := addOrders(s)
		want := func(total uint64) {
			t.Helper()
			if got := details(t, s).RecentlyPublished; got != total {
				t.Errorf("%d entities, want %d", got, total)
			}
		}
		want(0)
		f.Processed(batch("a", 3, true), 0)
		f.Processed(batch("b", 2, true), 0)
		want(5)
		time.Sleep(time.Minute)
		f.Processed(batch("c", 1, true), 0)
		time.Sleep(3*time.Minute + 30*time.Second)
		f.Processed(batch("d", 7, true), 0)
		want(13)
		time.Sleep(10 * time.Minute)
		want(13)
		time.Sleep(time.Minute)
		want(8)
		time.Sleep(100 * time.Hour)
		want(0)
	})
}

// The hours are those of the clock. A feed that another one replaces hands its hours over, and the process has those of
// all feeds.
func TestByHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // it begins at a full hour
		s := newServer()
		f := addOrders(s)
		f.Processed(batch("a", 3, true), 40*time.Millisecond)
		enter(f, bridge.Retrying, checkpoint.Checkpoint{}, time.Second, errors.New("no answer"))
		time.Sleep(59 * time.Minute)
		if row := details(t, s); row.EntitiesLastHour != 3 || row.RecentlyPublished != 0 {
			t.Errorf("%d in the last hour, %d in 15 minutes", row.EntitiesLastHour, row.RecentlyPublished)
		}
		time.Sleep(time.Minute)
		f = addOrders(s)
		f.Processed(batch("b", 2, true), 90*time.Millisecond)
		h := details(t, s).ByHour
		if len(h.Entities) != status.Hours || h.Entities[22] != 3 || h.Errors[22] != 1 || h.SlowestCommit[22] != 40 || h.Entities[23] != 2 || h.SlowestCommit[23] != 90 {
			t.Errorf("the feed: %+v", h)
		}
		other := addOrdersAs(s, "others")
		other.Processed(batch("c", 4, true), 50*time.Millisecond)
		if p, _ := readStatus(t, s); p.Summary.EntitiesLastHour != 6 || p.Summary.ByHour.Entities[22] != 3 || p.Summary.ByHour.SlowestCommit[23] != 90 {
			t.Errorf("the process: %+v", p.Summary)
		}
		time.Sleep(23 * time.Hour)
		if p, _ := readStatus(t, s); p.Summary.ByHour.Entities[0] != 6 || p.Summary.ByHour.Entities[23] != 0 {
			t.Errorf("a day later: %+v", p.Summary.ByHour)
		}
	})
}

// A feed needs a person when it is halted, or fails for longer than its freshness limit, or holds deletes; before that
// it fails.
func TestAttention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		f := addOrders(s)
		want := func(attention status.Attention, sentence string) {
			t.Helper()
			p, _ := readStatus(t, s)
			if p.Feeds[0].Attention != attention || !strings.HasPrefix(p.Summary.Sentence, sentence) {
				t.Errorf("%q and %q, want %q and %q", p.Feeds[0].Attention, p.Summary.Sentence, attention, sentence)
			}
		}
		want("", "1 feed: nothing needs you, 0")
		enter(f, bridge.Retrying, checkpoint.Checkpoint{}, time.Hour, errors.New("no answer"))
		want(status.Failing, "1 feed: it fails and is tried again, 0 entities since the start 0s ago")
		time.Sleep(time.Hour)
		want(status.NeedsYou, "1 feed: it needs you, ")
		enter(f, bridge.Paused, checkpoint.Checkpoint{Paused: time.Now()}, 0, nil)
		want("", "1 feed: nothing needs you, 0")
		enter(f, bridge.Halted, checkpoint.Checkpoint{}, time.Hour, errors.New("broken"))
		want(status.NeedsYou, "1 feed: it needs you, ")
		f.Processed(batch("a", 1, false), 0)
		enter(f, bridge.Idle, checkpoint.Checkpoint{}, time.Hour, nil)
		want("", "1 feed: nothing needs you, 1 entity")
		enter(f, bridge.Idle, checkpoint.Checkpoint{Cursor: feed.Cursor("0 gaps, 30 deletes")}, time.Hour, nil)
		want(status.NeedsYou, "1 feed: it needs you, ")
		enter(f, bridge.Retrying, checkpoint.Checkpoint{Cursor: feed.Cursor("0 gaps, 30 deletes")}, time.Hour, errors.New("no answer"))
		want(status.NeedsYou, "1 feed: it needs you, ")
		if p, _ := readStatus(t, s); !strings.HasPrefix(p.Summary.Troubles[0].Cause, "30 deletes are held back until ") || !strings.HasSuffix(p.Summary.Troubles[0].Cause, "set max_delete_ratio: 1 and run 'feedbridge reload'") {
			t.Errorf("the cause is %q", p.Summary.Troubles[0].Cause)
		}
		enter(f, bridge.Idle, checkpoint.Checkpoint{Cursor: feed.Cursor("0 gaps, 0 deletes")}, time.Hour, nil)
		want("", "1 feed: nothing needs you, 1 entity")
	})
}

// The newest entities are remembered, with the number that they have in the topic.
func TestRecentEntities(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		f := addOrders(s)
		enter(f, bridge.Reading, at(100, own, time.Hour), 0, nil)
		number := 0
		publish := func(cursor string, n int, more bool) {
			b := feed.Batch{Cursor: feed.Cursor(cursor), More: more}
			for range n {
				number++
				b.Entities = append(b.Entities, feed.Entity{
					ID: fmt.Sprintf("<%d@shop>", number), Op: feed.Delete, Page: "https://shop.example.com/feed/7?token=s3cret",
					Modified: time.Date(1999, 1, 1, 0, 0, number, 0, time.UTC), Body: []byte("abc"),
				})
			}
			f.Processed(b, 0)
		}
		want := func(first, last int) {
			t.Helper()
			got := details(t, s).RecentEntities
			if n := last - first + 1; len(got) != n {
				t.Fatalf("there are %d entities, want %d", len(got), n)
			}
			for i, e := range got {
				number := last - i
				modified := time.Date(1999, 1, 1, 0, 0, number, 0, time.UTC)
				want := status.Entity{
					Position: uint64(100 + number), ID: fmt.Sprintf("<%d@shop>", number), Operation: "DELETE", Page: "https://shop.example.com/feed/7?token=***",
					Modified: &modified, Published: got[0].Published,
				}
				if diff := cmp.Diff(want, e); diff != "" {
					t.Fatalf("entity %d (-want +got):\n%s", i, diff)
				}
			}
		}
		publish("a", 0, true)
		want(1, 0)
		publish("b", 3, true)
		want(1, 3)
		publish("c", 19, true)
		want(3, 22)
		publish("d", 1000, false)
		want(1003, 1022)
	})
}

// An entity without a time, or with an operation that does not exist, is shown as such.
func TestRecentEntitiesWithoutTimeOrOperation(t *testing.T) {
	t.Parallel()
	s := newServer()
	addOrders(s).Processed(feed.Batch{Cursor: feed.Cursor("a"), Entities: []feed.Entity{{ID: "a", Op: "MOVE"}, {ID: "b", Op: feed.Patch}}}, 0)
	got := details(t, s).RecentEntities
	if len(got) != 2 || got[0].Operation != "PATCH" || got[1].Operation != "MOVE" || got[1].Modified != nil || got[1].Published == nil {
		t.Errorf("got %+v", got)
	}
}

// The last dead letters are on the page of the feed with ID and reason, bounded and without secrets.
func TestRecentDeadLetters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		f := addOrders(s)
		publish := func(ids ...string) {
			time.Sleep(time.Minute)
			b := feed.Batch{Cursor: feed.Cursor(ids[0]), Entities: []feed.Entity{{ID: "live"}}}
			for _, id := range ids {
				b.Entities = append(b.Entities, feed.Entity{
					ID: id, Page: "https://shop.example.com/?token=s3cret", Dead: &feed.DeadReason{Kind: feed.DeadNoKey, Text: "no key in " + id + " ?token=s3cret"},
				})
			}
			f.Processed(b, 0)
		}
		want := func(ids ...string) {
			t.Helper()
			_, page := get(t, s, "/feed/orders")
			got := []string{}
			for _, d := range details(t, s).RecentDeadLetters {
				got = append(got, d.ID)
				if want := "no key in " + d.ID + " ?token=***"; d.Reason != want || d.Page != "https://shop.example.com/?token=***" || d.Published == nil {
					t.Errorf("got %+v", d)
				} else if !strings.Contains(page, `class="place">`+d.ID+`<small>`+d.Page+`</small></th><td role="cell" class="sentence">`+want) {
					t.Errorf("the page does not show %s: %s", d.ID, page)
				}
			}
			must.Match(t, "", append([]string{}, ids...), got)
			if has := strings.Contains(page, "Last dead letters"); has != (len(ids) > 0) {
				t.Errorf("with %d dead letters the page has their table: %t", len(ids), has)
			}
		}
		want()
		publish("a")
		want("a")
		publish("b", "c")
		want("c", "b", "a")
		publish("d", "e", "f")
		want("f", "e", "d", "c", "b")
		publish("1", "2", "3", "4", "5", "6", "7")
		want("7", "6", "5", "4", "3")
		_, body := get(t, s, "/status")
		if strings.Contains(body, "recent_dead_letters") {
			t.Error("the answer for all feeds has the dead letters of one")
		}
		long := strings.Repeat("é", 100_000)
		publish(long, long, long, long, long)
		if _, body := get(t, s, "/status/orders"); len(body) > 20_000 {
			t.Errorf("it has %d bytes", len(body))
		}
	})
}

// Errors are counted by their text, and the newest comes first.
func TestRecentErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		f := addOrders(s)
		fail := func(text string) {
			enter(f, bridge.Retrying, checkpoint.Checkpoint{}, time.Second, errors.New(text))
			time.Sleep(time.Second)
		}
		for _, text := range strings.Fields("a a b a c d e f d f") {
			fail(text)
		}
		var got []string
		for _, e := range details(t, s).RecentErrors {
			got = append(got, fmt.Sprintf("%d %s %v", e.Count, e.Text, e.Last.Sub(*e.First)))
		}
		want := []string{"2 f 2s", "2 d 3s", "1 e 0s", "1 c 0s", "3 a 3s"}
		must.Match(t, "", want, got)
	})
}
