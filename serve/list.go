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
	// viewFor is for how long a view of a topic is shown.
	viewFor = time.Second
	// listFor is how long the list waits for the buses. People do not wait longer,
	// and what does not answer is what they look for.
	listFor = 2 * time.Second
)

// View is what operators and readers see of a feed without reading it.
type View struct {
	// Span is which positions the topic has; with gaps, perhaps.
	Span feed.Span
	// Newest is when the bus took the newest message; zero if there is none.
	Newest time.Time
	// Snapshot is the ID of the newest snapshot, "" if there is none or nothing in it,
	// and Created the time that it is of.
	Snapshot string
	Created  time.Time
	// Unmatched is how many PATCHes and DELETEs it leaves out because nothing was PUT
	// with their keys, which may not be the right ones.
	Unmatched int

	// length is how many messages there are if exact is set, and otherwise how many
	// positions, from the first message that is known of.
	length uint64
	exact  bool
	oldest string // the oldest page, "" if there is none
}

// seen is a view, or why there is none, and when that was.
type seen struct {
	view View
	err  error
	at   time.Time
}

// row is a feed in the list.
type row struct {
	View
	Name   string
	Format Format
	Home   string // what the feed's URLs start with
	State  string // in place of the view
}

func (r row) Length() uint64     { return r.length }
func (r row) Exact() bool        { return r.exact }
func (r row) Oldest() string     { return r.oldest }
func (r row) Age() time.Duration { return max(0, time.Since(r.Newest).Round(time.Second)) }

// listed is what the list has: feeds, and whether there are more for others.
type listed struct {
	Rows   []*row
	Others bool
}

var listing = template.Must(template.New("list").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Feeds</title>
<style>body{font:16px/1.5 sans-serif;margin:2em}table{border-collapse:collapse}th,td{text-align:left;padding:.3em 1.5em .3em 0;border-bottom:1px solid #ccc}</style>
<h1>Feeds</h1>
{{if .Rows}}<table>
<tr><th>Feed<th>Format<th>Entities<th>Newest<th>
{{range .Rows}}<tr><td><a href="{{.Home}}/latest">{{.Name}}</a><td>{{.Format}}
{{- if .State}}<td colspan="2">{{.State}}<td>
{{- else}}<td>{{if not .Exact}}at most {{end}}{{.Length}}<td>{{.Newest.Format "2006-01-02 15:04:05"}} UTC, {{.Age}} ago<td>
{{- if .Oldest}}<a href="{{.Home}}/pages/{{.Oldest}}">first page</a> {{end}}<a href="{{.Home}}/latest">newest page</a>
{{- if .Snapshot}} <a href="{{.Home}}/snapshots/latest">snapshot</a> of {{.Created.Format "2006-01-02 15:04:05"}} UTC{{end}}
{{- end}}
{{end}}</table>
{{else if not .Others}}<p>There are none.
{{end}}{{if .Others}}<p>There are others, for those who have their credentials.
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
	var all listed
	var asking sync.WaitGroup
	for _, f := range s.feeds {
		if !f.cfg.Auth.allows(r) {
			all.Others = true // their names are nobody else's business
			continue
		}
		at := &row{Name: f.cfg.Name, Format: f.cfg.Format, Home: f.home()}
		all.Rows = append(all.Rows, at)
		asking.Go(func() { at.look(ctx, f) })
	}
	asking.Wait()
	var b bytes.Buffer
	if err := listing.Execute(&b, all); err != nil {
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

// look fills in what is to be seen of the feed.
func (r *row) look(ctx context.Context, f *Feed) {
	view, err := f.View(ctx)
	switch {
	case errors.Is(err, feed.ErrNoTopic):
		r.State = "its topic does not exist"
	case err != nil:
		r.State = "the bus does not answer"
	case view.Newest.IsZero():
		r.State = "it has no messages"
	}
	r.View = view
}

// View returns what is to be seen of the feed, or was a moment ago. Its error
// matches [feed.ErrNoTopic] if there is no topic.
func (f *Feed) View(ctx context.Context) (View, error) {
	f.mu.Lock()
	known := f.seen
	f.mu.Unlock()
	if time.Since(known.at) < viewFor {
		return known.view, known.err
	}
	// Who leaves, or does not wait for the bus, decides nothing for others.
	return together(ctx, &f.topic.flights, "view", func(ctx context.Context) (View, error) {
		view, err := f.look(ctx)
		f.tell(err)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.seen = seen{view, err, time.Now()}
		return view, err
	})
}

// look asks the topic for what a view has.
func (f *Feed) look(ctx context.Context) (View, error) {
	span, err := f.topic.Span(ctx)
	if err != nil {
		return View{}, err
	}
	id := pageID{epoch: span.Epoch, size: uint64(f.cfg.PageSize)}
	// It is not the page that is asked for, which may be large.
	last, ok, err := f.topic.before(ctx, pageID{span.Epoch, 1, span.End}, span)
	if err != nil || !ok {
		return View{Span: span}, err
	}
	newest := last / id.size
	view := View{Span: span, length: span.End - span.First}
	for r, err := range f.topic.log.Read(ctx, last, last+1) {
		if err != nil {
			return View{}, err
		}
		view.Newest = r.Time.UTC()
	}

	// The oldest page that retention has left.
	if span.First > 0 {
		id.k = min((span.First+id.size-1)/id.size+1, newest)
	}
	position, ok, err := f.topic.first(ctx, max(span.First, id.first()), span.End)
	if err != nil {
		return View{}, err
	}
	if ok && span.First == 0 {
		view.length = span.End - position
	}
	if counter, can := f.topic.log.(Counter); can {
		if view.length, err = counter.Count(ctx); err != nil {
			return View{}, err
		}
		view.exact = true
	}
	if oldest := id.at(position / id.size); ok && (!f.format.linked() || oldest.end() <= span.End) {
		view.oldest = oldest.String()
	}
	if f.snapshot != nil {
		if newest := f.snapshot.newest(); newest != nil && len(newest.pages) > 0 {
			view.Snapshot, view.Created, view.Unmatched = newest.id, newest.created.UTC(), newest.unmatched
		}
	}
	return view, nil
}
