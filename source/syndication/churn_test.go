package syndication_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// videos is a channel of YouTube with 15 videos. views is how often each was seen, and title is the
// title of the newest.
func videos(views int, title string) string {
	var b strings.Builder
	b.WriteString(`<feed xmlns:yt="http://www.youtube.com/xml/schemas/2015" xmlns:media="http://search.yahoo.com/mrss/" xmlns="http://www.w3.org/2005/Atom">`)
	for i := 15; i > 0; i-- {
		fmt.Fprintf(&b, `<entry><id>yt:video:%d</id><title>%s</title><link rel="alternate" href="https://x/%[1]d"/><published>2026-01-%02[1]dT00:00:00Z</published>
<media:group><media:title>T</media:title><media:community><media:starRating count="%[3]d" average="5.00" min="1" max="5"/><media:statistics views="%[3]d"/></media:community></media:group></entry>`, i, title, views+i)
	}
	return b.String() + "</feed>"
}

// 17 polls of a channel of 15 videos published 255 messages.
func TestCountersAreNoChanges(t *testing.T) {
	t.Parallel()
	r := newUpstream().read(t)
	for poll := range 17 {
		r.u.set("/feed", videos(poll, "T"))
		if err := r.poll(); err != nil || len(r.last) != map[bool]int{true: 15}[poll == 0] {
			t.Fatalf("poll %d published %d messages, %v", poll, len(r.last), err)
		}
		r.wantViolations()
		r.restart()
	}
	r.u.set("/feed", videos(100, "U"))
	if err := r.poll(); err != nil || len(r.last) != 15 || !strings.Contains(string(r.last[0].Body), `views="101"`) {
		t.Errorf("a changed title published %d messages, %v", len(r.last), err)
	}
	for name, counter := range map[string]string{
		"slash:comments": `<x:comments xmlns:x="http://purl.org/rss/1.0/modules/slash/">%d</x:comments>`,
		"thr:total":      `<y><total xmlns="http://purl.org/syndication/thread/1.0">%d</total></y>`,
	} {
		doc := func(n int) string {
			return strings.Replace(rss("", "a:x"), "</item>", fmt.Sprintf(counter, n)+"</item>", 1)
		}
		r := newUpstream("/feed", doc(1)).read(t)
		r.want("a:x")
		r.u.set("/feed", doc(2))
		if r.want(""); t.Failed() {
			t.Error(name)
		}
	}
	doc := strings.Replace(rss("", "a:x"), "</item>", `<comments xmlns="urn:other">1</comments></item>`, 1)
	r = newUpstream("/feed", doc).read(t)
	r.want("a:x")
	r.u.set("/feed", strings.Replace(doc, ">1<", ">2<", 1))
	r.want("a:x")
}

func TestIgnoredElements(t *testing.T) {
	t.Parallel()
	doc := func(n int) string {
		counter := fmt.Sprintf(`<thr:total xmlns:thr="http://purl.org/syndication/thread/1.0">%d</thr:total>`, n)
		return strings.ReplaceAll(rss("", "c:x b:x a:x"), "</item>", fmt.Sprintf(`<y><n at="%d"/><m>%[1]d</m></y>%s</item>`, n, counter))
	}
	ignore := func(names ...string) edit { return func(c *syndication.Config) { c.IgnoreChangesIn = names } }
	parallel.Run(t, "at any depth", func(t *testing.T) {
		r := newUpstream("/feed", doc(1)).read(t, ignore("n", "m"))
		r.want("a:x b:x c:x")
		r.u.set("/feed", doc(2))
		r.want("")
	})
	parallel.Run(t, "changes at every poll", func(t *testing.T) {
		r := newUpstream("/feed", doc(0)).read(t, ignore("m"))
		r.want("a:x b:x c:x")
		for poll := 1; poll < 3; poll++ {
			r.u.set("/feed", doc(poll))
			r.want("a:x b:x c:x")
			r.want("") // an unchanged document between
		}
		r.u.set("/feed", doc(3))
		r.want("a:x b:x c:x", "always_changing")
		if !strings.HasSuffix(r.details[0].Detail, "in: m, n; to ignore that, set ignore_changes_in: [m, n]") {
			t.Error(r.details)
		}
		r.cfg.IgnoreChangesIn = []string{"m", "n"}
		r.restart()
		r.u.set("/feed", doc(4))
		r.want("a:x b:x c:x") // once more, with the new hash
		r.u.set("/feed", doc(5))
		r.want("")
	})
	parallel.Run(t, "changes of some entries", func(t *testing.T) {
		r := newUpstream().read(t)
		for poll := range 8 {
			r.u.set("/feed", rss("", fmt.Sprintf("c:x b:x a:%d", poll)))
			if err := r.poll(); err != nil || len(r.violations) > 0 {
				t.Error(r.details, err)
			}
		}
	})
	parallel.Run(t, "changes of entries of an older page", func(t *testing.T) {
		r := newUpstream().read(t)
		for poll := range 8 {
			r.u.set("/feed", atom(link("next", "/2"), fmt.Sprintf("f:x e:x d:%d", poll)))
			r.u.set("/2", atom("", fmt.Sprintf("c:%d b:%[1]d a:%[1]d", poll)))
			if err := r.poll(); err != nil || len(r.last) < 4 || poll > 0 && len(r.violations) > 0 {
				t.Error(texts(r.last), r.details, err)
			}
		}
	})
	parallel.Run(t, "changes of most entries, in parts", func(t *testing.T) {
		r := newUpstream().read(t, func(c *syndication.Config) { c.Bounds.Memory = 1 }).inBatches(feed.Limits{Entities: 1})
		for poll := range 4 {
			r.u.set("/feed", rss("", fmt.Sprintf("d:x c:%d b:%[1]d a:%[1]d", poll)))
			if err := r.poll(); err != nil || len(r.violations) > 0 != (poll == 3) {
				t.Error(poll, r.details, err)
			}
		}
		if !strings.Contains(r.details[0].Detail, "[description]") {
			t.Error(r.details)
		}
	})
}
