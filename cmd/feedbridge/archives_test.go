package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// archives is an archived Atom feed of so many entries, with so many in each
// document: /feed has the newest, and links to /archive/N lead back.
type archives struct {
	size, entries int
	// slow is the time that each answer takes.
	slow time.Duration
}

func (a archives) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	newest := (a.entries - 1) / a.size
	n := newest
	if number, ok := strings.CutPrefix(r.URL.Path, "/archive/"); ok {
		var err error
		if n, err = strconv.Atoi(number); err != nil || n < 0 || n >= newest {
			http.NotFound(w, r)
			return
		}
	}
	time.Sleep(a.slow)
	w.Header().Set("Content-Type", "application/atom+xml")
	w.Header().Set("ETag", fmt.Sprintf(`"%d"`, n))
	if r.Header.Get("If-None-Match") == w.Header().Get("ETag") {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	fmt.Fprintf(w, `<feed xmlns="http://www.w3.org/2005/Atom" xmlns:fh="http://purl.org/syndication/history/1.0"><title>Orders</title><id>urn:orders</id>`)
	if n < newest {
		fmt.Fprint(w, `<fh:archive/>`)
	}
	if n > 0 {
		fmt.Fprintf(w, `<link rel="prev-archive" href="/archive/%d"/>`, n-1)
	}
	last := min((n+1)*a.size, a.entries) - 1
	fmt.Fprintf(w, `<updated>%s</updated>`, a.at(last))
	for i := last; i >= n*a.size; i-- {
		fmt.Fprintf(w, `<entry><id>%s</id><title>Order %d</title><updated>%s</updated><content>%s</content></entry>`, entryID(i), i, a.at(i), strings.Repeat("x", 100))
	}
	fmt.Fprint(w, `</feed>`)
}

// at returns the time when an entry was updated.
func (a archives) at(i int) string {
	return time.Date(2020, 1, 1, 0, 0, i, 0, time.UTC).Format(time.RFC3339)
}

func entryID(i int) string { return fmt.Sprintf("urn:order:%d", i) }
