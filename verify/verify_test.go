package verify

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
)

func entity(id string) feed.Entity {
	id, rest, _ := strings.Cut(id, "=")
	e := feed.Entity{ID: id, Op: feed.Put, Modified: time.Unix(1e9, 5), Body: []byte(rest), Header: feed.Header{
		{Name: "Content-ID", Value: id}, {Name: "X", Value: "1"}, {Name: "a", Value: "2"}, {Name: "x", Value: "3"}, {Name: "Content-Length", Value: "7"},
	}}
	switch rest {
	case "op":
		e.Op, e.Body = feed.Delete, nil
	case "time":
		e.Modified, e.Body = e.Modified.Add(time.Second), nil
	case "headers":
		e.Header[1].Value, e.Body = "0", nil
	case "order": // of headers
		h := e.Header
		h[0], h[2], h[3], e.Body = h[2], h[3], h[0], nil
	}
	return e
}

func stream(ids ...string) iter.Seq2[feed.Entity, error] {
	return func(yield func(feed.Entity, error) bool) {
		for _, id := range ids {
			if id == "!" {
				yield(feed.Entity{}, errBroken)
				return
			}
			if !yield(entity(id), nil) {
				return
			}
		}
	}
}

var errBroken = errors.New("broken")

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ first, second, want string }{
		{"", "", ""},
		{"a b c", "a b c", ""},
		{"a", "a=order", ""},
		{"a b c", "a c", "missing b 1 -1 []"},
		{"a c", "a b c", "extra b -1 1 []"},
		{"a b c", "a c b", "reordered b 1 2 []"},
		{"a b c d", "d a b c", "reordered d 3 0 []"},
		{"a", "a=x", "different a 0 0 [body]"},
		{"a", "a=op", "different a 0 0 [operation]"},
		{"a", "a=time", "different a 0 0 [time]"},
		{"a", "a=headers", "different a 0 0 [headers]"},
		{"a a", "a", "missing a 1 -1 []"},
		{"a b c d e f", "b c d e f a", "reordered a 0 5 []"},
		{"a b c d e", "1 2 3 4 a", "missing a 0 -1 [], missing b 1 -1 [], missing c 2 -1 [], missing d 3 -1 [], missing e 4 -1 [], extra 1 -1 0 [], extra 2 -1 1 [], extra 3 -1 2 [], extra 4 -1 3 [], extra a -1 4 []"},
		{"a b", "", "missing a 0 -1 [], missing b 1 -1 []"},
		{"", "a b", "extra a -1 0 [], extra b -1 1 []"},
	} {
		t.Run(test.first+" and "+test.second, func(t *testing.T) {
			t.Parallel()
			var got []string
			s, err := compare(stream(strings.Fields(test.first)...), stream(strings.Fields(test.second)...), 3, func(d Difference) {
				got = append(got, fmt.Sprint(d.Kind, " ", d.ID, " ", d.First, " ", d.Second, " ", d.Parts))
			})
			slices.SortStableFunc(got, func(a, b string) int {
				return strings.Compare(b[:1], a[:1]) // missing before extra
			})
			if g := strings.Join(got, ", "); g != test.want || err != nil || s.Same() != (test.want == "") {
				t.Errorf("got %s, %v, %v; want %s", g, s, err, test.want)
			}
			if s.First != len(strings.Fields(test.first)) || s.Second != len(strings.Fields(test.second)) {
				t.Errorf("got %v", s)
			}
		})
	}
	for _, test := range [][2]string{{"a !", "a b c"}, {"a b", "a !"}} {
		if _, err := Compare(stream(strings.Fields(test[0])...), stream(strings.Fields(test[1])...), func(Difference) {}); !errors.Is(err, errBroken) {
			t.Errorf("got %v", err)
		}
	}
}

// What is missing and extra is the difference of the two, and what waits is no more
// than the window.
func TestCompareFindsWhatWasChanged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var first, second []string
		var want []string
		for i := range rapid.IntRange(0, 200).Draw(t, "entities") {
			id := fmt.Sprint(i)
			switch rapid.IntRange(0, 9).Draw(t, "change") {
			case 0:
				first, want = append(first, id), append(want, "missing "+id)
			case 1:
				second, want = append(second, id), append(want, "extra "+id)
			case 2:
				first, second, want = append(first, id), append(second, id+"=x"), append(want, "different "+id)
			default:
				first, second = append(first, id), append(second, id)
			}
		}
		var got []string
		s, err := Compare(stream(first...), stream(second...), func(d Difference) { got = append(got, fmt.Sprint(d.Kind, " ", d.ID)) })
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || s.Missing+s.Extra+s.Differences != len(want) {
			t.Fatalf("got %v, %v, want %v", got, s, want)
		}
	})
}

func TestCompareTakesLittleMemory(t *testing.T) {
	t.Parallel()
	const window = 10
	read := 0
	feedOf := func(prefix string) iter.Seq2[feed.Entity, error] {
		return func(yield func(feed.Entity, error) bool) {
			for i := range 5000 {
				read++
				if !yield(entity(fmt.Sprint(prefix, i)), nil) {
					return
				}
			}
		}
	}
	s, err := compare(feedOf("a"), feedOf("b"), window, func(d Difference) {
		if held := read/2 - max(d.First, d.Second); held > window+1 {
			t.Fatalf("%v is told of when %d more of each feed have been read", d, held)
		}
	})
	if err != nil || s.Missing != 5000 || s.Extra != 5000 {
		t.Errorf("got %v, %v", s, err)
	}
}
