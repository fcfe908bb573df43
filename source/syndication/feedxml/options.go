package feedxml

import (
	"encoding/xml"

	"github.com/feedbridge/feedbridge/internal/safetext"
)

// Options configure how a document is read.
type Options struct {
	// URL is the Content-Location of the document, or else its URL after redirects.
	// References in the document are relative to it.
	URL string
	// ContentType is the header field of that name, as received. Only its charset is
	// used: the root element determines the format.
	ContentType string
	// Limits bound the parts of a document.
	Limits Limits
	// Lenient repairs documents that are not well-formed; most faults cost at most the
	// entry that they are in. [Reader.Faults] lists the repairs. Entries are well-formed
	// all the same, except for entities that XML does not define.
	Lenient bool
	// Interrupted returns an error if the reading has to stop, such as [context.Context.Err]. It is
	// called for each 256 KiB that the reader or a repair looks at. Nil never stops.
	Interrupted func() error
	// Redact hides the secrets of URLs in the text that errors quote. Nil knows only
	// the usual names of parameters.
	Redact *safetext.Redactor
	// CutEntries has entries above Limits.Entry returned with the beginning of their bodies, and
	// not refused. What they are made of is not checked.
	CutEntries bool
	// Identity is the preferred source of IDs.
	Identity Identity
	// HashWithout are elements of entries, at any depth, that are not part of [Entry.Hash], such as
	// those that change with every request. The namespace * matches any. Counters of views, ratings
	// and comments are never part of it: media:statistics, media:starRating, slash:comments and
	// thr:total.
	HashWithout []xml.Name
}

// Limits bound the parts of a document. Zero means the default.
type Limits struct {
	// Entry is the maximum size of an entry in bytes, in UTF-8; 8 MiB by default.
	Entry int
	// Head is the maximum total size in bytes of all elements that are not entries, and
	// of any one comment, declaration or text between elements; 8 MiB by default.
	Head int
	// Depth is the maximum depth of nested elements; 256 by default.
	Depth int
}

// Identity is the preferred source of IDs: "guid", which is also the meaning of "auto"
// and of the empty Identity, "link" or "content".
type Identity string

// Values returns the valid values.
func (Identity) Values() []string { return []string{"auto", "guid", "link", "content"} }
