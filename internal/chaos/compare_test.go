//go:build chaos && linux

package chaos

import "testing"

func TestCompare(t *testing.T) {
	const name = "feed1"
	f := &feed{name: name}
	m := func(i int) message { return message{id: contentIDOf(name, i), body: f.body(i)} }
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
		{"another feed's", []message{m(0), m(1), m(2), {id: contentIDOf("feed2", 3), body: (&feed{name: "feed2"}).body(3)}}, defects{lost: 1, foreign: 1}},
		{"another body", []message{m(0), m(1), m(2), {id: m(3).id, body: m(2).body}}, defects{lost: 1, foreign: 1}},
		{"more than the feed has", []message{m(0), m(1), m(2), m(3), m(4)}, defects{foreign: 1}},
	} {
		got, where := f.compare(test.topic, 4, published)
		if got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if (where == "") != (test.want == defects{}) {
			t.Errorf("%s: the first difference is %q", test.name, where)
		}
	}
}

// Of the first 60 entities, 17 and 58 are dead letters.
func TestCompareDeadLetters(t *testing.T) {
	f := &feed{name: "feed1", traits: traits{deadLetters: true}}
	letter := func(i int) message {
		return message{contentIDOf(f.name, i), f.body(i)[:messageLimit-100], "it is too large"}
	}
	var topic []message
	for i := range 60 {
		if i != 17 && i != 58 {
			topic = append(topic, message{id: contentIDOf(f.name, i), body: f.body(i)})
		}
	}
	large := message{id: letter(17).id, body: f.body(17)}
	for _, test := range []struct {
		name        string
		topic, dead []message
		want        defects
	}{
		{"the feed", topic, []message{letter(17), letter(58)}, defects{}},
		{"no dead letters", topic, nil, defects{lost: 2}},
		{"one twice", topic, []message{letter(17), letter(58), letter(58)}, defects{repeated: 1}},
		{"two changed places", topic, []message{letter(58), letter(17)}, defects{disordered: 1}},
		{"one in the topic", append(topic[:60-2:60-2], large), []message{letter(17), letter(58)}, defects{foreign: 1}},
		{"an entity that fits", topic, append([]message{topic[0]}, letter(17), letter(58)), defects{foreign: 1}},
		{"no reason", topic, []message{{id: letter(17).id, body: letter(17).body}, letter(58)}, defects{lost: 1, foreign: 1}},
		{"another body", topic, []message{letter(17), {letter(58).id, letter(17).body, letter(58).dead}}, defects{lost: 1, foreign: 1}},
	} {
		if got, where := f.compareAll(test.topic, test.dead, 60); got != test.want || (where == "") != (got == defects{}) {
			t.Errorf("%s: %v, want %v; the first difference is %q", test.name, got, test.want, where)
		}
	}
}
