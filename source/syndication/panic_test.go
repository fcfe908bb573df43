package syndication_test

import (
	"log/slog"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// panickingIDs panics when a mark is asked for, once, after asks of them.
type panickingIDs struct {
	*sink.IDs
	asks int
}

func (p *panickingIDs) Mark(id string) (string, bool) {
	if p.asks--; p.asks == -1 {
		panic("broken")
	}
	return p.IDs.Mark(id)
}

// panicAfter has a new source of the reader panic once, after that many marks were asked for.
func (r *reader) panicAfter(asks int) *panickingIDs {
	p := &panickingIDs{r.ids, asks}
	r.src.Source = syndication.New(r.cfg, r.client, p, slog.New(slog.DiscardHandler))
	return p
}

// nextOrPanic is next. It reports a panic, and rolls back as the bridge does.
func (r *reader) nextOrPanic() (more, panicked bool) {
	r.t.Helper()
	defer func() {
		if recover() != nil {
			r.ids.Rollback()
			panicked = true
		}
	}()
	more, err := r.next()
	must.Succeed(r.t, err)
	return more, false
}

// The bridge calls Next again after a panic. Wherever that was, everything is published
// once and in order, and nothing is held meanwhile.
func TestAPanicLosesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		docs []string
		want string
		edit edit
	}{
		"a document": {
			[]string{"/feed", atom("", "c@3:1 b@2:1 a@1:1")}, "a:1 b:1 c:1", func(*syndication.Config) {},
		},
		"archives": {
			[]string{"/feed", atom(prev("/b"), "d@4:1 c@3:1"), "/b", atom(archive+prev("/a"), "b@2:1"), "/a", atom(archive, "a@1:1")},
			"a:1 b:1 c:1 d:1", func(*syndication.Config) {},
		},
		"mode tail": {
			[]string{"/feed", atom(prev("/b"), "c@3:1 d@4:1"), "/b", atom(link("next-archive", "/feed"), "a@1:1 b@2:1")},
			"a:1 b:1 c:1 d:1", func(c *syndication.Config) { c.Dialect, c.Mode = "ict4h", "tail" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			for asks := 0; ; asks++ {
				r := newUpstream(test.docs...).read(t, test.edit)
				ids := r.panicAfter(asks)
				for range 20 {
					more, panicked := r.nextOrPanic()
					if panicked {
						continue
					}
					if !more {
						break
					}
				}
				if got := texts(r.messages); got != test.want {
					t.Errorf("after a panic at mark %d, published %q, want %q", asks, got, test.want)
				}
				r.wantViolations()
				if ids.asks >= 0 {
					if asks < 6 {
						t.Errorf("only %d marks were asked for", asks)
					}
					return
				}
			}
		})
	}
}

// A panic ends the round of mode tail: when the page at the end has gone, the feed is read
// from its start at once, as after an error.
func TestAPanicEndsTheRoundOfModeTail(t *testing.T) {
	u := newUpstream("/feed", atom(link("last", "/1"), ""), "/1", atom(link("next-archive", "/2"), "a"), "/2", atom("", "b c"))
	r := u.read(t, func(c *syndication.Config) { c.Dialect, c.Mode = "ict4h", "tail" })
	r.panicAfter(3) // in the second page
	if more, panicked := r.nextOrPanic(); !more || panicked {
		t.Fatal("the first page is not found")
	}
	if _, panicked := r.nextOrPanic(); !panicked {
		t.Fatal("there was no panic")
	}
	u.fault("/1", status(404))
	u.set("/feed", atom(link("last", "/2"), ""))
	r.want("b c", "page_gone")
}
