package syndication_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

func identity(i feedxml.Identity) edit {
	return func(c *syndication.Config) { c.Identity = i }
}

// articles is a window of articles with a title, a link and a date. Their guids are
// made of the number and a suffix.
func articles(suffix string, numbers ...int) string {
	var b strings.Builder
	b.WriteString(`<rss version="2.0"><channel>`)
	for _, n := range numbers {
		fmt.Fprintf(&b, `<item><title>T%d</title><link>http://feed.example/%[1]d</link><guid>g%[1]d%s</guid><pubDate>%s</pubDate><description>a</description></item>`, n, suffix, second(fmt.Sprint(n)))
	}
	return b.String() + `</channel></rss>`
}

func TestIdentitiesChanged(t *testing.T) {
	t.Parallel()
	const five = "g1:a g2:a g3:a g4:a g5:a"
	run := func(name string, f func(t *testing.T, r *reader)) {
		parallel.Run(t, name, func(t *testing.T) {
			r := newUpstream("/feed", articles("", 5, 4, 3, 2, 1)).read(t)
			r.want(five)
			f(t, r)
		})
	}
	held := func(t *testing.T, r *reader) {
		t.Helper()
		err := r.poll()
		var v *feed.Violation
		if !errors.As(err, &v) || v.Kind != "identities_changed" || !errors.Is(err, feed.ErrPermanent) || !strings.Contains(err.Error(), "set identity to guid") || !strings.Contains(err.Error(), "to link or content, which publishes all entries once more, under ids") {
			t.Errorf("got the error %v", err)
		}
		r.wantLast("")
	}
	run("case 145: all, and back", func(t *testing.T, r *reader) {
		r.u.set("/feed", articles("x", 6, 5, 4, 3, 2))
		held(t, r)
		r.restart()
		held(t, r)
		r.u.set("/feed", articles("", 6, 5, 4, 3, 2))
		r.want("g6:a")
	})
	run("all, and they are taken", func(t *testing.T, r *reader) {
		r.u.set("/feed", articles("x", 5, 4, 3, 2, 1))
		held(t, r)
		r.cfg.Identity = "guid"
		r.restart()
		r.want("g1x:a g2x:a g3x:a g4x:a g5x:a", "possible_overrun")
		r.cfg.Identity = "auto"
		r.restart()
		r.u.set("/feed", articles("x", 6, 5, 4, 3, 2))
		r.want("g6x:a")
	})
	run("all, and links are taken", func(t *testing.T, r *reader) {
		r.cfg.Identity = "link"
		r.restart()
		r.u.set("/feed", articles("x", 5, 4, 3, 2, 1))
		r.want("http://feed.example/1:a http://feed.example/2:a http://feed.example/3:a http://feed.example/4:a http://feed.example/5:a", "possible_overrun", "weak_identity")
		r.u.set("/feed", articles("y", 6, 5, 4, 3, 2))
		r.want("http://feed.example/6:a", "weak_identity")
	})
	run("a few", func(t *testing.T, r *reader) {
		r.u.set("/feed", strings.NewReplacer("g5<", "g5x<", "g4<", "g4x<").Replace(articles("", 5, 4, 3, 2, 1)))
		r.want("g4x:a g5x:a")
	})
	run("others", func(t *testing.T, r *reader) {
		r.u.set("/feed", articles("", 10, 9, 8, 7, 6))
		r.want("g6:a g7:a g8:a g9:a g10:a", "possible_overrun")
	})
	run("contents", func(t *testing.T, r *reader) {
		r.u.set("/feed", strings.ReplaceAll(articles("", 5, 4, 3, 2, 1), ">a<", ">b<"))
		r.want("g1:b g2:b g3:b g4:b g5:b")
	})
	parallel.Run(t, "of entries that look alike", func(t *testing.T) {
		alike := func(ids string) string {
			return strings.ReplaceAll(rss("", ids), "<guid>", "<title>T</title><link>http://x/</link><guid>")
		}
		r := newUpstream("/feed", alike("e d c b a")).read(t)
		r.want("a b c d e")
		r.u.set("/feed", alike("j i h g f"))
		r.want("f g h i j", "possible_overrun")
	})
	parallel.Run(t, "of pairs that look alike", func(t *testing.T) {
		doc := articles("", 4, 3, 2, 1)
		pairs := func(a, b string) string {
			first, second := strings.ReplaceAll(doc, "</guid>", a+"</guid>"), strings.ReplaceAll(doc, "</guid>", b+"</guid>")
			return strings.TrimSuffix(first, "</channel></rss>") + second[strings.Index(second, "<item>"):]
		}
		r := newUpstream("/feed", pairs("a", "b")).read(t)
		r.want("g1b:a g2b:a g3b:a g4b:a g1a:a g2a:a g3a:a g4a:a")
		r.u.set("/feed", pairs("c", "d"))
		r.want("g1d:a g2d:a g3d:a g4d:a g1c:a g2c:a g3c:a g4c:a", "possible_overrun")
	})
	// Readings of sensors: all is the same but the id and the date, or there is no date.
	for name, date := range map[string]string{"updated": "<updated>2026-01-01T00:00:0%dZ</updated>", "published": "<published>2026-01-01T00:00:0%dZ</published>", "none": "<rights>r%d</rights>"} {
		parallel.Run(t, "of entries that look alike but for their date: "+name, func(t *testing.T) {
			readings := func(round int) string {
				var b strings.Builder
				b.WriteString(`<feed xmlns="http://www.w3.org/2005/Atom">`)
				for _, sensor := range []string{"wind", "rain", "sun", "fog"} {
					fmt.Fprintf(&b, `<entry><id>%s%d</id><title>%[1]s</title><link href="http://x/%[1]s"/>%[3]s</entry>`, sensor, round, fmt.Sprintf(date, round))
				}
				return b.String() + `</feed>`
			}
			r := newUpstream("/feed", readings(1)).read(t)
			r.wantCount(4)
			r.u.set("/feed", readings(2))
			r.wantCount(4)
		})
	}
	parallel.Run(t, "after start: now", func(t *testing.T) {
		r := newUpstream("/feed", articles("", 5, 4, 3, 2, 1)).read(t, func(c *syndication.Config) { c.Start.Now = true })
		r.want("")
		r.u.set("/feed", articles("x", 6, 5, 4, 3, 2))
		held(t, r)
	})
}

// Without a guid an item is identified by its link, and without that by all that a
// reader would show.
func TestIdentity(t *testing.T) {
	t.Parallel()
	doc := `<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel>` +
		`<item><title>T</title><enclosure url="http://x/1.mp3"/></item>` +
		`<item><title>T</title><enclosure url="http://x/2.mp3"/></item>` +
		`<item><title>T</title><content:encoded>1</content:encoded></item>` +
		`<item><title>T</title><content:encoded>2</content:encoded></item>` +
		`<item><title>T</title></item></channel></rss>`
	r := newUpstream("/feed", doc).read(t)
	r.wantCount(5)
	// The ID is stored, so it must not change: the SHA-256 of T and four zeros.
	if id := r.last[0].ID; id != "6603e3b7c2d5fe04d06783c41918d9e8cc7a258e6b86d5aa9aafa484049ac141" {
		t.Errorf("the ID is %s", id)
	}
	for i, want := range map[feedxml.Identity]string{
		"auto": "g1:a", "guid": "g1:a", "link": "http://feed.example/1:a",
	} {
		r := newUpstream("/feed", articles("", 1)).read(t, identity(i))
		must.Succeed(t, r.poll())
		r.wantLast(want)
	}
	r = newUpstream("/feed", articles("", 1)).read(t, identity("content"))
	if err := r.poll(); err != nil || len(r.last) != 1 || len(r.last[0].ID) != 64 {
		t.Errorf("published %s, %v", texts(r.last), err)
	}
	// Atom by its link, and by its id where there is none.
	r = newUpstream("/feed", `<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1</id><link href="/x"/></entry><entry><id>2</id></entry></feed>`).read(t, identity("link"))
	r.want("2 "+host+"/x", "weak_identity")
}
