package serve

import (
	"bytes"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
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
	ID, Type, Body string
	Op             feed.Operation
	Modified       time.Time
	Size           int
}

// shownPage is a page of a feed for people. Its entities are the newest first.
type shownPage struct {
	Title, Name, Older, Newer, Latest string
	Entities                          []shownEntity
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

// browseStyle and browseEntities are shared by the pages of feeds and of snapshots.
const (
	browseStyle    = `body{font:16px/1.5 sans-serif;margin:2em;max-width:60em}table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.3em 1em .3em 0;border-bottom:1px solid #ccc}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0}`
	browseEntities = `<table>
<tr><th>Entity<th>Modified<th>Body
{{range .Entities}}<tr><td><pre>{{.ID}}</pre>{{.Op}}<td>{{.Modified.Format "2006-01-02 15:04:05"}} UTC<td>{{.Size}} bytes of {{.Type}}<pre>{{.Body}}</pre>
{{end}}</table>`
)

var browsing = parseHTML("{{.Title}}", browseStyle, `<p><a href="/">All feeds</a>
<h1>{{.Title}}</h1>
<p>{{if .Older}}<a href="{{.Older}}">older entities</a> {{end}}{{if .Newer}}<a href="{{.Newer}}">newer entities</a> {{end}}<a href="{{.Latest}}">newest page</a>
{{if .Entities}}<p>{{len .Entities}} {{if eq (len .Entities) 1}}entity{{else}}entities{{end}} on this page, the newest first. Programs read this page with <code>Accept: multipart/*</code>.
`+browseEntities+`
{{else}}<p>The feed has no entities yet.
{{end}}`)

// acceptOfJava is the start of the Accept header that java.net.URLConnection sends if the
// program sets none.
const acceptOfJava = "text/html, image/gif, image/jpeg, *"

// wantsHTML reports whether a request comes from a browser: it accepts HTML by name,
// and does not name the type of a feed.
func wantsHTML(r *http.Request) bool {
	fields := r.Header.Values("Accept")
	if len(fields) > 0 && strings.HasPrefix(strings.ToLower(fields[0]), acceptOfJava) {
		return false
	}
	html := false
	for name, weight := range acceptedItems(fields) {
		if weight > 0 && strings.HasPrefix(name, "multipart/") {
			return false
		}
		html = html || weight > 0 && name == "text/html"
	}
	return html
}

// browsePage answers with a page of a datareplication feed for people; without one, p
// is nil.
func (f *handler) browsePage(w http.ResponseWriter, r *http.Request, p *page) error {
	f.outage.logChange(nil)
	w.Header().Set("Cache-Control", f.cfg.cacheControl(false))
	w.Header().Set("Vary", "Accept")
	view := shownPage{Title: f.cfg.Title, Name: f.cfg.Name, Latest: f.cfg.entryURL()}
	if p != nil {
		span, err := f.pages.spans.Span(r.Context())
		if err != nil {
			return err
		}
		link := func(k uint64) string { return f.cfg.feedURL() + "/pages/" + p.id.withNumber(k).String() }
		if p.hasPrev(span) {
			view.Older = link(p.before.k)
		}
		if p.after.ok {
			view.Newer = link(p.after.k)
		}
		at := *p
		for e, err := range f.pages.newReading(r.Context(), &at, nil).readEntities(r.Context()) {
			if err != nil {
				return err
			}
			view.Entities = append(view.Entities, newShownEntity(e))
		}
		slices.Reverse(view.Entities)
	}
	return sendHTML(w, r, browsing, view)
}

// sendHTML answers with a page for people.
func sendHTML(w http.ResponseWriter, r *http.Request, page *template.Template, data any) error {
	var b bytes.Buffer
	if err := page.Execute(&b, data); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.Bytes()))
	return nil
}

// newShownEntity returns what people see of an entity.
func newShownEntity(e *entity) shownEntity {
	body := "(not text)"
	if xmlcopy.IsText(e.body) {
		body = strings.ToValidUTF8(string(e.body[:min(len(e.body), 4*shownBody)]), "")
		if runes := []rune(body); len(runes) > shownBody || len(e.body) > len(body) {
			body = string(runes[:min(len(runes), shownBody)]) + "…"
		}
	}
	return shownEntity{
		ID: safetext.Clip(e.id, shownName), Type: safetext.Clip(e.contentType, shownName), Body: body,
		Op: e.op, Modified: e.modified, Size: len(e.body),
	}
}
