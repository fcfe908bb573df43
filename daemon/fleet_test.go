package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
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
			must.Succeed(t, json.Unmarshal([]byte(body), &s))
			for _, f := range s.Feeds {
				all[i][f.Feed] = f
			}
			counts[i] = len(s.Fleet.Members)
		}
		shared := counts == [2]int{2, 2} && len(all[0]) == len(all[1])
		for name := range all[0] {
			states := all[0][name].State + " " + all[1][name].State
			shared = shared && (all[0][name].Owner == "") != (all[1][name].Owner == "") && (strings.Contains(states, "idle") || strings.Contains(states, "paused"))
		}
		if shared {
			return all[0], all[1]
		}
		if time.Now().After(end) {
			t.Fatalf("the feeds are not shared: %v", all)
		}
	}
}

// startBus starts a NATS server, and returns its URL.
func startBus(t *testing.T) (url string) {
	t.Helper()
	bus, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	t.Cleanup(bus.Close)
	return bus.URL()
}

// copyEnviron returns variables of a copy of the fleet shop, whose feeds have the numbers from up to to.
func copyEnviron(bus, dir, url string, from, to int) []string {
	env := []string{
		"FEEDBRIDGE_BUSES_MAIN_NATS_URL=" + bus, "FEEDBRIDGE_FLEET_NAME=shop", "FEEDBRIDGE_ADMIN_LISTEN=", "FEEDBRIDGE_ADMIN_SOCKET=" + dir + "/s",
	}
	for n := from; n < to; n++ {
		env = append(env, fmt.Sprintf("FEEDBRIDGE_FEEDS_F%d_URL=%s", n, url))
	}
	return env
}

func TestCopiesOfAFleetShareTheFeeds(t *testing.T) {
	t.Parallel()
	bus := startBus(t)
	_, url := newUpstream(t, 10)
	environ := func(dir string, feeds int, more ...string) []string {
		return append(copyEnviron(bus, dir, url, 0, feeds), more...)
	}
	dirA, dirB := t.TempDir(), t.TempDir()
	a, b := startReloadable(t, environ(dirA, 8)), startReloadable(t, environ(dirB, 8))
	ofA, ofB := fleetRows(t, a, b)
	own := map[*reloadable]int{}
	var elsewhere, nameA string // a feed that b runs, and the name of a
	for name := range ofA {
		if ofA[name].Owner != "" {
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
	if code, body := a.post(t, "/feeds/"+elsewhere+"/poll"); code != http.StatusConflict || !strings.Contains(body, "it is run by "+ofA[elsewhere].Owner) {
		t.Errorf("poll: %d %s", code, body)
	}
	if code, body := a.post(t, "/feeds/"+elsewhere+"/pause"); code != http.StatusOK || !strings.Contains(body, `"changed": true`) {
		t.Errorf("pause: %d %s", code, body)
	}
	b.post(t, "/feeds/"+elsewhere+"/poll") // looks at the checkpoint
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

// mayMove returns how many topics may move between members whose topics change, one after the other.
func mayMove(members, before, after []string) (n int) {
	old, replaced := fleet.NewTopics(before), fleet.NewTopics(after)
	owners := func(first, second *fleet.Topics) func(string) string {
		return fleet.Balance(map[string]*fleet.Topics{members[0]: first, members[1]: second})
	}
	was, meanwhile, is := owners(old, old), owners(replaced, old), owners(replaced, replaced)
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
	r := startReloadable(t, append(copyEnviron("nats://127.0.0.1:1", t.TempDir(), url, 0, 0), "FEEDBRIDGE_FEEDS_ORDERS_URL="+url))
	if code, body := r.read(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "fleet shop: this copy is not a member, and runs no feeds") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	r.awaitFeed(t, "orders", func(row feedRow) bool { return row.State == "elsewhere" })
}

// Half-done rollouts are normal: two copies whose configurations have no feed in common, and one that
// was not reloaded. Each feed is run by a copy that has it, and no copy claims that another one runs a
// feed which that one does not have.
func TestCopiesWithDifferentFeedsRunAllOfThem(t *testing.T) {
	t.Parallel()
	bus := startBus(t)
	_, url := newUpstream(t, 1)
	start := func(from, to int) *reloadable {
		return startReloadable(t, copyEnviron(bus, t.TempDir(), url, from, to))
	}
	copies := []*reloadable{start(0, 10), start(10, 20), start(5, 15)}
	var problem string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		runs, claimed := map[string][]string{}, map[string][]string{} // by feed: the copies that run it, and that are said to
		for _, c := range copies {
			var s status.Process
			_, body := c.read(t, "/status")
			must.Succeed(t, json.Unmarshal([]byte(body), &s))
			for _, f := range s.Feeds {
				switch {
				case f.State == "idle" && f.Owner == "":
					runs[f.Feed] = append(runs[f.Feed], s.Writer)
				case f.Owner != "" || f.State == "elsewhere":
					claimed[f.Feed] = append(claimed[f.Feed], f.Owner)
				}
			}
		}
		problem = ""
		for n := range 20 {
			name := fmt.Sprintf("f%d", n)
			if len(runs[name]) != 1 {
				problem += fmt.Sprintf("%s is run by %q; ", name, runs[name])
			}
			for _, owner := range claimed[name] {
				if !slices.Contains(runs[name], owner) {
					problem += fmt.Sprintf("%s is said to be run by %q; ", name, owner)
				}
			}
		}
		if problem == "" {
			return
		}
	}
	t.Error(problem)
}

// A key that somebody puts into the bucket is no member, even with the value of one: nothing moves.
func TestAKeyThatAPersonStoresTakesNoFeeds(t *testing.T) {
	t.Parallel()
	bus := startBus(t)
	_, url := newUpstream(t, 1)
	a := startReloadable(t, copyEnviron(bus, t.TempDir(), url, 0, 20))
	a.awaitFeed(t, "f7", func(row feedRow) bool { return row.State == "idle" })
	nc, err := nats.Connect(bus)
	must.Succeed(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must.Succeed(t, err)
	kv, err := js.KeyValue(t.Context(), "feedbridge-fleet-shop")
	must.Succeed(t, err)
	keys, err := kv.Keys(t.Context())
	if err != nil || len(keys) != 1 {
		t.Fatalf("the bucket has the keys %q, error %v", keys, err)
	}
	own, err := kv.Get(t.Context(), keys[0])
	must.Succeed(t, err)
	if _, err := kv.Put(t.Context(), "stranger", bytes.ReplaceAll(own.Value(), []byte(keys[0]), []byte("stranger"))); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var s status.Process
		_, body := a.read(t, "/status")
		must.Succeed(t, json.Unmarshal([]byte(body), &s))
		for _, f := range s.Feeds {
			if f.State == "elsewhere" || f.Owner != "" {
				t.Fatalf("%s is %s", f.Feed, f.Explanation)
			}
		}
	}
}

// Any copy shows the feeds of all members, and passes requests on to the one that runs the feed.
func TestAnyCopyAnswersForTheFleet(t *testing.T) {
	t.Parallel()
	bus := startBus(t)
	_, url := newUpstream(t, 10)
	dead := "http://127.0.0.1:1/feed"
	const token = "FEEDBRIDGE_ADMIN_TOKEN=correct-horse-battery"
	environ := func(more ...string) []string {
		dir := t.TempDir()
		env := append(copyEnviron(bus, dir, url, 0, 8), "FEEDBRIDGE_FEEDS_ILL_URL="+dead, "FEEDBRIDGE_FEEDS_ILL_FORMAT=datareplication", "FEEDBRIDGE_FEEDS_ILL_FRESHNESS=1s", "FEEDBRIDGE_FEEDS_ILL_EVERY=100ms", token)
		return append(env, more...)
	}
	open := "FEEDBRIDGE_ADMIN_LISTEN=127.0.0.1:0"
	copies := []*reloadable{startReloadable(t, environ(open)), startReloadable(t, environ(open)), startReloadable(t, environ())}
	read := func(r *reloadable) (s status.Process) {
		_, body := r.read(t, "/status")
		must.Succeed(t, json.Unmarshal([]byte(body), &s))
		return s
	}
	for _, r := range copies {
		var s status.Process
		for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			s = read(r)
			owners := map[string]bool{}
			for _, f := range s.Feeds {
				if f.Feed != "ill" {
					owners[f.Owner] = true
				}
			}
			if len(owners) == len(copies) && s.Summary.Feeds == 9 && s.Summary.NeedYou == 1 && len(s.Summary.Troubles) == 1 && s.Summary.EntitiesLastHour == 80 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the summary is %+v", s.Summary)
			}
		}
		if ill := s.Summary.Troubles[0]; ill.Feed != "ill" || ill.Member == "" || !strings.Contains(ill.Cause, "127.0.0.1:1") || !strings.HasPrefix(s.Summary.Sentence, "9 feeds: 1 needs you, ") {
			t.Errorf("%s: %+v", s.Summary.Sentence, ill)
		}
		for _, f := range s.Feeds {
			if f.Feed == "ill" && (f.Attention != status.NeedsYou || !strings.Contains(f.Explanation, "127.0.0.1:1")) {
				t.Errorf("the feed is %s: %s", f.Attention, f.Explanation)
			}
		}
	}
	unreachable := read(copies[2]).Writer
	asked := read(copies[0])
	var own, others, closed int
	for _, f := range asked.Feeds {
		if f.Feed == "ill" {
			continue
		}
		code, body := copies[0].post(t, "/feeds/"+f.Feed+"/poll")
		var details status.Feed
		_, text := copies[0].read(t, "/status/"+f.Feed)
		must.Succeed(t, json.Unmarshal([]byte(text), &details))
		switch f.Owner {
		case "":
			own++
		case unreachable:
			closed++
			if code != http.StatusConflict || !strings.Contains(body, "set admin.listen there") || !strings.Contains(details.OwnerError, "set admin.listen there") {
				t.Errorf("%s of a copy without an address: %d %s, details %q", f.Feed, code, body, details.OwnerError)
			}
			if code, body := copies[0].post(t, "/feeds/"+f.Feed+"/pause"); code != http.StatusOK {
				t.Errorf("pause on the bus: %d %s", code, body)
			}
		default:
			others++
			if code != http.StatusOK || !strings.Contains(body, `"state": "idle"`) || len(details.RecentEntities) != 10 || details.Owner != f.Owner {
				t.Errorf("%s: %d %s, details %+v", f.Feed, code, body, details)
			}
			if code, body := copies[0].post(t, "/feeds/"+f.Feed+"/pause"); code != http.StatusOK || !strings.Contains(body, `"changed": true`) {
				t.Errorf("pause: %d %s", code, body)
			}
			copies[1].awaitFeed(t, f.Feed, func(row feedRow) bool { return row.State == "paused" })
		}
	}
	if own == 0 || others == 0 || closed == 0 {
		t.Fatalf("the feeds are divided %d, %d, %d", own, others, closed)
	}
}
