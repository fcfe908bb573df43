package verify

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

var dawn = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// entity returns an entity with a time, in seconds since dawn.
func entity(id string, at int) feed.Entity {
	return feed.Entity{
		ID: id, Op: feed.Put, Modified: dawn.Add(time.Duration(at) * time.Second), Body: []byte("body of " + id),
		Header: feed.Header{{Name: "Content-Type", Value: "text/plain"}, {Name: "Content-ID", Value: id}, {Name: "X-Tag", Value: "a"}, {Name: "X-Tag", Value: "b"}},
	}
}

// stream returns a stream of entities, given by their IDs; each is a second
// younger than the one before it with another ID, in the order of the alphabet.
func stream(ids string) iter.Seq2[feed.Entity, error] {
	var all []feed.Entity
	for id := range strings.FieldsSeq(ids) {
		all = append(all, entity(id, int(id[0])))
	}
	return of(all)
}

func of(entities []feed.Entity) iter.Seq2[feed.Entity, error] {
	return func(yield func(feed.Entity, error) bool) {
		for _, e := range entities {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// compare returns the differences as "kind id".
func compare(t interface{ Fatal(...any) }, first, second iter.Seq2[feed.Entity, error], window int) ([]string, Summary) {
	var found []string
	sum, err := Compare(first, second, window, func(d Difference) bool {
		found = append(found, fmt.Sprintf("%s %s", d.Kind, d.ID))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, sum
}

// A served feed has the canonical spelling of dates and operations.
func TestSpellingsAreTheSame(t *testing.T) {
	t.Parallel()
	with := func(date, operation string) iter.Seq2[feed.Entity, error] {
		e := entity("a", 0)
		e.Header = append(e.Header, feed.Field{Name: "Last-Modified", Value: date}, feed.Field{Name: "Operation-Type", Value: operation})
		return of([]feed.Entity{e})
	}
	canonical := with("Thu, 01 Jan 2026 00:00:00 GMT", "http-equiv=PUT")
	if found, _ := compare(t, with("Thu, 01 Jan 2026 00:00:00 gmt", `http-equiv="PUT"`), canonical, 10); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	for _, other := range []iter.Seq2[feed.Entity, error]{with("yesterday", "http-equiv=PUT"), with("Thu, 01 Jan 2026 00:00:00 GMT", "POST")} {
		if found, _ := compare(t, other, canonical, 10); len(found) != 1 {
			t.Errorf("found %v", found)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, first, second, want string }{
		{"nothing", "", "", ""},
		{"the same", "a b c", "a b c", ""},
		{"nothing and something", "", "a b", "extra a, extra b"},
		{"something and nothing", "a b", "", "missing a, missing b"},
		{"one is missing", "a b c", "a c", "missing b"},
		{"one is extra", "a c", "a b c", "extra b"},
		{"one twice", "a b c d", "a b a c d", "extra a"},
		{"one twice at the end", "a b", "a b a", "extra a"},
		{"one twice in both", "a b a c", "a b a c", ""},
		{"two are swapped", "a b c d", "a c b d", "reordered b"},
		{"one comes later", "a b c d e", "b c d a e", "reordered a"},
		{"one comes earlier", "a b c d e", "a e b c d", "reordered e"},
		{"one for another", "a b c", "a x c", "missing b, extra x"},
		{"all others", "a b", "x y", "missing a, missing b, extra x, extra y"},
		{"backwards", "a b c d", "d c b a", "reordered a, reordered b, reordered c"},
		{"some of each", "a b c d e f g h", "b d c e x f h h", "missing a, reordered c, extra x, missing g, extra h"},
	} {
		parallel.Run(t, tt.name, func(t *testing.T) {
			found, sum := compare(t, stream(tt.first), stream(tt.second), 0)
			if got := strings.Join(found, ", "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if sum.First != len(strings.Fields(tt.first)) || sum.Second != len(strings.Fields(tt.second)) || !sum.Complete || sum.Same() != (tt.want == "") {
				t.Errorf("got %+v", sum)
			}
		})
	}
}

// A message carries its time in whole seconds, the entry of an Atom feed in any
// fraction of one.
func TestTimesAreComparedInWholeSeconds(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	one := func(at time.Time) iter.Seq2[feed.Entity, error] {
		return func(yield func(feed.Entity, error) bool) { yield(feed.Entity{ID: "a", Modified: at}, nil) }
	}
	if found, _ := compare(t, one(at.Add(750*time.Millisecond)), one(at), 0); len(found) > 0 {
		t.Errorf("got %v", found)
	}
	if found, _ := compare(t, one(at.Add(time.Second)), one(at), 0); len(found) != 1 {
		t.Errorf("a whole second: got %v", found)
	}
}

func TestTimesThatFeedbridgeMadeAreNotCompared(t *testing.T) {
	t.Parallel()
	dated := func(at int, body, made string) iter.Seq2[feed.Entity, error] {
		e := entity("a", at)
		e.Header = append(e.Header, feed.Field{Name: "Last-Modified", Value: e.Modified.Format(http.TimeFormat)})
		e.Body, e.Made = []byte(body), made
		return of([]feed.Entity{e})
	}
	for _, made := range [][2]string{{"Last-Modified", "Last-Modified"}, {"", "Content-ID Last-Modified"}, {"Last-Modified", ""}} {
		if found, _ := compare(t, dated(1, "a", made[0]), dated(2, "a", made[1]), 0); len(found) > 0 {
			t.Errorf("%q: got %v", made, found)
		}
		if found, _ := compare(t, dated(1, "a", made[0]), dated(2, "b", made[1]), 0); len(found) != 1 {
			t.Errorf("%q, and another body: got %v", made, found)
		}
	}
	if found, _ := compare(t, dated(1, "a", "Content-ID"), dated(2, "a", ""), 0); len(found) != 1 {
		t.Errorf("times of the feed: got %v", found)
	}
}

func TestPartsThatDiffer(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*feed.Entity){
		"":                    func(*feed.Entity) {},
		"operation":           func(e *feed.Entity) { e.Op = feed.Delete },
		"time":                func(e *feed.Entity) { e.Modified = e.Modified.Add(time.Second) },
		"body":                func(e *feed.Entity) { e.Body = []byte("body of A") },
		"header Content-Type": func(e *feed.Entity) { e.Header[0].Value = "text/html" },
		"header X-More":       func(e *feed.Entity) { e.Header = append(e.Header, feed.Field{Name: "X-More"}) },
		"header X-Tag":        func(e *feed.Entity) { e.Header[2], e.Header[3] = e.Header[3], e.Header[2] },
		"header Content-Id":   func(e *feed.Entity) { e.Header = slices.Delete(e.Header, 1, 2) },
		"operation, header Content-Type, header X-Tag, body": func(e *feed.Entity) {
			e.Op, e.Body, e.Header = feed.Patch, nil, e.Header[1:3]
		},
	} {
		parallel.Run(t, want, func(t *testing.T) {
			other := entity("a", 1)
			change(&other)
			var found []Difference
			for _, swap := range []bool{false, true} {
				first, second := of([]feed.Entity{entity("a", 1)}), of([]feed.Entity{other})
				if swap {
					first, second = second, first
				}
				sum, err := Compare(first, second, 0, func(d Difference) bool {
					found = append(found, d)
					return true
				})
				if err != nil || sum.Equal+sum.Different != 1 || sum.Same() != (want == "") {
					t.Errorf("got %+v, %v", sum, err)
				}
			}
			for _, d := range found {
				if got := strings.Join(d.Parts, ", "); d.Kind != Different || got != want {
					t.Errorf("got %s %q, want %q", d.Kind, got, want)
				}
			}
			if len(found) != 2 && want != "" {
				t.Errorf("found %v", found)
			}
		})
	}
	parallel.Run(t, "neither the case of names nor the order among them", func(t *testing.T) {
		one, other := entity("a", 1), entity("a", 1)
		for n := range 20 {
			one.Header = append(one.Header, feed.Field{Name: "X-Tag", Value: fmt.Sprint(n)}, feed.Field{Name: fmt.Sprint("X-", n)})
		}
		var tags feed.Header
		other.Header = nil
		for _, f := range one.Header {
			if f.Name == "X-Tag" {
				tags = append(tags, feed.Field{Name: "x-tag", Value: f.Value})
			} else {
				other.Header = append(feed.Header{{Name: strings.ToUpper(f.Name), Value: f.Value}}, other.Header...)
			}
		}
		other.Header = append(tags, other.Header...)
		was := slices.Clone(other.Header)
		if found, _ := compare(t, of([]feed.Entity{one}), of([]feed.Entity{other}), 0); found != nil {
			t.Errorf("found %v", found)
		}
		if diff := cmp.Diff(was, other.Header); diff != "" {
			t.Errorf("an entity was changed: %s", diff)
		}
	})
	parallel.Run(t, "where one value ends and the next begins", func(t *testing.T) {
		one, other := entity("a", 1), entity("a", 1)
		one.Header = feed.Header{{Name: "X-Tag", Value: "ab"}, {Name: "X-Tag", Value: "c"}}
		other.Header = feed.Header{{Name: "X-Tag", Value: "a"}, {Name: "X-Tag", Value: "bc"}}
		if found, _ := compare(t, of([]feed.Entity{one}), of([]feed.Entity{other}), 0); len(found) != 1 {
			t.Errorf("found %v", found)
		}
	})
	parallel.Run(t, "a length that says what the body is", func(t *testing.T) {
		for length, want := range map[string]int{"9": 0, "8": 1} {
			one, other := entity("a", 1), entity("a", 1)
			other.Header = append(other.Header, feed.Field{Name: "content-length", Value: length})
			if found, _ := compare(t, of([]feed.Entity{one}), of([]feed.Entity{other}), 0); len(found) != want {
				t.Errorf("%s: found %v", length, found)
			}
		}
	})
	parallel.Run(t, "in a line", func(t *testing.T) {
		one, two := 1, 2
		d := Difference{Kind: Reordered, ID: "a", First: &one, Second: &two, Parts: []string{"time", "body"}}
		if got, want := d.String(), "reordered a, number 1 of the first, number 2 of the second: not the same time, body"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

func TestCompareStops(t *testing.T) {
	t.Parallel()
	parallel.Run(t, "where it is told", func(t *testing.T) {
		n := 0
		sum, err := Compare(stream("a b c d"), stream("e f"), 0, func(Difference) bool { n++; return n < 2 })
		if err != nil || n != 2 || sum.Complete || sum.Missing != 2 {
			t.Errorf("%d differences, %+v, %v", n, sum, err)
		}
	})
	parallel.Run(t, "at an error", func(t *testing.T) {
		broken := errors.New("broken")
		bad := func(yield func(feed.Entity, error) bool) {
			if yield(entity("a", 1), nil) {
				yield(feed.Entity{}, broken)
			}
		}
		for _, swap := range []bool{false, true} {
			first, second := iter.Seq2[feed.Entity, error](bad), stream("b c d")
			if swap {
				first, second = second, first
			}
			sum, err := Compare(first, second, 0, func(Difference) bool { return true })
			if !errors.Is(err, broken) || sum.Complete {
				t.Errorf("got %+v, %v", sum, err)
			}
		}
	})
}

// TestEditsAreReportedAsJustThat draws a stream and edits with a distance between them:
// edits within the window, and removed or added runs longer than it.
func TestEditsAreReportedAsJustThat(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const window = 6
		var first, second []feed.Entity
		var want []string
		note := func(kind Kind, e feed.Entity) { want = append(want, fmt.Sprintf("%s %s", kind, e.ID)) }
		n := 0
		fresh := func() feed.Entity {
			n++
			return entity(fmt.Sprintf("e%d", n), n)
		}
		for range rapid.IntRange(0, 8).Draw(t, "edits") {
			for range rapid.IntRange(window, 3*window).Draw(t, "the same") {
				e := fresh()
				first, second = append(first, e), append(second, e)
			}
			switch rapid.SampledFrom([]string{"drop", "insert", "change", "move on", "move back"}).Draw(t, "edit") {
			case "drop":
				for range rapid.IntRange(1, 3*window).Draw(t, "dropped") {
					e := fresh()
					first = append(first, e)
					note(Missing, e)
				}
			case "insert":
				for range rapid.IntRange(1, 3*window).Draw(t, "inserted") {
					e := fresh()
					second = append(second, e)
					note(Extra, e)
				}
			case "change":
				e := fresh()
				first = append(first, e)
				note(Different, e)
				e.Body = []byte("another")
				second = append(second, e)
			case "move on":
				e := fresh()
				first = append(first, e)
				for range rapid.IntRange(1, window-1).Draw(t, "by") {
					between := fresh()
					first, second = append(first, between), append(second, between)
				}
				second = append(second, e)
				note(Reordered, e)
			case "move back":
				var between []feed.Entity
				for range rapid.IntRange(2, window-1).Draw(t, "by") { // by 1 it is a swap, in which the other one was moved
					between = append(between, fresh())
				}
				e := fresh()
				first = append(append(first, between...), e)
				second = append(append(second, e), between...)
				note(Reordered, e)
			}
		}
		for range rapid.IntRange(0, window).Draw(t, "the same") {
			e := fresh()
			first, second = append(first, e), append(second, e)
		}
		got, sum := compare(t, of(first), of(second), window)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
		if sum.Equal+sum.Different+sum.Missing+sum.Reordered != len(first) || sum.Equal+sum.Different+sum.Extra+sum.Reordered != len(second) {
			t.Fatalf("got %+v of %d and %d", sum, len(first), len(second))
		}
	})
}

// TestAnyTwoStreams compares any two streams and wants that the report explains the
// difference: without the reported entities both are the same.
func TestAnyTwoStreams(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) []feed.Entity {
			var all []feed.Entity
			for i, id := range rapid.SliceOfN(rapid.StringMatching(`[a-f]`), 0, 20).Draw(t, label) {
				all = append(all, entity(id, i/rapid.IntRange(1, 4).Draw(t, "ties")))
			}
			return all
		}
		first, second := draw("first"), draw("second")
		window := rapid.IntRange(1, 8).Draw(t, "window")
		inFirst, inSecond := make([]bool, len(first)), make([]bool, len(second))
		sum, err := Compare(of(first), of(second), window, func(d Difference) bool {
			if d.Kind == Different {
				return true
			}
			for _, side := range []struct {
				at   *int
				out  []bool
				have []feed.Entity
			}{{d.First, inFirst, first}, {d.Second, inSecond, second}} {
				if side.at == nil {
					continue
				}
				if side.have[*side.at].ID != d.ID || side.out[*side.at] {
					t.Fatalf("%s", d)
				}
				side.out[*side.at] = true
			}
			return true
		})
		if err != nil || !sum.Complete {
			t.Fatalf("%+v, %v", sum, err)
		}
		left := func(entities []feed.Entity, out []bool) (ids []string) {
			for i, e := range entities {
				if !out[i] {
					ids = append(ids, e.ID)
				}
			}
			return ids
		}
		if diff := cmp.Diff(left(first, inFirst), left(second, inSecond)); diff != "" {
			t.Fatalf("what is left differs:\n%s", diff)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const length, window = 40_000, 1000
	// Bodies of 10 KB: 400 MB in all, and 10 MB of them in a window.
	long := func(from int) iter.Seq2[feed.Entity, error] {
		return func(yield func(feed.Entity, error) bool) {
			for i := from; i < length; i++ {
				e := entity(fmt.Sprint(i), i)
				e.Body = make([]byte, 10_000)
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	sum, err := Compare(long(0), long(length/2), window, func(d Difference) bool {
		if *d.First == length/4 {
			runtime.GC()
			runtime.ReadMemStats(&after)
		}
		return true
	})
	if err != nil || sum.Missing != length/2 || sum.Equal != length/2 || !sum.Complete {
		t.Errorf("%+v, %v", sum, err)
	}
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 4<<20 {
		t.Errorf("%d bytes are held", held)
	}
}

func BenchmarkCompare(b *testing.B) {
	entities := make([]feed.Entity, b.N)
	for i := range entities {
		entities[i] = entity(fmt.Sprint(i), i)
		entities[i].Body = make([]byte, 1024)
	}
	b.ResetTimer()
	sum, err := Compare(of(entities), of(entities), 0, func(Difference) bool { return true })
	if err != nil || sum.Equal != b.N {
		b.Fatalf("%+v, %v", sum, err)
	}
}

// An entry is the same in JSON and in XML, and verify names the body if its fields differ.
func TestEntriesInJSONAndXML(t *testing.T) {
	t.Parallel()
	entryIn := func(contentType, body string) iter.Seq2[feed.Entity, error] {
		return of([]feed.Entity{{
			ID: "1", Op: feed.Put, Body: []byte(body), Page: "http://x.example/feed", Mark: "m",
			Header: feed.Header{{Name: "Content-ID", Value: "1"}, {Name: "Content-Type", Value: contentType}},
		}})
	}
	const xml, other = `<item><guid>1</guid><title>T</title><link>/1</link></item>`, `{"id":"1","url":"http://x.example/1","title":"T","authors":[{"name":"of the feed"}],"feed":{"title":"F"}}`
	for second, want := range map[string]int{other: 0, strings.Replace(other, `"T"`, `"U"`, 1): 1, `{"id":1}`: 1} {
		if got, _ := compare(t, entryIn("application/rss+xml", xml), entryIn("application/json", second), 0); len(got) != want {
			t.Errorf("%s: got %q, want %d differences", second, got, want)
		}
	}
	item := func(body string) iter.Seq2[feed.Entity, error] {
		return func(yield func(feed.Entity, error) bool) {
			for e, err := range entryIn("application/json", body) {
				e.Header = append(e.Header, feed.Field{Name: "Feed-Format", Value: "jsonfeed"})
				yield(e, err)
			}
		}
	}
	const source, read = `{"id":1,"url":"/1","title":"T","_own":{"a":1}}`, `{"id":"1","url":"http://x.example/1","title":"T","feed":{"title":"F"},` +
		`"extensions":{"https://jsonfeed.org/version/1.1":{"_own":[{"value":{"a":1}}],"id":[{"value":1}]}}}`
	for second, want := range map[string]int{read: 0, strings.Replace(read, `"T"`, `"U"`, 1): 1} {
		if got, _ := compare(t, item(source), item(second), 0); len(got) != want {
			t.Errorf("%s: got %q, want %d differences", second, got, want)
		}
	}
}
