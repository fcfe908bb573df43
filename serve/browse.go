package serve

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cespare/xxhash/v2"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/entry"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/xmlcopy"
)

// The limits of the texts of an entity, in characters.
const (
	shownName = 200
	shownBody = 500
)

// shownEntity is an entity in a page for people.
type shownEntity struct {
	ID, Title, Type, Body string
	Op                    feed.Operation
	Modified, Dated       time.Time // Dated is the time that its entry has, if any
	Size                  int
	entryID               string
}

// shownPage is a page of a feed for people. Its entities are the newest first.
type shownPage struct {
	Title, URL, Kind             string
	ContentType                  string
	Format                       Format
	Linked, Protected            bool
	Older, Newer, Latest, Oldest string
	Entities                     []shownEntity
}

// parseHTML parses a page for people.
func parseHTML(title, style, body string) *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{"add": func(a, b int) int { return a + b }}).Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>` + title + `</title>
<style>` + style + `</style>
` + body + `</html>
`))
}

// baseStyle is shared by all pages, and browseStyle and browseEntities by those of feeds and of snapshots.
const (
	baseStyle = `:root{color-scheme:light dark;--quiet:#57606a;--line:#d0d7de;--raised:#f6f8fa;--link:#0b57d0}
@media(prefers-color-scheme:dark){:root{--quiet:#9aa7b4;--line:#313a44;--raised:#171d24;--link:#8ab4f8;background:#0f1419;color:#e6edf3}}
body{font:16px/1.5 system-ui,"DejaVu Sans",sans-serif;margin:1.5rem auto;padding:0 1.25rem;max-width:60rem}
a{color:var(--link)}h1{font-size:1.5rem;line-height:1.25;margin:1rem 0 .5rem;overflow-wrap:anywhere}
`
	browseStyle = baseStyle + `h2{font-size:1.0625rem;line-height:1.35;margin:0}h2,pre,code,.id{overflow-wrap:anywhere}
nav{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:1rem 0}
pre,.id{font-family:ui-monospace,"DejaVu Sans Mono",monospace}
.url{display:block;margin:.5rem 0;padding:.5rem .75rem;background:var(--raised);border:1px solid var(--line);border-radius:4px;user-select:all;-webkit-user-select:all}
article{border-top:1px solid var(--line);padding:.875rem 0;overflow:hidden}article p,article pre{margin:.25rem 0 0}
.quiet,.id,pre{font-size:.875rem}.quiet,.id{color:var(--quiet)}
p code{white-space:nowrap}pre{white-space:pre-wrap;max-height:30rem;overflow:auto}h2~pre{font:inherit}`
	browseEntities = `{{range .Entities}}<article>
{{with .Title}}<h2 dir="auto">{{.}}</h2>
{{end}}<p class="quiet"><time datetime="{{.Modified.Format "2006-01-02T15:04:05Z07:00"}}">{{.Modified.Format "2006-01-02 15:04:05"}} UTC</time> · {{.Op}}{{if .Size}} · {{.Size}} bytes of {{.Type}}{{end}}
<p class="id"><bdi>{{.ID}}</bdi>
{{with .Body}}<pre dir="auto">{{.}}</pre>
{{end}}</article>
{{end}}`
	browseLinks = `<nav>{{with .Older}}<a href="{{.}}">Older</a>{{end}}{{with .Newer}}<a href="{{.}}">Newer</a>{{end}}{{with .Oldest}}<a href="{{.}}">Oldest page</a>{{end}}{{with .Latest}}<a href="{{.}}">Newest page</a>{{end}}</nav>
`
)

var browsing = parseHTML("{{.Title}}", browseStyle, `{{if .Linked}}<link rel="alternate" type="{{.ContentType}}" href="{{.URL}}">
{{end}}<a href="/">All feeds</a>
<h1 dir="auto">{{.Title}}</h1>
{{if .Linked}}<p>This is {{.Kind}}. To subscribe, copy this URL into a feed reader:
{{else if eq .Format "http-feeds"}}<p>This is a feed of events, as <a href="https://www.http-feeds.org/">http-feeds</a> has them. Programs read it from this URL, and continue after an event with <code>?lastEventId=ID</code>:
{{else}}<p>This is a datareplication feed. Programs read it from this URL, with <code>Accept: multipart/*</code>:
{{end}}</p><code class="url">{{.URL}}</code>
{{if .Protected}}<p>It requires the credentials with which you see this page.
{{end}}`+browseLinks+`{{if .Entities}}<p class="quiet">{{len .Entities}} {{if eq (len .Entities) 1}}entity on this page.{{else}}entities on this page, the newest first.{{end}}
`+browseEntities+browseLinks+`
{{- else if .Older}}<p>There are no newer entities yet.
{{else}}<p>The feed has no entities yet.
{{end}}`)

// kinds describe the feeds of formats that feed readers read.
var kinds = map[Format]string{Atom: "an Atom feed", RSS: "an RSS feed", JSONFeed: "a JSON Feed"}

// acceptOfJava is the start of the Accept header that java.net.URLConnection sends if the
// program sets none.
const acceptOfJava = "text/html, image/gif, image/jpeg, *"

// wantsHTML reports whether a request comes from a browser: it accepts HTML by name, and does not
// name the type of a feed. Browsers accept XML too, but prefer HTML; feed readers do not.
func wantsHTML(r *http.Request) bool {
	fields := r.Header.Values("Accept")
	if len(fields) > 0 && strings.HasPrefix(strings.ToLower(fields[0]), acceptOfJava) {
		return false
	}
	html, xml := 0.0, 0.0
	for name, weight := range acceptedItems(fields) {
		switch {
		case name == "text/html":
			html = max(html, weight)
		case name == "application/xml":
			xml = weight
		case name == "application/xhtml+xml" || name == "image/svg+xml" || weight <= 0:
		case strings.HasPrefix(name, "multipart/"), strings.HasSuffix(name, "/json"), strings.HasSuffix(name, "+json"), isXML(name):
			return false
		}
	}
	return html > xml
}

// browsePage answers with a page of a feed for people; without one, p is nil.
func (f *handler) browsePage(w http.ResponseWriter, r *http.Request, p *page, span feed.Span) error {
	base, err := f.cfg.linkBase(r)
	if err != nil {
		return err
	}
	view := shownPage{
		Title: shownText(f.cfg.Title, shownName), URL: f.cfg.Format.EntryURL(base), Format: f.cfg.Format,
		Kind: kinds[f.cfg.Format], Linked: f.cfg.isLinked(), Protected: f.cfg.isProtected(),
	}
	closed := false
	if p == nil {
		view.Latest = f.cfg.entryURL()
	} else {
		view.ContentType, _, _ = strings.Cut(p.contentType, ";")
		closed = p.after.ok && !isEntry(r, p)
		if err := f.setLinks(r.Context(), &view, p, span, closed); err != nil {
			return err
		}
		whole, err := f.readShown(r.Context(), &view, p)
		if err != nil {
			return err
		}
		closed = closed && whole
	}
	control := f.cfg.cacheControl(closed)
	if f.cfg.PublicURL == "" {
		// The page has the host of the request, which the key of a shared cache may lack.
		control = strings.Replace(control, "public", "private", 1)
	}
	w.Header().Set("Cache-Control", control)
	return sendHTML(w, r, browsing, view)
}

// setLinks sets the links of a page. Those of a closed page do not change, except that the older page may go.
func (f *handler) setLinks(ctx context.Context, view *shownPage, p *page, span feed.Span, closed bool) error {
	if f.cfg.Format != HTTPFeeds {
		link := func(k uint64) string { return f.cfg.feedURL() + "/pages/" + p.id.withNumber(k).String() }
		if view.Latest = f.cfg.entryURL(); p.hasPrev(span) {
			view.Older = link(p.before.k)
		}
		if p.after.ok {
			view.Newer = link(p.after.k)
		}
		return nil
	}
	// The positions up to that of an event.
	after := func(next uint64) string {
		if next == 0 {
			return f.cfg.entryURL()
		}
		return f.cfg.entryURL() + "?" + lastEventID + "=" + eventID(p.id.epoch, next-1)
	}
	view.Oldest = f.cfg.entryURL()
	if p.after.ok {
		view.Newer = after(p.next)
	}
	size := p.id.size
	front := func(end uint64) (link string, err error) {
		k, ok, err := f.pages.find.previousPage(ctx, p.id.withNumber((end+size-1)/size), span)
		if err == nil && ok {
			_, ok, err = f.pages.find.firstMessage(ctx, max(k*size, span.First), end)
		}
		if err != nil || !ok {
			return "", err
		}
		return after(k * size), nil
	}
	var err error
	if view.Older, err = front(p.id.k); err == nil && !closed {
		view.Latest, err = front(span.End)
	}
	return err
}

// readShown reads the entities of a page. It reports whether the topic still had all of them when they had been read.
func (f *handler) readShown(ctx context.Context, view *shownPage, p *page) (whole bool, err error) {
	slot, err := f.pages.memory.builds.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer slot.Release()
	at := *p
	reading := f.pages.newReading(ctx, &at, nil)
	for e, err := range reading.readEntities(ctx) {
		if err != nil {
			return false, err
		}
		shown := newShownEntity(e)
		switch {
		case f.cfg.Format == HTTPFeeds:
			shown.ID, shown.Modified = eventID(p.id.epoch, e.position), newEvent(f.cfg, p.id.epoch, e).at.UTC()
		case p.linked:
			shown.ID, shown.entryID = safetext.Clip(e.entryID, shownName), e.entryID
			shown.Modified = cmp.Or(shown.Dated, e.published, e.taken)
		}
		view.Entities = append(view.Entities, shown)
	}
	slices.Reverse(view.Entities)
	if view.Linked {
		replaced := map[string]bool{} // as in bodyChunks
		view.Entities = slices.DeleteFunc(view.Entities, func(e shownEntity) bool {
			if replaced[e.entryID] {
				return true
			}
			replaced[e.entryID] = e.Op != feed.Patch
			return false
		})
	}
	now, err := f.pages.spans.spanNow(ctx)
	if err == nil && now.Epoch != p.id.epoch {
		err = errGone
	}
	return now.First <= reading.from, err
}

// sendHTML answers with a page for people.
func sendHTML(w http.ResponseWriter, r *http.Request, page *template.Template, data any) error {
	var b bytes.Buffer
	if err := page.Execute(&b, data); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("ETag", fmt.Sprintf(`"html-%x"`, xxhash.Sum64(b.Bytes())))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.Bytes()))
	return nil
}

// newShownEntity returns what people see of an entity: of one that has an entry its title and its text.
func newShownEntity(e *entity) shownEntity {
	shown := shownEntity{
		ID: safetext.Clip(e.id, shownName), Type: safetext.Clip(e.contentType, shownName), Body: "(not text)",
		Op: e.op, Modified: e.modified, Size: len(e.body),
	}
	d, ok := e.document()
	switch {
	case ok:
		shown.Title = shownText(d.Title, shownName)
		shown.Body = cmp.Or(entry.PlainText(d.ContentHTML, 4*shownBody), d.ContentText, d.Summary, d.XML)
		for _, at := range []string{d.DatePublished, d.DateModified} {
			if t, err := time.Parse(time.RFC3339, at); err == nil && isServedTime(t) && shown.Dated.IsZero() {
				shown.Dated = t.UTC()
			}
		}
	case len(e.body) == 0:
		shown.Body = ""
	case xmlcopy.IsText(e.body) && e.mediaType() == "text/html":
		shown.Body = entry.PlainText(string(e.body), 4*shownBody)
	case xmlcopy.IsText(e.body):
		shown.Body = string(e.body[:min(len(e.body), 4*shownBody+1)])
	}
	shown.Body = shownText(shown.Body, shownBody)
	return shown
}

// shownText returns the start of a text, in at most most characters, without those that are not visible, such as
// controls of its direction.
func shownText(text string, most int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		const nonJoiner, joiner = '\u200c', '\u200d' // of words, and of emoji
		switch {
		case unicode.IsPrint(r), r == '\n', r == '\t', r == nonJoiner, r == joiner:
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, strings.ToValidUTF8(text[:min(len(text), 4*most)], "")))
	if len(runes) > most || len(text) > 4*most {
		return string(runes[:min(len(runes), most)]) + "…"
	}
	return string(runes)
}
