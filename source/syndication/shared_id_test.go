package syndication_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// part is an item of RSS, or an entry of Atom. Empty parts are left out; text is its content.
type part struct{ guid, link, date, enclosure, title, text string }

func (p part) rss() string {
	return "<item>" + element("guid", p.guid) + element("link", p.link) + element("pubDate", second(p.date)) +
		strings.ReplaceAll(element("title", p.title)+element("description", p.text), "\n", "") + enclosure(p.enclosure) + "</item>"
}

func (p part) atom() string {
	return "<entry>" + element("id", p.guid) + link("alternate", p.link) + element("updated", second(p.date)) + element("title", p.title) + element("content", p.text) + "</entry>"
}

func element(name, text string) string {
	if text == "" {
		return ""
	}
	return "<" + name + ">" + text + "</" + name + ">"
}

func enclosure(url string) string {
	if url == "" {
		return ""
	}
	return `<enclosure url="` + url + `"/>`
}

func partsRSS(parts ...part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.rss())
	}
	return `<rss version="2.0"><channel>` + b.String() + `</channel></rss>`
}

func partsAtom(parts ...part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.atom())
	}
	return `<feed xmlns="http://www.w3.org/2005/Atom"` + namespaces + `>` + b.String() + `</feed>`
}

// many makes n parts, the newest first.
func many(n int, make func(i int) part) (list []part) {
	for i := n; i > 0; i-- {
		list = append(list, make(i))
	}
	return list
}

// The feeds of which one item was published, or a few.
func TestItemsThatShareAnID(t *testing.T) {
	t.Parallel()
	link := func(i int) string { return fmt.Sprintf("http://x/%d", i) }
	number := func(s string, i int) string { return fmt.Sprint(s, i) }
	for name, tt := range map[string]struct {
		parts []part
		kinds []string
	}{
		"case 67b: one guid for all":         {many(13, func(i int) part { return part{guid: "g", link: link(i), text: number("t", i)} }), []string{"shared_ids"}},
		"a podcast that links to the show":   {many(13, func(i int) part { return part{link: "http://show/", enclosure: number("http://x/a.mp3?", i)} }), []string{"shared_ids", "weak_identity"}},
		"Radio Suisse Romande: by the date":  {many(15, func(i int) part { return part{guid: "g", link: "http://show/", date: number("", i), title: "T"} }), []string{"shared_ids"}},
		"Singapore MOE: by the title":        {many(4, func(i int) part { return part{link: "http://show/", title: number("T", i)} }), []string{"shared_ids", "weak_identity"}},
		"Scripting News: two guids of fifty": {many(50, func(i int) part { return part{guid: number("g", max(i, 3)), date: number("", i)} }), []string{"shared_ids"}},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			r := newUpstream("/feed", partsRSS(tt.parts...)).read(t)
			if err := r.poll(); err != nil || len(r.last) != len(tt.parts) || len(distinct(r.last)) != len(tt.parts) {
				t.Errorf("published %d of %d: %s, %v", len(distinct(r.last)), len(tt.parts), texts(r.last), err)
			}
			r.wantViolations(tt.kinds...)
			// The one that is published today keeps its ID: the first.
			first := r.last[len(r.last)-1]
			if own := tt.parts[0].guid + tt.parts[0].link; first.ID != "g" && first.ID != "http://show/" && own != first.ID {
				t.Errorf("the ID of the first item is %s", first.ID)
			}
			r.restart()
			r.want("")
			r.cursor = nil
			r.restart()
			if err := r.poll(); err != nil || len(r.last) > 0 {
				t.Errorf("after a reset published %s, %v", texts(r.last), err)
			}
		})
	}
	parallel.Run(t, "case 67b: two parties of a filing", func(t *testing.T) {
		filing := func(i int) int { return max((i-1)/2, i-5) } // four with two parties, and five with one
		parts := many(13, func(i int) part {
			return part{guid: fmt.Sprintf("urn:%d", filing(i)), date: fmt.Sprint(filing(i)), link: link(i), title: number("party ", i)}
		})
		r := newUpstream("/feed", partsAtom(parts...)).read(t)
		if err := r.poll(); err != nil || len(distinct(r.last)) != 13 {
			t.Errorf("published %s, %v", texts(r.last), err)
		}
		r.wantViolations("shared_ids")
		if source, _ := r.last[0].Header.Get("Id-Source"); !strings.HasPrefix(r.last[0].ID, "urn:0#link-") || source != "id+link" {
			t.Errorf("the ID of the first is %s, of %s", r.last[0].ID, source)
		}
	})
}

func distinct(messages []feed.Entity) map[string]bool {
	ids := map[string]bool{}
	for _, e := range messages {
		ids[e.ID] = true
	}
	return ids
}

// short writes messages with an extended ID as the ID and the trait.
func short(messages []feed.Entity) string {
	var list []string
	for _, m := range strings.Fields(texts(messages)) {
		id, text, _ := strings.Cut(m, ":")
		own, extensions, _ := strings.Cut(id, "#")
		for extension := range strings.SplitSeq(extensions, "#") {
			if trait, _, ok := strings.Cut(extension, "-"); ok {
				own += "#" + trait
			}
		}
		list = append(list, own+":"+text)
	}
	return strings.Join(list, " ")
}

func TestSharedIDs(t *testing.T) {
	t.Parallel()
	item := func(link, text string) part { return part{guid: "g", link: link, text: text} }
	a, b, c, d := item("a", "a"), item("b", "b"), item("c", "c"), item("d", "d")
	edited := func(p part) part { p.text += "2"; return p }
	dated := func(p part, at string) part { p.date = at; return p }
	titled := func(p part, title string) part { p.title = title; return p }
	for name, tt := range map[string][]struct {
		doc  string
		want string
	}{
		"a new item above the one that is published":          {{partsRSS(a), "g:a"}, {partsRSS(b, a), "g#link:b"}, {partsRSS(c, b, a), "g#link:c"}, {partsRSS(c, b, edited(a)), "g:a2"}},
		"a new item below the one that is published":          {{partsRSS(a), "g:a"}, {partsRSS(a, b), "g#link:b"}, {partsRSS(edited(a), edited(b)), "g#link:b2 g:a2"}},
		"the published one is edited at the same time":        {{partsRSS(a), "g:a"}, {partsRSS(b, edited(a)), "g:a2 g#link:b"}},
		"so, and the dates show which is older":               {{partsRSS(dated(a, "1")), "g:a"}, {partsRSS(edited(dated(a, "1")), dated(b, "2")), "g:a2 g#link:b"}},
		"an edit, without another item":                       {{partsRSS(a), "g:a"}, {partsRSS(b), "g:b"}, {partsRSS(c, b), "g#link:c"}, {partsRSS(b, a), "g#link:a"}},
		"new, while the others are out of reach (the cursor)": {{partsRSS(b, a), "g#link:a g:b"}, {partsRSS(c), "g#link:c"}, {partsRSS(edited(c)), "g#link:c2"}, {partsRSS(edited(b)), "g:b2"}},
		"an edit of each after the others are out of reach":   {{partsRSS(b, a), "g#link:a g:b"}, {partsRSS(edited(a)), "g#link:a2"}, {partsRSS(edited(b)), "g:b2"}},
		"other orders":                               {{partsRSS(a, b, c), "g#link:c g#link:b g:a"}, {partsRSS(c, b, a, d), "g#link:d"}, {partsRSS(b, edited(d), a), "g#link:d2"}},
		"the first trait that was seen stays":        {{partsRSS(dated(a, "2"), dated(a, "1")), "g#date:a g:a"}, {partsRSS(dated(b, "3"), dated(a, "2")), "g#date:b"}, {partsRSS(dated(a, "2"), dated(b, "3")), ""}, {partsRSS(edited(dated(b, "3"))), "g#date:b2"}, {partsRSS(dated(c, "2"), dated(a, "2")), "g#link:c"}},
		"two traits":                                 {{partsRSS(titled(a, "x"), titled(a, "y"), titled(b, "x"), titled(b, "y")), "g#title#link:b g#link:b g#title:a g:a"}, {partsRSS(titled(b, "y"), titled(a, "y")), ""}},
		"nothing but the text differs":               {{partsRSS(a, edited(a)), "g:a"}},
		"the same twice":                             {{partsRSS(a, a), "g:a"}, {partsRSS(b, b, a), "g#link:b"}},
		"versions of an Atom entry":                  {{partsAtom(dated(titled(a, "x"), "2"), dated(edited(titled(a, "y")), "1")), "g:a"}, {partsAtom(edited(dated(titled(a, "y"), "3")), dated(titled(a, "x"), "2")), "g:a2"}},
		"items of Atom, of which the last is newest": {{partsAtom(dated(a, "1"), dated(b, "2")), "g#link:a g:b"}, {partsAtom(dated(a, "1"), dated(b, "2"), dated(c, "3")), "g#link:c"}},
		"tombstones delete the holder (the cursor)":  {{atomWith(partsAtom(dated(b, "2"), dated(a, "1")), ""), "g#link:a g:b"}, {atomWith(partsAtom(dated(a, "1")), "-g@3"), "-g:"}, {atomWith(partsAtom(dated(c, "4"), dated(a, "1")), ""), "g#link:c"}},
		"a complete feed":                            {{completeWith(b, a), "g#link:a g:b"}, {completeWith(c, b, a), "g#link:c"}, {completeWith(c, a), "-g:"}, {completeWith(c, a, b), "g:b"}, {completeWith(b), "-g#link: -g#link:"}},
	} {
		for _, reset := range []bool{false, true} {
			parallel.Run(t, fmt.Sprintf("%s, reset %v", name, reset), func(t *testing.T) {
				u := newUpstream()
				r := u.read(t)
				for i, s := range tt {
					u.set("/feed", s.doc)
					must.Succeed(t, r.poll())
					if got := short(r.last); got != s.want {
						t.Errorf("step %d: published %q, want %q; %v", i, got, s.want, r.details)
					}
					r.restart()
					if reset && !strings.Contains(name, "(the cursor)") { // the topic has what was published
						r.cursor = nil
					}
					if err := r.poll(); err != nil || len(r.last) > 0 {
						t.Errorf("step %d: read again: %s, %v", i, texts(r.last), err)
					}
				}
			})
		}
	}
}

// A document shows that items share an ID which newer documents have too, and is read after those.
func TestSharedIDsInOlderDocuments(t *testing.T) {
	t.Parallel()
	item := func(n string) part { return part{guid: "g", link: n, text: n} }
	head := func(doc, head string) string { return strings.Replace(doc, "<channel>", "<channel>"+head, 1) }
	atomLink := func(rel, href string) string {
		return `<l:link xmlns:l="http://www.w3.org/2005/Atom" rel="` + rel + `" href="` + href + `"/>`
	}
	for _, rel := range []string{"prev-archive", "next"} {
		for crash, memory := range []int64{8 << 20, 8 << 20, 1} {
			parallel.Run(t, fmt.Sprint(rel, memory, crash), func(t *testing.T) {
				u := newUpstream("/feed", head(partsRSS(item("d")), atomLink(rel, "/1")), "/1", head(partsRSS(item("c"), item("b")), atomLink(rel, "/2")), "/2", partsRSS(item("a")))
				r := u.read(t, func(c *syndication.Config) { c.Bounds.Memory = memory }).inBatches(feed.Limits{Entities: 1})
				for more := true; more; {
					more = r.step()
					if crash > 0 {
						r.restart()
					}
				}
				if got, want := short(r.messages), "g#link:a g#link:b g:c g#link:d"; got != want {
					t.Errorf("published %q, want %q", got, want)
				}
				r.want("")
				u.set("/feed", head(partsRSS(item("e"), item("d")), atomLink(rel, "/1")))
				if err := r.poll(); err != nil || short(r.last) != "g#link:e" {
					t.Errorf("published %q, %v", short(r.last), err)
				}
			})
		}
	}
}

// More IDs are shared than the cursor has room for.
func TestManySharedIDs(t *testing.T) {
	t.Parallel()
	doc := func(version string) string {
		return completeWith(many(1000, func(i int) part {
			return part{guid: fmt.Sprint("g", i/2), link: fmt.Sprint(i), text: version}
		})...)
	}
	r := newUpstream("/feed", doc("1")).read(t)
	for i, version := range []string{"1", "2", "2", "3"} {
		if i%2 == 1 {
			r.cursor = nil
		}
		r.restart()
		r.u.set("/feed", doc(version))
		must.Succeed(t, r.poll())
		if want := map[int]int{0: 1000, 1: 1000, 2: 0, 3: 1000}[i]; len(r.last) != want || len(distinct(r.messages)) != 1000 {
			t.Errorf("poll %d published %d, and the topic has %d IDs", i, len(r.last), len(distinct(r.messages)))
		}
	}
}

func completeWith(parts ...part) string {
	return strings.Replace(partsRSS(parts...), "<channel>", `<channel><fh:complete xmlns:fh="http://purl.org/syndication/history/1.0"/>`, 1)
}

func atomWith(doc, tombstones string) string {
	entries := atom("", tombstones)
	return strings.TrimSuffix(doc, "</feed>") + entries[strings.Index(entries, namespaces)+len(namespaces)+1:]
}

// sharing is a feed whose provider gives items few IDs, links, titles and enclosures. The text of an
// item is its number and its version.
type sharing struct {
	t        *rapid.T
	r        *reader
	dated    bool
	numbered bool // each link is of one item
	parts    []part
	versions []int
	// want has the texts that are to be published, and ids the ID of each item.
	want map[string]bool
	ids  map[string]string
}

func (f *sharing) add() {
	for range 10 {
		pick := func(name string, n int) string { return fmt.Sprint(name, rapid.IntRange(1, n).Draw(f.t, name)) }
		p := part{guid: pick("g", 3), link: pick("l", 3), enclosure: pick("e", 2), title: pick("t", 3)}
		if p.guid == "g3" {
			p.guid = ""
		}
		if f.dated {
			p.date = fmt.Sprint(len(f.parts))
		}
		if f.numbered {
			p.guid, p.link = "g", fmt.Sprint("l", len(f.parts))
		}
		if !slices.Contains(f.parts, p) {
			f.parts, f.versions = append(f.parts, p), append(f.versions, 0)
			return
		}
	}
}

// edit edits an item. An item keeps its link, and its date if it has one.
func (f *sharing) edit(i int) { f.versions[i]++ }

// poll polls a document with the items with these numbers.
func (f *sharing) poll(numbers []int) {
	var parts []part
	for _, i := range numbers {
		p := f.parts[i]
		p.text = fmt.Sprintf("%d.%d", i, f.versions[i])
		parts = append(parts, p)
	}
	f.r.u.set("/feed", partsRSS(parts...))
	must.Succeed(f.t, f.r.poll())
	var wanted []string
	for _, p := range parts {
		if !f.want[p.text] {
			wanted = append(wanted, p.text)
			f.want[p.text] = true
		}
	}
	var got []string
	for _, e := range f.r.last {
		text := content.FindStringSubmatch(string(e.Body))[1]
		got = append(got, text)
		number, _, _ := strings.Cut(text, ".")
		if had, ok := f.ids[number]; ok && had != e.ID {
			f.t.Errorf("item %s had the ID %s, and has %s", number, had, e.ID)
		}
		f.ids[number] = e.ID
	}
	if sorted(got) != sorted(wanted) {
		f.t.Fatalf("published %v, want %v\n%s\n%v", got, wanted, partsRSS(parts...), f.ids)
	}
}

// inOrder returns some items in the order in which the feed has them.
func (f *sharing) inOrder(is func(i int) bool) (numbers []int) {
	for i := range f.parts {
		if is(i) {
			numbers = append(numbers, i)
		}
	}
	slices.Reverse(numbers)
	if f.dated {
		numbers = rapid.Permutation(numbers).Draw(f.t, "order")
	}
	return numbers
}

// Each version of each item is published once, and each item keeps its ID, in a feed that grows,
// shrinks, changes and is read by processes that start again, in parts.
func TestItemsThatShareIDsKeepTheirs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := &sharing{t: t, want: map[string]bool{}, ids: map[string]string{}, dated: rapid.Bool().Draw(t, "dated"), numbered: rapid.Bool().Draw(t, "numbered")}
		f.r = newUpstream().read(t, func(c *syndication.Config) {
			c.Bounds.Memory = rapid.SampledFrom([]int64{1, 1500, 8 << 20}).Draw(t, "memory")
		}).inBatches(feed.Limits{Entities: rapid.IntRange(1, 5).Draw(t, "batch")})
		chance := func(name string) bool { return rapid.IntRange(0, 2).Draw(t, name) == 0 }
		f.add()
		for range rapid.IntRange(1, 25).Draw(t, "polls") {
			grown := chance("add")
			if grown {
				f.add()
			}
			if f.dated || !grown {
				for i := range f.parts {
					if chance("edit") {
						f.edit(i)
					}
				}
			}
			added := f.parts[len(f.parts)-1].guid
			f.poll(f.inOrder(func(i int) bool { return grown && f.parts[i].guid == added || chance("window") }))
			if chance("restart") {
				f.r.restart()
			}
			if f.numbered && chance("reset") {
				f.poll(f.inOrder(func(int) bool { return true }))
				f.r.cursor = nil
				f.r.restart()
				f.poll(f.inOrder(func(int) bool { return true }))
			}
		}
		if len(distinct(f.r.messages)) != len(f.ids) {
			t.Errorf("the topic has %d IDs for %d items", len(distinct(f.r.messages)), len(f.ids))
		}
	})
}

// A feed that has many IDs which look extended made every poll look all of them up for each of its items.
func TestSharedIDsLookUpFewIDs(t *testing.T) {
	t.Parallel()
	it := part{"g", "https://x/1", "1", "https://x/a.mp3", "T", "1"}
	var suffixes []string
	for i, other := range []part{{link: "https://x/2"}, {date: "2"}, {enclosure: "https://x/b.mp3"}, {title: "U"}} {
		holder := it
		*[]*string{&holder.link, &holder.date, &holder.enclosure, &holder.title}[i] = other.link + other.date + other.enclosure + other.title
		r := newUpstream("/feed", partsRSS(holder)).read(t)
		for _, doc := range []string{partsRSS(holder), partsRSS(it, holder)} {
			r.u.set("/feed", doc)
			r.wantCount(1)
		}
		suffixes = append(suffixes, strings.TrimPrefix(r.last[0].ID, "g"))
	}
	ids := []string{"g"}
	for from := 0; len(ids) < 5000; from++ {
		for _, suffix := range suffixes {
			ids = append(ids, ids[from]+suffix)
		}
	}
	var all []part
	for _, id := range ids {
		all = append(all, part{id, it.link, it.date, it.enclosure, it.title, "1"})
	}
	r := newUpstream("/feed", partsRSS(all...)).read(t)
	if err := r.poll(); err != nil || len(r.last) < 5000 {
		t.Fatal(len(r.last), err)
	}
	it.text = "2"
	r.u.set("/feed", partsRSS(it))
	asked := r.panicAfter(1 << 30)
	if err := r.poll(); err != nil || 1<<30-asked.asks > 2000 {
		t.Errorf("looked up %d IDs, %v", 1<<30-asked.asks, err)
	}
}
