package httpfeed_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/httpfeed"
)

var _ feed.Source = (*httpfeed.Source)(nil)

// upstream serves a feed: events, at most batch at a time. answer, if it is set, answers in its place unless it
// returns false.
type upstream struct {
	events []string
	batch  int
	answer func(w http.ResponseWriter, r *http.Request) bool
	asked  []string // the queries
}

func event(id string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"type":"t","source":"s","time":"2026-01-01T00:00:0%d.5Z","subject":"k","data":{"n": 1}}`, id, len(id))
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.asked = append(u.asked, r.URL.RawQuery)
	if u.answer != nil && u.answer(w, r) {
		return
	}
	events := u.events
	if last := r.URL.Query().Get("lastEventId"); last != "" {
		i := slices.IndexFunc(events, func(e string) bool { return idOf(e) == last })
		events = events[i+1:]
	}
	if u.batch > 0 {
		events = events[:min(len(events), u.batch)]
	}
	w.Header().Set("Content-Type", "application/cloudevents-batch+json")
	_, _ = w.Write([]byte("[" + strings.Join(events, ",") + "]"))
}

func idOf(event string) string {
	var e struct{ ID string }
	_ = json.Unmarshal([]byte(event), &e)
	return e.ID
}

// reader is a source and the topic that it reads for.
type reader struct {
	t        *testing.T
	cfg      httpfeed.Config
	client   *source.Client
	ids      *sink.IDs
	src      *sink.Gate
	cursor   feed.Cursor
	topic    []feed.Entity
	kinds    []string
	limits   feed.Limits
	upstream *upstream
}

func (u *upstream) read(t *testing.T, edits ...func(*httpfeed.Config)) *reader {
	t.Helper()
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	cfg := httpfeed.Config{Config: source.Defaults()}
	cfg.URL, cfg.Limits.Rate = server.URL+"/feed", 1e6
	for _, edit := range edits {
		edit(&cfg)
	}
	client, err := source.NewClient(cfg.Config, source.Options{})
	must.Succeed(t, err)
	t.Cleanup(client.CloseIdle)
	r := &reader{t: t, cfg: cfg, client: client, limits: feed.LargestBatch, upstream: u}
	r.restart()
	return r
}

// restart forgets everything but the topic and the cursor.
func (r *reader) restart() {
	r.ids = sink.NewIDs(0)
	r.ids.Commit(r.topic)
	log := slog.New(slog.DiscardHandler)
	r.src = &sink.Gate{Source: httpfeed.New(r.cfg, r.client, r.ids.Committed, nil, log), IDs: r.ids, Log: log, Fits: func(e []feed.Entity) (int, error) { return len(e), nil }}
}

// poll reads until there is no more, and returns the IDs that were published.
func (r *reader) poll() (ids string, err error) {
	r.t.Helper()
	var list []string
	r.kinds = nil
	for range 100 {
		b, err := r.src.Next(r.t.Context(), r.cursor, r.limits)
		if err != nil {
			r.ids.Rollback()
			return strings.Join(list, " "), err
		}
		r.ids.Commit(b.Entities)
		r.topic = append(r.topic, b.Entities...)
		for _, e := range b.Entities {
			list = append(list, e.ID)
		}
		for _, v := range b.Violations {
			r.kinds = append(r.kinds, v.Kind)
		}
		r.cursor = b.Cursor
		if !b.More {
			return strings.Join(list, " "), nil
		}
	}
	r.t.Fatal("the source spins")
	return "", nil
}

func (r *reader) want(ids string, kinds ...string) {
	r.t.Helper()
	got, err := r.poll()
	if err != nil || got != ids || !slices.Equal(r.kinds, kinds) {
		r.t.Errorf("published %q with %v, %v; want %q with %v", got, r.kinds, err, ids, kinds)
	}
}

func (r *reader) wantError(permanent bool, ids, text string) {
	r.t.Helper()
	got, err := r.poll()
	if got != ids || err == nil || errors.Is(err, feed.ErrPermanent) != permanent || !strings.Contains(err.Error(), text) {
		r.t.Errorf("published %q, error %v; want %q and %q, permanent: %v", got, err, ids, text, permanent)
	}
}

func letters(s string) (events []string) {
	for _, c := range s {
		events = append(events, event(string(c)))
	}
	return events
}

func TestReading(t *testing.T) {
	t.Parallel()
	t.Run("case 1: from the beginning", func(t *testing.T) {
		u := &upstream{events: letters("abcde"), batch: 2}
		r := u.read(t)
		r.want("a b c d e")
		u.events = letters("abcdefg")
		r.restart()
		r.want("f g")
		r.want("")
	})
	t.Run("case 1: now", func(t *testing.T) {
		u := &upstream{events: letters("abc"), batch: 2}
		r := u.read(t, func(c *httpfeed.Config) { c.Start.Now = true })
		r.want("")
		u.events = letters("abcd")
		r.want("d")
	})
	t.Run("case 1: a time", func(t *testing.T) {
		u := &upstream{events: []string{event("a"), event("bbb"), event("c"), event("dddd")}, batch: 2}
		r := u.read(t, func(c *httpfeed.Config) { c.Start.At = time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC) })
		r.want("bbb c dddd")
	})
	t.Run("case 2: the url has a query", func(t *testing.T) {
		u := &upstream{events: []string{event("a b&c")}}
		r := u.read(t, func(c *httpfeed.Config) { c.URL += "?tenant=x" })
		r.want("a b&c")
		if want := []string{"tenant=x", "tenant=x&lastEventId=a+b%26c"}; !slices.Equal(u.asked, want) {
			t.Errorf("asked %q", u.asked)
		}
	})
	t.Run("case 2: an ID that no header can have is asked for as the server has it", func(t *testing.T) {
		u := &upstream{events: []string{event(" a\tb "), event("c")}, batch: 1}
		u.read(t).want("%20a%09b%20 c")
		if want := "lastEventId=+a%09b+"; !slices.Contains(u.asked, want) {
			t.Errorf("asked %q", u.asked)
		}
	})
	t.Run("case 3: at the end the server is asked to wait", func(t *testing.T) {
		u := &upstream{events: letters("a")}
		r := u.read(t)
		r.want("a")
		r.want("")
		if got := u.asked[len(u.asked)-1]; got != "lastEventId=a&timeout="+strconv.FormatInt(min(30_000, r.cfg.Timeout.Milliseconds()/2), 10) {
			t.Errorf("asked %q", got)
		}
		// What a wait has brought is not kept back by another one.
		u.events = letters("ab")
		r.want("b")
		if got := u.asked[len(u.asked)-1]; got != "lastEventId=b" {
			t.Errorf("asked %q behind an event", got)
		}
	})
	t.Run("case 8: a batch that breaks off", func(t *testing.T) {
		u := &upstream{events: letters("abcd")}
		u.answer = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.RawQuery == "" {
				_, _ = w.Write([]byte("[" + event("a") + "," + event("b") + "," + event("c")[:20]))
			}
			return r.URL.RawQuery == ""
		}
		r := u.read(t)
		r.wantError(false, "a b", "breaks off")
		r.want("c d")
	})
	t.Run("case 11: compaction", func(t *testing.T) {
		u := &upstream{events: letters("abc"), batch: 2}
		r := u.read(t)
		r.want("a b c")
		u.events = letters("cde")
		r.want("d e")
	})
	t.Run("case 13: more events than a call returns", func(t *testing.T) {
		u := &upstream{events: letters("abcdefghij")}
		r := u.read(t)
		r.limits.Entities = 3
		r.want("a b c d e f g h i j")
		if len(u.asked) != 2 {
			t.Errorf("asked %q", u.asked)
		}
	})
	t.Run("case 14: 204", func(t *testing.T) {
		u := &upstream{answer: func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusNoContent); return true }}
		u.read(t).want("")
	})
	t.Run("case 14: 204 at the end, from now on", func(t *testing.T) {
		u := &upstream{events: letters("ab")}
		u.answer = func(w http.ResponseWriter, r *http.Request) bool {
			atEnd := strings.HasPrefix(r.URL.RawQuery, "lastEventId=b")
			if atEnd {
				w.WriteHeader(http.StatusNoContent)
			}
			return atEnd
		}
		r := u.read(t, func(c *httpfeed.Config) { c.Start.Now = true })
		r.want("")
		u.events, u.answer = letters("abc"), nil
		r.want("c")
	})
}

// A server that does not continue behind lastEventId halts the feed, and nothing is published twice.
func TestServerThatForgets(t *testing.T) {
	t.Parallel()
	ignores := func(w http.ResponseWriter, r *http.Request) bool {
		r.URL.RawQuery = ""
		return false
	}
	t.Run("case 5: it ignores lastEventId", func(t *testing.T) {
		u := &upstream{events: letters("abc"), answer: ignores}
		u.read(t).wantError(true, "a b c", "ignores lastEventId")
	})
	t.Run("case 5: after a restart", func(t *testing.T) {
		u := &upstream{events: letters("abc")}
		r := u.read(t)
		r.want("a b c")
		u.answer = ignores
		r.restart()
		r.wantError(true, "", "ignores lastEventId")
		u.answer = nil
		r.want("")
	})
	t.Run("case 5: the topic has none of it", func(t *testing.T) {
		u := &upstream{events: letters("abc")}
		r := u.read(t, func(c *httpfeed.Config) { c.Start.Now = true })
		r.want("")
		u.answer = ignores
		r.wantError(true, "", "ignores lastEventId")
	})
	t.Run("case 5: before the end was read", func(t *testing.T) {
		u := &upstream{events: letters("abc"), answer: ignores}
		u.read(t, func(c *httpfeed.Config) { c.Start.Now = true }).wantError(true, "", "ignores lastEventId")
	})
	t.Run("case 5: its first events are gone", func(t *testing.T) {
		u := &upstream{events: letters("abcd")}
		r := u.read(t)
		r.want("a b c d")
		u.events, u.answer = letters("bcde"), ignores
		r.wantError(true, "", "ignores lastEventId")
	})
	t.Run("case 5: a window that moves on while the feed is halted", func(t *testing.T) {
		u := &upstream{events: letters("abc")}
		r := u.read(t)
		r.want("a b c")
		for _, events := range []string{"bcd", "efg", "hij"} {
			u.events, u.answer = letters(events), ignores
			r.wantError(true, "", "ignores lastEventId")
			r.restart()
			r.wantError(true, "", "ignores lastEventId")
		}
		u.events, u.answer = nil, nil
		r.wantError(true, "", "sends nothing")
		u.events = letters("abcdefghij")
		r.want("d e f g h i j")
	})
	t.Run("case 6: the last id does not advance", func(t *testing.T) {
		u := &upstream{events: letters("ab")}
		r := u.read(t)
		r.want("a b")
		u.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte("[" + event("b") + "]"))
			return true
		}
		r.want("", "repeated_event")
		u.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte("[" + event("x") + "," + event("b") + "]"))
			return true
		}
		r.wantError(true, "x", "and sends b: it has")
	})
	for _, code := range []int{400, 404, 410} {
		t.Run(fmt.Sprintf("case 7: %d", code), func(t *testing.T) {
			u := &upstream{events: letters("a")}
			r := u.read(t)
			r.want("a")
			u.answer = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
			r.wantError(true, "", "may have forgotten the event")
		})
	}
	// Known events are expected until the end of the feed. Behind it the guard is back.
	for name, c := range map[string]struct {
		position, topic, published string
		edit                       func(*httpfeed.Config)
	}{
		"beginning":                   {"beginning", "abc", "d", nil},
		"after c":                     {"after:c", "abc", "d", nil},
		"a reset":                     {"", "abc", "d", nil},
		"beginning, of a topic since": {"beginning", "c", "a b d", func(c *httpfeed.Config) { c.Start.ID = "b" }},
		"a time":                      {"2026-01-01T00:00:01Z", "abc", "d", nil},
		"a reset, with a start":       {"", "abc", "d", func(c *httpfeed.Config) { c.Start.At = time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC) }},
	} {
		t.Run("a person moves the position: "+name, func(t *testing.T) {
			u := &upstream{events: letters("abc"), batch: 1}
			var edits []func(*httpfeed.Config)
			if c.edit != nil {
				edits = append(edits, c.edit)
			}
			r := u.read(t, edits...)
			r.want(strings.Join(strings.Split(c.topic, ""), " "))
			u.events = letters("abcd")
			if r.cursor = nil; c.position != "" {
				var err error
				r.cursor, err = httpfeed.ParseCursor(c.position)
				must.Succeed(t, err)
			}
			r.restart()
			if got, err := r.poll(); err != nil || got != c.published {
				t.Errorf("published %q, %v", got, err)
			}
			u.answer = ignores
			r.wantError(true, "", "ignores lastEventId")
		})
	}
	t.Run("a person moves the position, and the server begins again before the end", func(t *testing.T) {
		u := &upstream{events: letters("abcd"), batch: 2}
		r := u.read(t)
		r.want("a b c d")
		r.cursor = nil
		r.restart()
		u.answer = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("lastEventId") == "d" {
				r.URL.RawQuery = ""
			}
			return false
		}
		r.wantError(true, "", "ignores lastEventId")
	})
}

func TestEvents(t *testing.T) {
	t.Parallel()
	const rest = `"specversion":"1.0","source":"/s","type":"t","time":"2026-01-01T00:00:00.123456789+01:00"`
	for name, c := range map[string]struct {
		event, body string
		op          feed.Operation
		header      map[string]string // besides Content-ID, Last-Modified and Operation-Type
		kinds       []string
	}{
		"JSON as it stands":        {`{"id":"a",` + rest + `,"data":{ "b" : 1e309 }}`, `{ "b" : 1e309 }`, feed.Put, map[string]string{"Content-Type": "application/json"}, nil},
		"subject and extensions":   {`{"id":"a",` + rest + `,"subject":"k","tenant":7,"status":"x","datacontenttype":"application/x+json","data":"s"}`, `"s"`, feed.Put, map[string]string{"Content-Type": "application/x+json", "subject": "k", "tenant": "7", "status": "x"}, nil},
		"text":                     {`{"id":"a",` + rest + `,"datacontenttype":"text/plain","data":"s\n"}`, "s\n", feed.Put, map[string]string{"Content-Type": "text/plain"}, nil},
		"base64":                   {`{"id":"a",` + rest + `,"datacontenttype":"image/png","data_base64":"AAE="}`, "\x00\x01", feed.Put, map[string]string{"Content-Type": "image/png"}, nil},
		"cases 10 and 18: both":    {`{"id":"a",` + rest + `,"data":1,"data_base64":"AAE="}`, "1", feed.Put, map[string]string{"Content-Type": "application/json"}, []string{"data_and_data_base64"}},
		"case 10: null data":       {`{"id":"a",` + rest + `,"data":null}`, "", feed.Put, nil, nil},
		"nulls, as Jackson writes": {`{"id":"a",` + rest + `,"subject":null,"method":null,"datacontenttype":null,"data":{}}`, "{}", feed.Put, map[string]string{"Content-Type": "application/json"}, nil},
		"case 10: DELETE":          {`{"id":"a",` + rest + `,"method":"delete","subject":"k"}`, "", feed.Delete, map[string]string{"subject": "k"}, nil},
		"case 10: PATCH":           {`{"id":"a",` + rest + `,"method":"PATCH"}`, "", feed.Patch, nil, nil},
		"case 10: 2.0":             {`{"id":"a",` + strings.Replace(rest, "1.0", "2.0", 1) + `}`, "", feed.Put, map[string]string{"specversion": "2.0"}, []string{"invalid_specversion"}},
		"case 18: a member twice":  {`{"id":"b","id":"a",` + rest + `}`, "", feed.Put, nil, []string{"repeated_event_member"}},
		"case 19: no such name":    {`{"id":"a",` + rest + `,"X-y":"z"}`, "", feed.Put, nil, []string{"invalid_attribute_name"}},
		"control characters":       {`{"id":"a",` + rest + `,"subject":"k\nl"}`, "", feed.Put, map[string]string{"subject": "k%0Al"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := (&upstream{events: []string{c.event}}).read(t)
			r.want("a", c.kinds...)
			if len(r.topic) != 1 {
				t.FailNow()
			}
			e := r.topic[0]
			got := map[string]string{}
			for _, f := range e.Header {
				got[f.Name] = f.Value
			}
			want := map[string]string{
				"Content-ID": "a", "Last-Modified": "Wed, 31 Dec 2025 23:00:00 GMT", "Operation-Type": "http-equiv=" + string(c.op),
				"source": "/s", "type": "t", "time": "2026-01-01T00:00:00.123456789+01:00",
			}
			for name, value := range c.header {
				want[name] = value
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if string(e.Body) != c.body || e.Op != c.op || e.Modified.Nanosecond() != 123456789 {
				t.Errorf("%s %q of %v", e.Op, e.Body, e.Modified)
			}
		})
	}
}

func TestEventsWithoutTime(t *testing.T) {
	t.Parallel()
	t.Run("case 17: a time that cannot be read", func(t *testing.T) {
		r := (&upstream{events: []string{`{"specversion":"1.0","id":"a","source":"/s","type":"t","time":"yesterday"}`}}).read(t)
		r.want("a", "invalid_event_time")
		if r.topic[0].Modified.IsZero() {
			t.Error("it has no time")
		}
	})
}

func TestBadAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer    string
		published string
		permanent bool
		text      string
	}{
		"case 9: no id":              {"[" + event("a") + `,{"specversion":"1.0"}]`, "a", true, "has no id"},
		"case 9: an empty id":        {`[{"specversion":"1.0","id":" "}]`, "", true, "has no id"},
		"case 9: no CloudEvent":      {"[" + event("a") + `,{"id":1,"name":"x"}]`, "a", true, "is no CloudEvent"},
		"case 12: an object":         {`{"error":"x"}`, "", false, "no batch of CloudEvents"},
		"case 12: HTML":              {"<html>", "", false, "/feed: the answer is no batch of CloudEvents"},
		"case 12: too deep":          {"[" + strings.Repeat("[", 1001), "", false, "/feed: from there on the events cannot be read: line 1, column 1002: values are nested deeper"},
		"case 12: something follows": {"[" + event("a") + "]]", "a", false, "something follows"},
		"an event that is no object": {"[7]", "", true, "no object"},
		"a method":                   {`[{"specversion":"1.0","id":"a","method":"MOVE"}]`, "", true, "want PUT or DELETE"},
		"no base64":                  {`[{"specversion":"1.0","id":"a","data_base64":"?"}]`, "", true, "no base64"},
		"invalid JSON":               {`[{"id":"a","x":tru}]`, "", false, "not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			u := &upstream{answer: func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte(c.answer)); return true }}
			u.read(t).wantError(c.permanent, c.published, c.text)
		})
	}
	t.Run("case 12: an event that blocks the others", func(t *testing.T) {
		for _, bad := range []string{`{"data":` + strings.Repeat("[", 1001), "{bad}"} {
			u := &upstream{events: []string{event("a"), bad, event("c")}}
			r := u.read(t)
			r.wantError(false, "a", "/feed: from there on the events cannot be read: ")
			for range 3 {
				r.wantError(false, "", "/feed: from there on the events cannot be read: ")
			}
			for range 2 {
				r.wantError(true, "", "times in a row, so its provider has to act")
			}
			u.events[1] = event("b")
			r.want("b c")
			u.events = append(u.events, bad)
			r.wantError(false, "", "from there on")
		}
		u := &upstream{batch: 2}
		r := u.read(t)
		for _, id := range strings.Split("fedcba", "") { // each answer has one new event
			u.events = append(u.events, event(id), "{bad}")
			r.wantError(false, id, "from there on")
			u.events = u.events[:len(u.events)-1]
		}
		r.want("")
		u.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte("[" + event("a") + ",{bad}]"))
			return true
		}
		for range 4 {
			r.wantError(false, "", "from there on")
		}
		r.wantError(true, "", "times in a row") // though the answer begins with an event that was read
	})
	t.Run("case 9: two events with one id", func(t *testing.T) {
		u := &upstream{events: []string{event("a"), event("a"), event("b"), event("a")}}
		u.answer = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.RawQuery != "" {
				_, _ = w.Write([]byte("[]"))
			}
			return r.URL.RawQuery != ""
		}
		u.read(t).want("a b", "repeated_event", "repeated_content_id")
	})
	t.Run("case 9: ids that no header can have stay different", func(t *testing.T) {
		u := &upstream{}
		for _, id := range []string{" a ", "a", `\ud83d`, `\uD83E`, `\ud83d\ude00`, "\xff", "\xfe"} {
			u.events = append(u.events, strings.Replace(event("x"), "x", id, 1))
		}
		u.answer = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.RawQuery != "" {
				u.events = nil // the server cannot know most of these
			}
			return false
		}
		u.read(t).want("%20a%20 a %uD83D %uD83E \U0001F600 %FF %FE", slices.Repeat([]string{"invalid_event_text"}, 4)...)
	})
	t.Run("case 13: an event above the limit", func(t *testing.T) {
		large := `{"id":"b","data":"` + strings.Repeat("x", 5000) + `"}`
		u := &upstream{events: []string{event("a"), large, event("c")}}
		r := u.read(t, func(c *httpfeed.Config) { c.Limits.Entity = 1000 })
		r.src.Oversize = sink.Skip
		r.want("a c", "invalid_specversion")
	})
}

func TestPositions(t *testing.T) {
	t.Parallel()
	for position, want := range map[string]string{
		"beginning": `{"v":1,"moved":true}`, "now": `{"v":1,"start":"now","moved":true}`, "after:x": `{"v":1,"last":"x","moved":true}`,
		"2026-01-01T00:00:00Z": `{"v":1,"start":"2026-01-01T00:00:00Z","moved":true}`, `{"v":1,"last":"x","first":"y"}`: `{"v":1,"last":"x","moved":true}`,
	} {
		got, err := httpfeed.ParseCursor(position)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", position, got, err)
		}
	}
	for _, position := range []string{"", "after:", "yesterday", "{", `{"page":"x"}`} {
		if got, err := httpfeed.ParseCursor(position); err == nil {
			t.Errorf("%q: %s", position, got)
		}
	}
}

func TestDetect(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]bool{
		"[]": true, " [" + event("a"): true, `[{"id":"a"}]`: false, `{"items":[]}`: false, "<rss/>": false, "": false, "[": false,
	} {
		if got := httpfeed.Detect(strings.NewReader(doc)); got != want {
			t.Errorf("%q: %v", doc, got)
		}
	}
}
