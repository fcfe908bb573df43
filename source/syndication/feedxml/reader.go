// Package syndication reads Atom and RSS feeds.
//
// A [Reader] goes through one document as it arrives and finds its entries:
// what each is identified by, when it was changed, what it links to, and its own
// bytes, made to stand alone. What the document says of itself is in [Meta],
// which is whole once the reader has reached the end. What it holds in memory is
// one entry, however large the document is.
//
// A [Source] polls a feed: it finds out where the feed keeps what its document has
// no room for, walks back to what is published, and decides for every entry by
// what the topic has of it. What the topic has is the truth; the cursor saves work.
//
// # Non-obvious
//
//   - Elements that describe a document may stand behind its entries. There is no
//     telling that a document has no older one before its end was read.
//   - A name is a namespace and a local name. Prefixes mean nothing: fh:complete
//     with an undeclared prefix is not a flag.
//   - What an entry inherits is made part of its body only where the entry uses
//     it. Else an archive that declares one prefix more than the subscription
//     document would change all its entries.
//   - encoding/xml accepts two roots, attributes that repeat and prefixes that are
//     not declared. [Check] does not.
package feedxml

import (
	"encoding/xml"
	"io"
	"time"

	"github.com/feedbridge/feedbridge/feed"
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
	// Identity is what entries are identified by first; see [Settings.Identity].
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

// Reader reads one document. It is for one goroutine.
type Reader struct {
	opts    Options
	in      input
	charset string
	scan    scanner

	meta       Meta
	violations []feed.Violation
	faults     Faults
	repairWork int64 // bytes

	begun bool
	open  []container // that the reader is in, the root first
	root  []container // the root, if it is one; a lenient reader may go on in it
	named bool        // the document had what its format asks for, such as a channel
	head  int         // bytes of elements that are not entries
	err   error       // what Next has returned, and returns from then on

	// rssURI is the namespace of a root element rss, which is that of its
	// items too, whatever it is; own is how names of the format are known.
	rssURI string
	own    space

	element element
	names   []span // of the elements that are open in element
	attrs   []attr
	dates   dateOrder
	entries int

	updatedRank int // of meta.Updated
	// entities are those that the document declares, and expanded is how many bytes
	// references to them have become.
	entities map[string]declaredEntity
	expanded int
	// rootRepaired is one more than the offset of the root's start tag, if that was
	// repaired; htmlDoctype reports that the document is HTML by its declaration.
	rootRepaired int64
	htmlDoctype  bool
	manyLinks    bool // that the document has more than mostLinks was reported
	// What sy:updatePeriod and sy:updateFrequency say.
	syPeriod    time.Duration
	syFrequency int
}

// NewReader returns a reader of the document that r has the bytes of.
func NewReader(r io.Reader, opts Options) *Reader {
	orDefault := func(limit *int, value int) {
		if *limit == 0 {
			*limit = value
		}
	}
	orDefault(&opts.Limits.Entry, 8<<20)
	orDefault(&opts.Limits.Head, 8<<20)
	orDefault(&opts.Limits.Depth, 256)
	orDefault(&opts.Limits.Attributes, 256)
	reader := &Reader{
		opts: opts, in: input{r: r, repair: opts.Lenient}, meta: Meta{URL: opts.URL},
		scan: scanner{maxAttributes: opts.Limits.Attributes},
	}
	reader.in.tell = reader.repairedCharacter
	reader.in.tellMore = func(n int) { reader.faults.Count += n }
	return reader
}

// Meta returns what the document has said of itself so far. Its format is known
// after the first call of Next, the rest when Next has returned [io.EOF].
func (r *Reader) Meta() *Meta { return &r.meta }

// Faults returns what was repaired so far, if the reader is lenient.
func (r *Reader) Faults() *Faults { return &r.faults }

// Violations returns what was seen since it was last called, and did not stop
// the reading. It keeps the first hundred.
func (r *Reader) Violations() []feed.Violation {
	seen := r.violations
	r.violations = nil
	return seen
}

// Next returns the next entry. It returns [io.EOF] once the root element has
// ended and nothing follows it. Any other way to end is an error of this package
// or one of the underlying reader. After an error, Next returns it again.
func (r *Reader) Next() (Entry, error) {
	if r.err != nil {
		return Entry{}, r.err
	}
	var next Entry
	next, r.err = r.next()
	return next, r.err
}

func (r *Reader) next() (Entry, error) {
	if !r.begun {
		r.begun = true
		if e, found, err := r.readRoot(); found || err != nil {
			return e, err
		}
	}
	for {
		for len(r.open) > 0 {
			if e, found, err := r.step(); found || err != nil {
				return e, err
			}
		}
		err := r.end()
		if !r.reopen(err) {
			return Entry{}, err
		}
	}
}

// end reads what follows the root element.
func (r *Reader) end() error {
	if !r.named && r.opts.Lenient && r.entries > 0 {
		r.named = true
		r.repaired(ErrMalformed, 0, "the document has no channel")
	}
	if !r.named {
		return r.failed(ErrNotFeed, 0, "the document has no channel")
	}
	return r.trailer()
}

// tellUndefined tells of an entity that XML does not define, once for each
// element that the reader reads as a whole.
func (r *Reader) tellUndefined() {
	name := r.scan.undefined
	if name == "" {
		return
	}
	r.scan.undefined = ""
	if r.meta.Undefined == "" {
		r.meta.Undefined = name
	}
	r.violation(UndefinedEntity, "what begins at byte %d has the entity &%s;, which XML does not define; strict readers refuse it", r.in.offset, name)
}
