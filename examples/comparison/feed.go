//go:build unix

package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const archiveLength = 500

// A version is one state of an entry. Its index in the history of the feed is its position.
type version struct {
	entry   int // the position of the entry's first version
	number  int
	updated time.Time
}

// A feed is an Atom feed with RFC 5005 archives. One version in five is an edit. Dates have whole
// seconds, as those of most blogs, so at 100 versions a second about 100 entries have equal dates.
type feed struct {
	window     int           // entries of the current document
	noArchives bool          // the current document is the whole feed
	served     chan struct{} // receives a value after the current document was served

	mu        sync.Mutex
	requested time.Time // of the first request
	history   []version
	newest    map[int]int // the number of the newest version of each entry
}

func newFeed(window int) *feed {
	return &feed{window: window, served: make(chan struct{}, 1), newest: map[int]int{}}
}

// grow appends versions until there are n. The entries at positions 2, 12, 22, … are edited 61
// versions later, often within the second of their first date, and those at 6, 16, 26, … 301
// versions later.
func (f *feed) grow(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.history) < n {
		position := len(f.history)
		v := version{entry: position, number: 1, updated: time.Now().UTC().Truncate(time.Second)}
		switch {
		case position%10 == 3 && position > 61:
			v.entry, v.number = position-61, 2
		case position%10 == 7 && position > 301:
			v.entry, v.number = position-301, 2
		}
		f.history = append(f.history, v)
		f.newest[v.entry] = v.number
	}
}

func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, tag := f.document(r)
	if body == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/atom+xml")
	w.Header().Set("ETag", tag)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(body))
	if r.URL.Path == "/feed" {
		select {
		case f.served <- struct{}{}:
		default:
		}
	}
}

// document returns the current document, with the newest entries, or an archive, with those of its
// range. Each entry is in a document once, with its newest version there, as RFC 4287 advises
// (section 4.1.1) for versions with equal dates.
func (f *feed) document(r *http.Request) (body, tag string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requested.IsZero() {
		f.requested = time.Now()
	}
	base := "http://" + r.Host
	archives := len(f.history) / archiveLength
	if f.noArchives {
		archives = 0
	}
	var b strings.Builder
	link := func(rel, path string) { fmt.Fprintf(&b, `<link rel="%s" href="%s%s"/>`, rel, base, path) }
	b.WriteString(`<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom" xmlns:fh="http://purl.org/syndication/history/1.0">`)
	newest := len(f.history) - 1
	number, isArchive := strings.CutPrefix(r.URL.Path, "/archive/")
	n, err := strconv.Atoi(number)
	if isArchive {
		if err != nil || n < 0 || n >= archives {
			return "", ""
		}
		newest = (n+1)*archiveLength - 1
	}
	fmt.Fprintf(&b, `<id>urn:orders</id><title>Orders</title><author><name>Shop</name></author><updated>%s</updated>`,
		f.history[newest].updated.Format(time.RFC3339))
	link("self", r.URL.Path)
	if isArchive {
		b.WriteString("<fh:archive/>")
		link("current", "/feed")
		if n > 0 {
			link("prev-archive", fmt.Sprintf("/archive/%d", n-1))
		}
		written := map[int]bool{}
		for position := newest; position >= n*archiveLength; position-- {
			if entry := f.history[position].entry; !written[entry] {
				f.writeEntry(&b, position)
				written[entry] = true
			}
		}
		return b.String() + "</feed>", fmt.Sprintf(`"archive-%d"`, n)
	}
	if archives > 0 {
		link("prev-archive", fmt.Sprintf("/archive/%d", archives-1))
	}
	for position, entries := newest, 0; position >= 0 && entries < f.window; position-- {
		if v := f.history[position]; v.number == f.newest[v.entry] {
			f.writeEntry(&b, position)
			entries++
		}
	}
	return b.String() + "</feed>", fmt.Sprintf(`"%d"`, len(f.history))
}

// writeEntry writes a version. The judge finds its title in messages of any form.
func (f *feed) writeEntry(b *strings.Builder, position int) {
	v := f.history[position]
	fmt.Fprintf(b, `<entry><id>urn:order:%d</id><title>Order %d version %d position %d</title><updated>%s</updated>`+
		`<link href="http://shop.example.com/orders/%d"/><content type="html">&lt;p&gt;%s&lt;/p&gt;</content></entry>`,
		v.entry, v.entry, v.number, position, v.updated.Format(time.RFC3339), v.entry,
		strings.Repeat(fmt.Sprintf("item %d of order %d. ", position%7, v.entry), 12))
}
