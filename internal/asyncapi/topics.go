package asyncapi

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/sink"
)

// Topic is a topic that feedbridge writes: that of one feed, or of several on Kafka, or one of dead letters.
type Topic struct {
	// Address is its name, on NATS its subject.
	Address string
	// Of is the topic whose dead letters it has, or its own name.
	Of     string
	bus    string
	isDead bool
	feeds  []string // sorted
	key    string   // its key in the document
}

var notInKey = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// Topics returns the topics of the configuration, sorted by name.
func Topics(cfg *config.Config) []Topic {
	found := map[[2]string]Topic{}
	add := func(t Topic, feed string) {
		place := [2]string{t.Address, t.bus}
		t.feeds = append(found[place].feeds, feed)
		found[place] = t
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Feeds)) {
		f := cfg.Feeds[name]
		t := Topic{Address: f.To.Topic, Of: f.To.Topic, bus: f.To.Bus}
		add(t, name)
		if f.DeadLetters() {
			t.Address, t.isDead = t.Of+sink.DeadSuffix, true
			add(t, name)
		}
	}
	topics := slices.SortedFunc(maps.Values(found), func(a, b Topic) int {
		return cmp.Or(strings.Compare(a.Address, b.Address), strings.Compare(a.bus, b.bus))
	})
	taken := map[string]bool{}
	for i := range topics {
		key := notInKey.ReplaceAllString(topics[i].Address, "_")
		for ; taken[key]; key += "_" { // two buses have a topic of this name
		}
		topics[i].key, taken[key] = key, true
	}
	return topics
}
