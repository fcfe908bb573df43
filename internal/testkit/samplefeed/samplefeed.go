// Package samplefeed is a made-up datareplication feed that grows, for tests and for benchmarks.
//
// A [Feed] stores nothing. Its entities are computed from their numbers each
// time that they are asked for, so a feed of a billion entities costs no more
// memory than one of ten.
package samplefeed

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/feedbridge/feedbridge/feed"
)

// boundary separates the entities of every page. It must not occur in them.
const (
	boundary    = "a-sample-of-a-feed-7d1f0c52"
	contentType = `multipart/mixed; boundary="` + boundary + `"`
)

// Options describe a feed.
type Options struct {
	// Entity returns entity i, counted from 0. It returns the same entity at every call,
	// and none that is older than entity i-1. Its Header has the headers of the part, besides
	// those that are made from the other fields. Page is not used.
	Entity func(i int) feed.Entity
	// PageSize is the number of entities on a full page. Default 100.
	PageSize int
	// Base is the path of the feed. Default /feed.
	Base string
}

// Feed is the feed as an [http.Handler]. Its entry point is <base>/latest,
// which answers with the newest page in place; page k, counted from 0, is
// <base>/pages/<k>. A feed without entities answers 204. A snapshot of the first
// n entities is at <base>/snapshots/<n>.
//
// Any number of goroutines may use it.
type Feed struct {
	opts    Options
	length  atomic.Int64
	buffers sync.Pool // of *bytes.Buffer: one page each
}

// New returns a feed that is empty until [Feed.SetLen] is called.
func New(opts Options) *Feed {
	if opts.PageSize == 0 {
		opts.PageSize = 100
	}
	if opts.Base == "" {
		opts.Base = "/feed"
	}
	f := &Feed{opts: opts}
	f.buffers.New = func() any { return new(bytes.Buffer) }
	return f
}

// Len is the number of entities in the feed.
func (f *Feed) Len() int { return int(f.length.Load()) }

// SetLen publishes entities up to number n-1.
func (f *Feed) SetLen(n int) { f.length.Store(int64(n)) }

// pageRange is one page at one moment.
type pageRange struct {
	number     int
	first, end int  // its entities are [first, end)
	next       bool // whether there is another behind it
}

// findPage returns the page that a path means. There is none on an empty feed.
func (f *Feed) findPage(path string) (p pageRange, empty, ok bool) {
	n, size := f.Len(), f.opts.PageSize
	rest, ok := strings.CutPrefix(path, f.opts.Base+"/")
	if !ok {
		return pageRange{}, false, false
	}
	if rest == "latest" {
		if n == 0 {
			return pageRange{}, true, true
		}
		p.number = (n - 1) / size
	} else {
		digits, ok := strings.CutPrefix(rest, "pages/")
		k, err := strconv.Atoi(digits)
		if !ok || err != nil || strconv.Itoa(k) != digits || k < 0 || k > (n-1)/size || n == 0 {
			return pageRange{}, false, false
		}
		p.number = k
	}
	return pageOf(p.number, size, n), false, true
}

// pageOf returns a page of n entities.
func pageOf(number, size, n int) pageRange {
	first := number * size
	end := min(first+size, n)
	return pageRange{number, first, end, end < n}
}

func (f *Feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "a feed is read with GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	if path, ok := strings.CutPrefix(r.URL.Path, f.opts.Base+"/snapshots/"); ok {
		f.serveSnapshot(w, r, path)
		return
	}
	p, empty, ok := f.findPage(r.URL.Path)
	switch {
	case !ok:
		http.NotFound(w, r)
		return
	case empty:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	f.writeHeader(w.Header(), r, p)
	if slices.Contains(strings.Split(r.Header.Get("If-None-Match"), ", "), w.Header().Get("ETag")) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", contentType)

	body := f.buffers.Get().(*bytes.Buffer)
	defer f.buffers.Put(body)
	body.Reset()
	f.writePage(body, p)
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	_, _ = w.Write(body.Bytes()) // net/http drops what answers a HEAD; a client that has left is its own affair
}

// writeHeader sets the headers that a 304 has too.
func (f *Feed) writeHeader(h http.Header, r *http.Request, p pageRange) {
	link := func(number int, rel string) {
		h.Add("Link", fmt.Sprintf("<%s%s/pages/%d>; rel=%s", serverURL(r), f.opts.Base, number, rel))
	}
	link(p.number, "self")
	if p.number > 0 {
		link(p.number-1, "prev")
	}
	if p.next {
		link(p.number+1, "next")
	}
	h.Set("Last-Modified", f.opts.Entity(p.end-1).Modified.UTC().Format(http.TimeFormat))
	h.Set("ETag", fmt.Sprintf(`"%d-%d-%t"`, p.number, p.end-p.first, p.next))
}

// serverURL returns the scheme and host with which URLs on the server of a request start.
func serverURL(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// writePage writes the page's body. It depends only on the page's entities: the bytes before
// the closing delimiter do not change when the page gets more entities or a next page.
func (f *Feed) writePage(b *bytes.Buffer, p pageRange) {
	var scratch [64]byte
	for i := p.first; i < p.end; i++ {
		e := f.opts.Entity(i)
		b.WriteString("--" + boundary + "\r\n")
		if _, ok := e.Header.Get("Content-Type"); !ok {
			b.WriteString("Content-Type: application/json\r\n")
		}
		b.WriteString("Last-Modified: ")
		b.Write(e.Modified.UTC().AppendFormat(scratch[:0], http.TimeFormat))
		b.WriteString("\r\nContent-ID: ")
		b.WriteString(e.ID)
		b.WriteString("\r\nOperation-Type: http-equiv=")
		b.WriteString(string(e.Op))
		b.WriteString("\r\nContent-Length: ")
		b.Write(strconv.AppendInt(scratch[:0], int64(len(e.Body)), 10))
		b.WriteString("\r\n")
		for _, field := range e.Header {
			if !fromField(field.Name) {
				b.WriteString(field.Name)
				b.WriteString(": ")
				b.WriteString(field.Value)
				b.WriteString("\r\n")
			}
		}
		b.WriteString("\r\n")
		b.Write(e.Body)
		b.WriteString("\r\n")
	}
	b.WriteString("--" + boundary + "--\r\n")
}

// fromField reports whether a header is made from one of an entity's fields, so that an
// entity that was read from a feed does not get it twice.
func fromField(name string) bool {
	for _, field := range [...]string{"Last-Modified", "Content-ID", "Operation-Type", "Content-Length"} {
		if strings.EqualFold(name, field) {
			return true
		}
	}
	return false
}
