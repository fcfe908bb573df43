package message_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/message"
)

var onNATS = message.NewEvents("com.example.order", "https://shop.example.com/ä")

// bindings has the events and the prefix of the headers of each bus.
var bindings = map[string]*message.Events{"ce-": onNATS, "ce_": onNATS.ForKafka()}

func TestEventAttributes(t *testing.T) {
	t.Parallel()
	e := feed.Entity{
		ID: "<ä 1%@shop>", Op: feed.Delete, Modified: modified.Add(time.Millisecond), Page: "http://x/1",
		Header: feed.Header{{Name: "content-type", Value: "text/plain"}, {Name: "ce-id", Value: "of the feed"}},
	}
	for prefix, want := range map[string]feed.Header{
		"ce-": {
			{Name: "ce-specversion", Value: "1.0"},
			{Name: "ce-id", Value: "<%C3%A4%201%25@shop>"},
			{Name: "ce-source", Value: "https://shop.example.com/%25C3%25A4"},
			{Name: "ce-type", Value: "com.example.order.delete"},
			{Name: "ce-subject", Value: "<%C3%A4%201%25@shop>"},
			{Name: "ce-time", Value: "2023-10-05T06:07:08.001Z"},
			{Name: "ce-datacontenttype", Value: "text/plain"},
			{Name: "ce-sequence", Value: "00000000000000000042"},
		},
		"ce_": {
			{Name: "content-type", Value: "text/plain"},
			{Name: "ce_specversion", Value: "1.0"},
			{Name: "ce_id", Value: "<ä 1%@shop>"},
			{Name: "ce_source", Value: "https://shop.example.com/%C3%A4"},
			{Name: "ce_type", Value: "com.example.order.delete"},
			{Name: "ce_subject", Value: "<ä 1%@shop>"},
			{Name: "ce_time", Value: "2023-10-05T06:07:08.001Z"},
			{Name: "ce_sequence", Value: "00000000000000000042"},
		},
	} {
		h := message.AppendEvent(nil, "orders", e, bindings[prefix], 42)
		got := h[slices.IndexFunc(h, func(f feed.Field) bool { return f.Name == message.Event })+1:]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("attributes with the prefix %s (-want +got):\n%s", prefix, diff)
		}
		if value, _ := h.Get("Feedbridge-Header-ce-id"); value != "of the feed" {
			t.Errorf("the message has the feed's own ce-id as %q", value)
		}
		// Without events the message has the feed's own header as it is.
		if value, _ := message.Header("orders", e).Get("ce-id"); value != "of the feed" {
			t.Errorf("a message that is no event has ce-id %q", value)
		}
	}
}

func TestEventContentType(t *testing.T) {
	t.Parallel()
	for own, want := range map[string]string{
		"Text/HTML; charset=utf-8": "Text/HTML; charset=utf-8",
		"application/json":         "application/json",
		"":                         "application/octet-stream",
		"text":                     "application/octet-stream",
		"text/plain; charset":      "application/octet-stream",
		"text/plain; x=\"\x01\"":   "application/octet-stream",
	} {
		e := feed.Entity{ID: "1", Op: feed.Put, Header: feed.Header{{Name: "Content-Type", Value: own}}}
		if got, _ := message.AppendEvent(nil, "orders", e, bindings["ce-"], 1).Get("ce-datacontenttype"); unescape(t, got) != want {
			t.Errorf("%q has the datacontenttype %q on NATS, want %q", own, got, want)
		}
		h := message.AppendEvent(nil, "orders", e, bindings["ce_"], 1)
		if !slices.Contains(h, feed.Field{Name: "content-type", Value: want}) || !slices.Contains(h, feed.Field{Name: "Content-Type", Value: own}) {
			t.Errorf("the message of %q has %v on Kafka, want %q", own, h, want)
		}
	}
	for prefix, events := range bindings {
		if h := message.AppendEvent(nil, "orders", feed.Entity{ID: "1", Op: feed.Put}, events, 1); slices.ContainsFunc(h, func(f feed.Field) bool {
			return f.Name == "content-type" || f.Name == "ce-datacontenttype"
		}) {
			t.Errorf("a message without a type has one with %s: %v", prefix, h)
		}
		// An event in structured mode has its attributes in its body.
		e := feed.Entity{ID: "1", Op: feed.Put, Header: feed.Header{{Name: "Content-Type", Value: "Application/CloudEvents+json"}}}
		if h := message.AppendEvent(nil, "orders", e, events, 1); slices.ContainsFunc(h, func(f feed.Field) bool { return strings.HasPrefix(f.Name, "ce") }) {
			t.Errorf("the message of a structured event has attributes with %s: %v", prefix, h)
		}
	}
}

// No two versions have the same ID, also if a bus has lost one and its number is given again.
func TestEventIDIsThatOfAVersion(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, e := range []struct {
		id, mark string
		sequence uint64
	}{
		{"1", "", 1},
		{"1", "a", 1},
		{"1", "b", 2},
		{"1", "a", 3},
		{"1", "b", 3},
		{"1\x00", "", 1},
		{"1%00", "", 1},
		{"1\xff", "", 1},
		{"1%FF", "", 1},
	} {
		of := feed.Entity{ID: e.id, Mark: e.mark, Op: feed.Put}
		id, _ := message.AppendEvent(nil, "orders", of, onNATS, e.sequence).Get("ce-id")
		again, _ := message.AppendEvent(nil, "orders", of, onNATS, e.sequence).Get("ce-id")
		if id == "" || id != again || seen[id] {
			t.Errorf("%+v has the ID %q and again %q, seen before: %v", e, id, again, seen[id])
		}
		seen[id] = true
	}
}

// A subject is optional, and is not blank.
func TestEventOfABlankIDHasNoSubject(t *testing.T) {
	t.Parallel()
	h := message.AppendEvent(nil, "orders", feed.Entity{ID: "\u00a0", Mark: "a", Op: feed.Put}, onNATS, 1)
	if subject, ok := h.Get("ce-subject"); ok {
		t.Errorf("the subject is %q", subject)
	}
}

// Whatever an entity has, its message is a valid event, and the entity comes back from it.
func TestEntityComesBackFromItsEvent(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	names := rapid.OneOf(
		rapid.SampledFrom([]string{"content-type", "Content-Type", "ce-id", "CE_ID", "ce_", "Ce-Sequence", "cetera", "Feedbridge-Event", "Feedbridge-Header-ce-id", "traceparent"}),
		rapid.StringMatching(`[A-Za-z][A-Za-z_-]{0,20}`),
	)
	rapid.Check(t, func(t *rapid.T) {
		e := feed.Entity{
			ID: "x" + text.Draw(t, "id"), Op: rapid.SampledFrom([]feed.Operation{feed.Put, feed.Patch, feed.Delete}).Draw(t, "op"),
			Mark: rapid.SampledFrom([]string{"", "1;p"}).Draw(t, "mark"), Modified: modified,
		}
		for range rapid.IntRange(0, 5).Draw(t, "fields") {
			name := names.Draw(t, "name")
			switch strings.ToLower(name) {
			case "content-id", "last-modified", "operation-type":
				continue
			}
			e.Header = append(e.Header, feed.Field{Name: name, Value: text.Draw(t, "value")})
		}
		e.Header = append(e.Header,
			feed.Field{Name: "Content-Id", Value: e.ID},
			feed.Field{Name: "Last-Modified", Value: "Thu, 5 Oct 2023 06:07:08 GMT"},
			feed.Field{Name: "Operation-Type", Value: string(e.Op)})
		prefix := rapid.SampledFrom([]string{"ce-", "ce_"}).Draw(t, "prefix")
		h := message.AppendEvent(nil, "orders", e, bindings[prefix], rapid.Uint64().Draw(t, "sequence"))
		checkEvent(t, h, prefix)

		byName := func(a, b feed.Field) int { return strings.Compare(sentName(a.Name), sentName(b.Name)) }
		if rapid.Bool().Draw(t, "another order") {
			slices.SortStableFunc(h, byName)
		}
		got, err := message.Entity(h, e.Body)
		must.Succeed(t, err)
		slices.SortStableFunc(e.Header, byName)
		slices.SortStableFunc(got.Header, byName)
		if diff := cmp.Diff(e, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("entity (-sent +got):\n%s", diff)
		}
	})
}

// checkEvent checks that the attributes in h are valid.
func checkEvent(t interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}, h feed.Header, prefix string,
) {
	t.Helper()
	attributes := map[string]string{}
	for _, f := range h {
		name, ok := strings.CutPrefix(f.Name, prefix)
		if !ok {
			continue
		}
		if _, twice := attributes[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		value := f.Value
		if prefix == "ce-" {
			if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }) {
				t.Errorf("%s is %q, which NATS cannot have", name, value)
			}
			value = unescape(t, value)
		}
		if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
			t.Errorf("%s is %q, which no attribute can be", name, value)
		}
		attributes[name] = value
	}
	for _, name := range []string{"specversion", "id", "source", "type", "subject", "time", "sequence"} {
		if strings.TrimSpace(attributes[name]) == "" && !slices.ContainsFunc(h, func(f feed.Field) bool {
			return strings.EqualFold(f.Name, "Content-Type") && strings.HasPrefix(strings.ToLower(f.Value), "application/cloudevents")
		}) {
			t.Errorf("there is no %s in %v", name, h)
		}
	}
}

func unescape(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, s string,
) string {
	t.Helper()
	value, err := url.PathUnescape(s)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return value
}

func TestEventSource(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"https://shop.example.com/orders": true, "urn:shop:orders": true, "/orders": true, "orders?x=***": true, "1-555-123-4567": true,
		"": false, "the orders": false, "ä": false, "https://[": false, "a\x00": false, "%zz": false,
	} {
		if got := message.IsEventSource(s); got != want {
			t.Errorf("%q can be a source: %v, want %v", s, got, want)
		}
	}
}
