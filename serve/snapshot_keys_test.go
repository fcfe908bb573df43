package serve

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// In a feed of events no message has the Content-ID of another, so by that key nothing
// is changed or deleted by anything. A warning is logged.
func TestSnapshotByKeysThatAreNotRight(t *testing.T) {
	t.Parallel()
	const warning = "set snapshot.key"
	for name, test := range map[string]struct {
		topic string // an operation and a body each, whose first letter is the key
		byID  bool
		keys  int
		first uint64
		want  string // in the log; empty if there is to be no warning
	}{
		"by the Content-ID":                      {"Pa Pb Ca Db Cb", true, 100, 0, "patches=2 deletes=1"},
		"by their keys":                          {"Pa Pb Ca Db", false, 100, 0, ""},
		"nothing but PUTs":                       {"Pa Pa Pa", true, 100, 0, ""},
		"nothing was ever PUT":                   {"Ca Db Da", false, 100, 0, "patches=1 deletes=2"},
		"deleted twice, and patched then":        {"Pa Da Da Ca", false, 100, 0, ""},
		"some have a PUT that retention deleted": {"Pb Pa Ca Cb Db", false, 100, 1, ""},
		"retention, and none is of a PUT":        {"Px Pa Pb Ca Db", true, 100, 1, "patches=1 deletes=1"},
		"of many keys, all of a PUT":             {"Pa Pb Pc Pd Pe Pf Ca Cb Cc Cd Ce Cf Da Db Dc", false, 2, 0, ""},
		"of many keys, some of nothing":          {"Pa Pb Pc Pd Pe Pf Cu Cv Cw Cx Cy Cz", false, 2, 0, "patches=6 deletes=0"},
		"before there are many keys":             {"Cu Cv Cw Cx Cy Cz Pa Pb Pc Pd Pe Pf", false, 2, 0, "patches=1 deletes=0"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			topic := newTopic()
			ops := map[byte]feed.Operation{'P': feed.Put, 'C': feed.Patch, 'D': feed.Delete}
			for i, m := range strings.Fields(test.topic + " Cq") { // the last is behind the end
				topic.add(messageOf(fmt.Sprint(i), ops[m[0]], later(i), m[1:]+":"))
			}
			topic.trim(test.first)
			s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) {
				c.Keys = test.keys
				if test.byID {
					c.Key = nil
				}
			}))
			must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
			log := s.log.String()
			if strings.Contains(log, warning) != (test.want != "") || !strings.Contains(log, test.want) {
				t.Errorf("logged %s, want %q", log, test.want)
			}
			if view, err := s.View(t.Context()); err != nil || (view.Unmatched > 0) != (test.want != "" && view.Snapshot != "") {
				t.Errorf("got %+v, %v", view, err)
			}
		})
	}
}

// TestTombstonesInSnapshots draws a topic whose records have keys, which may differ from
// the snapshot's keys. A tombstone deletes the PUTs under its record's key, unless it
// identifies its entity itself, however few keys are held in memory.
func TestTombstonesInSnapshots(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type thing struct{ record, body string }
		things := map[string]thing{} // by their keys
		topic := newTopic()
		for n := range rapid.IntRange(0, 40).Draw(t, "messages") {
			key, record := rapid.StringMatching(`[a-h]`).Draw(t, "key"), rapid.StringMatching(`[A-F]?`).Draw(t, "record's key")
			op := rapid.SampledFrom([]feed.Operation{feed.Put, feed.Put, feed.Patch, feed.Delete}).Draw(t, "op")
			body := fmt.Sprintf("%s:%d", key, n)
			r := messageOf(fmt.Sprint(n), op, later(n), body)
			if record != "" {
				r.Key = []byte(record)
			}
			has, ok := things[key]
			switch {
			case op == feed.Put:
				things[key] = thing{record, body}
			case op == feed.Patch && ok:
				things[key] = thing{has.record, has.body + " " + body}
			case op == feed.Delete:
				switch rapid.IntRange(0, 3).Draw(t, "how") {
				case 0:
					r.Body, r.Tombstone = nil, true
					maps.DeleteFunc(things, func(_ string, of thing) bool { return record != "" && of.record == record })
				case 1: // of others there may be several in a record with that key
					r.Body, r.Tombstone = nil, true
					r.Header = append(r.Header, feed.Field{Name: "X-Key", Value: key})
					delete(things, key)
				case 2: // a message like any other, without the snapshot's key
					r.Body = nil
				case 3:
					delete(things, key)
				}
			}
			if op == feed.Patch && !ok && rapid.Bool().Draw(t, "null") {
				r.Body, r.Tombstone = nil, true
			}
			topic.add(r)
		}
		topic.add(messageOf("last", feed.Put, later(100), "in the last second"))
		s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) {
			c.Keys = rapid.SampledFrom([]int{1, 2, 3, 30}).Draw(t, "keys held")
			c.Key = func(header feed.Header, body []byte) (string, bool) {
				if key, ok := header.Get("X-Key"); ok {
					return key, true
				}
				return byKey(header, body)
			}
		}))
		must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
		want := map[string]string{}
		for key, of := range things {
			want[key] = of.body
		}
		if got := state(s.load(t).entities); !maps.Equal(got, want) {
			t.Fatalf("the snapshot has %v, want %v", got, want)
		}
	})
}

// Most deleted keys are read in another pass than the keys that the tombstones themselves
// would have.
func TestTombstonesOfManyKeys(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	want := map[string]string{}
	for n := range 30 {
		r := messageOf(fmt.Sprint(n), feed.Put, later(n), fmt.Sprintf("%d:x", n))
		r.Key = fmt.Append(nil, n)
		topic.add(r)
		if n%3 == 0 {
			want[fmt.Sprint(n)] = string(r.Body)
			continue
		}
		r = messageOf(fmt.Sprint(n, " is gone"), feed.Delete, later(n), "")
		r.Key, r.Body, r.Tombstone = fmt.Append(nil, n), nil, true
		topic.add(r)
	}
	topic.add(messageOf("last", feed.Put, later(100), "in the last second"))
	s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) { c.Keys = 2 }))
	must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
	if got := state(s.load(t).entities); !maps.Equal(got, want) {
		t.Errorf("the snapshot has %v, want %v", got, want)
	}
}

// Versions share their Content-IDs, and the records are keyed by customer, for the
// partitions: a tombstone deletes only the entity that it names.
func TestTombstoneOfOneOfManyUnderARecordKey(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	add := func(n int, id string, op feed.Operation, body string) {
		r := messageOf(id, op, later(n), body)
		r.Key = []byte("customer 1")
		if op == feed.Delete {
			r.Body, r.Tombstone = nil, true
		}
		topic.add(r)
	}
	add(0, "order-1", feed.Put, "1:x")
	add(1, "order-2", feed.Put, "2:x")
	add(2, "order-1", feed.Delete, "")
	topic.add(messageOf("last", feed.Put, later(100), "in the last second"))
	s := serveTopic(t, topic, withSnapshots(func(c *Snapshot) { c.Key = nil }))
	must.Succeed(t, s.snapshots.Renew(t.Context(), dusk))
	got, want := s.load(t).entities, map[string]string{"2": "2:x"}
	if st := state(got); !maps.Equal(st, want) {
		t.Errorf("the snapshot has %v, want %v", st, want)
	}
}
