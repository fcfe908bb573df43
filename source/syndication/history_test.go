package syndication_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// publisher is a feed with a history.
type publisher struct {
	u *upstream
	// kind is window, complete, tombstones, archived, snapshots or paged.
	kind        string
	json        bool // it is a JSON Feed; a window, or paged
	dated       bool
	oldestFirst bool
	archivedFeed
	clock    int
	ids      int
	archives int
	dir      string    // of the archives
	entries  []version // of the subscription document, oldest first
	// state is what every ID is in the end: its text, or "" if it is deleted.
	state map[string]string
	// past has the texts of every ID in their order.
	past map[string][]string
}

// archivedFeed is what an archived feed has more. Its entries are the versions since the
// beginning of the subscription document.
type archivedFeed struct {
	keeps    bool   // a document has all versions of its part of the history, and not only the newest of each ID
	coarse   int    // the unit of dates
	titled   bool   // an edit changes the title as well
	archive  string // the date of archives: right, ahead, shuffled, or none
	archived int    // the number of entries of the subscription document that an archive has
	// shown has the versions in each archive and the subscription document, oldest first.
	shown [][]version
}

type version struct{ id, spec string }

func (p *publisher) write(id string) {
	p.clock++
	if p.kind != "archived" {
		p.entries = slices.DeleteFunc(p.entries, func(v version) bool { return v.id == id })
	}
	text := fmt.Sprintf("v%d", p.clock)
	spec := id + ":" + text
	if p.dated {
		spec = fmt.Sprintf("%s@%d:%s", id, p.clock/p.coarse, text)
	}
	p.entries = append(p.entries, version{id, spec})
	p.state[id] = text
	p.past[id] = append(p.past[id], text)
}

func (p *publisher) remove(id string) {
	p.clock++
	p.entries = slices.DeleteFunc(p.entries, func(v version) bool { return v.id == id })
	if p.kind == "tombstones" {
		p.entries = append(p.entries, version{id, fmt.Sprintf("-%s@%d", id, p.clock)})
	}
	p.state[id] = ""
}

// cut puts entries into an archive, the oldest that are in none, and removes some of those that are
// in one from the subscription document.
func (p *publisher) cut(n, removed int) {
	p.clock++
	p.archives++
	date := map[string]string{"right": fmt.Sprintf("@%d", p.clock/p.coarse), "ahead": fmt.Sprintf("@%d", p.clock+1000), "shuffled": fmt.Sprintf("@%d", 1+p.clock*(p.archives%2))}[p.archive]
	list := p.entries[p.archived:n]
	p.u.set(fmt.Sprintf("%s/a%d", p.dir, p.archives), p.document(date+archive+p.older(p.archives-1), list))
	p.shown = append(p.shown, list)
	p.archived = n - removed
	p.entries = p.entries[removed:]
}

// document writes a document of an archived feed.
func (p *publisher) document(head string, list []version) string {
	if !p.keeps {
		newest := map[string]version{}
		for _, v := range list {
			newest[v.id] = v
		}
		list = slices.DeleteFunc(slices.Clone(list), func(v version) bool { return v != newest[v.id] })
	}
	doc := atom(head, p.render(list))
	if p.titled {
		doc = titled(doc)
	}
	return doc
}

// history returns the texts of an ID that can be read: the newest of each document.
func (p *publisher) history(id string) (texts []string) {
	for _, list := range append(p.shown, p.entries) {
		for _, v := range slices.Backward(list) {
			if _, text, _ := strings.Cut(v.spec, ":"); v.id == id {
				texts = append(texts, text)
				break
			}
		}
	}
	return slices.Compact(texts)
}

func (p *publisher) older(n int) string {
	if n == 0 {
		return ""
	}
	return prev(fmt.Sprintf("%s/a%d", p.dir, n))
}

// rename gives all archives other URLs.
func (p *publisher) rename() {
	was := p.dir
	p.dir += "/new"
	p.u.mu.Lock()
	defer p.u.mu.Unlock()
	for path, doc := range maps.Clone(p.u.docs) {
		doc = strings.ReplaceAll(doc, `"`+was+`/a`, `"`+p.dir+`/a`)
		if rest, ok := strings.CutPrefix(path, was+"/a"); ok {
			path = p.dir + "/a" + rest
		}
		p.u.docs[path] = doc
	}
}

func (p *publisher) render(list []version) string {
	var specs []string
	for _, v := range list {
		specs = append(specs, v.spec)
	}
	if !p.oldestFirst {
		slices.Reverse(specs)
	}
	return strings.Join(specs, " ")
}

func (p *publisher) publishPart() {
	head := fmt.Sprintf("@%d", p.clock/p.coarse)
	if p.kind == "complete" {
		head += complete
	}
	list := p.entries
	switch p.kind {
	case "archived":
		p.u.set("/feed", p.document(head+p.older(p.archives), list))
	case "snapshots":
		// Each document has the newest entries, and leads to the one before it.
		p.archives++
		this, before := fmt.Sprintf("/t%d", p.archives), ""
		if p.archives > 1 {
			before = link("prev", fmt.Sprintf("/t%d", p.archives-1))
		}
		doc := atom(head+link("this", this)+before, p.render(list[max(0, len(list)-3):]))
		p.u.set(this, doc)
		p.u.set("/feed", doc)
	case "paged":
		path := "/feed"
		for n := 2; ; n++ {
			page, next := list[max(0, len(list)-3):], ""
			if list = list[:len(list)-len(page)]; len(list) > 0 || n == 2 {
				next = fmt.Sprintf("/p%d", n)
			}
			doc := atom(head+link("next", next), p.render(page))
			if p.json {
				doc = jsonFeed(fmt.Sprintf(`"next_url":%q,`, next), p.render(page))
			}
			p.u.set(path, doc)
			if path = next; next == "" {
				return
			}
		}
	default:
		doc := atom(head, p.render(list))
		if p.json {
			doc = jsonFeed("", p.render(list))
		}
		p.u.set("/feed", doc)
	}
}

// act lets the publisher do something.
func (p *publisher) act(t *rapid.T) {
	known := rapid.IntRange(0, max(0, p.ids-1)).Draw(t, "which")
	id := fmt.Sprintf("e%d", known)
	switch rapid.SampledFrom([]string{"add", "add", "add", "update", "remove", "cut", "rename"}).Draw(t, "act") {
	case "add":
		p.ids++
		p.write(fmt.Sprintf("e%d", p.ids-1))
	case "update":
		if p.ids > 0 {
			p.write(id)
		}
	case "remove":
		if p.ids > 0 && p.state[id] != "" && (p.kind == "complete" || p.kind == "tombstones") {
			p.remove(id)
		}
	case "cut":
		if p.kind == "archived" && len(p.entries) > p.archived {
			n := rapid.IntRange(p.archived+1, len(p.entries)).Draw(t, "entries")
			p.cut(n, rapid.IntRange(0, n).Draw(t, "removed"))
		}
	case "rename":
		if p.kind == "archived" {
			p.rename()
		}
	}
	p.publishPart()
}

// TestHistories publishes and reads at random, with crashes, and wants every
// entry's newest version at the end of the topic, nothing twice, and no version
// behind a later one, though all is read again now and then. A reader that comes later gets all
// versions that the archives have.
func TestHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := &publisher{
			u: newUpstream(), kind: rapid.SampledFrom([]string{"window", "complete", "tombstones", "archived", "snapshots", "paged"}).Draw(t, "kind"),
			state: map[string]string{}, past: map[string][]string{}, archivedFeed: archivedFeed{coarse: 1},
		}
		if p.kind == "archived" {
			p.keeps, p.titled, p.coarse = rapid.Bool().Draw(t, "keeps"), rapid.Bool().Draw(t, "titled"), rapid.SampledFrom([]int{1, 5}).Draw(t, "unit")
			p.archive = rapid.SampledFrom([]string{"right", "ahead", "shuffled", "none"}).Draw(t, "archives")
			p.cut(0, 0) // without an archive it would be a window
		}
		p.dated = p.kind == "tombstones" || rapid.Bool().Draw(t, "dated")
		p.oldestFirst = rapid.Bool().Draw(t, "oldest first")
		torn := "<feed xmlns='http://www.w3.org/2005/Atom'><entry>"
		if p.json = (p.kind == "window" || p.kind == "paged") && rapid.Bool().Draw(t, "JSON Feed"); p.json {
			torn = `{"version":"https://jsonfeed.org/version/1.1","title":"T","items":[{"id":"e0"`
		}
		p.publishPart()
		r := p.u.read(t, func(c *syndication.Config) {
			c.Bounds.Memory = rapid.SampledFrom([]int64{1, 1500, 8 << 20}).Draw(t, "window")
			c.MaxDeleteRatio = 1
			if (!p.dated || p.coarse > 1) && p.oldestFirst {
				c.EntryOrder = "oldest_first"
			}
			if p.json {
				c.Body = rapid.SampledFrom([]syndication.BodyFormat{"source", "json"}).Draw(t, "body")
			}
		}).inBatches(feed.Limits{Entities: rapid.IntRange(1, 5).Draw(t, "batch")})
		resets := rapid.Bool().Draw(t, "resets")
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"act", "act", "act", "next", "next", "next", "poll", "drop", "crash", "fault", "reset"}).Draw(t, "step") {
			case "act":
				p.act(t)
			case "next":
				_, _ = r.next()
			case "poll":
				_ = r.poll()
			case "drop": // a batch that is never committed
				if _, err := r.src.Next(t.Context(), r.cursor, r.batch); err == nil {
					_, _ = r.src.Next(t.Context(), r.cursor, r.batch)
				}
				r.ids.Rollback()
			case "crash":
				r.restart()
			case "reset": // the checkpoint
				if resets {
					r.cursor = nil
					r.restart()
				}
			case "fault":
				path := rapid.SampledFrom([]string{"/feed", "/a1", "/a2", "/a3", "/t1", "/t2", "/t3", "/p2", "/p3"}).Draw(t, "path")
				p.u.fault(path, status(500), body(200, "", torn))
			}
		}
		p.u.mu.Lock()
		clear(p.u.faults)
		p.u.mu.Unlock()
		_ = r.poll()  // may report a fault that was injected before
		for range 3 { // one may go on with an older document
			must.Succeed(t, r.poll())
		}
		if len(r.last) > 0 {
			t.Errorf("a poll of what is known has published %s", texts(r.last))
		}
		p.check(t, r.messages)
		if p.kind != "archived" {
			return
		}
		again := p.u.read(t, func(c *syndication.Config) { *c = r.cfg }).inBatches(r.batch)
		for more := true; more; {
			more = again.step()
			again.restart()
		}
		got := map[string][]string{}
		for _, e := range again.messages {
			got[e.ID] = append(got[e.ID], textOf(e.Body))
		}
		for id := range p.state {
			if want := p.history(id); !slices.Equal(got[id], want) {
				t.Errorf("read once more, with a crash after each batch, %s is %v, want %v", id, got[id], want)
			}
		}
	})
}

func (p *publisher) check(t *rapid.T, messages []feed.Entity) {
	t.Helper()
	got := map[string]string{}
	at := map[string]int{}
	for _, e := range messages {
		text := ""
		if e.Op == feed.Put {
			text = textOf(e.Body)
		}
		if had, ok := got[e.ID]; ok && had == text {
			t.Errorf("%s is there twice as %q", e.ID, text)
		}
		got[e.ID] = text
		if text == "" {
			continue
		}
		place := slices.Index(p.past[e.ID], text)
		if place < at[e.ID] {
			t.Errorf("%s is there as %s behind a later version", e.ID, text)
		}
		at[e.ID] = place
	}
	last := 0
	for _, e := range messages {
		if text := textOf(e.Body); p.kind == "archived" && text == p.state[e.ID] {
			clock, _ := strconv.Atoi(text[1:])
			if clock < last {
				t.Errorf("%s is there behind an entry that was written after it", text)
			}
			last = max(last, clock)
		}
	}
	for id, text := range p.state {
		if was, ok := got[id]; was != text || !ok && text != "" {
			t.Errorf("%s is %q in the topic, and %q in the feed", id, was, text)
		}
	}
	if t.Failed() {
		t.Logf("topic %s", texts(messages))
	}
}
