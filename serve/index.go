package serve

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

const (
	// listFor limits how long the list waits for the buses. A person does not wait longer,
	// and the list shows which bus does not answer.
	listFor = 2 * time.Second
)

// row is a feed in the list.
type row struct {
	View
	Name   string
	Format Format
	Home   string // the prefix of the feed's URLs
	Entry  string // where readers begin
	State  string // in place of the view
}

func (r row) Age() time.Duration { return max(0, time.Since(r.Newest).Round(time.Second)) }

// listed is the data of the list. Others is whether there are feeds that the client may
// not see.
type listed struct {
	Rows   []*row
	Others bool
}

const listStyle = baseStyle + `table{border-collapse:collapse;display:block;overflow-x:auto}th,td{text-align:left;padding:.3em 1.5em .3em 0;border-bottom:1px solid var(--line);white-space:nowrap}`

var listing = parseHTML("Feeds", listStyle, `<h1>Feeds</h1>
{{if .Rows}}<table>
<tr><th>Feed<th>Format<th>Newest<th>
{{range .Rows}}<tr><td><a href="{{.Entry}}">{{.Name}}</a><td>{{.Format}}
{{- if .State}}<td>{{.State}}<td>
{{- else}}<td>{{.Newest.Format "2006-01-02 15:04:05"}} UTC, {{.Age}} ago<td>
{{- if ne .Entry .Home}}<a href="{{.Entry}}">newest page</a>{{end}}
{{- if .Snapshot}} <a href="{{.Home}}/snapshots/latest">snapshot</a> of {{.Created.Format "2006-01-02 15:04:05"}} UTC{{end}}
{{- end}}
{{end}}</table>
{{else if not .Others}}<p>There are none.
{{end}}{{if .Others}}<p>There are others, for those who have their credentials.
{{end}}`)

// serveIndex shows people which feeds there are.
func (s *Server) serveIndex(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "This page is read with GET and HEAD.", http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), listFor)
	defer cancel()
	var all listed
	var asking sync.WaitGroup
	for _, f := range s.currentFeeds() {
		if auth, err := f.credentials.read(); err != nil || !auth.authorizes(r) {
			all.Others = true // their names are secret
			continue
		}
		at := &row{Name: f.cfg.Name, Format: f.cfg.Format, Home: f.cfg.feedURL(), Entry: f.cfg.entryURL()}
		all.Rows = append(all.Rows, at)
		asking.Go(func() { at.loadView(ctx, f) })
	}
	asking.Wait()
	w.Header().Set("Cache-Control", "no-cache")
	if err := sendHTML(w, r, listing, all); err != nil {
		s.opts.Log.Error("the list of feeds cannot be shown", "error", err)
		http.Error(w, "The list cannot be shown.", http.StatusInternalServerError)
	}
}

// loadView fills in the view of the feed, or why there is none.
func (r *row) loadView(ctx context.Context, f *Feed) {
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
