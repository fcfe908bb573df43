package syndication

import (
	"iter"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// Held is what the topic holds of a feed, and what was returned by Next and is
// not committed yet: the newest mark of each entity, whoever published it.
type Held interface {
	Mark(id string) (mark string, held bool)
	Marks() iter.Seq2[string, string]
}

// mayWant says whether an entry may have to be published, before the end of its
// document is known. It is true too often rather than not often enough.
func (s *Source) mayWant(cur *cursor, it *item) bool {
	raw, held := s.held.Mark(it.ID)
	m, ok := parseMark(raw)
	switch {
	case !held && it.Deleted:
		return s.cfg.TombstoneUnknown == "publish"
	case !held:
		return !s.skipped(cur, it)
	case !ok:
		return true
	case it.Deleted:
		return !m.deleted
	}
	return m.deleted || m.hash != it.hash
}

// skipped says whether reading started behind an entry that the topic does not
// have.
func (s *Source) skipped(cur *cursor, it *item) bool {
	if cur.Since != 0 {
		at := instantOf(it.Updated.Time)
		if at == 0 {
			at = instantOf(it.Published.Time)
		}
		if at != 0 && at < cur.Since {
			return true
		}
	}
	return cur.saw(it.ID, it.hash)
}

// decide is the publish decision for an entry of a document (RFC 5005, section
// 4.2, and RFC 6721). It returns "" if nothing is to be published.
func (s *Source) decide(cur *cursor, d *document, it *item) feed.Operation {
	raw, held := s.held.Mark(it.ID)
	m, ok := parseMark(raw)
	known := held && ok
	if known && s.superseded(cur, d, it) {
		return ""
	}
	if it.Deleted {
		return s.decideTombstone(d, it, m, held)
	}
	trusted := func(t instant) instant { return s.trusted(t, d.now) }
	c, was := trusted(instantOf(it.Updated.Time)), trusted(m.updated)
	complete := d.dialect == Complete && !d.archive && !d.partial
	switch {
	case !held:
		if s.skipped(cur, it) {
			return ""
		}
		return feed.Put
	case !known:
		return feed.Put
	case m.deleted:
		if c == 0 {
			c = d.updated
		}
		if !complete && was != 0 && (c != 0 && c <= was || c == 0 && d.archive) {
			d.seen.add(StaleDropped, d.url, "entry %s is from before it was deleted", feedxml.Excerpt(it.ID))
			return ""
		}
		return feed.Put
	case m.hash == it.hash:
		return ""
	case complete:
		// What a complete document has is the state, whatever its dates say.
		if c != 0 && was != 0 && c < was {
			d.seen.add(UpdatedRegressed, d.url, "entry %s has changed and is older than before, of %s", feedxml.Excerpt(it.ID), it.Updated.Raw)
		}
		return feed.Put
	case d.dialect == Snapshots && !d.old:
		return feed.Put // the newer document counts, and they come in order
	}
	stale := func() feed.Operation {
		d.seen.add(StaleDropped, d.url, "entry %s is older than what is published of it", feedxml.Excerpt(it.ID))
		return ""
	}
	before := trusted(m.document)
	switch {
	case c != 0 && was != 0 && c > was:
		return feed.Put
	case c != 0 && was != 0 && c < was:
		return stale()
	case d.updated != 0 && before != 0 && d.updated > before && !d.old:
		return feed.Put
	case d.updated != 0 && before != 0 && d.updated < before:
		return stale()
	case d.old && m.page != keyOf(d.url).page():
		return stale() // it comes before what is published, and not behind it
	}
	return feed.Put
}

func (s *Source) decideTombstone(d *document, it *item, m mark, held bool) feed.Operation {
	when, was := instantOf(it.Updated.Time), s.trusted(m.updated, d.now)
	switch {
	case d.broken && (held && !m.deleted || s.cfg.TombstoneUnknown == "publish"):
		d.withheld = true
		d.seen.add(DeletesWithheld, d.url, "there is a tombstone of %s in a document that is not well-formed; it is not deleted", feedxml.Excerpt(it.ID))
		return ""
	case !held && s.cfg.TombstoneUnknown == "publish":
		return feed.Delete
	case !held:
		d.seen.add(UnknownTombstone, d.url, "there is a tombstone of %s, which the topic does not have (tombstone_unknown)", feedxml.Excerpt(it.ID))
		return ""
	case m.deleted:
		return ""
	case was != 0 && when < was:
		d.seen.add(StaleDropped, d.url, "the tombstone of %s is older than what is published of it", feedxml.Excerpt(it.ID))
		return ""
	}
	return feed.Delete
}
