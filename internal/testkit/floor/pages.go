package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// entity is one part of a page. Its slices belong to the page.
type entity struct {
	header string // the lines of the header, each with its line end
	body   []byte
}

// size returns the number of bytes that count towards the limit of a commit.
func (e entity) size() int { return len(e.header) + len(e.body) }

// page is one page.
type page struct {
	url      string
	entities []entity
	err      error
	memory   *pageMemory // of the entities
}

// pageMemory is memory for one page after the other.
type pageMemory struct {
	body     []byte
	entities []entity
}

// spareMemory has the memory of pages that are published.
var spareMemory = sync.Pool{New: func() any { return new(pageMemory) }}

// readPages requests the pages of a feed from its first on, ahead pages before they are used. It
// closes the channel behind the last page or the first error.
func readPages(feedURL string, ahead int) <-chan page {
	pages := make(chan page, ahead)
	go func() {
		defer close(pages)
		urls, err := findPages(feedURL)
		if err != nil {
			pages <- page{err: err}
			return
		}
		for _, url := range urls {
			p := readPage(url)
			pages <- p
			if p.err != nil {
				return
			}
		}
	}()
	return pages
}

// findPages returns the URLs of the pages of a feed, the first one first. A feed names only
// its newest page, and each page the one before it.
func findPages(feedURL string) (urls []string, err error) {
	for url := feedURL; url != ""; {
		resp, err := request(http.MethodHead, url)
		if err != nil {
			return nil, err
		}
		resp.Body.Close()
		if url == feedURL {
			url = findLink(resp.Header, "self")
		}
		urls = append(urls, url)
		url = findLink(resp.Header, "prev")
	}
	slices.Reverse(urls)
	return urls, nil
}

func request(method, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(context.Background(), method, url, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

// findLink returns the URL of a link of a page, "" if there is none.
func findLink(h http.Header, rel string) string {
	for _, link := range h.Values("Link") {
		if target, found := strings.CutSuffix(link, ">; rel="+rel); found {
			return target[1:]
		}
	}
	return ""
}

func readPage(url string) (p page) {
	p.url = url
	resp, err := request(http.MethodGet, url)
	if err != nil {
		p.err = err
		return p
	}
	defer resp.Body.Close()
	p.memory = spareMemory.Get().(*pageMemory)
	p.memory.body = slices.Grow(p.memory.body[:0], max(0, int(resp.ContentLength)))[:max(0, resp.ContentLength)]
	if _, p.err = io.ReadFull(resp.Body, p.memory.body); p.err != nil {
		return p
	}
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		p.err = err
		return p
	}
	p.memory.entities, p.err = splitPage(p.memory.entities[:0], p.memory.body, params["boundary"])
	p.entities = p.memory.entities
	return p
}

var errUnknownPage = errors.New("the page is not as the sample feed writes it")

// splitPage splits the body of a page of the sample feed, and appends its entities.
func splitPage(entities []entity, body []byte, boundary string) ([]entity, error) {
	open, length := []byte("--"+boundary+"\r\n"), []byte("Content-Length: ")
	for {
		rest, ok := bytes.CutPrefix(body, open)
		if !ok {
			if !bytes.HasPrefix(body, open[:len(open)-2]) {
				return nil, errUnknownPage
			}
			return entities, nil
		}
		header, rest, ok := bytes.Cut(rest, []byte("\r\n\r\n"))
		_, number, _ := bytes.Cut(header, length)
		number, _, _ = bytes.Cut(number, []byte("\r\n"))
		n, err := strconv.Atoi(string(number))
		if !ok || err != nil || n+2 > len(rest) {
			return nil, errUnknownPage
		}
		entities = append(entities, entity{string(header) + "\r\n", rest[:n]})
		body = rest[n+2:]
	}
}
