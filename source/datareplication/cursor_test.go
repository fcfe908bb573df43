package datareplication

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/feedbridge/feedbridge/feed"
)

// storedCursors are cursors as they were stored. What a released version wrote
// must be read for ever, so they are added to and never changed.
var storedCursors = map[string]string{
	"in a page":                 `{"v":1,"page":"https://shop.example.com/feed/7","index":2,"digest":"1f","last":"<b@shop>","modified":1696474802,"ties":["<a@shop>"]}`,
	"at the end":                `{"v":1,"page":"https://shop.example.com/feed/7","index":2,"digest":"ffffffffffffffff","etag":"\"x\"","last":"b","modified":1696474802}`,
	"at the end, with the time": `{"v":1,"page":"https://shop.example.com/feed/7","index":2,"digest":"1f","etag":"\"x\"","full":1696478400,"last":"b","modified":1696474802}`,
	"in front of a page":        `{"v":1,"page":"https://shop.example.com/feed/8","came":"https://shop.example.com/feed/7","last":"b","modified":1696474802}`,
	"on the way back": `{"v":1,"search":{"start":"id:b@2023-10-05T03:00:02Z","id":"b","from":1696474802,"back":"https://shop.example.com/feed/3",` +
		`"newer":"https://shop.example.com/feed/4","newer_time":1696474900,"trail":{"mark":"https://shop.example.com/feed/5","steps":1,"power":4}}}`,
	"behind a gap":           `{"v":1,"search":{"from":1696474802,"skip":["a","b"],"gap":true},"gap":"b"}`,
	"before 1970":            `{"v":1,"search":{"from":-86400}}`,
	"in front of a snapshot": `{"v":2,"search":{},"snapshot":{"index":"https://shop.example.com/snapshots/latest"}}`,
	"in a snapshot": `{"v":2,"page":"https://shop.example.com/feed/7","search":{"from":1696474802,"reached":true},` +
		`"snapshot":{"index":"https://shop.example.com/snapshots/latest","found":"https://shop.example.com/snapshots/17","id":"17","created":"2023-10-05T03:01:02.5Z",` +
		`"pages":3,"ready":true,"page":1,"entity":2,"digest":"1f","published":502},"owed":{"id":"b","modified":1696474900}}`,
	"behind a snapshot": `{"v":1,"page":"https://shop.example.com/feed/7","search":{"from":1696474802,"reached":true},"owed":{"id":"b","modified":1696474900}}`,
}

func TestStoredCursors(t *testing.T) {
	t.Parallel()
	for name, stored := range storedCursors {
		cur, err := decodeCursor(feed.Cursor(stored))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var was, is any
		if err := errors.Join(json.Unmarshal([]byte(stored), &was), json.Unmarshal(cur.encode(), &is)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(was, is); diff != "" {
			t.Errorf("%s: -stored +stored again:\n%s", name, diff)
		}
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	tests := map[string]Place{
		"in a page":       {Page: "https://shop.example.com/feed/7", Index: 2, Last: "<b@shop>", Modified: 1696474802},
		"on the way back": {Searching: "the entity after b of 2023-10-05T03:00:02Z"},
		"behind a gap":    {Searching: "the first entity since 2023-10-05T03:00:02Z"},
		"before 1970":     {Searching: "the first entity since 1969-12-31T00:00:00Z"},
		"in a snapshot":   {Page: "https://shop.example.com/feed/7", Snapshot: "page 2 of 3 of the snapshot 17 of 2023-10-05T03:01:02Z"},
	}
	for name, want := range tests {
		got, err := Describe(feed.Cursor(storedCursors[name]))
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestBadCursors(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		`x`, `{}`, `null`, `[]`, `{"v":2,"page":"x"}`, `{"v":1}`, `{"v":1,"page":"x","index":-1}`,
		`{"v":1,"page":"x","index":3}`, `{"v":1,"index":3,"last":"a","search":{}}`, `{"v":1,"page":"x","digest":"zz"}`,
		`{"v":1,"search":{"id":"a"}}`, `{"v":1,"page":"x"} ` + `{}`,
	} {
		if _, err := Describe(feed.Cursor(bad)); !errors.Is(err, feed.ErrPermanent) {
			t.Errorf("%s: error %v", bad, err)
		}
		if _, err := new(Source).Next(t.Context(), feed.Cursor(bad)); !errors.Is(err, feed.ErrPermanent) {
			t.Errorf("%s: error %v", bad, err)
		}
		if _, err := ParseCursor(bad); err == nil {
			t.Errorf("%s is taken for a position", bad)
		}
	}
}

func TestACursorStaysSmall(t *testing.T) {
	t.Parallel()
	for _, length := range []int{10, 1000, 60_000} {
		var cur cursor
		largest := 0
		for i := range 1000 {
			cur.advance(&feed.Entity{ID: fmt.Sprintf("%06d%s", i, strings.Repeat("x", length)), Modified: dawn})
			whole := cur
			whole.trim()
			largest = max(largest, len(whole.encode()))
			if i > 150 && length == 10 {
				if n := len(whole.Ties); n != maxTies || !strings.HasPrefix(whole.Ties[n-1], fmt.Sprintf("%06d", i-1)) {
					t.Fatalf("after %d entities the cursor names %d, the newest %s", i, n, whole.Ties[n-1])
				}
			}
		}
		if largest > maxTiesBytes+length+1000 {
			t.Errorf("with IDs of %d bytes a cursor has %d", length, largest)
		}
	}
}

func FuzzCursor(f *testing.F) {
	for _, stored := range storedCursors {
		f.Add([]byte(stored))
	}
	f.Add([]byte(`{"v":1,"search":{"now":true,"id":"a","from":0}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = ParseCursor(string(data))
		cur, err := decodeCursor(data)
		if err != nil {
			if !errors.Is(err, feed.ErrPermanent) {
				t.Fatalf("error %v is not permanent", err)
			}
			return
		}
		if len(data) > 0 {
			again, err := decodeCursor(cur.encode())
			if err != nil {
				t.Fatalf("%s is stored as %s, which is not read again: %v", data, cur.encode(), err)
			}
			if diff := cmp.Diff(cur, again, cmp.AllowUnexported(cursor{}, search{}), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("-read +stored and read:\n%s", diff)
			}
			if _, err := Describe(data); err != nil {
				t.Fatal(err)
			}
		}
		e := feed.Entity{ID: "a", Modified: dawn}
		if cur.Search != nil {
			cur.Search.judge(&e)
		}
		cur.advance(&e)
		cur.trim()
	})
}
