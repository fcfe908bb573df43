package feedxml

import (
	"encoding/xml"

	"github.com/feedbridge/feedbridge/safetext"
)

// Options configure how a document is read.
type Options struct {
	// URL is where the document is, after redirects; a Content-Location goes
	// before that. References in the document are relative to it.
	URL string
	// ContentType is the header field of that name, as received. Only its charset is
	// used: the root element decides about the format.
	ContentType string
	// Limits bound the parts of a document.
	Limits Limits
	// Check also reads the whole document with encoding/xml, and refuses documents that
	// it refuses and some that it wrongly accepts. Reading takes about seven times as
	// long.
	Check bool
	// Lenient repairs documents that are not well-formed; a fault costs at most the
	// entry that it is in. [Reader.Faults] lists the repairs. Entries are well-formed
	// all the same, except for entities that XML does not define. Check has to be off.
	Lenient bool
	// Redact hides the secrets of URLs in the text that errors quote. Nil knows the usual
	// names of parameters only.
	Redact *safetext.Redactor
	// Identity is what entries are identified by first.
	Identity Identity
	// HashWithout are children of entries that do not count in [Entry.Hash],
	// such as those that change with every request. The namespace * is any.
	HashWithout []xml.Name
}

// Limits bound the parts of a document. Zero means the default.
type Limits struct {
	// Entry is how many bytes an entry may have, in UTF-8; 8 MiB by default.
	Entry int
	// Head is how many bytes all elements that are not entries may have
	// together, and any one comment, declaration or stretch of text between
	// elements; 8 MiB by default.
	Head int
	// Depth is how deep elements may be nested; 256 by default.
	Depth int
	// Attributes is how many an element may have; 256 by default.
	Attributes int
}

// Identity is what entries are identified by first: "guid", which the empty Identity and
// "auto" mean too, "link" or "content".
type Identity string

// Values returns the valid values.
func (Identity) Values() []string { return []string{"auto", "guid", "link", "content"} }
