package message_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/message"
)

var modified = time.Date(2023, 10, 5, 6, 7, 8, 0, time.UTC)

func TestHeader(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		feed string
		in   feed.Entity
		want feed.Header
	}{
		"the headers of the feed are kept, the well-known ones in their canonical case": {
			feed: "orders",
			in: feed.Entity{ID: "<1@x>", Op: feed.Put, Modified: modified, Page: "http://x/1", Header: feed.Header{
				{Name: "content-id", Value: "<1@x>"},
				{Name: "Last-Modified", Value: "Thu, 5 Oct 2023 06:07:08 GMT"},
				{Name: "Link", Value: "a"},
				{Name: "Operation-Type", Value: "http-equiv=PUT"},
				{Name: "Link", Value: "b"},
			}},
			want: feed.Header{
				{Name: "Content-ID", Value: "<1@x>"},
				{Name: "Last-Modified", Value: "Thu, 5 Oct 2023 06:07:08 GMT"},
				{Name: "Link", Value: "a"},
				{Name: "Operation-Type", Value: "http-equiv=PUT"},
				{Name: "Link", Value: "b"},
				{Name: "Feedbridge-Operation", Value: "PUT"},
				{Name: "Feedbridge-Time", Value: "2023-10-05T06:07:08Z"},
				{Name: "Feedbridge-Feed", Value: "orders"},
				{Name: "Feedbridge-Page", Value: "http://x/1"},
				{Name: "Feedbridge-Names", Value: "content-id Last-Modified Operation-Type"},
			},
		},
		"names in their canonical case are not listed": {
			in: feed.Entity{ID: "1", Header: feed.Header{{Name: "Content-ID", Value: "1"}, {Name: "Content-Type", Value: "text/plain"}}},
			want: feed.Header{
				{Name: "Content-ID", Value: "1"},
				{Name: "Content-Type", Value: "text/plain"},
			},
		},
		"what the format does not have is added": {
			in: feed.Entity{ID: "urn:1", Op: feed.Delete, Modified: modified},
			want: feed.Header{
				{Name: "Content-ID", Value: "urn:1"},
				{Name: "Last-Modified", Value: "Thu, 05 Oct 2023 06:07:08 GMT"},
				{Name: "Operation-Type", Value: "http-equiv=DELETE"},
				{Name: "Feedbridge-Operation", Value: "DELETE"},
				{Name: "Feedbridge-Time", Value: "2023-10-05T06:07:08Z"},
			},
		},
		"the time has what precision the feed gave": {
			in: feed.Entity{ID: "1", Modified: modified.Add(120 * time.Millisecond), Header: feed.Header{{Name: "Content-ID", Value: "1"}, {Name: "Last-Modified", Value: "2023-10-05T08:07:08.12+02:00"}}},
			want: feed.Header{
				{Name: "Content-ID", Value: "1"},
				{Name: "Last-Modified", Value: "2023-10-05T08:07:08.12+02:00"},
				{Name: "Feedbridge-Time", Value: "2023-10-05T06:07:08.12Z"},
			},
		},
		"what a bus would obey is escaped": {
			in: feed.Entity{ID: "1", Header: feed.Header{
				{Name: "Content-ID", Value: "1"},
				{Name: "Nats-Rollup", Value: "all"},
				{Name: "nats-ttl", Value: "1s"},
				{Name: "Feedbridge-Feed", Value: "other"},
				{Name: "Status", Value: "503"},
				{Name: "KV-Operation", Value: "PURGE"},
				{Name: "Natsy", Value: "n"},
			}},
			want: feed.Header{
				{Name: "Content-ID", Value: "1"},
				{Name: "Feedbridge-Header-Nats-Rollup", Value: "all"},
				{Name: "Feedbridge-Header-nats-ttl", Value: "1s"},
				{Name: "Feedbridge-Header-Feedbridge-Feed", Value: "other"},
				{Name: "Feedbridge-Header-Status", Value: "503"},
				{Name: "Feedbridge-Header-KV-Operation", Value: "PURGE"},
				{Name: "Natsy", Value: "n"},
			},
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			must.Match(t, "header", test.want, message.Header(test.feed, test.in))
		})
	}
}

// A time that feedbridge made is no time of the entity, unless that was deleted.
func TestMadeTimeIsNotSaid(t *testing.T) {
	for op, want := range map[feed.Operation]bool{feed.Put: false, feed.Delete: true} {
		e := feed.Entity{ID: "a", Op: op, Modified: time.Unix(1, 0), Made: message.LastModified}
		if _, has := message.Header("f", e).Get(message.Time); has != want {
			t.Errorf("%s: the message has the time: %v", op, has)
		}
	}
}

func TestEntityComesBackFromItsMessage(t *testing.T) {
	t.Parallel()
	names := rapid.OneOf(
		rapid.SampledFrom([]string{
			"Content-Type", "X", "x", "Nats-Rollup", "NATS-MSG-ID", "nats-", "Feedbridge-Feed", "feedbridge-page",
			"Feedbridge-Header-X", "Feedbridge-Names", "Status", "status", "Kv-Operation", "content-type", "CONTENT-TYPE",
		}),
		rapid.StringMatching(`[A-Za-z][A-Za-z-]{0,20}`),
	)
	rapid.Check(t, func(t *rapid.T) {
		e := feed.Entity{
			ID:       rapid.StringN(1, 40, -1).Draw(t, "id"),
			Op:       rapid.SampledFrom([]feed.Operation{feed.Put, feed.Patch, feed.Delete}).Draw(t, "op"),
			Modified: modified,
			Page:     rapid.SampledFrom([]string{"", "http://x/1"}).Draw(t, "page"),
			Body:     rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
			Made:     rapid.SampledFrom([]string{"", "Last-Modified"}).Draw(t, "made"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "fields") {
			name := names.Draw(t, "name")
			switch strings.ToLower(name) {
			case "content-id", "last-modified", "operation-type":
				continue
			}
			e.Header = append(e.Header, feed.Field{Name: name, Value: rapid.String().Draw(t, "value")})
		}
		e.Header = append(e.Header,
			feed.Field{Name: rapid.SampledFrom([]string{"Content-ID", "content-id", "Content-Id"}).Draw(t, "the name of the ID"), Value: e.ID},
			feed.Field{Name: "Last-Modified", Value: "Thu, 5 Oct 2023 06:07:08 GMT"},
			feed.Field{Name: "Operation-Type", Value: "HTTP-Equiv=" + strings.ToLower(string(e.Op))})
		h := message.Header("orders", e)
		for _, name := range []string{message.ContentID, message.LastModified, message.OperationType} {
			if !slices.ContainsFunc(h, func(f feed.Field) bool { return f.Name == name }) {
				t.Fatalf("no header %s: %v", name, h)
			}
		}
		// NATS keeps the order of headers with the same name only.
		nats := rapid.Bool().Draw(t, "NATS")
		byName := func(a, b feed.Field) int { return strings.Compare(sentName(a.Name), sentName(b.Name)) }
		if nats {
			slices.SortStableFunc(h, byName)
		}
		// A bus adds its own.
		h = append(h, feed.Field{Name: "Nats-Batch-Id", Value: "x"})
		got, err := message.Entity(h, e.Body)
		must.Succeed(t, err)
		if nats {
			slices.SortStableFunc(e.Header, byName)
			slices.SortStableFunc(got.Header, byName)
		}
		if diff := cmp.Diff(e, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("entity (-sent +got):\n%s", diff)
		}
	})
}

// sentName is the name under which a header travels.
func sentName(name string) string {
	for _, known := range []string{message.ContentID, message.ContentType, message.LastModified, message.OperationType} {
		if strings.EqualFold(name, known) {
			return known
		}
	}
	return name
}

func TestEntityReadsWhatThereIs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		in   feed.Header
		want feed.Entity
		err  string
	}{
		"nothing":             {},
		"operation alone":     {in: feed.Header{{Name: "Operation-Type", Value: " patch "}}, want: feed.Entity{Op: feed.Patch}},
		"one-digit day":       {in: feed.Header{{Name: "Last-Modified", Value: "Thu, 5 Oct 2023 06:07:08 GMT"}}, want: feed.Entity{Modified: modified}},
		"offset":              {in: feed.Header{{Name: "Last-Modified", Value: "Thu, 05 Oct 2023 08:07:08 +0200"}}, want: feed.Entity{Modified: modified}},
		"wrong day of a week": {in: feed.Header{{Name: "Last-Modified", Value: "Fri, 05 Oct 2023 06:07:08 UTC"}}, want: feed.Entity{Modified: modified}},
		"no date":             {in: feed.Header{{Name: "Last-Modified", Value: "yesterday"}}, err: `message "": Last-Modified "yesterday" is not a date`},
		"no operation": {
			in:  feed.Header{{Name: "Content-ID", Value: "7"}, {Name: "Operation-Type", Value: "http-equiv=POST"}},
			err: `message "7": Operation-Type "http-equiv=POST" is not PUT, PATCH or DELETE`,
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			got, err := message.Entity(test.in, nil)
			if text := errText(err); text != test.err {
				t.Fatalf("error %q, want %q", text, test.err)
			}
			must.Match(t, "entity", test.want, got, cmpopts.IgnoreFields(feed.Entity{}, "Header"))
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Messages of versions that wrote the names as the feed has them are read as before,
// and a list of names from elsewhere changes nothing but the case of these names.
func TestMessagesOfOlderVersionsAreRead(t *testing.T) {
	t.Parallel()
	old := feed.Header{{Name: "content-id", Value: "1"}, {Name: "X", Value: "a"}, {Name: "OPERATION-TYPE", Value: "put"}, {Name: "Feedbridge-Feed", Value: "orders"}}
	want := feed.Header{{Name: "content-id", Value: "1"}, {Name: "X", Value: "a"}, {Name: "OPERATION-TYPE", Value: "put"}}
	e, err := message.Entity(old, nil)
	if diff := cmp.Diff(want, e.Header); err != nil || e.ID != "1" || e.Op != feed.Put || diff != "" {
		t.Errorf("%v, %v (-want +got):\n%s", e, err, diff)
	}
	odd := append(slices.Clone(old), feed.Field{Name: "Feedbridge-Names", Value: "x X Content-Type cONTENT-iD content-id Link"})
	want[0].Name = "cONTENT-iD"
	e, err = message.Entity(odd, nil)
	if diff := cmp.Diff(want, e.Header); err != nil || e.ID != "1" || diff != "" {
		t.Errorf("%v, %v (-want +got):\n%s", e, err, diff)
	}
}

func TestHeaderDoesNotAllocate(t *testing.T) {
	e := feed.Entity{ID: "1", Op: feed.Put, Page: "https://shop.example.com/1", Header: feed.Header{{Name: "Content-ID", Value: "1"}, {Name: "Operation-Type", Value: "http-equiv=PUT"}}}
	buf := make(feed.Header, 0, 24)
	if n := testing.AllocsPerRun(100, func() { buf = message.AppendEvent(buf[:0], "orders", e, nil, 0) }); n != 0 {
		t.Errorf("AppendHeader allocates %v times, want none", n)
	}
}
