package nats

import (
	"slices"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

func TestStagedBatchIsUsedForItsEntitiesWhileItLasts(t *testing.T) {
	entities := make([]feed.Entity, 3)
	for name, test := range map[string]struct {
		staged   *stagedBatch
		entities []feed.Entity
		want     bool
	}{
		"the same":                           {&stagedBatch{"b", entities, time.Now()}, entities, true},
		"nothing was sent":                   {nil, entities, false},
		"nothing to commit":                  {&stagedBatch{"b", entities, time.Now()}, nil, false},
		"fewer":                              {&stagedBatch{"b", entities, time.Now()}, entities[:2], false},
		"others":                             {&stagedBatch{"b", entities, time.Now()}, slices.Clone(entities), false},
		"the server may have forgotten them": {&stagedBatch{"b", entities, time.Now().Add(-stagedFor)}, entities, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.staged.hasEntities(test.entities); got != test.want {
				t.Errorf("hasEntities is %v", got)
			}
		})
	}
}
