package fleet

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// lists are rosters that see each other's values.
type lists struct {
	names   []string
	rosters map[string]*roster
	now     time.Time
}

func newLists(members int) *lists {
	l := &lists{rosters: map[string]*roster{}, now: time.Unix(0, 0)}
	for n := range members {
		name := fmt.Sprint("m", n)
		r := newRoster(name)
		r.setTopics(NewTopics([]string{"own"}), nil)
		l.names, l.rosters[name] = append(l.names, name), &r
	}
	return l
}

func (l *lists) set(n int, list List) {
	l.rosters[l.names[n]].setTopics(NewTopics([]string{"own"}), map[string]List{"blogs": list})
}

// settle reports all values to all rosters until they have acted on them.
func (l *lists) settle() map[string]Assignment {
	all := map[string]Assignment{}
	for range 4 {
		values := map[string][]byte{}
		for name, r := range l.rosters {
			values[name] = r.value()
		}
		for name, r := range l.rosters {
			r.report(values, nil, l.now)
			if a, ok := r.next(l.now.Add(time.Hour)); ok {
				all[name] = a
			}
		}
		l.now = l.now.Add(2 * time.Hour)
	}
	return all
}

func feedsOf(urls ...string) List {
	l := List{URLs: map[string]string{}}
	for i := 0; i < len(urls); i += 2 {
		l.URLs[urls[i]] = urls[i+1]
	}
	return l
}

func TestMembersAgreeOnAVersionOfAList(t *testing.T) {
	t.Parallel()
	before, after := feedsOf("x", "/1", "y", "/1", "gone", "/"), feedsOf("x", "/1", "y", "/2", "new", "/")
	failed := func(l List) List { l.Failed = true; return l }
	few, more := feedsOf("x", "/1"), feedsOf("x", "/1", "y", "/1", "gone", "/", "new", "/")
	few.Entries, more.Entries = "few", "more"
	holding, confirmed := more, few
	holding.Held, confirmed.Confirmed = "few", true
	for _, test := range []struct {
		when    string
		members []List
		agreed  List
		other   []string
	}{
		{"all have the same", []List{before, before, before}, before, nil},
		{"the first one has a new version", []List{after, before, before}, before, []string{"m0"}},
		{"most have it", []List{after, before, after}, after, []string{"m1"}},
		{"most cannot read it", []List{after, failed(before), failed(before)}, after, []string{"m1", "m2"}},
		{"none can read it", []List{failed(after), failed(before), failed(before)}, before, []string{"m0"}},
		{"one has never read it", []List{after, {}}, after, []string{"m1"}},
		{"one has fewer feeds", []List{few, more}, more, []string{"m0"}},
		{"one has more feeds", []List{more, before, more, before}, more, []string{"m1", "m3"}},
		{"the other one holds what one that has restarted has", []List{few, holding}, more, []string{"m0"}},
		{"one of three holds what the others have", []List{few, holding, few}, more, []string{"m0", "m2"}},
		{"the one that holds it cannot read it", []List{few, failed(holding), few}, more, []string{"m0", "m2"}},
		{"one has confirmed it, and the others do not use it yet", []List{confirmed, holding, holding}, more, []string{"m0"}},
		{"one has confirmed it, and another one has it", []List{confirmed, holding, few}, few, []string{"m1"}},
		{"all that held it are gone", []List{few, few}, few, nil},
		{"it is empty", []List{feedsOf(), feedsOf(), before}, feedsOf(), []string{"m2"}},
	} {
		l := newLists(len(test.members))
		for n, list := range test.members {
			if list.URLs != nil {
				l.set(n, list)
			}
		}
		all := l.settle()
		for name, a := range all {
			holder := slices.IndexFunc(test.members, func(l List) bool { return l.Held != "" })
			isConfirmed := slices.ContainsFunc(test.members, func(l List) bool { return l.Confirmed })
			isHeld := holder >= 0 && !isConfirmed && test.members[slices.Index(l.names, name)].Entries == "few"
			if got := a.HeldBy("blogs"); isHeld != slices.Contains(got, fmt.Sprint("m", holder)) || a.Confirms("blogs", "few") != isConfirmed {
				t.Errorf("%s: %s has a version that %q hold; confirmed: %t", test.when, name, got, a.Confirms("blogs", "few"))
			}
			for topic, url := range map[string]string{"x": "/1", "y": "/1", "gone": "/", "new": "/"} {
				if got, want := a.Agrees("blogs", topic, url), test.agreed.URLs[topic] == url; got != want {
					t.Errorf("%s: %s agrees on %s of %s: %t, want %t", test.when, name, url, topic, got, want)
				}
				owner := a.Owner(topic)
				if _, ok := test.agreed.URLs[topic]; ok != (owner != "") {
					t.Errorf("%s: the owner of %s is %q", test.when, topic, owner)
				}
				if n := slices.Index(l.names, owner); n >= 0 && test.members[n].URLs[topic] != test.agreed.URLs[topic] {
					t.Errorf("%s: %s runs %s of %s", test.when, owner, test.members[n].URLs[topic], topic)
				}
			}
			if got := slices.Sorted(maps.Keys(a.OtherLists)); !slices.Equal(got, test.other) {
				t.Errorf("%s: other versions have %q, want %q", test.when, got, test.other)
			}
		}
		if len(all) != len(test.members) {
			t.Errorf("%s: %d assignments", test.when, len(all))
		}
		// The hashes are published only while they are needed.
		for name, r := range l.rosters {
			if v, _ := decodeValue(name, r.value()); test.other == nil && (v.Hashes != nil || v.Lists["blogs"].Hashes != nil) || len(r.sets) > 3 {
				t.Errorf("%s: %s publishes %v, and has %d sets", test.when, name, v, len(r.sets))
			}
		}
	}
}

// Whatever versions the members have, all of them compute the same owners, each feed of the agreed version has one,
// and that one has it with the same URL.
func TestVersionsOfListsProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		topic := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		versions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) List {
			entries := rapid.SampledFrom([]string{"", "a", "b"})
			return List{
				URLs: rapid.MapOf(topic, rapid.SampledFrom([]string{"/1", "/2"})).Draw(t, "urls"), Failed: rapid.Bool().Draw(t, "failed"),
				Entries: entries.Draw(t, "entries"), Held: entries.Draw(t, "held"), Confirmed: rapid.Bool().Draw(t, "confirmed"),
			}
		}), 1, 5).Draw(t, "versions")
		l := newLists(len(versions))
		for range 2 {
			for n, list := range versions {
				if rapid.Bool().Draw(t, "is read") {
					l.set(n, list)
				}
			}
			l.settle()
		}
		var first *Assignment
		for name, r := range l.rosters {
			r.acting = nil // so that there is an assignment
			r.check(l.now)
			a, ok := r.next(l.now.Add(time.Hour))
			if !ok {
				t.Fatalf("%s has no assignment", name)
			}
			if first == nil {
				first = &a
			}
			for _, topic := range []string{"a", "b", "c", "d", "e"} {
				agreed := ""
				for _, url := range []string{"/1", "/2"} {
					if a.Agrees("blogs", topic, url) {
						agreed += url
					}
				}
				owner := a.Owner(topic)
				switch n := slices.Index(l.names, owner); {
				case owner != first.Owner(topic):
					t.Fatalf("the owner of %s is %s or %s", topic, owner, first.Owner(topic))
				case (agreed == "") != (owner == ""), owner != "" && versions[n].URLs[topic] != agreed:
					t.Fatalf("the owner of %s is %q; agreed is %q", topic, owner, agreed)
				}
			}
		}
	})
}
