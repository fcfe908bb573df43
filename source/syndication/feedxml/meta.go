package feedxml

import (
	"cmp"
	"strings"
	"time"
)

const (
	// mostAuthors is the maximum number of authors of a document.
	mostAuthors = 10
	// longestAuthor is the maximum length of an author, in bytes.
	longestAuthor = 1 << 10
)

// Meta has the metadata of a document: the elements in atom:feed, in a channel or in
// the atom:head of early drafts that are not in an entry.
type Meta struct {
	// URL is the document's, as given in [Options].
	URL    string
	Format Format
	// Version is the version attribute of an element rss.
	Version string
	// ID is the feed's atom:id, or the rdf:about of its channel. It does not identify
	// the feed, because some servers generate another one for each answer.
	ID, Title string
	// Authors are the feed's, each as "Name <a@b.example>", or only the name or the
	// address.
	Authors []string
	// Updated is the time of the document's last change: atom:updated, for RSS
	// lastBuildDate or else pubDate.
	Updated Date
	// Links are in the order of the document. The plain link of an RSS channel
	// is an "alternate".
	Links []Link

	// Complete and Archive are fh:complete and fh:archive.
	Complete, Archive bool
	// Incremental is fh:incremental, or fh:stateful as it was called before.
	Incremental Flag
	// Prev is fh:prev, the link to an older document in the drafts 01 to 04,
	// absolute; PrevRaw is as written.
	Prev, PrevRaw string

	// Hints are the polling hints.
	Hints Hints

	// Order is the order of the update times of the entries so far, and PublishedOrder
	// that of most of their dates of publication.
	Order, PublishedOrder Order
	// Undefined is the first entity that the document refers to and that XML
	// does not define.
	Undefined string
	// Doubtful reports that entries may be missing, or have other IDs, because of a prefix that is not declared or an
	// attribute that repeats.
	Doubtful bool
}

// Flag is the value of an element that is true, false or missing.
type Flag string

// The values of a flag. Any other text counts as absent.
const (
	Unset Flag = ""
	Yes   Flag = "true"
	No    Flag = "false"
)

// Link returns the link of a relation, and the number of links of that relation. Of
// several, it returns the first one with the media type of a feed or without a media
// type. rel is in lower case.
func (m *Meta) Link(rel string) (link Link, count int) {
	suits := false
	for _, l := range m.Links {
		if l.Rel != rel {
			continue
		}
		if feed := m.Format.MayHaveType(l.Type); count == 0 || feed && !suits {
			link, suits = l, feed
		}
		count++
	}
	return link, count
}

// metaReader reads the elements that describe a document.
type metaReader struct {
	*vocabulary
	meta        Meta
	updatedRank int  // of meta.Updated
	manyLinks   bool // more than mostLinks links were reported
	// hasTTL reports that Period is the ttl. The others are the values of sy:updatePeriod and
	// sy:updateFrequency.
	hasTTL      bool
	syPeriod    time.Duration
	syFrequency int
}

// readElement reads an element of b that is not an entry. Of several with the same
// meaning, the first counts. depth is the number of elements around it.
func (r *metaReader) readElement(b []byte, el *element, depth int, s *scope, in space, local []byte, declared bool) {
	b = b[:el.end]
	content := b[el.tag.end:el.close]
	r.attrs = attributes(r.attrs[:0], b, el.tag)
	name, m := string(local), &r.meta
	isOwn := in == r.own && m.Format != Atom
	hidden := !declared && (name == "entry" || name == "item")
	r.doubtful = r.doubtful || hidden
	switch {
	case depth == 1 && m.Format != Atom && !hidden:
		// Elements beside a channel do not describe it.
	case !declared:
		if hidden || isFlag(name) || name == "link" || name == "prev" {
			r.violationf(UndeclaredPrefix, "the prefix of %s is not declared; the element is ignored", Excerpt(b[1:el.tag.nameEnd]))
		}
	case in == history:
		r.readHistory(s, name, content)
	case in == syndication:
		r.readSyndication(name, content)
	case documentRank(in, name, isOwn) > 0:
		r.keepBetter(&m.Updated, &r.updatedRank, documentRank(in, name, isOwn), name, content)
	case r.readDescription(b, el, s, in, isOwn, name, content):
	case isOwn:
		r.readHint(b, el, name, content)
	}
}

// readDescription reads an element that names the feed or its authors, or that links to a
// document. It reports whether the element is one of them.
func (r *metaReader) readDescription(b []byte, el *element, s *scope, in space, isOwn bool, name string, content []byte) bool {
	m := &r.meta
	switch {
	case in == atom && name == "link" && (!isOwn || len(r.attrs) > 0):
		r.readLink(s)
	case isOwn && name == "link":
		r.readPlainLink(plainText(content), s)
	case in == atom && name == "id":
		keepFirstClipped(&m.ID, content)
	case in == atom && name == "author":
		m.addAuthor(readAuthor(b, el))
	case isOwn && name == "managingEditor", in == dc && name == "creator":
		m.addAuthor(plainText(content))
	case (in == atom || isOwn) && name == "title":
		keepFirstClipped(&m.Title, content)
	default:
		return false
	}
	return true
}

func (m *Meta) addAuthor(author string) {
	if author != "" && len(author) <= longestAuthor && len(m.Authors) < mostAuthors {
		m.Authors = append(m.Authors, strings.Clone(author))
	}
}

// documentRank ranks the elements that can have the time of a document's last change; 0
// for others.
func documentRank(in space, local string, isOwn bool) int {
	switch {
	case in == atom && (local == "updated" || local == "modified"), isOwn && local == "lastBuildDate":
		return 4
	case isOwn && local == "pubDate":
		return 3
	}
	return updateRank(in, local)
}

func isFlag(local string) bool {
	switch local {
	case "complete", "archive", "incremental", "stateful", "Stateful":
		return true
	}
	return false
}

// readHistory reads an element of RFC 5005 or of one of its drafts.
func (r *metaReader) readHistory(s *scope, local string, content []byte) {
	m := &r.meta
	switch local {
	case "complete":
		m.Complete = true
	case "archive":
		m.Archive = true
	case "incremental", "stateful", "Stateful": // the last as in draft 00
		flag := map[string]Flag{"1": Yes, "true": Yes, "0": No, "false": No}[strings.ToLower(plainText(content))]
		if flag == Unset || m.Incremental != Unset && m.Incremental != flag {
			r.violationf(kindBadFlag, "fh:%s is neither true nor false, or contradicts the flag before it, and is ignored: %s", local, Excerpt(content))
			return
		}
		m.Incremental = flag
	case "prev":
		raw := plainText(content)
		if raw == "" || m.PrevRaw != "" {
			return
		}
		href, ok := resolveLink(s.base, raw)
		if !ok {
			r.badLink("fh:prev", raw)
		}
		m.Prev, m.PrevRaw = href, clipText(raw)
	}
}

// Hints are a publisher's hints about the time of the next poll, in the form that cursors store. Missing
// hints are zero.
type Hints struct {
	// Period is the interval between polls in seconds: the ttl of RSS, or else the one of the elements
	// sy:updatePeriod and sy:updateFrequency.
	Period int64 `json:"period,omitempty"`
	// SkipHours and SkipDays are the bit sets of the hours, in UTC, and of the days of the week, from
	// Sunday, in which the feed does not change.
	SkipHours uint32 `json:"skip_hours,omitempty"`
	SkipDays  uint32 `json:"skip_days,omitempty"`
	// Expired reports that nothing will come any more.
	Expired bool `json:"expired,omitempty"`
}

// addUndefined reports an entity that XML does not define, once for each element that
// the reader reads as a whole. offset is the position of the element in the document.
func (r *metaReader) addUndefined(s *scanner, offset int64) {
	name := s.undefined
	if name == "" {
		return
	}
	s.undefined = ""
	if r.meta.Undefined == "" {
		r.meta.Undefined = name
	}
	r.violationf(kindUndefinedEntity, "what begins at byte %d has the entity &%s;, which XML does not define; strict readers refuse it", offset, name)
}

// readAuthor returns an author of a feed, an element of b, as "Name <a@b.example>", or only the name or
// the mail address if the other is missing.
func readAuthor(b []byte, el *element) string {
	var name, email string
	eachChild(b, el, "name", func(text string) { name = cmp.Or(name, text) })
	eachChild(b, el, "email", func(text string) { email = cmp.Or(email, text) })
	if name != "" && email != "" {
		return name + " <" + email + ">"
	}
	return name + email
}
