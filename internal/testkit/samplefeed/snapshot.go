package samplefeed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// serveSnapshot serves the snapshot of the first n entities, all of which count as
// current: its index is at <base>/snapshots/<n>, and its pages, of as many
// entities as the feed's, below that. It was begun when nine tenths of them were
// there.
func (f *Feed) serveSnapshot(w http.ResponseWriter, r *http.Request, path string) {
	digits, page, isPage := strings.Cut(path, "/")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > f.Len() {
		http.NotFound(w, r)
		return
	}
	size := f.opts.PageSize
	pages := (n + size - 1) / size
	if !isPage {
		index := struct {
			ID        string    `json:"id"`
			CreatedAt time.Time `json:"createdAt"`
			Pages     []string  `json:"pages"`
		}{ID: digits, CreatedAt: f.opts.Entity((n - 1) * 9 / 10).Modified.UTC()}
		for k := range pages {
			index.Pages = append(index.Pages, fmt.Sprintf("%s%s/snapshots/%d/%d", serverURL(r), f.opts.Base, n, k))
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(index) // a client that has left is its own affair
		return
	}
	k, err := strconv.Atoi(page)
	if err != nil || k < 0 || k >= pages {
		http.NotFound(w, r)
		return
	}
	body := f.buffers.Get().(*bytes.Buffer)
	defer f.buffers.Put(body)
	body.Reset()
	f.writePage(body, pageOf(k, size, n))
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	_, _ = w.Write(body.Bytes())
}
