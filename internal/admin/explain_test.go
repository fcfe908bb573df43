package admin_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// waiting is the status of a feed that waits for its next poll. The bus confirms its checkpoint up to a
// time.
func waiting(cp checkpoint.Checkpoint, next time.Duration, confirmed time.Time) bridge.Status {
	now := time.Now()
	return bridge.Status{
		State: bridge.Idle, Since: now, Until: now.Add(next), Checkpoint: cp,
		Confirmed: func() time.Time { return confirmed },
	}
}

func TestExplanations(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("publish 3 entities: %w", checkpoint.ErrConflict)
	broken := feed.Permanent(errors.New("the topic has messages but no checkpoint; set one with 'feedbridge checkpoint set orders'"))
	idle := func(f *admin.Feed) {
		enter(f, bridge.Reading, at(20000, own, 5*time.Second), 0, nil)
		same := batch(strings.Repeat("x", 20000), 0, false)
		f.Polled(same, nil, time.Second)
		f.Processed(same, 0)
		enter(f, bridge.Idle, at(20000, own, 5*time.Second), 7*time.Second, nil)
	}
	lacking := func(cursor string) checkpoint.Checkpoint {
		cp := at(9, own, 5*time.Second)
		cp.Cursor = feed.Cursor(cursor)
		return cp
	}
	for _, c := range []struct {
		situation   string
		do          func(f *admin.Feed)
		after       time.Duration
		state, want string
	}{
		{
			"just started", func(*admin.Feed) {}, time.Second,
			"starting", "starting: waiting for bus main to return the checkpoint of topic orders.v1",
		},
		{
			"waiting for its turn to start",
			func(f *admin.Feed) { enter(f, bridge.Starting, checkpoint.Checkpoint{}, 12*time.Second, nil) }, 2 * time.Second,
			"starting", "starting: waiting for its turn, in 10s or later, because many feeds are starting",
		},
		{
			"its turn to start has come",
			func(f *admin.Feed) { enter(f, bridge.Starting, checkpoint.Checkpoint{}, 12*time.Second, nil) }, 12 * time.Second,
			"starting", "starting: waiting for bus main to return the checkpoint of topic orders.v1",
		},
		{
			"first poll of an empty topic",
			func(f *admin.Feed) { enter(f, bridge.Reading, checkpoint.Checkpoint{}, 0, nil) }, 3 * time.Second,
			"reading", "polling: nothing is published yet, and the feed has not answered for 3s",
		},
		{
			"reading a snapshot",
			func(f *admin.Feed) { enter(f, bridge.Reading, lacking("page 2 of 9 of the snapshot s"), 0, nil) }, 0,
			"reading", "reading page 2 of 9 of the snapshot s; 9 entities are published, the last commit was 5s ago",
		},
		{
			"first poll of a topic that another copy has filled",
			func(f *admin.Feed) { enter(f, bridge.Reading, at(1, "host-12", time.Hour), 0, nil) }, time.Minute,
			"reading", "polling: 1 entity is published, the last commit was 1h1m ago by host-12, and the feed has not answered for 1m",
		},
		{
			"catching up before the first commit",
			func(f *admin.Feed) {
				enter(f, bridge.Reading, checkpoint.Checkpoint{}, 0, nil)
				f.Polled(batch("a", 10, true), nil, time.Second)
			}, 0,
			"reading", "catching up: nothing is published yet, and it is not known how much is left",
		},
		{
			"catching up",
			func(f *admin.Feed) {
				enter(f, bridge.Reading, checkpoint.Checkpoint{}, 0, nil)
				b := batch("a", 10, true)
				b.Newest = time.Date(1999, 1, 1, 3, 30, 0, 0, time.UTC)
				f.Polled(b, nil, time.Second)
				f.Processed(b, 40*time.Millisecond)
			}, 2 * time.Second,
			"reading", "catching up: 10 entities are published, the last commit was 2s ago, 3h21m behind the newest entity of the feed",
		},
		{
			"looking for the start",
			func(f *admin.Feed) {
				enter(f, bridge.Reading, checkpoint.Checkpoint{}, 0, nil)
				b := feed.Batch{Cursor: feed.Cursor("search for the first entity since 1999-01-01T00:00:00Z; 4100 pages are searched, back to 2003-01-01T00:00:00Z"), More: true}
				f.Polled(b, nil, time.Second)
				f.Processed(b, 0)
			}, 2 * time.Second,
			"reading", "searching for the first entity since 1999-01-01T00:00:00Z; 4100 pages are searched, back to 2003-01-01T00:00:00Z; nothing is published yet, the last commit was 2s ago",
		},
		{
			"looking for the start, and upstream is down",
			func(f *admin.Feed) {
				enter(f, bridge.Retrying, lacking("search for the first entity of the feed; 1 page is searched"), 7*time.Second, errDown)
			}, 0,
			"retrying", "retrying in 7s after attempt 1: GET https://shop.example.com/feed/latest: 503 Service Unavailable; searching for the first entity of the feed; 1 page is searched",
		},
		{
			"waiting for the next poll", idle, 0,
			"idle", "caught up: 20000 entities are published, the last commit was 5s ago, the next poll is in 7s",
		},
		{
			"the feed has asked for a longer wait",
			func(f *admin.Feed) {
				idle(f)
				enter(f, bridge.Idle, at(20000, own, 5*time.Second), time.Hour, nil)
			}, 0,
			"idle", "caught up: 20000 entities are published, the last commit was 5s ago, the next poll is in 1h, as the feed asks",
		},
		{
			"entities were left out",
			func(f *admin.Feed) {
				idle(f)
				f.Processed(feed.Batch{Cursor: feed.Cursor(strings.Repeat("x", 20000)), Oversized: 2}, 0)
			}, 0,
			"idle", "caught up: 20000 entities are published (2 left out as too large), the last commit was 5s ago, the next poll is in 7s",
		},
		{
			"entities are dead letters",
			func(f *admin.Feed) {
				idle(f)
				letters := []feed.Entity{{Dead: &feed.DeadReason{Kind: feed.DeadNoKey}}, {Dead: &feed.DeadReason{Kind: feed.DeadTooLarge}}}
				f.Processed(feed.Batch{Cursor: feed.Cursor(strings.Repeat("x", 20000)), Entities: letters}, 5*time.Second)
			}, 0,
			"idle", "caught up: 20000 entities are published (2 in the dead-letter topic), the last commit was 5s ago, the next poll is in 7s",
		},
		{
			"an archive is missing, since before the start",
			func(f *admin.Feed) { enter(f, bridge.Idle, lacking("1 gaps"), 7*time.Second, nil) }, 0,
			"idle", "caught up: 9 entities are published, the last commit was 5s ago, the next poll is in 7s; 1 document of the feed is missing, and with it all older ones",
		},
		{
			"archives are missing, and upstream is down",
			func(f *admin.Feed) { enter(f, bridge.Retrying, lacking("2 gaps"), 7*time.Second, errDown) }, 0,
			"retrying", "retrying in 7s after attempt 1: GET https://shop.example.com/feed/latest: 503 Service Unavailable; 2 documents of the feed are missing, and with them all older ones",
		},
		{
			"deletes are held back",
			func(f *admin.Feed) { enter(f, bridge.Idle, lacking("0 gaps, 30 deletes"), 7*time.Second, nil) }, 0,
			"idle", "caught up: 9 entities are published, the last commit was 5s ago, the next poll is in 7s; 30 deletes are held back until 2026-01-01T00:15:00Z, because most of the feed has vanished; to publish now, set max_delete_ratio: 1 and run 'feedbridge reload'",
		},
		{
			"the bus does not confirm the checkpoint",
			func(f *admin.Feed) {
				idle(f)
				f.Entered(waiting(at(20000, own, 5*time.Second), time.Hour, time.Now().Add(30*time.Second)))
			}, 91 * time.Second,
			"idle", "not confirmed: bus main has not shown the checkpoint of topic orders.v1 for 1m1s; 20000 entities are published, the last commit was 1m36s ago, the next poll is in 58m29s, as the feed asks",
		},
		{
			"the bus has confirmed the checkpoint",
			func(f *admin.Feed) {
				idle(f)
				f.Entered(waiting(at(20000, own, 5*time.Second), time.Hour, time.Now().Add(31*time.Second)))
			}, 91 * time.Second,
			"idle", "caught up: 20000 entities are published, the last commit was 1m36s ago, the next poll is in 58m29s, as the feed asks",
		},
		{
			"the next poll hangs", idle, 27 * time.Second,
			"reading", "polling: 20000 entities are published, the last commit was 32s ago, and the feed has not answered for 20s",
		},
		{
			"an http-feed at its end waits",
			func(f *admin.Feed) {
				cp := at(20000, own, 5*time.Second)
				cp.Source = "http-feeds"
				enter(f, bridge.Reading, cp, 0, nil)
				f.Polled(feed.Batch{Cursor: cp.Cursor}, nil, time.Second)
				f.Processed(feed.Batch{}, 0)
			}, 12 * time.Second,
			"idle", "caught up: 20000 entities are published, the last commit was 12s ago, waiting for the server to send more",
		},
		{
			"paused",
			func(f *admin.Feed) {
				f.Polled(batch("a", 1, true), nil, 0)
				f.Processed(batch("a", 1, true), 0)
				cp := at(3, "host-12", 0)
				cp.Paused = time.Now()
				enter(f, bridge.Paused, cp, 0, nil)
			}, time.Hour,
			"paused", "paused for all copies since 2000-01-01T00:00:00Z: the feed is neither read nor published; continue with 'feedbridge resume orders'",
		},
		{
			"another copy was faster",
			func(f *admin.Feed) { enter(f, bridge.Standby, at(3, "host-12", 0), 20*time.Second, lost) }, time.Second,
			"standby", "standing by: host-12 publishes this feed; this copy takes over when the checkpoint no longer moves",
		},
		{
			"another copy was faster, and who is not known yet",
			func(f *admin.Feed) { enter(f, bridge.Standby, at(3, own, 0), 20*time.Second, lost) }, time.Second,
			"standby", "standing by: another copy publishes this feed; this copy takes over when the checkpoint no longer moves",
		},
		{
			"upstream is down",
			func(f *admin.Feed) {
				for range 4 {
					f.Polled(feed.Batch{}, errDown, time.Second)
					enter(f, bridge.Retrying, at(3, own, 0), 14*time.Second, errDown)
				}
			}, 2 * time.Second,
			"retrying", "retrying in 12s after attempt 4: GET https://shop.example.com/feed/latest: 503 Service Unavailable",
		},
		{
			"upstream was down and is asked again",
			func(f *admin.Feed) { enter(f, bridge.Retrying, at(3, own, 0), 14*time.Second, errDown) }, 14 * time.Second,
			"retrying", "trying again now after attempt 1: GET https://shop.example.com/feed/latest: 503 Service Unavailable",
		},
		{
			"upstream was down, worked, and is down again",
			func(f *admin.Feed) {
				enter(f, bridge.Retrying, at(3, own, 0), time.Second, errDown)
				f.Processed(batch("b", 1, false), 0)
				enter(f, bridge.Retrying, at(4, own, 0), time.Second, errDown)
			}, 0,
			"retrying", "retrying in 1s after attempt 1: GET https://shop.example.com/feed/latest: 503 Service Unavailable",
		},
		{
			"the document was repaired, and has several parts",
			func(f *admin.Feed) {
				b := batch("a", 1, true)
				b.Violations = []feed.Violation{{Kind: "not_well_formed", Detail: "1 fault"}}
				f.Processed(b, 0)
				f.Processed(batch("b", 1, false), 0)
				f.Processed(batch("b", 0, false), 0)
				enter(f, bridge.Stopped, at(3, own, 0), 0, nil)
			}, 0,
			"stopped", "stopped: this copy is shutting down, 3 entities are published, the last commit was 0s ago; the document is not well-formed and was repaired, and entries may be left out: ask the provider to fix it (not_well_formed)",
		},
		{
			"items share an ID, in a document that was repaired",
			func(f *admin.Feed) {
				b := batch("a", 1, false)
				b.Violations = []feed.Violation{{Kind: "shared_ids", Detail: "2 entries"}, {Kind: "weak_identity"}, {Kind: "not_well_formed"}}
				f.Processed(b, 0)
				enter(f, bridge.Stopped, at(3, own, 0), 0, nil)
			}, 0,
			"stopped", "stopped: this copy is shutting down, 3 entities are published, the last commit was 0s ago; the document is not well-formed and was repaired, and entries may be left out: ask the provider to fix it (not_well_formed); several items of the feed have one ID, so the IDs of all but one are extended: ask the provider to give each item its own (shared_ids)",
		},
		{
			"the document was repaired, and is mended",
			func(f *admin.Feed) {
				b := batch("a", 1, false)
				b.Violations = []feed.Violation{{Kind: "not_well_formed", Detail: "1 fault"}}
				f.Processed(b, 0)
				f.Processed(batch("b", 1, false), 0)
				enter(f, bridge.Stopped, at(3, own, 0), 0, nil)
			}, 0,
			"stopped", "stopped: this copy is shutting down, 3 entities are published, the last commit was 0s ago",
		},
		{
			"a person has to act",
			func(f *admin.Feed) { enter(f, bridge.Halted, checkpoint.Checkpoint{}, 5*time.Minute, broken) }, 30 * time.Second,
			"halted", "the topic has messages but no checkpoint; set one with 'feedbridge checkpoint set orders'; nothing is published until this is fixed; feedbridge checks in 4m30s whether it is",
		},
		{
			"a person has to act, and may have",
			func(f *admin.Feed) { enter(f, bridge.Halted, checkpoint.Checkpoint{}, 5*time.Minute, broken) }, 6 * time.Minute,
			"halted", "the topic has messages but no checkpoint; set one with 'feedbridge checkpoint set orders'; nothing is published until this is fixed; feedbridge is checking now whether it is",
		},
		{
			"shutting down",
			func(f *admin.Feed) { enter(f, bridge.Stopped, at(3, own, 0), 0, nil) }, 350 * time.Millisecond,
			"stopped", "stopped: this copy is shutting down, 3 entities are published, the last commit was 350ms ago",
		},
	} {
		parallel.RunVirtual(t, c.situation, func(t *testing.T) {
			s := newServer()
			f := addOrders(s)
			c.do(f)
			time.Sleep(c.after)
			got := row(t, s)
			if got["state"] != c.state {
				t.Errorf("state is %v, want %s", got["state"], c.state)
			}
			if got["explanation"] != c.want {
				t.Errorf("got:  %v\nwant: %s", got["explanation"], c.want)
			}
		})
	}
}
