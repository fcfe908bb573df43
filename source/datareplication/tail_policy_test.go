package datareplication

import (
	"net/http"
	"testing"
	"testing/synctest"
)

// A call of Next ends although each range is of no use, whenever the next one would be requested:
// after the first one it requests the whole page.
func TestRangesOfNoUseEndACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite("a@1 b@2 c@3")
		s.asSent = true
		src := s.source(t)
		src.reader.tails.pause = -1
		r := readOn(t, src, nil)
		r.want(t, "a b c")
		s.header = func(h http.Header) { h.Set("ETag", `"another"`) }
		r = readOn(t, src, r.cursor)
		r.want(t, "")
		r.wantViolations(t)
		if len(s.ranged) != 1 {
			t.Errorf("requested the ranges %q", s.ranged)
		}
	})
}
