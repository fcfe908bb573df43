package fleet

import (
	"slices"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/cputime"
	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

// FuzzValue reports the values of two other members, which any program can store in the bucket. Whatever
// they are, each topic of this copy has an owner that is a member.
func FuzzValue(f *testing.F) {
	f.Add("b", encodeValue("b", NewTopics([]string{"x", "z"}), true), []byte(`{"feedbridge_member":"c","topics":"1"}`))
	f.Add("a", []byte(`{"feedbridge_member":"a","topics":"0","hashes":"AQE="}`), []byte(`null`))
	f.Add("b", []byte(`{"feedbridge_member":"b","topics":"1","lists":{"blogs":{"topics":"0","hashes":"AQE="}}}`), List{URLs: map[string]string{"x": "/"}}.encoded())
	f.Add("", []byte(`{"feedbridge_member":"","topics":"x"}`), []byte{})
	f.Fuzz(mutation.OfCorpus(50, func(t *testing.T, name string, one, two []byte) {
		cputime.CheckRepeated(t, string(one), func(text string) {
			if topics, err := decodeTopics([]byte(text), hashBits); err == nil {
				if again, err := decodeTopics(topics.encode(), hashBits); err != nil || !slices.Equal(again.hashes, topics.hashes) {
					t.Fatalf("%x, %v", topics.hashes, err)
				}
			}
			decodeValue(name, []byte(text))
		})
		r := newRosterTest(t, "a")
		r.values[name], r.values["c"] = one, two
		for range 4 {
			r.report()
			r.now = r.now.Add(2 * topicsTime)
			a, ok := r.roster.next(r.now)
			if !ok || name == "a" { // a member whose own value was replaced runs nothing until it has stored it again
				continue
			}
			for _, topic := range []string{"x", "y"} {
				if owner := a.Owner(topic); !slices.Contains(a.Members, owner) {
					t.Fatalf("the owner of %s is %q of %q", topic, owner, a.Members)
				}
			}
		}
		delete(r.values, name)
		r.report(name)
		r.now = r.now.Add(time.Hour)
		_, _ = r.roster.next(r.now)
	}))
}

// encoded returns what the member c publishes that has the list, and no other feeds.
func (l List) encoded() []byte {
	r := newRoster("c")
	r.setTopics(NewTopics(nil), map[string]List{"blogs": l})
	r.present = map[string]value{"b": {Topics: "1"}}
	return r.value()
}
