//go:build chaos && linux

package chaos

import "testing"

func TestCompare(t *testing.T) {
	const name = "feed1"
	m := func(i int) message { return message{contentIDOf(name, i), bodyOf(name, i)} }
	for _, test := range []struct {
		name  string
		topic []message
		want  defects
	}{
		{"the feed", []message{m(0), m(1), m(2), m(3)}, defects{}},
		{"nothing", nil, defects{lost: 4}},
		{"a hole", []message{m(0), m(1), m(3)}, defects{lost: 1}},
		{"the end is missing", []message{m(0), m(1)}, defects{lost: 2}},
		{"one twice", []message{m(0), m(1), m(1), m(2), m(3)}, defects{repeated: 1}},
		{"a stretch twice", []message{m(0), m(1), m(2), m(3), m(1), m(2)}, defects{repeated: 2}},
		{"two changed places", []message{m(0), m(2), m(1), m(3)}, defects{disordered: 1}},
		{"another feed's", []message{m(0), m(1), m(2), {contentIDOf("feed2", 3), bodyOf("feed2", 3)}}, defects{lost: 1, foreign: 1}},
		{"another body", []message{m(0), m(1), m(2), {m(3).id, m(2).body}}, defects{lost: 1, foreign: 1}},
		{"more than the feed has", []message{m(0), m(1), m(2), m(3), m(4)}, defects{foreign: 1}},
	} {
		got, where := (&feed{name: name}).compare(test.topic, 4)
		if got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if (where == "") != (test.want == defects{}) {
			t.Errorf("%s: the first difference is %q", test.name, where)
		}
	}
}
