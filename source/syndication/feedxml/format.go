package feedxml

import "regexp"

// Format is a family of formats whose versions are read alike.
type Format string

// The formats that are read.
const (
	// Atom is Atom 1.0, 0.3, or one of the drafts between them.
	Atom Format = "atom"
	// RSS is RSS 2.0 or 0.9x: an element rss with a channel that has the items.
	RSS Format = "rss"
	// RDF is RSS 1.0 or 0.90, where the items are beside the channel.
	RDF Format = "rdf"
	// JSON is JSON Feed 1.1 or 1.
	JSON Format = "jsonfeed"
)

// ContentType returns the media type of the body of an entry of the format.
func (f Format) ContentType() string {
	switch f {
	case Atom:
		return "application/atom+xml;type=entry"
	case JSON:
		return "application/json"
	}
	return "application/xml"
}

// formatOf returns the format of a document by its root element, and whether
// the root is an entry itself.
func formatOf(in binding, local string) (format Format, single bool) {
	switch {
	case in.space == atom && local == "feed":
		return Atom, false
	case in.space == atom && local == "entry", in.space == tombstones && local == "deleted-entry":
		return Atom, true
	case in.space == rdf && local == "RDF":
		return RDF, false
	case local == "rss":
		return RSS, false
	}
	return "", false
}

// rootTag matches the possible beginning of a feed in other text. The bytes of its prefix are those of names, so a
// match does not depend on the bytes behind the name.
var rootTag = regexp.MustCompile(`<\?xml\s|<(?:[\w.[:^ascii:]-]+:)?(?:rss|feed|RDF|deleted-entry|entry)[\s>/]`)

// isContainer reports whether a child of the innermost container is a container too.
func (v *vocabulary) isContainer(depth int, in space, local []byte) bool {
	if depth != 1 {
		return false
	}
	if v.own == atom && v.format == Atom {
		// Early drafts of Atom had the elements that describe the feed in one
		// of their own.
		return in == atom && string(local) == "head"
	}
	return in == v.own && string(local) == "channel"
}

// isEntry reports whether a child of the innermost container is an entry or a
// tombstone.
func (v *vocabulary) isEntry(depth int, in space, local []byte) bool {
	switch string(local) {
	case "entry":
		return in == atom && v.format == Atom && depth == 1
	case "deleted-entry":
		return in == tombstones
	case "item":
		return in == v.own && v.format != Atom
	}
	return false
}
