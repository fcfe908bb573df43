package datareplication

import (
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/feedbridge/feedbridge/feed"
)

// The array of a batch is used again. Until then it does not keep what its entities refer to.
//
// The test is not parallel: another one would use the array while this one looks at it.
func TestFreedBatchRefersToNoEntities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite("a@1 b@2 c@3")
		b, err := s.source(t).Next(t.Context(), nil, feed.Limits{})
		if err != nil || len(b.Entities) != 3 {
			t.Fatalf("error %v, %d entities", err, len(b.Entities))
		}
		entities := b.Entities
		b.Free()
		if i := slices.IndexFunc(entities, func(e feed.Entity) bool { return !reflect.ValueOf(e).IsZero() }); i >= 0 {
			t.Errorf("entity %d is still %v", i, entities[i])
		}
	})
}
