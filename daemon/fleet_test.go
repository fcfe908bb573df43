package daemon_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/admin/status"
	"github.com/feedbridge/feedbridge/fleet"
	"github.com/feedbridge/feedbridge/sink/nats/embedded"
)

// fleetRows returns the rows of two copies of a fleet, once each feed is run by one of them.
func fleetRows(t *testing.T, a, b *reloadable) (ofA, ofB map[string]status.Feed) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		var counts [2]int
		all := []map[string]status.Feed{{}, {}}
		for i, r := range []*reloadable{a, b} {
			var s status.Process
			_, body := r.read(t, "/status")
			if err := json.Unmarshal([]byte(body), &s); err != nil {
				t.Fatal(err)
			}
			for _, f := range s.Feeds {
				all[i][f.Feed] = f
			}
			counts[i] = len(s.Fleet.Members)
		}
		shared := counts == [2]int{2, 2} && len(all[0]) == len(all[1])
		for name := range all[0] {
			states := all[0][name].State + " " + all[1][name].State
			shared = shared && strings.Count(states, "elsewhere") == 1 && (strings.Contains(states, "idle") || strings.Contains(states, "paused"))
		}
		if shared {
			return all[0], all[1]
		}
		if time.Now().After(end) {
			t.Fatalf("the feeds are not shared: %v", all)
		}
	}
}

func TestCopiesOfAFleetShareTheFeeds(t *testing.T) {
	t.Parallel()
	bus, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	_, url := newUpstream(t, 10)
	environ := func(dir string, feeds int, more ...string) []string {
		env := []string{
			"FEEDBRIDGE_BUSES_MAIN_NATS_URL=" + bus.URL(), "FEEDBRIDGE_FLEET_NAME=shop", "FEEDBRIDGE_ADMIN_LISTEN=", "FEEDBRIDGE_ADMIN_SOCKET=" + dir + "/s",
		}
		for n := range feeds {
			env = append(env, fmt.Sprintf("FEEDBRIDGE_FEEDS_F%d_URL=%s", n, url))
		}
		return append(env, more...)
	}
	dirA, dirB := t.TempDir(), t.TempDir()
	a, b := startReloadable(t, environ(dirA, 8)), startReloadable(t, environ(dirB, 8))
	ofA, ofB := fleetRows(t, a, b)
	own := map[*reloadable]int{}
	var elsewhere, nameA string // a feed that b runs, and the name of a
	for name := range ofA {
		if ofA[name].State == "elsewhere" {
			own[b]++
			elsewhere = name
			if ofA[name].Owner == "" || ofB[name].Owner != "" {
				t.Errorf("%s: the owner is %q, and for that one %q", name, ofA[name].Owner, ofB[name].Owner)
			}
		} else {
			own[a]++
			nameA = ofB[name].Owner
		}
	}
	if own[a] == 0 || own[a] > 5 || own[b] == 0 || own[b] > 5 {
		t.Fatalf("the copies run %d and %d feeds of 8", own[a], own[b])
	}
	for _, r := range []*reloadable{a, b} {
		if code, body := r.read(t, "/readyz"); code != http.StatusOK {
			t.Errorf("/readyz: %d %s", code, body)
		}
	}

	// Commands for a feed of the other copy.
	if code, body := post(t, a, "/feeds/"+elsewhere+"/poll"); code != http.StatusConflict || !strings.Contains(body, "it is run by "+ofA[elsewhere].Owner) {
		t.Errorf("poll: %d %s", code, body)
	}
	if code, body := post(t, a, "/feeds/"+elsewhere+"/pause"); code != http.StatusOK || !strings.Contains(body, `"changed": true`) {
		t.Errorf("pause: %d %s", code, body)
	}
	post(t, b, "/feeds/"+elsewhere+"/poll") // looks at the checkpoint
	b.awaitFeed(t, elsewhere, func(row feedRow) bool { return row.State == "paused" })

	// A reload restarts the feeds that a copy runs, and starts those that it is assigned.
	stopped := a.stops.Load()
	for i, r := range []*reloadable{a, b} {
		changed, errs := r.reload(t, environ([]string{dirA, dirB}[i], 10, "FEEDBRIDGE_FEEDS_F0_EVERY=7s", "FEEDBRIDGE_FEEDS_F1_EVERY=7s", "FEEDBRIDGE_FEEDS_F2_EVERY=7s", "FEEDBRIDGE_FEEDS_F3_EVERY=7s"))
		if len(errs) > 0 || len(changed.Feeds.Added) != 2 || len(changed.Feeds.Restarted) != 4 {
			t.Fatalf("reload: %+v %v", changed, errs)
		}
	}
	nowA, _ := fleetRows(t, a, b)
	moved := mayMove([]string{nameA, ofA[elsewhere].Owner}, slices.Collect(maps.Keys(ofA)), slices.Collect(maps.Keys(nowA)))
	if n := a.stops.Load() - stopped; n > int64(4+moved) {
		t.Errorf("%d feeds of this copy were stopped; 4 were changed, and at most %d moved", n, moved)
	}
	if _, errs := a.reload(t, environ(dirA, 10, "FEEDBRIDGE_FLEET_NAME=other")); len(errs) == 0 || !strings.Contains(errs[0], "fleet: cannot be changed while feedbridge runs") {
		t.Errorf("another fleet: %v", errs)
	}

	// b ends, and a runs all feeds.
	b.stop()
	for name := range ofA {
		a.awaitFeed(t, name, func(row feedRow) bool { return (row.State == "idle" || row.State == "paused") && row.Entities == 10 })
	}
}

// mayMove returns how many topics may move between members whose topics change. While only one of
// them has the new topics, their owners are those of [fleet.Rendezvous].
func mayMove(members, before, after []string) (n int) {
	was, is := fleet.Balance(members, fleet.NewTopics(before)), fleet.Balance(members, fleet.NewTopics(after))
	meanwhile := fleet.Rendezvous(members)
	for _, topic := range after {
		if was(topic) != meanwhile(topic) || meanwhile(topic) != is(topic) {
			n++
		}
	}
	return n
}

// A copy without feeds of its own yet, as before it has joined, is not ready.
func TestACopyThatCannotJoinItsFleetIsNotReady(t *testing.T) {
	t.Parallel()
	_, url := newUpstream(t, 1)
	dir := t.TempDir()
	r := startReloadable(t, []string{
		"FEEDBRIDGE_BUSES_MAIN_NATS_URL=nats://127.0.0.1:1", "FEEDBRIDGE_FLEET_NAME=shop", "FEEDBRIDGE_ADMIN_LISTEN=", "FEEDBRIDGE_ADMIN_SOCKET=" + dir + "/s", "FEEDBRIDGE_FEEDS_ORDERS_URL=" + url,
	})
	if code, body := r.read(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "fleet shop: this copy is not a member, and runs no feeds") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	r.awaitFeed(t, "orders", func(row feedRow) bool { return row.State == "elsewhere" })
}

// post sends a request without a body.
func post(t *testing.T, r *reloadable, path string) (code int, body string) {
	t.Helper()
	resp, err := r.client.Post("http://localhost"+path, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
