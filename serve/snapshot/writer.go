package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
)

// writer cuts a snapshot into pages.
type writer struct {
	s               *Snapshot
	entities, bytes int       // the most that a page has
	hash            hash.Hash // of the pages
	// The page that is being written, which is held in memory until it is complete:
	// where each of its parts begins, and how large their bodies are.
	page  page
	b     []byte
	parts []int
	size  int
}

// noBoundary takes the place of the boundary while a page is written, and has its length: the hash
// in the boundary is known when the page is complete.
var noBoundary = pageBoundary(make([]byte, sha256.Size))

// pageBoundary returns the boundary for the hash of a page, in the form that the pages of a
// served feed have.
func pageBoundary(sum []byte) string { return "feedbridge-" + hex.EncodeToString(sum[:16]) }

// addEntity writes an entity. An entity that is larger than a page has a page of its own.
func (w *writer) addEntity(e *Entity) error {
	if n := len(w.parts); n > 0 && (n == w.entities || w.size+len(e.Body) > w.bytes) {
		if err := w.endPage(); err != nil {
			return err
		}
	}
	w.parts, w.size = append(w.parts, len(w.b)), w.size+len(e.Body)
	w.b = e.AppendPart(w.b, noBoundary)
	if w.page.modified.Before(e.Modified) {
		w.page.modified = e.Modified
	}
	return nil
}

// endPage writes the page to the file.
func (w *writer) endPage() error {
	if len(w.parts) == 0 {
		return nil
	}
	sum := sha256.Sum256(w.b)
	w.hash.Write(sum[:])
	// An entity cannot contain this hash of itself.
	w.page.boundary = pageBoundary(sum[:])
	for _, at := range w.parts {
		copy(w.b[at+len("--"):], w.page.boundary)
	}
	w.b = append(append(append(w.b, "--"...), w.page.boundary...), "--\r\n"...)
	w.page.to = w.page.from + int64(len(w.b))
	w.s.pages = append(w.s.pages, w.page)
	_, err := w.s.file.Write(w.b)
	w.page, w.b, w.parts, w.size = page{from: w.page.to}, w.b[:0], w.parts[:0], 0
	return err
}

// contentHash returns a hash of the snapshot.
func (w *writer) contentHash() []byte {
	fmt.Fprint(w.hash, w.s.Created.Unix())
	return w.hash.Sum(nil)[:16]
}
