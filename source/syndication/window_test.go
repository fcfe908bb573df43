package syndication_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// steps are documents, with the messages and violations of a poll of each.
type steps []struct{ doc, messages, violations string }

func (list steps) run(t *testing.T, edits ...edit) {
	t.Helper()
	u := newUpstream()
	r := u.read(t, edits...)
	for i, s := range list {
		u.set("/feed", s.doc)
		if i%2 == 1 {
			r.restart()
		}
		must.Succeed(t, r.poll())
		r.wantLast(s.messages)
		if got := sorted(r.violations); got != sorted(strings.Fields(s.violations)) {
			t.Errorf("step %d: violations %v, want %q", i, r.details, s.violations)
		}
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		steps steps
		edits []edit
	}{
		"case 94: a tombstone, later":                   {steps{{atom("", "a@1 b@2"), "a b", ""}, {atom("", "b@2 -a@3"), "-a", ""}}, nil},
		"case 94: a tombstone, earlier":                 {steps{{atom("", "a@2 b@2"), "b a", ""}, {atom("", "b@2 -a@1"), "", "stale_dropped"}}, nil},
		"case 95: entry and tombstone of the same time": {steps{{atom("", "a@4 b@4"), "b a", ""}, {atom("", "a@5:x b@4 -a@5"), "-a", ""}}, nil},
		"case 95: the tombstone comes first":            {steps{{atom("", "a@4 b@4"), "b a", ""}, {atom("", "-a@5 a@5:x b@4"), "-a", ""}}, nil},
		"case 96: the entry is later":                   {steps{{atom("", "a@4 b@4"), "b a", ""}, {atom("", "-a@5 a@6:x b@4"), "a:x", ""}}, nil},
		"case 97: of an entry that nobody knows":        {steps{{atom("", "b@2 -a@3"), "b", "unknown_tombstone"}}, nil},
		"case 98: two tombstones":                       {steps{{atom("", "a@1 b@4"), "a b", ""}, {atom("", "-a@3 -a@5 -a@4 b@4"), "-a", ""}, {atom("", "a@5:x b@4"), "", "order_changed stale_dropped"}, {atom("", "a@6:y b@4"), "a:y", ""}}, nil},
		"case 99: a tombstone that stays":               {steps{{atom("", "a@1 b@1"), "b a", ""}, {atom("", "b@1 -a@3"), "-a", ""}, {atom("@7", "b@1 -a@3"), "", ""}}, nil},
		"case 101: newer than its tombstone":            {steps{{atom("", "a@1 b@1"), "b a", ""}, {atom("", "b@1 -a@3"), "-a", ""}, {atom("@7", "b@1 a@4:z"), "a:z", ""}}, nil},
		"case 102: a tombstone without a time":          {steps{{atom("", "a@1 b@1 c@1"), "c b a", ""}, {atom("", "a@1 -b@never -c@2"), "-c", "invalid_date"}}, nil},
		"case 103: nanoseconds":                         {steps{{atom("", "a@1 b@1"), "b a", ""}, {strings.Replace(atom("", "a@1 -b@2"), "Z\"", ".552394234+00:00\"", 1), "-b", ""}}, nil},
		"case 104: a tombstone is the document":         {steps{{atom("", "a@1 b@1"), "b a", ""}, {`<at:deleted-entry xmlns:at="http://purl.org/atompub/tombstones/1.0" ref="a" when="` + second("4") + `"/>`, "-a", ""}}, nil},
		"case 105: in RSS":                              {steps{{rss("", "a b"), "b a", ""}, {rss("", "b -a@9"), "-a", ""}, {rss("@9", "b -a@9"), "", ""}}, nil},
		"case 121: IDs are compared as written":         {steps{{atom("", "HTTP://EX/a http://ex/a"), "http://ex/a HTTP://EX/a", ""}}, nil},
		"case 122: white space around an ID":            {steps{{strings.Replace(atom("", "a@1"), "<id>a", "<id>\n a ", 1), "a", ""}}, nil},
		"case 126: no overlap":                          {steps{{atom("", "a@1 b@1"), "b a", ""}, {atom("", "c@2 d@2"), "d c", "possible_overrun"}, {atom("", "d@2 e@2"), "e", ""}}, nil},
		"case 127: two backends":                        {steps{{rss("@1", "a b c"), "c b a", ""}, {rss("@2", "a b c d e"), "e d", ""}, {rss("@1", "a b c"), "", ""}, {rss("@3", "a b c d e"), "", ""}}, nil},
		"case 62: RSS, the newer document wins":         {steps{{rss("@5", "a:new"), "a:new", ""}, {rss("@4", "a:old"), "", "stale_dropped"}, {rss("@6", "a:newer"), "a:newer", ""}}, nil},
		"case 67: one guid for all":                     {steps{{rss("", "g:1 g:2 g:3"), "g:1", "duplicate_ids"}}, nil},
		"case 66: no guid":                              {steps{{rss("", "~l1:a ~l2:b"), host + "/l2:b " + host + "/l1:a", "weak_identity"}}, nil},
		"case 68: one guid, three spellings":            {steps{{strings.NewReplacer("g2", "<![CDATA[g1]]>", "g3", "&#103;1").Replace(rss("", "g1:a g2:b g3:c")), "g1:a", "duplicate_ids"}}, nil},
		"case 130: RSS 1.0": {steps{{`<rdf:RDF xmlns="http://purl.org/rss/1.0/" xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:dc="http://purl.org/dc/elements/1.1/">
			<channel rdf:about="c"/><item rdf:about="a"><link>/x</link><description>one</description><dc:date>1999-10-05T04:00Z</dc:date></item>
			<item rdf:about="b"><description>two</description><dc:date>1999-10-05T03:00Z</dc:date></item></rdf:RDF>`, "b:two a:one", ""}}, nil},
		"case 86, 82: incremental, and nothing is deleted": {steps{{atom("<fh:stateful>1</fh:stateful>", "a@1 b@1"), "b a", "history_not_reachable"}, {atom("<fh:stateful>1</fh:stateful>", "b@1"), "", "history_not_reachable"}}, nil},
		"case 87: incremental without fh:prev":             {steps{{rss("<fh:incremental>true</fh:incremental>", "a b"), "b a", "history_not_reachable"}}, nil},
		"case 83: a flag that is none":                     {steps{{atom("<fh:stateful>maybe</fh:stateful>", "a@1"), "a", "invalid_flag"}}, nil},
		"case 124b: something behind the end":              {steps{{atom("", "a@1") + "<feed/>", "a", "trailing_content"}}, nil},
		"the order of the entries changes":                 {steps{{atom("", "a@2 b@1"), "b a", ""}, {atom("", "a@2 b@1 c@3"), "c", ""}, {atom("", "b@4 c@5"), "b c", "order_changed"}}, nil},
		"entry_order":                                      {steps{{atom("", "a@2 b@1 c@3"), "a b c", ""}}, []edit{func(c *syndication.Config) { c.EntryOrder = "oldest_first" }}},
		"case 58b: RSS, oldest first by publication":       {steps{{rss("", "a@1 b@2 c@3 d@4"), "a b c d", ""}, {rss("", "c@3 d@4 e@5"), "e", ""}, {rss("", "e@5 f@6 g@7"), "f g", ""}}, nil},
		"case 58b: RSS, oldest first but for one":          {steps{{rss("", "z@9 a@1 b@2 c@3 d@4 e@5"), "z a b c d e", ""}}, nil},
		"RSS, newest first below a pinned item":            {steps{{rss("", "z@1 d@5 c@4 b@3"), "b c d z", ""}, {rss("", "z@1 e@6 d@5"), "e", ""}, {rss("", "z@1 g@8 f@7 e@6"), "f g", ""}}, nil},
		"RSS, in no order":                                 {steps{{rss("", "a@4 b@2 c@5 d@1"), "d c b a", ""}}, nil},
		"sorted":                                           {steps{{atom("", "a@2 b@1 c@3"), "b a c", ""}}, nil},
	}
	for name, tt := range tests {
		parallel.Run(t, name, func(t *testing.T) {
			tt.steps.run(t, tt.edits...)
		})
	}
}

// A version that is replaced by a newer one of its document leaves an empty buffer before a cut.
func TestReplacedInSmallBuffer(t *testing.T) {
	t.Parallel()
	r := newUpstream("/feed", atom("", "x@1 e@2:a f@3 e@4:b g@5")).read(t, func(c *syndication.Config) {
		c.Bounds.Memory, c.EntryOrder = 1, "oldest_first"
	})
	for range 10 {
		if !r.step() {
			break
		}
	}
	r.wantLast("x f e:b g")
}

// TestLargeDocuments has more to publish than the window and a batch have room
// for, and a crash after each batch.
func TestLargeDocuments(t *testing.T) {
	t.Parallel()
	var entries, want []string
	for i := range 60 {
		entries = append(entries, fmt.Sprintf("e%02d@%d:%s", i, i, strings.Repeat("x", 300)))
		want = append(want, fmt.Sprintf("e%02d:%s", i, strings.Repeat("x", 300)))
	}
	all := strings.Join(want, " ")
	orders := map[string]string{"oldest first": strings.Join(entries, " ")}
	for i, j := 0, len(entries)-1; i < j; i, j = i+1, j-1 {
		entries[i], entries[j] = entries[j], entries[i]
	}
	orders["newest first"] = strings.Join(entries, " ")
	entries[3], entries[50] = entries[50], entries[3]
	orders["mixed"] = strings.Join(entries, " ")
	for name, entries := range orders {
		for _, crash := range []bool{false, true} {
			for _, head := range []string{"", complete, "RSS"} {
				parallel.Run(t, fmt.Sprintf("%s, crashes: %v, %s", name, crash, head), func(t *testing.T) {
					doc := atom(head, entries)
					if head == "RSS" {
						if doc = rss("", entries); name == "mixed" {
							t.Skip("RSS is not sorted")
						}
					}
					u := newUpstream("/feed", doc)
					r := u.read(t, func(c *syndication.Config) { c.Bounds.Memory = 5000 }).inBatches(feed.Limits{Entities: 4})
					for more := true; more; {
						more = r.step()
						if crash {
							r.restart()
						}
					}
					r.wantLast(all)
					if n := strings.Count(u.requests(), "/feed"); crash && n < 15 || !crash && n > 13 {
						t.Errorf("%d requests", n)
					}
					r.want("")
				})
			}
		}
	}
	parallel.Run(t, "the document changes half way", func(t *testing.T) {
		u := newUpstream("/feed", atom("", orders["newest first"]))
		r := u.read(t, func(c *syndication.Config) { c.Bounds.Memory = 5000 }).inBatches(feed.Limits{Entities: 4})
		for range 5 {
			r.step()
		}
		changed := strings.Replace(orders["newest first"], "e03@3:xxx", "e03@99:yyy", 1)
		u.set("/feed", atom("", changed))
		r.restart()
		before := len(r.messages)
		must.Succeed(t, r.poll())
		if got := texts(r.messages); strings.Count(got, "e03:") != 2 || len(r.messages) != 61 || before < 10 {
			t.Errorf("%d messages, then %d", before, len(r.messages))
		}
	})
	parallel.Run(t, "the order changes half way", func(t *testing.T) {
		r := newUpstream("/feed", rss("", "a@1 b@2 c@3 d@4")).read(t, func(c *syndication.Config) { c.EntryOrder = "newest_first" }).inBatches(feed.Limits{Entities: 2})
		r.step()
		r.wantLast("d c")
		r.cfg.EntryOrder = "auto"
		r.restart()
		r.want("b a")
	})
	parallel.Run(t, "an entry that the bus does not take", func(t *testing.T) {
		r := newUpstream("/feed", atom("", "a b c d")).read(t, func(c *syndication.Config) { c.Bounds.Memory = 1 }).inBatches(feed.Limits{Entities: 1})
		r.src.Oversize = sink.Skip
		r.src.Fits = func(entities []feed.Entity) (int, error) {
			if i := slices.IndexFunc(entities, func(e feed.Entity) bool { return e.ID == "c" }); i >= 0 {
				return i, sink.ErrTooLarge
			}
			return len(entities), nil
		}
		r.want("d b a")
		r.want("")
	})
	parallel.Run(t, "more deletes than a batch has room for", func(t *testing.T) {
		u := newUpstream("/feed", atom(complete, "a b c d e f g h i"))
		r := u.read(t).inBatches(feed.Limits{Entities: 2})
		r.want("i h g f e d c b a")
		u.set("/feed", atom(complete, "x y"))
		r.want("y x -a -b -c -d -e -f -g -h -i")
		if r.batches != 6 {
			t.Errorf("%d batches", r.batches)
		}
	})
	parallel.Run(t, "the document changes between two parts of it", func(t *testing.T) {
		u := newUpstream("/feed", rss("", "f e d c b a"))
		r := u.read(t).inBatches(feed.Limits{Entities: 2})
		r.step()
		r.wantLast("a b")
		r.restart()
		u.set("/feed", rss("", "f e d c b a z y")) // y and z are where the first part was
		r.want("y z c d e f")
	})
}

func TestEntities(t *testing.T) {
	t.Parallel()
	header := func(e feed.Entity) string {
		var list []string
		for _, f := range e.Header {
			list = append(list, f.Name+": "+f.Value)
		}
		if e.Made != "" {
			list = append(list, "made: "+e.Made)
		}
		return strings.Join(list, "\n")
	}
	tests := map[string]struct{ doc, header, body string }{
		"case 118: Atom, with a prefix of the feed": {
			strings.Replace(atom("@9", "a@1:x"), "<content>", "<at:x/><content>", 1),
			"Content-ID: a\nContent-Type: application/atom+xml;type=entry\nLast-Modified: Tue, 05 Oct 1999 03:00:01 GMT\nOperation-Type: http-equiv=PUT",
			`<entry xmlns="http://www.w3.org/2005/Atom" xmlns:at="http://purl.org/atompub/tombstones/1.0"><id>a</id><updated>1999-10-05T03:00:01Z</updated><at:x/><content>x</content></entry>`,
		},
		"case 119: xml:base and xml:lang of the feed": {
			strings.Replace(atom("@9", "a@1:x"), "<feed", `<feed xml:base="/x/" xml:lang="de"`, 1),
			"Content-ID: a\nContent-Type: application/atom+xml;type=entry\nLast-Modified: Tue, 05 Oct 1999 03:00:01 GMT\nOperation-Type: http-equiv=PUT",
			`<entry xmlns="http://www.w3.org/2005/Atom" xml:base="http://feed.example/x/" xml:lang="de"><id>a</id><updated>1999-10-05T03:00:01Z</updated><content>x</content></entry>`,
		},
		"case 120: what an entry is made of": {
			strings.Replace(atom("@9", "a@1:x"), "<content>", "<A/><B/><A/><!-- c --><![CDATA[<]]><svg/><content>", 1),
			"Content-ID: a\nContent-Type: application/atom+xml;type=entry\nLast-Modified: Tue, 05 Oct 1999 03:00:01 GMT\nOperation-Type: http-equiv=PUT",
			`<entry xmlns="http://www.w3.org/2005/Atom"><id>a</id><updated>1999-10-05T03:00:01Z</updated><A/><B/><A/><!-- c --><![CDATA[<]]><svg/><content>x</content></entry>`,
		},
		"RSS, the date is the document's": {
			rss("@9", "~l:x"),
			"Content-ID: http://feed.example/l\nContent-Type: application/xml\nLast-Modified: Tue, 05 Oct 1999 03:00:09 GMT\nOperation-Type: http-equiv=PUT\nFeed-Format: rss2\nId-Source: link\nmade: Last-Modified",
			`<item><guid/><link>http://feed.example/l</link><description>x</description></item>`,
		},
		"RSS, the date is that of publication": {
			strings.Replace(rss("", "a:x"), "<guid>", "<pubDate>Tue, 05 Oct 1999 03:00:02 GMT</pubDate><guid>", 1),
			"Content-ID: a\nContent-Type: application/xml\nLast-Modified: Tue, 05 Oct 1999 03:00:02 GMT\nOperation-Type: http-equiv=PUT\nFeed-Format: rss2",
			`<item><pubDate>Tue, 05 Oct 1999 03:00:02 GMT</pubDate><guid>a</guid><description>x</description></item>`,
		},
		"an ID that no header can carry": {
			strings.Replace(atom("", "a@1"), "<id>a", "<id>a&#10;b\tü", 1),
			"Content-ID: a%0Ab%09ü\nContent-Type: application/atom+xml;type=entry\nLast-Modified: Tue, 05 Oct 1999 03:00:01 GMT\nOperation-Type: http-equiv=PUT",
			"<entry xmlns=\"http://www.w3.org/2005/Atom\"><id>a&#10;b\tü</id><updated>1999-10-05T03:00:01Z</updated></entry>",
		},
	}
	for name, tt := range tests {
		parallel.Run(t, name, func(t *testing.T) {
			u := newUpstream("/feed", tt.doc)
			r := u.read(t)
			r.wantCount(1)
			e := r.last[0]
			if got := header(e); got != tt.header {
				t.Errorf("header\n%s\nwant\n%s", got, tt.header)
			}
			if string(e.Body) != tt.body || e.Page != host+"/feed" {
				t.Errorf("page %s, body\n%s\nwant\n%s", e.Page, e.Body, tt.body)
			}
			r.want("")
		})
	}
	parallel.Run(t, "deletes", func(t *testing.T) {
		u := newUpstream("/feed", atom("@1", "a@1 b@1"))
		r := u.read(t)
		r.want("b a")
		u.set("/feed", atom("@2", "b@1 -a@2"))
		r.want("-a")
		if got := header(r.last[0]); got != "Content-ID: a\nContent-Type: application/atomdeleted+xml\nLast-Modified: Tue, 05 Oct 1999 03:00:02 GMT\nOperation-Type: http-equiv=DELETE" {
			t.Error(got)
		}
		u.set("/feed", atom("@3"+complete, ""))
		r.want("-b", "dialect_changed")
		if got := header(r.last[0]); got != "Content-ID: b\nLast-Modified: Tue, 05 Oct 1999 03:00:03 GMT\nOperation-Type: http-equiv=DELETE\nmade: Last-Modified" {
			t.Error(got)
		}
	})
	parallel.Run(t, "case 90: nothing is merged", func(t *testing.T) {
		u := newUpstream("/feed", strings.Replace(atom("", "a@1:x"), "<content>", "<summary>s</summary><content>", 1))
		r := u.read(t)
		r.want("a:x")
		u.set("/feed", atom("", "a@2:y"))
		r.want("a:y")
		if strings.Contains(string(r.last[0].Body), "summary") {
			t.Errorf("body %s", r.last[0].Body)
		}
	})
	parallel.Run(t, "case 115: encodings", func(t *testing.T) {
		u := newUpstream("/feed", strings.Replace(atom("", "ä@1:ö"), "?>", ` encoding="utf-8"?>`, 1))
		r := u.read(t)
		r.want("ä:ö")
		latin := strings.NewReplacer("ä", "\xe4", "ö", "\xf6", "utf-8", "ISO-8859-1").Replace(u.docs["/feed"])
		u.set("/feed", latin)
		r.want("")
		u.field("/feed", "Content-Type", "application/xml; charset=windows-1252")
		u.set("/feed", strings.NewReplacer("ISO-8859-1", "utf-8", "\xf6", "\xf6\xf6").Replace(latin))
		r.want("ä:öö", "charset_mismatch")
	})
	parallel.Run(t, "case 123: an entry larger than limits.entity", func(t *testing.T) {
		text := strings.Repeat("x", 2000)
		for oversize, want := range map[sink.Oversize]string{sink.Skip: "a c", sink.DeadLetter: "a b c"} {
			for _, doc := range []string{atom("", "c@3 b@2:"+text+" a@1"), atom(complete, "c@3 b@2:"+text+" a@1"), atom("", "c@3 b@2:&"+text+" a@1"), atom("", "c@3 b@2:&nbsp;<m:x/><!--"+text+"--> a@1")} {
				r := newUpstream("/feed", doc).read(t, func(c *syndication.Config) { c.Limits.Entity = 1000 })
				r.wantError(true, "a", `entity "b"`, "bytes, which is more than limits.entity: raise that", "oversize: skip")
				r.src.Oversize = oversize
				must.Succeed(t, r.poll())
				var got []string
				for _, e := range r.messages {
					got = append(got, e.ID)
					if begins := strings.HasPrefix(string(e.Body), `<entry xmlns="http://www.w3.org/2005/Atom"><id>`+e.ID); !begins || (e.Dead != nil) != (e.ID == "b") || e.ID == "b" && (len(e.Body) < 900 || e.Length < 2000) {
						t.Errorf("%s: %v, %d of %d bytes: %s", e.ID, e.Dead, len(e.Body), e.Length, e.Body)
					}
				}
				if strings.Join(got, " ") != want {
					t.Errorf("%s: %v", oversize, got)
				}
				r.want("")
				r.restart()
				r.src.Oversize = oversize
				r.want("")
			}
		}
	})
	parallel.Run(t, "case 124: a declaration of XML 1.1, and a byte order mark", func(t *testing.T) {
		newUpstream("/feed", "\ufeff"+strings.Replace(atom("", "a@1"), "1.0", "1.1", 1)).read(t).want("a")
	})
}
