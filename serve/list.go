package serve

import (
	"bytes"
	"context"
	"errors"
	"html/template"
	"net/http"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

const (
	// rowFor is for how long a row of the list is shown.
	rowFor = time.Second
	// listFor is how long the list waits for the buses. People do not wait longer,
	// and what does not answer is what they look for.
	listFor = 2 * time.Second
)

// row is what people see of a feed.
type row struct {
	Name    string
	Format  Format
	Latest  string
	First   string // the oldest page, "" if there is none
	State   string // in place of what follows
	Length  uint64 // positions, which may have gaps
	Newest  time.Time
	Age     time.Duration
	Index   string // of the newest snapshot, "" if there is none or nothing in it
	Created time.Time
}

var listing = template.Must(template.New("list").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Feeds</title>
<style>body{font:16px/1.5 sans-serif;margin:2em}table{border-collapse:collapse}th,td{text-align:left;padding:.3em 1.5em .3em 0;border-bottom:1px solid #ccc}</style>
<h1>Feeds</h1>
{{if .}}<table>
<tr><th>Feed<th>Format<th>Messages, at most<th>Newest<th>
{{range .}}<tr><td><a href="{{.Latest}}">{{.Name}}</a><td>{{.Format}}
{{- if .State}}<td colspan="2">{{.State}}<td>
{{- else}}<td>{{.Length}}<td>{{.Newest.Format "2006-01-02 15:04:05"}} UTC, {{.Age}} ago<td>
{{- if .First}}<a href="{{.First}}">first page</a> {{end}}<a href="{{.Latest}}">newest page</a>
{{- if .Index}} <a href="{{.Index}}">snapshot</a> of {{.Created.Format "2006-01-02 15:04:05"}} UTC{{end}}
{{- end}}
{{end}}</table>
{{else}}<p>There are none.
{{end}}</html>
`))

// list shows people which feeds there are.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "This page is read with GET and HEAD.", http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), listFor)
	defer cancel()
	rows := make([]row, len(s.feeds))
	var asking sync.WaitGroup
	for i, f := range s.feeds {
		if !f.cfg.Auth.allows(r) {
			rows[i] = row{Name: f.cfg.Name, Format: f.cfg.Format, Latest: f.path() + "/latest", State: "for those who have its credentials"}
			continue
		}
		asking.Go(func() { rows[i] = f.row(ctx) })
	}
	asking.Wait()
	var b bytes.Buffer
	if err := listing.Execute(&b, rows); err != nil {
		s.opts.Log.Error("the list of feeds cannot be shown", "error", err)
		http.Error(w, "The list cannot be shown.", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	h.Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.Bytes()))
}

// row is what the list says of the feed, or said a moment ago.
func (f *Feed) row(ctx context.Context) row {
	f.mu.Lock()
	known := f.shown
	f.mu.Unlock()
	if time.Since(known.at) < rowFor {
		return known.row
	}
	seen, err := together(ctx, &f.topic.flights, "row", f.look)
	switch {
	case errors.Is(err, feed.ErrNoTopic):
		seen.State = "its topic does not exist"
	case err != nil:
		seen.State = "the bus does not answer"
	}
	seen.Name, seen.Format, seen.Latest = f.cfg.Name, f.cfg.Format, f.path()+"/latest"
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shown = shown{seen, time.Now()}
	return seen
}

// look asks the topic for what a row says.
func (f *Feed) look(ctx context.Context) (row, error) {
	span, err := f.topic.Span(ctx)
	if err != nil {
		return row{}, err
	}
	id := pageID{epoch: span.Epoch, size: uint64(f.cfg.PageSize)}
	newest, ok, err := f.topic.before(ctx, id.at(span.End/id.size+1), span)
	if err != nil || !ok {
		return row{State: "it has no messages"}, err
	}
	seen := row{Length: span.End - span.First}
	for r, err := range f.topic.log.Read(ctx, max(span.First, id.at(newest).first()), span.End) {
		if err != nil {
			return row{}, err
		}
		seen.Newest = r.Time.UTC()
	}
	seen.Age = max(0, time.Since(seen.Newest).Round(time.Second))

	// The oldest page that retention has left.
	if span.First > 0 {
		id.k = min((span.First+id.size-1)/id.size+1, newest)
	}
	position, ok, err := f.topic.first(ctx, max(span.First, id.first()), span.End)
	if err != nil {
		return row{}, err
	}
	if ok && span.First == 0 {
		seen.Length = span.End - position
	}
	if oldest := id.at(position / id.size); ok && (!f.format.linked() || oldest.end() <= span.End) {
		seen.First = f.path() + "/pages/" + oldest.String()
	}
	if f.snapshot != nil {
		if newest := f.snapshot.newest(); newest != nil && len(newest.pages) > 0 {
			seen.Index, seen.Created = f.path()+"/snapshots/latest", newest.created.UTC()
		}
	}
	return seen, nil
}

// shown is a row and when it was made.
type shown struct {
	row row
	at  time.Time
}
