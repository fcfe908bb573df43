package main

import (
	"bytes"
	"testing"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/daemon"
)

func TestFeedsThatDoNotYieldArePrinted(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &printer{w: &out}
	printBusy(p, daemon.Pause{Feed: "orders"})
	printBusy(p, daemon.Pause{Feed: "orders", Work: "reading the feed for 10s"})
	lines := printReloaded(p, daemon.Reloaded{Feeds: daemon.Changed{Removed: []string{"orders"}}, LeftBehind: []daemon.LeftBehind{{Feed: "orders", Work: "reading the feed for 20s"}}})
	const want = "the daemon is still reading the feed for 10s, and publishes nothing until it has ended and seen this change\n" +
		"feeds removed: 1 (orders)\nthe feed orders was stopped and does not end; it is left behind: reading the feed for 20s\n"
	if lines != 2 || out.String() != want {
		t.Errorf("printed\n%swant\n%s%d lines", out.String(), want, lines)
	}
}

func TestPollIsPrinted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		polled    daemon.Poll
		out, fail string
	}{
		{daemon.Poll{State: bridge.Idle, Published: 1, Duplicates: 2}, "orders: 1 entity published, 2 entities left out as duplicates; the topic has all of the feed\n", ""},
		{daemon.Poll{State: bridge.Reading, Work: "reading the feed for 1m0s"}, "orders: the poll has not ended and continues (reading the feed for 1m0s); follow it with 'feedbridge status --watch --admin http://a:1 orders'\n", ""},
		{daemon.Poll{State: bridge.Standby, Error: "another copy"}, "another copy publishes orders, and this one stands by\n", ""},
		{daemon.Poll{State: bridge.Paused}, "", "the feed is paused; continue with 'feedbridge resume --admin http://a:1 orders'"},
		{daemon.Poll{State: bridge.Halted, Error: "no self link"}, "", "the feed is halted: no self link"},
		{daemon.Poll{State: bridge.Retrying, Error: "down"}, "", "the feed is retrying: down"},
	} {
		var out bytes.Buffer
		c.polled.Feed = "orders"
		err := printPoll(&printer{w: &out}, c.polled, "--admin http://a:1 ")
		if failed := err != nil; failed != (c.fail != "") || failed && err.Error() != c.fail || out.String() != c.out {
			t.Errorf("%s: %q, %v", c.polled.State, out.String(), err)
		}
	}
}
