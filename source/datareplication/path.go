package datareplication

import (
	"slices"
	"strings"
)

// maxPath limits the bytes of the URLs in a path. If a feed has more pages, the rest is
// read with one page ahead, whose URL is in the next link of the page being read.
const maxPath = 256 << 10

// path holds the URLs of pages that the way back has passed, from the newest to the oldest.
// They are requested ahead. The next links of the pages decide which page is read.
type path struct {
	urls []string
	size int // of urls in bytes
}

// add adds a page that is older than the others.
func (p *path) add(url string) {
	p.urls = append(p.urls, strings.Clone(url))
	p.size += len(url)
	if p.size <= maxPath {
		return
	}
	// The newest pages are read last, and may be as many as that again.
	p.urls = slices.Clone(p.urls[len(p.urls)/2:])
	p.size = 0
	for _, url := range p.urls {
		p.size += len(url)
	}
}

// following returns the URL next and those of the pages after it, n at most. It forgets
// the pages before next, and all pages if next is not one of them.
func (p *path) following(next string, n int) []string {
	at := len(p.urls) - 1
	for at >= 0 && p.urls[at] != next {
		at--
	}
	if at < 0 {
		*p = path{}
		return []string{next}
	}
	for _, url := range p.urls[at+1:] {
		p.size -= len(url)
	}
	p.urls = p.urls[:at+1]
	urls := slices.Clone(p.urls[max(0, len(p.urls)-n):])
	slices.Reverse(urls)
	return urls
}
