package syndication

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// Held gives the newest fingerprint of each entity of a feed that the topic holds, or
// that Next has returned and that is not committed yet, whichever copy published it.
type Held interface {
	Mark(id string) (mark string, held bool)
	Marks() iter.Seq2[string, string]
}

// decider decides which entries are published, from the configuration, the feed, and the contents
// of the topic. It makes no requests.
type decider struct {
	cfg     Config
	profile profile
	held    Held
	// job is the rest of a poll; nil if there is nothing to publish.
	job *job
}

// mayWant reports whether an entry may have to be published, before the end of its
// document is known. It is true too often rather than not often enough.
func (s *decider) mayWant(cur *cursor, it *item) bool {
	raw, held := s.held.Mark(it.ID)
	m, ok := parseFingerprint(raw)
	switch {
	case !held && it.Deleted:
		return s.cfg.TombstoneUnknown == "publish"
	case !held:
		return !s.isSkipped(cur, it)
	case !ok:
		return true
	case it.Deleted:
		return !m.deleted
	}
	return m.deleted || m.hash != it.hash
}

// isSkipped reports whether reading started behind an entry that the topic does not
// have.
func (s *decider) isSkipped(cur *cursor, it *item) bool {
	if cur.Since != 0 {
		at := instantOf(it.Updated.Time)
		if at == 0 {
			at = instantOf(it.Published.Time)
		}
		if at != 0 && at < cur.Since {
			return true
		}
	}
	return cur.sawEntry(it.ID, it.hash)
}

// publishDecision is the publish decision for an entry of a document (RFC 5005, section
// 4.2, and RFC 6721). It returns "" if nothing is to be published.
func (s *decider) publishDecision(cur *cursor, d *document, it *item) feed.Operation {
	raw, held := s.held.Mark(it.ID)
	m, ok := parseFingerprint(raw)
	known := held && ok
	if known && s.isSuperseded(cur, d, it) {
		return ""
	}
	if it.Deleted {
		return s.decideTombstone(d, it, m, held)
	}
	trusted := func(t instant) instant { return s.trustedTime(t, d.now) }
	c, was := trusted(instantOf(it.Updated.Time)), trusted(m.updated)
	complete := d.dialect == Complete && !d.archive && !d.partial
	switch {
	case !held:
		if s.isSkipped(cur, it) {
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
			d.seen.addViolation(StaleDropped, d.url, "entry %s is from before it was deleted", feedxml.Excerpt(it.ID))
			return ""
		}
		return feed.Put
	case m.hash == it.hash:
		return ""
	case complete:
		// A complete document is the state of the feed, whatever its dates are.
		if c != 0 && was != 0 && c < was {
			d.seen.addViolation(UpdatedRegressed, d.url, "entry %s has changed and is older than before, of %s", feedxml.Excerpt(it.ID), it.Updated.Raw)
		}
		return feed.Put
	case d.dialect == Snapshots && !d.old:
		return feed.Put // the newer document counts, and they come in order
	case d.isOutdated(m, c, was, trusted(m.document)):
		d.seen.addViolation(StaleDropped, d.url, "entry %s is older than what is published of it", feedxml.Excerpt(it.ID))
		return ""
	}
	return feed.Put
}

// isOutdated reports whether an entry of the document is older than the published version of
// it. Its date is updated, and was that of the published version; the documents that the two
// are from decide if these dates do not. before is the date of the document that the published
// version is from. A date that is not known is 0.
func (d *document) isOutdated(published fingerprint, updated, was, before instant) bool {
	switch {
	case updated != 0 && was != 0 && updated != was:
		return updated < was
	case d.updated != 0 && before != 0 && d.updated > before && !d.old:
		return false
	case d.updated != 0 && before != 0 && d.updated < before:
		return true
	}
	// An older document precedes the published version, and does not follow it.
	return d.old && published.page != hashKey(d.url).pageNumber()
}

func (s *decider) decideTombstone(d *document, it *item, m fingerprint, held bool) feed.Operation {
	when, was := instantOf(it.Updated.Time), s.trustedTime(m.updated, d.now)
	switch {
	case d.broken && (held && !m.deleted || s.cfg.TombstoneUnknown == "publish"):
		d.withheld = true
		d.seen.addViolation(DeletesWithheld, d.url, "there is a tombstone of %s in a document that is not well-formed; it is not deleted", feedxml.Excerpt(it.ID))
		return ""
	case !held && s.cfg.TombstoneUnknown == "publish":
		return feed.Delete
	case !held:
		d.seen.addViolation(UnknownTombstone, d.url, "there is a tombstone of %s, which the topic does not have (tombstone_unknown)", feedxml.Excerpt(it.ID))
		return ""
	case m.deleted:
		return ""
	case was != 0 && when < was:
		d.seen.addViolation(StaleDropped, d.url, "the tombstone of %s is older than what is published of it", feedxml.Excerpt(it.ID))
		return ""
	}
	return feed.Delete
}

// classify sets the properties of a document that depend on all of it: dialect, order,
// update time.
func (s *decider) classify(cur *cursor, d *document) {
	d.updated = s.trustedTime(instantOf(d.meta.Updated.Time), d.now)
	if d.updated == 0 && d.meta.Format != feedxml.Atom {
		if t, _, ok := message.ParseDate(d.response.Header.Get("Last-Modified")); ok {
			d.updated = s.trustedTime(instantOf(t), d.now)
		}
	}
	if d.archive && d.believe != 0 && d.updated >= d.believe && d.meta.Format != feedxml.Atom {
		d.seen.addViolation(ArchiveTooNew, d.url, "the archive says it is of %s, and is older than the feed's document, which says it is not; its date is not believed", d.meta.Updated.Raw)
		d.updated = 0
	}
	var odd []feed.Violation
	d.dialect, d.deletes, odd = s.documentDialect(&d.meta)
	d.deletes = d.deletes && !d.archive && !d.partial
	for _, v := range odd {
		v.Page = d.url
		d.seen.addAll([]feed.Violation{v})
	}
	if d.fold.times > 0 {
		d.seen.addViolation(DuplicateID, d.url, "%d entries have an ID that another has, such as %s; of each ID one is taken", d.fold.times, feedxml.Excerpt(d.fold.repeated))
	}
	switch d.order = s.profile.order; {
	case d.order != feedxml.NoOrder:
	case d.meta.Order != feedxml.NoOrder:
		d.order = d.meta.Order
	case cur.Order != feedxml.NoOrder && cur.Order != feedxml.Mixed:
		d.order = cur.Order
	default:
		d.order = feedxml.NewestFirst
	}
	if d.order == d.meta.Order && d.order != feedxml.Mixed {
		if cur.Order != feedxml.NoOrder && cur.Order != d.order && s.profile.order == feedxml.NoOrder {
			d.seen.addViolation(OrderChanged, d.url, "the entries of the document run %s, where they ran %s before", d.order, cur.Order)
		}
	}
}

// documentDialect is the dialect of a document, as far as the configuration leaves it
// open.
func (s *decider) documentDialect(m *feedxml.Meta) (Dialect, bool, []feed.Violation) {
	found, deletes, odd := dialectOf(m)
	switch forced := s.profile.forced; {
	case forced == "" && found == Archived && s.cfg.OlderRel == "" && isAtomHopper(m):
		return Paged, false, odd
	case forced == "":
		return found, deletes, odd
	case forced == Complete && found != Complete:
		asked := *m
		asked.Complete, asked.Incremental = true, feedxml.Unset
		return dialectOf(&asked)
	case found == Complete && strings.HasPrefix(string(s.cfg.Dialect), "fh-"):
		return found, deletes, odd
	default:
		return forced, deletes && forced == Complete, odd
	}
}

// trustedTime is t, or 0 if it is so far in the future that it cannot be right.
func (s *decider) trustedTime(t instant, now time.Time) instant {
	if t > instantOf(now.Add(s.cfg.TrustAhead)) {
		return 0
	}
	return t
}

// isSuperseded reports whether a newer document of the walk has the version of an entry
// that the topic held when the walk began, so that this document would take the topic
// back to an older version. If no document has it, and the walk reads published
// documents again, only the last version is published.
func (s *decider) isSuperseded(cur *cursor, d *document, it *item) bool {
	if d.depth == 0 || s.job == nil {
		return false
	}
	l, ok := s.job.lasts[hashKey(it.ID)]
	return ok && l.depth < d.depth && (l.same || cur.Rewalk) && l.supersedes(s.trustedTime(instantOf(it.Updated.Time), d.now), d.updated, s.job.dialect)
}

// missingIDs are the entries that the topic has and the document has not, sorted.
func (s *decider) missingIDs(d *document) []string {
	var ids []string
	for id, raw := range s.held.Marks() {
		if m, ok := parseFingerprint(raw); ok && !m.deleted && !d.fold.hasEntry(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// countLive counts the entries that the topic has.
func (s *decider) countLive() int {
	n := 0
	for _, raw := range s.held.Marks() {
		if m, ok := parseFingerprint(raw); ok && !m.deleted {
			n++
		}
	}
	return n
}

// holdsAny reports whether the feed ever had an entry.
func (s *decider) holdsAny(cur *cursor) bool {
	for range s.held.Marks() {
		return true
	}
	return len(cur.Seen) > 0
}

// wantsAny reports whether anything of a document is to be published.
func (s *decider) wantsAny(cur *cursor, d *document) bool {
	if d.window.cut != nil {
		return true
	}
	probe := *d
	probe.seen = violationSet{}
	return slices.ContainsFunc(d.window.items, func(it *item) bool { return s.publishDecision(cur, &probe, it) != "" })
}
