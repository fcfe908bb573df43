package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mimemultipart "mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/serve/snapshot"
)

// snapshotHandler answers the requests for the snapshots of a feed.
type snapshotHandler struct {
	cfg   *Config
	spans *spanCache
	store *snapshot.Store // nil if the feed has none
}

// snapshotIndex is the index of a snapshot.
type snapshotIndex struct {
	ID        string   `json:"id"`
	CreatedAt string   `json:"createdAt"`
	Pages     []string `json:"pages"`
}

// serveSnapshot answers for the newest snapshot, for the index of a snapshot, and for a page.
func (s *snapshotHandler) serveSnapshot(w http.ResponseWriter, r *http.Request, name string) error {
	// The snapshots of a topic that was deleted are gone with it. While the bus does not
	// answer, the topic counts as existing.
	span, err := s.spans.Span(r.Context())
	gone := errors.Is(err, feed.ErrNoTopic)
	valid := func(o *snapshot.Snapshot) bool { return !gone && (err != nil || o.Span.Epoch == span.Epoch) }
	if name == "latest" {
		newest := s.store.Newest()
		switch {
		case gone:
			return err
		case newest == nil || !valid(newest):
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
			return newAnswer(http.StatusServiceUnavailable, "The first snapshot is being built.")
		}
		// A reader finds the same snapshot again by its own URL when there is a newer one.
		w.Header().Set("Cache-Control", s.cfg.cacheControl(false))
		http.Redirect(w, r, s.cfg.feedURL()+"/snapshots/"+newest.ID, http.StatusFound)
		return nil
	}
	id, number, ofPage := strings.Cut(name, "/")
	at, pending := s.store.Open(id, valid)
	if at != nil {
		defer at.Release()
	}
	_, _, ours := snapshot.ParseID(id)
	k, err := strconv.Atoi(number)
	switch {
	case at == nil && !ours:
		return newAnswer(http.StatusNotFound, "There is no such snapshot. The newest is at %s/snapshots/latest.", s.cfg.feedURL())
	case gone:
		return errGone
	case pending:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		return newAnswer(http.StatusServiceUnavailable, "This snapshot does not exist yet; perhaps it is being built.")
	case at == nil:
		return newAnswer(http.StatusGone, "This snapshot is gone: there are newer ones. The newest is at %s/snapshots/latest.", s.cfg.feedURL())
	case ofPage && (err != nil || k < 0 || k >= at.Pages() || strconv.Itoa(k) != number):
		return newAnswer(http.StatusNotFound, "This snapshot has no such page. Its index is at %s/snapshots/%s.", s.cfg.feedURL(), id)
	}
	w.Header().Set("Vary", "Accept") // browsers get a page for people
	w.Header().Set("Cache-Control", s.cfg.cacheControl(true))
	switch {
	case wantsHTML(r):
		return s.browseSnapshot(w, r, at, k, ofPage)
	case ofPage:
		p := at.Page(k)
		w.Header().Set("Content-Type", `multipart/mixed; boundary="`+p.Boundary+`"`)
		w.Header().Set("ETag", `"`+id+"-"+number+`"`)
		http.ServeContent(w, r, "", p.Modified, p)
		return nil
	}
	return s.serveIndex(w, r, at)
}

func (s *snapshotHandler) serveIndex(w http.ResponseWriter, r *http.Request, at *snapshot.Snapshot) error {
	base, err := s.cfg.linkBase(r)
	if err != nil {
		return err
	}
	in := snapshotIndex{ID: at.ID, CreatedAt: at.Created.Format(time.RFC3339), Pages: make([]string, at.Pages())}
	for k := range in.Pages {
		in.Pages[k] = fmt.Sprintf("%s/snapshots/%s/%d", base, at.ID, k)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", `"`+at.ID+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	return nil
}

// shownSnapshot is a snapshot, or a page of it, for people.
type shownSnapshot struct {
	Title, Home, ID string
	Created         time.Time
	Pages           []int // of the snapshot, if Entities is nil
	Page, Last      int
	Entities        []shownEntity
}

var browsingSnapshot = parseHTML("{{.Title}}: snapshot", browseStyle, `<p><a href="/">All feeds</a> <a href="{{.Home}}/latest">{{.Title}}</a>
<h1>{{.Title}}: snapshot of {{.Created.Format "2006-01-02 15:04:05"}} UTC</h1>
{{if .Entities}}<p>Page {{.Page}} of 0 to {{.Last}}. {{if .Page}}<a href="{{.Home}}/snapshots/{{.ID}}/{{add .Page -1}}">previous page</a> {{end}}
{{- if lt .Page .Last}}<a href="{{.Home}}/snapshots/{{.ID}}/{{add .Page 1}}">next page</a> {{end}}<a href="{{.Home}}/snapshots/{{.ID}}">all pages</a>
`+browseEntities+`
{{- else if .Pages}}<p>Programs read this index as JSON, with <code>Accept: application/json</code>.
<ul>
{{range .Pages}}<li><a href="{{$.Home}}/snapshots/{{$.ID}}/{{.}}">page {{.}}</a>
{{end}}</ul>
{{else}}<p>The snapshot has no entities.
{{end}}`)

// browseSnapshot answers with a snapshot, or with page k of it, for people.
func (s *snapshotHandler) browseSnapshot(w http.ResponseWriter, r *http.Request, at *snapshot.Snapshot, k int, ofPage bool) error {
	shown := shownSnapshot{Title: s.cfg.Title, Home: s.cfg.feedURL(), ID: at.ID, Created: at.Created.UTC(), Page: k, Last: at.Pages() - 1}
	for n := range at.Pages() {
		shown.Pages = append(shown.Pages, n)
	}
	if ofPage {
		var err error
		if shown.Entities, err = shownPart(at.Page(k)); err != nil {
			return err
		}
	}
	return sendHTML(w, r, browsingSnapshot, shown)
}

// shownPart returns the entities of a page of a snapshot.
func shownPart(p snapshot.Page) (all []shownEntity, err error) {
	parts := mimemultipart.NewReader(p, p.Boundary)
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(part)
		if err != nil {
			return nil, err
		}
		e := entity{id: part.Header.Get(message.ContentID), contentType: part.Header.Get(message.ContentType), body: body}
		e.op, _ = message.ParseOperation(part.Header.Get(message.OperationType))
		e.modified, _, _ = message.ParseDate(part.Header.Get(message.LastModified))
		all = append(all, newShownEntity(&e))
	}
}
