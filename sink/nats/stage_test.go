package nats

import (
	"slices"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

func TestWhatWasStagedServesTheSameEntitiesForAWhile(t *testing.T) {
	entities := make([]feed.Entity, 3)
	for name, test := range map[string]struct {
		staged   *staged
		entities []feed.Entity
		want     bool
	}{
		"the same":                           {&staged{"b", entities, time.Now()}, entities, true},
		"nothing was sent":                   {nil, entities, false},
		"nothing to commit":                  {&staged{"b", entities, time.Now()}, nil, false},
		"fewer":                              {&staged{"b", entities, time.Now()}, entities[:2], false},
		"others":                             {&staged{"b", entities, time.Now()}, slices.Clone(entities), false},
		"the server may have forgotten them": {&staged{"b", entities, time.Now().Add(-stagedFor)}, entities, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.staged.serves(test.entities); got != test.want {
				t.Errorf("serves is %v", got)
			}
		})
	}
}
