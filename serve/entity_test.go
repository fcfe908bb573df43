package serve

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/message"
)

// part returns the first part of the newest page, with all lines up to the next boundary.
func (s *served) part(t tester) string {
	t.Helper()
	g := s.get(t, "/latest").want(t, 200)
	delimiter, rest, _ := strings.Cut(g.body, "\r\n")
	part, _, ok := strings.Cut(rest, "\r\n"+delimiter)
	if !ok {
		t.Fatalf("got %q", g.body)
	}
	return strings.ReplaceAll(part, "\r\n", "\n")
}

func TestEntities(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 8, 25, 33, 666e6, time.UTC)
	for name, test := range map[string]struct {
		in   feed.Record
		want string
	}{
		"case 113: what every entity has, of a message that has nothing": {
			feed.Record{Time: at, Body: []byte("x")},
			"Content-Type: application/octet-stream\nContent-ID: 0.e0@orders\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\n" +
				"Operation-Type: http-equiv=PUT\nContent-Length: 1\n\nx",
		},
		"a Kafka tombstone": {
			feed.Record{Time: at, Tombstone: true},
			"Content-Type: application/octet-stream\nContent-ID: 0.e0@orders\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\n" +
				"Operation-Type: http-equiv=DELETE\nContent-Length: 0\n\n",
		},
		"a tombstone has its key in Message-Key": {
			feed.Record{Time: at, Tombstone: true, Key: []byte("orders/7"), Header: feed.Header{
				{Name: "Content-ID", Value: "1"}, {Name: "Feedbridge-Feed", Value: "orders"}, {Name: "Operation-Type", Value: "http-equiv=DELETE"},
			}},
			"Content-ID: 1\nOperation-Type: http-equiv=DELETE\nMessage-Key: orders/7\nContent-Type: application/octet-stream\n" +
				"Last-Modified: Fri, 02 Jan 2026 08:25:33 GMT\nContent-Length: 0\n\n",
		},
		"messages of other programs have their key, in any bytes": {
			feed.Record{Time: at, Body: []byte("x"), Key: []byte(" %é\r\n\x00~")},
			"Message-Key: %20%25%C3%A9%0D%0A%00~\nContent-Type: application/octet-stream\nContent-ID: 0.e0@orders\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\n" +
				"Operation-Type: http-equiv=PUT\nContent-Length: 1\n\nx",
		},
		"a key that is empty is one": {
			feed.Record{Time: at, Tombstone: true, Key: []byte{}},
			"Message-Key: \nContent-Type: application/octet-stream\nContent-ID: 0.e0@orders\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\n" +
				"Operation-Type: http-equiv=DELETE\nContent-Length: 0\n\n",
		},
		"messages of feedbridge do not have it": {
			feed.Record{Time: at, Body: []byte("x"), Key: []byte("7"), Header: feed.Header{
				{Name: "Content-ID", Value: "1"}, {Name: "Content-Type", Value: "a/b"}, {Name: "Feedbridge-Feed", Value: "orders"},
			}},
			"Content-ID: 1\nContent-Type: a/b\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\nOperation-Type: http-equiv=PUT\nContent-Length: 1\n\nx",
		},
		"nor messages with a Message-Key of their own": {
			feed.Record{Time: at, Tombstone: true, Key: []byte("7"), Header: feed.Header{{Name: "message-key", Value: "8"}, {Name: "Content-ID", Value: "1"}, {Name: "Content-Type", Value: "a/b"}}},
			"message-key: 8\nContent-ID: 1\nContent-Type: a/b\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\nOperation-Type: http-equiv=DELETE\nContent-Length: 0\n\n",
		},
		"nor keys too long for a header": {
			feed.Record{Time: at, Tombstone: true, Key: bytes.Repeat([]byte(" "), longestKey/3+1), Header: feed.Header{{Name: "Content-ID", Value: "1"}, {Name: "Content-Type", Value: "a/b"}}},
			"Content-ID: 1\nContent-Type: a/b\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\nOperation-Type: http-equiv=DELETE\nContent-Length: 0\n\n",
		},
		"case 111: times in whole seconds, cut and not rounded, with two digits for the day": {
			feed.Record{Time: at, Header: feed.Header{
				{Name: "Last-Modified", Value: "2026-01-02T09:25:31.666+01:00"}, {Name: "Content-Type", Value: "a/b"}, {Name: "Content-ID", Value: "<1>"},
			}},
			"Last-Modified: Fri, 02 Jan 2026 08:25:31 GMT\nContent-Type: a/b\nContent-ID: <1>\nOperation-Type: http-equiv=PUT\nContent-Length: 0\n\n",
		},
		"case 111: times of the bus, likewise": {
			feed.Record{Time: at.In(time.FixedZone("", 7200)), Header: feed.Header{{Name: "Content-Type", Value: "a/b"}, {Name: "Content-ID", Value: "<1>"}}},
			"Content-Type: a/b\nContent-ID: <1>\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\nOperation-Type: http-equiv=PUT\nContent-Length: 0\n\n",
		},
		"case 111: a day of one digit, as feeds have it": {
			feed.Record{Time: at, Header: feed.Header{
				{Name: "Last-Modified", Value: "Fri, 2 Jan 2026 09:25:31 +0100"}, {Name: "Content-Type", Value: "a/b"}, {Name: "Content-ID", Value: "<1>"},
			}},
			"Last-Modified: Fri, 02 Jan 2026 08:25:31 GMT\nContent-Type: a/b\nContent-ID: <1>\nOperation-Type: http-equiv=PUT\nContent-Length: 0\n\n",
		},
		"case 114: no standard header twice, and all of the others": {
			feed.Record{Time: at, Body: []byte("xyz"), Header: feed.Header{
				{Name: "content-id", Value: "1"},
				{Name: "Content-ID", Value: "2"},
				{Name: "X", Value: "a"},
				{Name: "Content-Length", Value: "7"},
				{Name: "content-length", Value: "8"},
				{Name: "x", Value: "b"},
				{Name: "Last-Modified", Value: "Fri, 02 Jan 2026 08:25:00 GMT"},
				{Name: "LAST-MODIFIED", Value: "Fri, 02 Jan 2026 08:25:01 GMT"},
				{Name: "Operation-Type", Value: "patch"},
				{Name: "Content-Type", Value: "a/b"},
				{Name: "Content-Transfer-Encoding", Value: "base64"},
				{Name: "X", Value: "a"},
			}},
			"content-id: 1\nX: a\nContent-Length: 3\nx: b\nLast-Modified: Fri, 02 Jan 2026 08:25:00 GMT\n" +
				"Operation-Type: http-equiv=PATCH\nContent-Type: a/b\nContent-Transfer-Encoding: base64\nX: a\n\nxyz",
		},
		"headers of buses and feedbridge are removed, and escaped ones restored": {
			feed.Record{Time: at, Header: append(message.Header("orders", feed.Entity{
				ID: "1", Op: feed.Delete, Modified: at, Page: "http://x/1",
				Header: feed.Header{{Name: "Content-Type", Value: "a/b"}, {Name: "Nats-Rollup", Value: "all"}, {Name: "Status", Value: "5"}},
			}), feed.Field{Name: "Nats-Batch-Id", Value: "7"}, feed.Field{Name: "feedbridge-feed", Value: "z"})},
			"Content-Type: a/b\nNats-Rollup: all\nStatus: 5\nContent-ID: 1\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\n" +
				"Operation-Type: http-equiv=DELETE\nContent-Length: 0\n\n",
		},
		"headers that would break a page": {
			feed.Record{Time: at, Header: feed.Header{
				{Name: "A", Value: "b\r\n\r\n--x"},
				{Name: "B C", Value: "d"},
				{Name: "", Value: "e"},
				{Name: "D:", Value: "e"},
				{Name: "E", Value: "\xff"},
				{Name: "F", Value: "g\x00"},
				{Name: "Content-ID", Value: "1\n2"},
				{Name: "Content-Type", Value: " \t"},
				{Name: "G", Value: " é\th "},
			}},
			"Content-Type: application/octet-stream\nG: é\th\nContent-ID: 0.e0@orders\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\n" +
				"Operation-Type: http-equiv=PUT\nContent-Length: 0\n\n",
		},
		"an operation and a time that are none": {
			feed.Record{Time: at, Header: feed.Header{
				{Name: "Content-Type", Value: "a/b"}, {Name: "Content-ID", Value: "1"}, {Name: "Last-Modified", Value: "yesterday"}, {Name: "Operation-Type", Value: "UPSERT"},
			}},
			"Content-Type: a/b\nContent-ID: 1\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\nOperation-Type: http-equiv=PUT\nContent-Length: 0\n\n",
		},
		"case 110: modified after the bus had it": {
			feed.Record{Time: at, Header: feed.Header{
				{Name: "Content-Type", Value: "a/b"}, {Name: "Content-ID", Value: "1"}, {Name: "Last-Modified", Value: "Fri, 02 Jan 2099 08:25:33 GMT"},
			}},
			"Content-Type: a/b\nContent-ID: 1\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\nOperation-Type: http-equiv=PUT\nContent-Length: 0\n\n",
		},
		"a bus without times": {
			feed.Record{Header: feed.Header{
				{Name: "Content-Type", Value: "a/b"}, {Name: "Content-ID", Value: "1"}, {Name: "Last-Modified", Value: "Fri, 02 Jan 2026 08:25:33 GMT"},
			}},
			"Content-Type: a/b\nContent-ID: 1\nLast-Modified: Fri, 02 Jan 2026 08:25:33 GMT\nOperation-Type: http-equiv=PUT\nContent-Length: 0\n\n",
		},
		"case 115: an empty body": {
			messageOf("1", feed.Delete, noon, ""),
			"Content-Type: text/plain\nContent-ID: 1\nLast-Modified: Sun, 01 Mar 2026 12:00:00 GMT\nOperation-Type: http-equiv=DELETE\nContent-Length: 0\n\n",
		},
		"an entry that changes has its ID with every change": {
			func() feed.Record {
				r := messageOf("tag:x,2026:1", feed.Put, noon, "x")
				r.Header = append(r.Header, feed.Field{Name: "Feedbridge-Mark", Value: "1;p;;;0;0"})
				return r
			}(),
			"Content-Type: text/plain\nContent-ID: tag:x,2026:1#0\nLast-Modified: Sun, 01 Mar 2026 12:00:01 GMT\nOperation-Type: http-equiv=PUT\nEntry-Id: tag:x,2026:1\nContent-Location: http://x.example/1\nContent-Length: 1\n\nx",
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			topic := newTopic()
			topic.add(test.in)
			must.Match(t, "", test.want, serveTopic(t, topic).part(t))
		})
	}
}

var later = func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

// times are the times of entities and of the page, as seconds since noon.
func (g got) times(t tester) string {
	t.Helper()
	var all []string
	for _, line := range append(strings.Split(g.body, "\r\n"), "Last-Modified: "+g.header.Get("Last-Modified")) {
		if value, ok := strings.CutPrefix(line, "Last-Modified: "); ok {
			at, err := http.ParseTime(value)
			must.Succeed(t, err)
			all = append(all, fmt.Sprint(at.Sub(noon).Seconds()))
		}
	}
	return strings.Join(all, " ")
}

func (s *served) times(t tester) string {
	t.Helper()
	var all []string
	for _, g := range s.pages(t) {
		all = append(all, g.times(t))
	}
	return strings.Join(all, " | ")
}

func TestTimes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		seconds []int // of messages; taken by the bus long after
		bus     bool
		want    string // entities, and then their page
	}{
		"case 107: a page is as old as its last entity": {seconds: []int{1, 1, 2, 4, 7}, want: "1 1 2 2 | 4 7 7"},
		"case 108: a late entity, on a page and behind one": {
			seconds: []int{5, 3, 6, 4, 2, 7, 8, 1, 9}, want: "5 5 6 6 | 6 6 7 7 | 8 8 9 9",
		},
		"by the bus, with snapshots": {seconds: []int{5, 3, 9, 8}, bus: true, want: "101 103 105 105 | 107 107"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			topic := newTopic()
			for i, n := range test.seconds {
				r := messageOf(fmt.Sprint(i), feed.Put, later(n), "x")
				r.Time = later(101 + 2*i)
				topic.add(r)
			}
			s := serveTopic(t, topic, func(c *Config) {
				if test.bus {
					c.Snapshot.Every = time.Hour
				}
			})
			if got := s.times(t); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
	parallel.Run(t, "case 109: equal times keep their order", func(t *testing.T) {
		topic := newTopic()
		for _, id := range []string{"z", "b", "y", "a", "c"} {
			topic.add(messageOf(id, feed.Put, noon, id))
		}
		serveTopic(t, topic).wantPages(t, "z b y | a c")
	})
	parallel.Run(t, "case 110: the bus's clock is ahead", func(t *testing.T) {
		topic := newTopic()
		topic.add(feed.Record{Time: time.Now().Add(time.Hour), Body: []byte("x")})
		g := serveTopic(t, topic).get(t, "/latest")
		if g.header.Get("Date") != g.header.Get("Last-Modified") {
			t.Errorf("got %v", g.header)
		}
	})
}

func TestIDs(t *testing.T) {
	t.Parallel()
	put := func(id, body string) feed.Record { return messageOf(id, feed.Put, noon, body) }
	for name, test := range map[string]struct {
		in   []feed.Record
		want string
	}{
		"case 123: a message that is there twice": {
			[]feed.Record{put("a", "1"), put("b", "1"), put("a", "1"), put("c", "1"), put("b", "1")}, "a b | c",
		},
		"another under the same ID": {[]feed.Record{put("a", "1"), put("a", "2"), put("b", "1"), put("a", "3")}, "a a#1 b | a#3"},
		"another operation under the same ID": {
			[]feed.Record{put("a", "1"), messageOf("a", feed.Delete, noon, "1")}, "a a#1",
		},
		"other headers under the same ID": {
			[]feed.Record{
				messageOf("a", feed.Put, noon, "1", feed.Field{Name: "X-Version", Value: "1"}), messageOf("a", feed.Put, noon, "1", feed.Field{Name: "X-Version", Value: "2"}),
				messageOf("a", feed.Put, noon, "1", feed.Field{Name: "X-Version", Value: "3"}), messageOf("a", feed.Put, noon, "1", feed.Field{Name: "X-Version", Value: "3"}),
			}, "a a#1 a#2 | a#3",
		},
		"the same that was read from another page": {
			[]feed.Record{put("a", "1"), func() feed.Record {
				r := put("a", "1")
				for i := range r.Header {
					if r.Header[i].Name == "Feedbridge-Page" {
						r.Header[i].Value = "http://x.example/2"
					}
				}
				return r
			}(), put("b", "1")}, "a b",
		},
		"a page of repetitions is one": {
			[]feed.Record{put("a", "1"), put("b", "1"), put("c", "1"), put("a", "1"), put("b", "1"), put("c", "1")}, "a b c | a#3",
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			topic := newTopic()
			s := serveTopic(t, topic)
			for _, r := range test.in {
				topic.add(r)
				s.walk(t)
			}
			if got := s.walk(t); got != test.want {
				t.Errorf("it grew to %s, want %s", got, test.want)
			}
			if got := serveTopic(t, topic).walk(t); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestBoundary(t *testing.T) {
	t.Parallel()
	id := pageID{"e0", 3, 0}
	first := pageBoundary(id, nil)
	for name, r := range map[string]feed.Record{
		"case 116: a body that has the boundary": messageOf("b@x", feed.Put, noon, "1\r\n--"+first+"\r\n\r\nforged\r\n--"+first+"--\r\n"),
		"case 116: a header that has it":         messageOf("b@x", feed.Put, noon, "1", feed.Field{Name: "X", Value: first}),
	} {
		parallel.Run(t, name, func(t *testing.T) {
			topic := numberedTopic(1)
			s := serveTopic(t, topic)
			if g := s.get(t, "/latest"); !strings.Contains(g.header.Get("Content-Type"), first) {
				t.Fatalf("the boundary is not foreseen: %v", g)
			}
			topic.add(r)
			g := s.get(t, "/latest")
			if strings.Contains(g.header.Get("Content-Type"), first) || g.ids() != "m0 b" {
				t.Errorf("got %v", g)
			}
			p, err := pageOf(g.header)
			must.Succeed(t, err)
			parts, err := partsOf([]byte(g.body), p.boundary)
			if err != nil || len(parts) != 2 || parts[1].body != string(r.Body) {
				t.Errorf("it is read as %v, %v", parts, err)
			}
			if other := serveTopic(t, topic).get(t, "/latest"); other.body != g.body {
				t.Errorf("another copy has %q, not %q", other.body, g.body)
			}
		})
	}
}

// Readers refuse a part whose header is larger than 64 KiB, and would read no further.
// Kafka has no such limit. Fields that a part has no room for are left out, except those that readers need.
func TestHeadersThatReadersRefuse(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 50<<10)
	topic := newTopic()
	topic.add(messageOf("1@x", feed.Put, noon, "one", feed.Field{Name: "A", Value: long}, feed.Field{Name: "B", Value: long}, feed.Field{Name: "C", Value: "kept"}))
	topic.add(messageOf("2@x", feed.Put, noon, "two", feed.Field{Name: "A", Value: long}))
	topic.add(messageOf(long+long, feed.Put, noon, "three"))
	version := messageOf("4@x", feed.Put, noon, "four")
	version.Header = append(version.Header, feed.Field{Name: "Feedbridge-Mark", Value: "1"}, feed.Field{Name: "Feedbridge-Page", Value: "http://x.example/" + long + long})
	topic.add(version)
	many := messageOf("5@x", feed.Put, noon, "five")
	for i := range 10_000 {
		many.Header = append(many.Header, feed.Field{Name: fmt.Sprintf("X-%d", i), Value: "0123456789"})
	}
	topic.add(many)
	site := newSite(t)
	site.feed.Store(serveTopic(t, topic, sized(10)).Feed)
	c := site.crawl(t)
	c.all(t)
	if got, want := c.ids(), "1 2 2.e0@orders 4@x#3 5"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	for _, field := range []struct {
		entity int
		name   string
		size   int
	}{{0, "A", 50 << 10}, {0, "B", 0}, {0, "C", 4}, {1, "A", 50 << 10}} {
		if value, _ := c.got[field.entity].Header.Get(field.name); len(value) != field.size {
			t.Errorf("%s of entity %d has %d bytes, want %d", field.name, field.entity, len(value), field.size)
		}
	}
	if n := len(c.got[4].Header); n < 2000 {
		t.Errorf("of 10,000 small headers %d are left", n)
	}
	for _, format := range []Format{Atom, RSS} {
		wellFormed(t, serveTopic(t, topic, as(format), sized(10)).get(t, "/latest").want(t, 200).body)
	}
}
