package syndication_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// TestComplete has steps: a document, and what its poll publishes.
func TestComplete(t *testing.T) {
	t.Parallel()
	type step struct {
		doc        string
		messages   string
		violations string
	}
	doc := func(entries string) string { return atom(complete, entries) }
	rdf := func(items string) string {
		return `<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"` + namespaces + `><channel>` + complete + `</channel>` + items + `</rdf:RDF>`
	}
	three := step{doc("e1@1:a e2@2:a e3@3:a"), "e1:a e2:a e3:a", ""}
	first := step{doc("e1@1:a e2@1:a e3@1:a"), "e3:a e2:a e1:a", ""}
	rels := []string{"next", "previous", "first", "last", "prev-archive", "next-archive"}
	for _, rel := range rels {
		parallel.Run(t, "case 14: complete, with a link "+rel, func(t *testing.T) {
			u := newUpstream("/feed", first.doc)
			r := u.read(t)
			r.want(first.messages)
			u.set("/feed", atom(complete+link(rel, "/other"), "e1@1:a"))
			r.want("", "mixed_dialects")
			r.wantRequests("/feed /feed?if")
		})
	}
	tests := map[string][]step{
		"case 1: the first poll":                       {first},
		"case 1: the first poll, oldest first":         {three},
		"case 3: one is absent":                        {first, {doc("e1@1:a e3@1:a"), "-e2", ""}},
		"case 3: one is absent, with a tombstone":      {first, {doc("e1@1:a -e2@2 e3@1:a"), "-e2", ""}, {doc("e1@1:a -e2@2 e3@1:b"), "e3:b", ""}},
		"case 3: all are absent, with tombstones":      {first, {doc("-e1@2 -e2@2 -e3@2"), "-e3 -e2 -e1", ""}},
		"case 3: one is absent, with an old tombstone": {three, {doc("e1@1:a -e2@1 e3@3:a"), "-e2", "stale_dropped"}},
		"case 4: the same time, other content":         {first, {doc("e1@1:a e2@1:b e3@1:a"), "e2:b", ""}},
		"case 5: an older time, other content":         {three, {doc("e1@1:a e2@1:b e3@3:a"), "e2:b", "updated_regressed"}},
		"case 6: reordered":                            {first, {doc("e3@1:a e1@1:a e2@1:a"), "", ""}},
		"case 7: one is new and one gone":              {first, {doc("e4@1:a e2@1:a e3@1:a"), "e4:a -e1", ""}},
		"case 8: one comes back":                       {first, {doc("e2@1:a e3@1:a"), "-e1", ""}, {doc("e2@1:a e3@1:a e1@1:a"), "e1:a", ""}},
		"case 9: empty after 3":                        {first, {doc(""), "-e1 -e2 -e3", ""}},
		"case 16: complete inside an entry":            {first, {strings.Replace(atom("", "e1@1:a"), "</entry>", complete+"</entry>", 1), "e1:a", "dialect_changed"}},
		"case 18: twice, one of them later":            {{doc("e1@1:a e1@2:b"), "e1:b", "duplicate_ids"}},
		"case 18: twice, at the same time":             {{doc("e1@1:a e1@1:b"), "e1:a", "duplicate_ids"}},
		"case 20: the flag disappears":                 {first, {atom("", "e1@1:a"), "", "dialect_changed"}, {doc("e1@1:a"), "-e2 -e3", "dialect_changed"}},
		"case 15: current is another":                  {first, {atom(complete+link("self", "/feed")+link("current", "/x"), "e1@1:a"), "-e2 -e3", "current_is_not_self"}},
		"case 15: current is self":                     {first, {atom(complete+link("self", "/feed")+link("current", "/feed"), "e1@1:a"), "-e2 -e3", ""}},
		"case 78: fh:Stateful 0 is complete":           {first, {atom("<fh:Stateful> 0 </fh:Stateful>", "e1@1:a"), "-e2 -e3", ""}},
		"case 84: fh:stateful 0 and a link to old":     {first, {atom("<fh:stateful>0</fh:stateful><fh:prev>/x</fh:prev>", "e1@1:a"), "-e2 -e3", "mixed_dialects"}},
		"case 87: fh:incremental false, RSS":           {{rss("<fh:incremental>false</fh:incremental>", "g1:a g2:a"), "g2:a g1:a", ""}, {rss("<fh:incremental>false</fh:incremental>", "g1:a"), "-g2", ""}},
		"case 21: RSS":                                 {{rss(complete, "g1:a g2:a g3:a"), "g3:a g2:a g1:a", ""}, {rss(complete, "g1:a g3:b"), "g3:b -g2", ""}},
		"case 17: another prefix": {
			{strings.ReplaceAll(doc("e1@1:a e2@1:a"), "fh", "h"), "e2:a e1:a", ""}, {strings.ReplaceAll(doc("e1@1:a"), "fh", "h"), "-e2", ""},
		},
		"case 17: the prefix of something else": {
			{strings.ReplaceAll(doc("e1@1:a e2@1:a"), "syndication/history", "sport"), "e2:a e1:a", ""},
			{strings.ReplaceAll(doc("e1@1:a"), "syndication/history", "sport"), "", ""},
		},
		"case 124c: an entry with an undeclared prefix": {first, {atom(complete+"<x:entry/>", "e1@1:a e3@1:a"), "", "undeclared_prefix deletes_withheld"}},
		"case 124c: an item of RDF with an undeclared prefix": {
			{rdf(`<item rdf:about="i1"/><item rdf:about="i2"/>`), "i2 i1", ""}, {rdf(`<item rdf:about="i1"/><x:item rdf:about="i2"/>`), "", "undeclared_prefix deletes_withheld"},
		},
		"case 124c: an ID with an undeclared prefix": {first, {strings.Replace(doc("e1@1:a e2@1:a e3@1:a"), "<id>e2</id>", "<x:id>e2</x:id>", 1), "3853c852960fc822ecec10503ad10809ddfab27dd1c90aaafe34700ea6b9210a:a", "weak_identity deletes_withheld"}},
		"case 124c: an attribute with an undeclared prefix": {
			{rdf(`<item rdf:about="i1"/><item rdf:about="i2"/>`), "i2 i1", ""}, {rdf(`<item rdf:about="i1"/><item x:about="i2"><link>l2</link></item>`), "l2", "weak_identity deletes_withheld"},
		},
		"case 124c: a prefix that is declared twice": {first, {strings.Replace(doc("e1@1:a e2@1:a e3@1:a"), "<entry><id>e2", `<entry xmlns="http://www.w3.org/2005/Atom" xmlns="urn:x"><id>e2`, 1), "", "deletes_withheld"}},
		"case 124c: a prefix of no namespace":        {first, {strings.Replace(doc("e1@1:a e2@1:a e3@1:a"), "<entry><id>e2</id>", `<entry xmlns:x=""><x:id>e2</x:id>`, 1), "3853c852960fc822ecec10503ad10809ddfab27dd1c90aaafe34700ea6b9210a:a", "weak_identity deletes_withheld"}},
		"case 124c: the same, with a tombstone":      {first, {atom(complete+"<x:entry/>", "e1@1:a -e2@2"), "-e2", "undeclared_prefix deletes_withheld"}},
		"case 124c: an undeclared prefix is no flag": {first, {atom("<x:complete/>", "e1@1:a"), "", "undeclared_prefix dialect_changed"}},
	}
	for name, steps := range tests {
		parallel.Run(t, name, func(t *testing.T) {
			u := newUpstream()
			r := u.read(t)
			for i, s := range steps {
				u.set("/feed", s.doc)
				if i%2 == 1 {
					r.restart()
				}
				must.Succeed(t, r.poll())
				r.wantLast(s.messages)
				if got := sorted(r.violations); got != sorted(strings.Fields(s.violations)) {
					t.Errorf("violations %v, want %v", r.details, s.violations)
				}
			}
		})
	}
}

func TestCompletePolls(t *testing.T) {
	t.Parallel()
	doc := atom(complete, "e1@1:a e2@1:a e3@1:a")
	tests := map[string]struct {
		fault     http.HandlerFunc
		words     string
		permanent bool
	}{
		"case 10: truncated":              {body(200, "", doc[:len(doc)-5]), "breaks off", false},
		"case 11: an error page":          {htmlPage, "check that the url is a feed's", false},
		"case 12: 500":                    {status(500), "500", false},
		"case 117: gzip is truncated":     {gzipped(doc, 20), "ended early", false},
		"case 116: a gzip bomb":           {gzipped(strings.Repeat(" ", 64<<20), 0), "limit", false},
		"case 124b: another root":         {body(200, "", atom(complete, "e1@1:a")+"<feed/>"), "something follows the root", false},
		"case 114: 404 keeps being tried": {status(404), "404", true},
	}
	run := func(name string, f func(t *testing.T, u *upstream, r *reader)) {
		parallel.Run(t, name, func(t *testing.T) {
			u := newUpstream("/feed", doc)
			r := u.read(t)
			r.want("e3:a e2:a e1:a")
			f(t, u, r)
		})
	}
	for name, tt := range tests {
		run(name, func(t *testing.T, u *upstream, r *reader) {
			before := string(r.cursor)
			u.fault("/feed", tt.fault)
			r.wantError(tt.permanent, "", tt.words)
			if string(r.cursor) != before {
				t.Errorf("the cursor has moved to %s", r.cursor)
			}
			u.set("/feed", atom(complete, "e1@1:a e2@1:a"))
			r.want("-e3")
		})
	}
	run("case 2: the same, with another ETag", func(t *testing.T, u *upstream, r *reader) {
		u.fault("/feed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `W/"other"`)
			_, _ = w.Write([]byte(doc))
		})
		before := string(r.cursor)
		r.want("")
		if string(r.cursor) == before || !strings.Contains(string(r.cursor), "other") {
			t.Errorf("the cursor is %s", r.cursor)
		}
	})
	run("case 12: 304", func(t *testing.T, u *upstream, r *reader) {
		before := string(r.cursor)
		r.restart()
		r.want("")
		r.wantRequests("/feed /feed?if")
		if string(r.cursor) != before {
			t.Errorf("an idle poll has moved the cursor to %s", r.cursor)
		}
	})
	run("case 13: 226 with one entry", func(t *testing.T, u *upstream, r *reader) {
		u.fault("/feed", body(226, "", atom(complete, "e4@1:a")))
		r.want("e4:a", "partial_document")
		r.want("-e4") // the whole document has it not
	})
	run("mended without a change of what counts", func(t *testing.T, u *upstream, r *reader) {
		with := func(text string) string {
			return strings.Replace(atom(complete, "e1@1:a e2@1:a"), "</feed>", "<x>"+text+"</x></feed>", 1)
		}
		u.set("/feed", with("&nbsp;"))
		r.want("", "undefined_entity", "deletes_withheld")
		u.set("/feed", with("&#160;"))
		r.want("-e3")
	})
	run("case 19: an entity that XML does not know", func(t *testing.T, u *upstream, r *reader) {
		u.set("/feed", atom(complete, "e1@1:a e4@1:a&nbsp;b"))
		r.want("e4:a&nbsp;b", "undefined_entity", "deletes_withheld")
		r.want("")
		u.set("/feed", atom(complete, "e1@1:a e4@1:a"))
		r.want("e4:a -e2 -e3")
	})
}

// TestHeldDeletes lets nearly all of a complete feed vanish.
func TestHeldDeletes(t *testing.T) {
	t.Parallel()
	var all []string
	for i := range 500 {
		all = append(all, fmt.Sprintf("e%03d@1", i))
	}
	whole, one, none := atom(complete, strings.Join(all, " ")), atom(complete, all[0]), atom(complete, "")
	const wait = 15 * time.Minute
	run := func(name string, f func(t *testing.T, u *upstream, r *reader), edits ...edit) {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			u := newUpstream("/feed", whole)
			r := u.read(t, edits...)
			r.wantCount(500)
			u.requests()
			u.set("/feed", none)
			r.want("", "deletes_held")
			f(t, u, r)
		})
	}
	deletes := func(r *reader, n int) {
		r.t.Helper()
		r.wantCount(n)
		if r.place().DeletesHeld {
			r.t.Errorf("the cursor says that deletes are held")
		}
		r.want("")
	}
	run("case 9: the same later", func(t *testing.T, u *upstream, r *reader) {
		now := time.Now().UTC()
		p := r.place()
		if _, deletes := p.Lacks(); deletes != 500 || !p.DeletesHeld || p.HeldDeletes != 500 || !p.HeldSince.Equal(now) || !p.HeldUntil.Equal(now.Add(wait)) {
			t.Errorf("place %+v", p)
		}
		before := string(r.cursor)
		u.requests()
		time.Sleep(wait - time.Second)
		r.want("")
		r.wantRequests("/feed?if")
		if string(r.cursor) != before {
			t.Errorf("a look before the time has moved the cursor to %s", r.cursor)
		}
		time.Sleep(time.Second)
		deletes(r, 500)
	})
	run("case 9: two copies, and each of them starts again", func(t *testing.T, u *upstream, r *reader) {
		u.noETag = true
		other := u.read(t)
		for range 14 {
			other.cursor, other.messages = r.cursor, r.messages
			other.restart()
			other.want("")
			r.cursor, r.messages = other.cursor, other.messages
			r.restart()
			r.want("")
			time.Sleep(time.Minute)
		}
		time.Sleep(time.Minute)
		other.cursor, other.messages = r.cursor, r.messages
		other.restart()
		deletes(other, 500)
	})
	run("case 9: another look sees something else", func(t *testing.T, u *upstream, r *reader) {
		time.Sleep(wait)
		u.set("/feed", one)
		r.want("", "deletes_held")
		r.restart()
		r.want("")
		time.Sleep(wait)
		r.restart()
		deletes(r, 499)
	})
	run("what is left changes meanwhile", func(t *testing.T, u *upstream, r *reader) {
		u.set("/feed", one)
		r.want("", "deletes_held")
		time.Sleep(wait - time.Second)
		u.set("/feed", atom(complete, "e000@2:x"))
		r.want("e000:x")
		time.Sleep(time.Second)
		deletes(r, 499)
	})
	run("back again before the time", func(t *testing.T, u *upstream, r *reader) {
		u.set("/feed", whole)
		r.want("")
		time.Sleep(wait)
		u.set("/feed", none)
		r.want("", "deletes_held")
	})
	run("back again after the time", func(t *testing.T, u *upstream, r *reader) {
		time.Sleep(wait)
		u.set("/feed", whole)
		r.want("")
		u.set("/feed", none)
		r.want("", "deletes_held")
	})
	run("not complete any more", func(t *testing.T, u *upstream, r *reader) {
		u.set("/feed", atom("", all[0]))
		r.want("", "dialect_changed")
		time.Sleep(wait)
		u.requests()
		r.want("")
		r.wantRequests("/feed?if")
	})
	run("the feed is polled less often", func(t *testing.T, _ *upstream, r *reader) {
		time.Sleep(2*time.Hour - time.Second)
		r.restart()
		r.want("")
		time.Sleep(time.Second)
		deletes(r, 500)
	}, func(c *syndication.Config) { c.Every = 2 * time.Hour })
	run("a person approves", func(t *testing.T, _ *upstream, r *reader) {
		r.cfg.MaxDeleteRatio = 1
		r.restart()
		deletes(r, 500)
	})
	for name, tt := range map[string]struct {
		field string
		wait  time.Duration
	}{"a cache": {"max-age=1800", 30 * time.Minute}, "a cache of a year": {"max-age=31536000", time.Hour}} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			u := newUpstream("/feed", whole)
			u.field("/feed", "Cache-Control", tt.field)
			r := u.read(t)
			_ = r.poll()
			u.set("/feed", none)
			r.want("", "deletes_held")
			if p := r.place(); p.HeldUntil.Sub(p.HeldSince) != tt.wait {
				t.Errorf("held from %v until %v", p.HeldSince, p.HeldUntil)
			}
		})
	}
}
