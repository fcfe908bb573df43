//go:build integration

package kafka_test

import (
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/fleettest"
	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// TestRealFleet is about the protocol of a group as Kafka speaks it. Times are logged: virtual time
// has the tests of the limits.
func TestRealFleet(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	start := func(name string) *fleettest.Copy { return joinOn(t, connect(t, atReal(b.Addr())), name, silent) }
	await := func(what string, copies ...*fleettest.Copy) {
		t.Helper()
		began := time.Now()
		fleettest.Within(t, 2*time.Minute, copies...)
		t.Logf("%s: %v", what, time.Since(began).Round(10*time.Millisecond))
	}
	a, c, d := start("a"), start("b"), start("c")
	await("three members start", a, c, d)
	e := start("d")
	await("a fourth one joins", a, c, d, e)
	e.Leave()
	await("it stops", a, c, d)
	before := a.Owned()
	b.Kill()
	must.Succeed(t, b.Restart(t.Context()))
	time.Sleep(15 * time.Second) // longer than a session
	await("the broker restarts", a, c, d)
	if now := a.Owned(); len(now) != len(before) {
		t.Errorf("after the restart a copy has %d feeds, had %d", len(now), len(before))
	}
}
