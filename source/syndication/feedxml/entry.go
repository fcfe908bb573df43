package feedxml

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// MaxTitleHashes is the number of entries of a document that have a [Entry.TitleHash],
// the first ones.
const MaxTitleHashes int = 100

// Entry is an entry of a document, an item, or a tombstone. It shares no memory
// with the reader.
type Entry struct {
	// ID identifies the entry, as written and without white space around it. It is ""
	// only for a tombstone that does not name its entry.
	ID string
	// IDFrom is the source of ID.
	IDFrom IDSource
	// TitleHash is a short hash of the title, the link and the date: that of
	// publication, or else of the last change. It is 0 if the entry has no date, or
	// neither a title nor a link, or is not among the first of the document. It detects
	// an entry whose ID has changed.
	TitleHash uint32
	// Traits distinguish entries that have the same ID.
	Traits Traits
	// Deleted reports that this is a tombstone: the entry ID was deleted when
	// Updated says.
	Deleted bool
	// Updated is the time of the last change. RSS has no such time, and a date of
	// publication is not one.
	Updated Date
	// Published is the time of the first publication.
	Published Date
	// Body is the entry's own XML, byte for byte but for its start tag: that has
	// the namespaces, xml:base and xml:lang which the entry inherits too, so
	// that it can be read by itself. It is UTF-8.
	Body []byte
	// Length is the length of the entry in bytes if Body has only its beginning; else 0.
	Length int64
	// Hash is the SHA-256 of Body without the elements of [Options.HashWithout] and the counters, or
	// of the whole entry if Body has only its beginning.
	Hash [sha256.Size]byte
	// Undefined is the first entity that the entry refers to and that XML does
	// not define. Strict parsers refuse such a body.
	Undefined string
	// Index is the number of the entry in the document, from 0, and Offset the position
	// of its first byte, in UTF-8.
	Index  int
	Offset int64
}

// Traits are hashes of the link of an entry, of the URL of its enclosure and of its title, and its
// date of publication in Unix seconds. They have 48 bits. A trait is 0 if the entry lacks it or has
// its ID from it.
type Traits [4]uint64

// The indexes of the traits. TraitNames has their names.
const (
	LinkTrait      int = 0
	DateTrait      int = 1
	EnclosureTrait int = 2
	TitleTrait     int = 3
)

// TraitNames are the names of the traits.
var TraitNames = [...]string{LinkTrait: "link", DateTrait: "date", EnclosureTrait: "enclosure", TitleTrait: "title"}

// IDSource names the element or attribute that an entry's ID comes from. Those that are
// not the format's own are weak: the ID may change although the entry does not.
type IDSource string

// The sources of IDs, in the order in which they are tried. An element that is
// empty counts as missing.
const (
	FromID        IDSource = "id"        // atom:id, or the ref of a tombstone
	FromAttribute IDSource = "@id"       // an attribute id, as PaceFeedState has it
	FromGUID      IDSource = "guid"      //
	FromAbout     IDSource = "rdf:about" //
	FromLink      IDSource = "link"      //
	FromHash      IDSource = "hash"      // the SHA-256 of the content that a reader would show
)

// Weak reports whether the ID is not the format's own.
func (s IDSource) Weak() bool { return s == FromAttribute || s == FromLink || s == FromHash }

// entryReader reads entries, items and tombstones.
type entryReader struct {
	*vocabulary
	identity   Identity
	exclusions *exclusions
	dates      dateOrder
	count      int // of entries that were read
}

// readEntry returns the Entry of an element of b, which begins at an offset of the
// document. inherit has the declarations that it inherits, and s is the scope within
// it.
func (r *entryReader) readEntry(b []byte, el *element, inherit *inheritance, s *scope, deleted bool, offset int64) Entry {
	b = b[:el.end]
	e := Entry{Deleted: deleted, Index: r.count, Offset: offset}
	r.attrs = attributes(r.attrs[:0], b, el.tag)
	e.Body = inherit.standalone(b, el.tag, r.attrs, s.base)
	own := entryParts{}
	if deleted {
		r.tombstone(&e, s)
	} else {
		if r.format == Atom {
			own.attribute, _ = r.attribute(s, noSpace, "id")
		}
		own.about, _ = r.attribute(s, rdf, "about")
		r.readChildren(&e, &own, b, el, s)
	}
	e.Hash = contentHash(e.Body, r.exclusions.find(b, el.excluded, s))
	if !deleted {
		r.identify(&e, &own)
		if e.IDFrom.Weak() {
			r.violationf(kindWeakID, "entry %d, at byte %d, has no id of its own; its %s is used", e.Index, e.Offset, e.IDFrom)
		}
	}
	r.count++
	return e
}

// identify gives an entry its ID, and what distinguishes it from others.
func (r *entryReader) identify(e *Entry, own *entryParts) {
	r.setID(e, own)
	if e.Index < MaxTitleHashes {
		e.TitleHash = own.titleHash(e.Updated.Raw)
	}
	e.Traits = own.traits(e)
	r.dates.addDates(e.Updated, e.Published)
}

// identifyByHash gives an entry without an ID that of all its bytes, of which Body has the beginning.
func (e *Entry) identifyByHash() {
	if e.Length > 0 && e.IDFrom == FromHash {
		e.ID = hex.EncodeToString(e.Hash[:])
	}
}

// tombstone reads the attributes of an at:deleted-entry (RFC 6721, section 3).
func (r *entryReader) tombstone(e *Entry, s *scope) {
	ref, _ := r.attribute(s, noSpace, "ref")
	ref = r.ownID(s, ref)
	e.ID, e.IDFrom = r.shortID(trimSpace(ref)), FromID
	when, ok := r.attribute(s, noSpace, "when")
	e.Updated = r.parseDate("when", when)
	if e.ID == "" || !ok {
		r.violationf(kindBadTombstone, "the tombstone at byte %d has no ref or no when, so it deletes nothing: %s", e.Offset, Excerpt(e.ID))
	}
}

// entryParts are the parts of an entry that can identify it.
type entryParts struct {
	id, attribute, guid, about string
	// link is as written, and base is its base URL, in Atom.
	link, base string
	hasLink    bool
	// The inputs of contentHash: contents of elements, and the URL of the enclosure.
	title, description, published []byte
	encoded                       []byte
	enclosure                     string
	// The ranks of the elements that the dates are from.
	updatedRank, publishedRank int
}

func (r *entryReader) setID(e *Entry, p *entryParts) {
	link := p.link
	if p.hasLink && (p.guid == "" && p.id == "" || r.identity == "link") {
		link, _ = resolveLink(p.base, link)
	}
	type candidate struct {
		id   string
		from IDSource
	}
	all := []candidate{{p.guid, FromGUID}, {p.id, FromID}, {trimSpace(p.attribute), FromAttribute}, {trimSpace(p.about), FromAbout}, {link, FromLink}}
	switch r.identity {
	case "link":
		all = slices.Insert(all, 0, candidate{link, FromLink})
	case "content":
		all = nil
	}
	for _, try := range all {
		if try.id != "" {
			e.ID, e.IDFrom = r.shortID(try.id), try.from
			return
		}
	}
	e.ID, e.IDFrom = p.contentHash(), FromHash
}

// titleHash returns [Entry.TitleHash]. Without a date, new entries with the same title,
// such as the readings of sensors, would count as old ones with other IDs.
func (p *entryParts) titleHash(updated string) uint32 {
	date := cmp.Or(plainText(p.published), updated)
	if date == "" || p.title == nil && p.link == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{plainText(p.title), p.link, date}, "\x00")))
	return max(binary.BigEndian.Uint32(sum[:]), 1)
}

// traits returns [Entry.Traits]. dc:date is the date of publication of most items that have it.
func (p *entryParts) traits(e *Entry) (t Traits) {
	if e.IDFrom == FromHash {
		return t
	}
	if e.IDFrom != FromLink {
		t[LinkTrait] = hashTrait(p.link)
	}
	date := e.Published.Time
	if date.IsZero() && e.Updated.From == "date" {
		date = e.Updated.Time
	}
	t[DateTrait] = uint64(max(date.Unix(), 0))
	t[EnclosureTrait] = hashTrait(p.enclosure)
	t[TitleTrait] = hashTrait(plainText(p.title))
	return t
}

func hashTrait(text string) uint64 {
	if text == "" {
		return 0
	}
	return xxhash.Sum64String(text) >> 16
}

// contentHash returns the SHA-256 of the content that a reader would show.
func (p *entryParts) contentHash() string {
	shown := []string{plainText(p.title), plainText(p.description), plainText(p.published), plainText(p.encoded), p.enclosure}
	sum := sha256.Sum256([]byte(strings.Join(shown, "\x00")))
	return hex.EncodeToString(sum[:])
}

// shortID returns the ID under which an entry is published: the ID itself, or its hash
// if it is longer than [longestAddress].
func (r *entryReader) shortID(id string) string {
	if len(id) <= longestAddress {
		return id
	}
	r.violationf(kindLongID, "an id has %d bytes, where %d are the most; its SHA-256 is used instead: %s", len(id), longestAddress, Excerpt(id))
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// readChildren reads the children of an entry that have a meaning.
func (r *entryReader) readChildren(e *Entry, p *entryParts, b []byte, el *element, outer *scope) {
	for i := range el.children {
		c := &el.children[i]
		s := outer
		r.attrs = r.attrs[:0]
		if c.attributes > 0 {
			inner := r.innerScope(outer, b[c.start:], tag{nameEnd: c.nameEnd - c.start, attributes: c.attributes})
			s = &inner
		}
		in, local, declared := s.resolveName(b[c.start+1 : c.nameEnd])
		if name := string(local); !declared && (name == "id" || name == "guid" || name == "link") {
			r.doubtful = true
		}
		r.readChild(e, p, s, in.space, local, b[c.tagEnd:c.close])
	}
}

// readChild reads one child of an entry. Of several with the same meaning, the first
// counts.
func (r *entryReader) readChild(e *Entry, p *entryParts, s *scope, in space, local, content []byte) {
	name := string(local) // does not escape
	isOwn := in == r.own && r.format != Atom
	switch {
	case updateRank(in, name) > 0:
		r.keepBetter(&e.Updated, &p.updatedRank, updateRank(in, name), name, content)
	case publishRank(in, name, isOwn) > 0:
		keepContent(&p.published, content)
		r.keepBetter(&e.Published, &p.publishedRank, publishRank(in, name, isOwn), name, content)
	case name == "link":
		r.readEntryLink(p, s, in, isOwn, content)
	default:
		r.readPart(p, s, in, isOwn, name, content)
	}
}

// readEntryLink reads an element link: that of Atom, or one of RSS, whose URL is its
// content.
func (r *entryReader) readEntryLink(p *entryParts, s *scope, in space, isOwn bool, content []byte) {
	switch {
	case in == atom && (!isOwn || len(r.attrs) > 0):
		if r.format == Atom && !p.hasLink {
			p.link, p.hasLink = r.alternateLink()
			p.base = s.base
		}
	case isOwn:
		keepFirst(&p.link, content)
	}
}

// readPart reads a child that can identify the entry.
func (r *entryReader) readPart(p *entryParts, s *scope, in space, isOwn bool, name string, content []byte) {
	switch {
	case in == atom && name == "id":
		if p.id == "" {
			keepFirst(&p.id, content)
			p.id = r.ownID(s, p.id)
		}
	case isOwn && name == "guid":
		keepFirst(&p.guid, content)
	case (isOwn || in == atom) && name == "title":
		keepContent(&p.title, content)
	case isOwn && name == "enclosure":
		if url, _ := r.attribute(s, noSpace, "url"); p.enclosure == "" {
			p.enclosure = clipBytes(trimSpace(url), longestAddress)
		}
	case in == contentModule && name == "encoded":
		keepContent(&p.encoded, content)
	case isOwn && name == "description", in == atom && (name == "summary" || name == "content"):
		keepContent(&p.description, content)
	}
}

// ownID returns the ID of an entry that Atom has as id, in the element whose attributes are r.attrs.
// Feeds that feedbridge serves have an attribute for an ID that is no IRI, as Atom demands.
func (r *entryReader) ownID(s *scope, id string) string {
	if own, ok := r.attribute(s, extra, "id"); ok && trimSpace(own) != "" {
		return trimSpace(own)
	}
	return id
}

func keepContent(at *[]byte, content []byte) {
	if *at == nil {
		*at = content
	}
}
