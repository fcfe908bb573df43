package nats

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// A map that is used again has nothing of the message before.
func TestHeaderMapHasTheFieldsOfTheLastMessageOnly(t *testing.T) {
	t.Parallel()
	var h headerMap
	for _, test := range []struct {
		name   string
		fields feed.Header
		want   nats.Header
	}{
		{"the first message", feed.Header{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}, nats.Header{"A": {"1"}, "B": {"2"}}},
		{"the same names", feed.Header{{Name: "A", Value: "3"}, {Name: "B", Value: "4"}}, nats.Header{"A": {"3"}, "B": {"4"}}},
		{"another order", feed.Header{{Name: "B", Value: "5"}, {Name: "A", Value: "6"}}, nats.Header{"A": {"6"}, "B": {"5"}}},
		{"fewer", feed.Header{{Name: "B", Value: "7"}}, nats.Header{"B": {"7"}}},
		{"another name", feed.Header{{Name: "b", Value: "8"}}, nats.Header{"b": {"8"}}},
		{"a repeated name", feed.Header{{Name: "A", Value: "9"}, {Name: "B", Value: "10"}, {Name: "A", Value: "11"}, {Name: "A", Value: ""}}, nats.Header{"A": {"9", "11", ""}, "B": {"10"}}},
		{"the same repeated", feed.Header{{Name: "A", Value: "12"}, {Name: "B", Value: "13"}, {Name: "A", Value: "14"}, {Name: "A", Value: "15"}}, nats.Header{"A": {"12", "14", "15"}, "B": {"13"}}},
		{"once again", feed.Header{{Name: "A", Value: "16"}, {Name: "B", Value: "17"}, {Name: "C", Value: ""}}, nats.Header{"A": {"16"}, "B": {"17"}, "C": {""}}},
		{"none", nil, nats.Header{}},
		{"none again", nil, nats.Header{}},
	} {
		must.Match(t, test.name, test.want, h.convert(test.fields))
	}
}

func TestHeaderMapAllocatesNothingForTheSameNames(t *testing.T) {
	var h headerMap
	fields := feed.Header{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}
	h.convert(fields)
	if n := testing.AllocsPerRun(100, func() { h.convert(fields) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
