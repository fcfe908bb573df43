package main

import (
	"bytes"
	"testing"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/daemon"
)

func TestPollIsPrinted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		polled    daemon.Poll
		out, fail string
	}{
		{daemon.Poll{State: bridge.Idle, Published: 1, Duplicates: 2}, "orders: 1 entity published, 2 entities left out as duplicates; the topic has all of the feed\n", ""},
		{daemon.Poll{State: bridge.Reading}, "orders: the poll takes longer than a minute and continues; follow it with 'feedbridge status --watch orders'\n", ""},
		{daemon.Poll{State: bridge.Standby, Error: "another copy"}, "another copy publishes orders, and this one stands by\n", ""},
		{daemon.Poll{State: bridge.Paused}, "", "the feed is paused; continue with 'feedbridge resume orders'"},
		{daemon.Poll{State: bridge.Halted, Error: "no self link"}, "", "the feed is halted: no self link"},
		{daemon.Poll{State: bridge.Retrying, Error: "down"}, "", "the feed is retrying: down"},
	} {
		var out bytes.Buffer
		c.polled.Feed = "orders"
		err := printPoll(&printer{w: &out}, c.polled)
		if failed := err != nil; failed != (c.fail != "") || failed && err.Error() != c.fail || out.String() != c.out {
			t.Errorf("%s: %q, %v", c.polled.State, out.String(), err)
		}
	}
}
