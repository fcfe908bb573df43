package feedxml

import (
	"encoding/xml"

	"github.com/feedbridge/feedbridge/safetext"
)

// Options say how a document is read.
type Options struct {
	// URL is where the document is, after redirects; a Content-Location goes
	// before that. References in the document are relative to it.
	URL string
	// ContentType is the field of that name, as received. Only its charset
	// matters: what the document is, its root element says.
	ContentType string
	// Limits bound what a document may take.
	Limits Limits
	// Check has all of the document read by encoding/xml too, and refuses what
	// that refuses and what it overlooks. Reading takes some seven times as long.
	Check bool
	// Lenient has documents read that are not well-formed: what is wrong is repaired,
	// and costs at most the entry that it stands in. [Reader.Faults] says what was.
	// Entries are well-formed all the same, but for
	// entities that XML does not define. Check has to be off.
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

// Limits bound what a document may take. What is zero has its default.
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
// "auto" stand for too, "link" or "content".
type Identity string

// Values returns the valid values.
func (Identity) Values() []string { return []string{"auto", "guid", "link", "content"} }
