package syndication

import (
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// request is a request for a document, and the way in which its answer is read.
type request struct {
	url string
	// etag and modified make it conditional.
	etag, modified string
	// strict has the document read by encoding/xml too.
	strict bool
	// archive reports that it is not the subscription document, and old that its
	// entries may have been replaced by later ones already.
	archive, old bool
	// late reports that newer documents were published while this one was missing.
	late bool
	// believe is the update time of the subscription document. The date of an archive
	// that is not older is ignored.
	believe instant
	// from skips the published part of the document, if the body is still the same.
	from *progress
	// order is the expected order of the entries.
	order feedxml.Order
}

// document is a document of the feed as it was read.
type document struct {
	request
	meta     feedxml.Meta
	response *source.Response
	// unmodified reports that the server sent no document, because it has not changed
	// or does not exist.
	unmodified bool
	// partial reports that it has only a part of its entries (RFC 3229).
	partial bool
	// hash is over the entries, the links, and the fields that decide the dialect. The
	// time and the generator of the document do not change it. digest computes it.
	hash   string
	digest interface {
		io.Writer
		Sum([]byte) []byte
	}
	order   feedxml.Order
	dialect Dialect
	// depth is the number of newer documents in the walk.
	depth int
	// broken reports that it is not well-formed, so that nothing is deleted because of
	// it, and repair that its entries are published in well-formed XML.
	broken, repair bool
	// truncated reports that the document breaks off, and unsure that elements which
	// describe it may be missing, such as its links to older documents.
	truncated, unsure bool
	// deletes reports that the entries which it lacks were deleted, and withheld that
	// they would be if the document were well-formed.
	deletes, withheld bool
	// updated is the time of its last change, unless that is implausible, and now the time
	// at which it was read.
	updated instant
	now     time.Time

	buffer   *entryBuffer
	versions versions
	// entries counts all entries, tombstones included; fresh counts those whose ID the
	// topic lacks, and known those whose ID it has.
	entries, fresh, known int
	newest                instant
	// titleHashes are those of the first entries that have an ID of their own.
	titleHashes titleHashes
	seen        violationSet
}

// memorySize returns the estimated memory of a document that waits to be published, in
// bytes.
func (d *document) memorySize() int {
	n := d.buffer.size + len(d.url) + len(d.meta.ID) + len(d.meta.Title) + 2000
	for _, l := range d.meta.Links {
		n += len(l.Href) + len(l.Raw) + len(l.Type) + len(l.Title) + len(l.Lang) + len(l.Rel) + 150
	}
	for name, values := range d.response.Header {
		n += len(name) + 50
		for _, v := range values {
			n += len(v) + 20
		}
	}
	return n
}

// hashContent computes d.hash.
func (d *document) hashContent() {
	m := &d.meta
	fmt.Fprintf(d.digest, "%v %v %q %q\n", m.Complete, m.Archive, m.Incremental, m.Prev)
	for _, l := range m.Links {
		fmt.Fprintf(d.digest, "%q %q\n", l.Rel, l.Href)
	}
	d.hash = hex.EncodeToString(d.digest.Sum(nil)[:12])
	d.digest = nil
}

// bufferedBytes returns the estimated memory of the entries and the IDs of a document,
// in bytes.
func (d *document) bufferedBytes() int64 {
	return int64(d.buffer.size) + int64(len(d.versions.ids))*versionBytes
}

// dropIDs drops the IDs of a document, unless they have to be compared with those of
// the topic.
func (d *document) dropIDs() {
	if !d.deletes {
		d.versions.ids = nil
	}
}
