package datareplication

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source"
)

// The cursor of a long search has how many pages were searched, and the time that was
// reached, also after a restart.
func TestSearchSaysHowFarItHasCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a call ends after two seconds, too
		s := newSite()
		for i := range 250 {
			s.publish(fmt.Sprintf("e%d@%d", i, i))
		}
		s.requests()
		var cursor feed.Cursor
		var got []string
		for range 3 {
			// Each call is that of another process.
			b, err := s.source(t, from(t, startAt(10))).Next(t.Context(), cursor, feed.Limits{})
			must.Succeed(t, err)
			cursor = b.Cursor
			p := describeCursor(t, cursor)
			got = append(got, fmt.Sprintf("%d %s", p.SearchedPages, p.Search()))
			if !b.More || len(b.Entities) > 0 {
				break
			}
		}
		want := []string{
			"100 the first entity since 2023-10-05T03:00:10Z; 100 pages are searched, back to 2023-10-05T03:02:30Z",
			"200 the first entity since 2023-10-05T03:00:10Z; 200 pages are searched, back to 2023-10-05T03:00:50Z",
			"0 ",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// Once the page to start at is found, entities before the position are read and left out.
func TestSearchSaysHowFarItHasReadForward(t *testing.T) {
	t.Parallel()
	sr := newSeek(source.Start{ID: "c", At: second(9)})
	sr.Pages, sr.NewerTime = 4, second(8).Unix()
	cur := cursor{Page: "http://feed.example/3", Search: sr}
	cur.advance(&feed.Entity{ID: "b", Modified: second(7)})
	got := describeCursor(t, cur.encodeCursor()).Search().String()
	if want := "the entity after c of 2023-10-05T03:00:09Z; 4 pages are searched, back to 2023-10-05T03:00:08Z, and from there forward to 2023-10-05T03:00:07Z"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if again, err := decodeCursor(cur.encodeCursor()); err != nil || !bytes.Equal(again.encodeCursor(), cur.encodeCursor()) {
		t.Errorf("the cursor is stored again as %s: %v", again.encodeCursor(), err)
	}
}
