package syndication

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// TopicMarks gives the newest mark of each entity of a feed that the topic has, or that
// Next has returned and that is not committed yet, whichever copy published it.
type TopicMarks interface {
	Mark(id string) (mark string, ok bool)
	Marks() iter.Seq2[string, string]
	// Marked reports whether there are any.
	Marked() bool
}

// decider decides which entries are published, by the configuration, the feed and the
// topic. It makes no requests.
type decider struct {
	cfg     Config
	profile profile
	topic   TopicMarks
	// pending is the rest of a poll; nil if there is nothing to publish.
	pending *pendingPoll
}

// checkMarks returns an error if the topic has a mark of another version.
func (s *decider) checkMarks() error {
	for id, mark := range s.topic.Marks() {
		version, _, found := strings.Cut(mark, ";")
		if _, err := strconv.ParseUint(version, 10, 32); found && err == nil && version != fingerprintVersion {
			return feed.Permanent(fmt.Errorf("the mark of the entry %s has version %s and this program reads version %s; run the feedbridge that wrote it, or a newer one",
				feedxml.Excerpt(id), version, fingerprintVersion))
		}
	}
	return nil
}

// mayWant reports whether an entry may have to be published, before its document is
// read to the end. It may be true for an entry that turns out not to be published, but
// never the reverse.
func (s *decider) mayWant(cur *cursor, it *item) bool {
	raw, inTopic := s.topic.Mark(it.ID)
	m, ok := parseFingerprint(raw)
	switch {
	case !inTopic && it.Deleted:
		return false
	case !inTopic:
		return !s.isSkipped(cur, it)
	case !ok:
		return true
	case it.Deleted:
		return !m.deleted
	}
	return m.deleted || m.hash != it.shortHash()
}

// isSkipped reports whether the start position excludes an entry that the topic does
// not have.
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
	return cur.sawEntry(it)
}

// publishDecision returns the operation to publish for an entry of a document (RFC
// 5005, section 4.2, and RFC 6721); "" for none.
func (s *decider) publishDecision(cur *cursor, d *document, it *item) feed.Operation {
	raw, inTopic := s.topic.Mark(it.ID)
	m, ok := parseFingerprint(raw)
	known := inTopic && ok
	if known && s.isSuperseded(d, it, m) {
		return ""
	}
	if it.Deleted {
		return s.decideTombstone(d, it, m, inTopic)
	}
	switch {
	case !inTopic && s.isSkipped(cur, it):
		return ""
	case !known:
		return feed.Put
	case m.deleted:
		return s.decideRevival(d, it, m)
	case m.hash == it.shortHash():
		return ""
	}
	return s.decideChange(d, it, m)
}

// decideRevival decides about an entry whose deletion is published. It is published again
// unless it is from before the deletion.
func (s *decider) decideRevival(d *document, it *item, m fingerprint) feed.Operation {
	updated, deleted := s.trustedTime(instantOf(it.Updated.Time), d.now), s.trustedTime(m.updated, d.now)
	if updated == 0 && !d.archive {
		updated = d.updated
	}
	if !d.isWhole() && deleted != 0 && (updated != 0 && updated <= deleted || updated == 0 && d.archive) {
		d.seen.addViolation(kindStaleDropped, d.url, "entry %s is from before it was deleted", feedxml.Excerpt(it.ID))
		return ""
	}
	return feed.Put
}

// decideChange decides about an entry that is not the same as the published version. It is
// published unless it is older: by its update time, or else by that of its document, or
// else by the order of the documents.
func (s *decider) decideChange(d *document, it *item, m fingerprint) feed.Operation {
	updated, published := s.trustedTime(instantOf(it.Updated.Time), d.now), s.trustedTime(m.updated, d.now)
	order := compareKnown(updated, published)
	switch {
	case d.isWhole():
		// A complete document is the state of the feed, so the dates do not matter.
		if order < 0 {
			d.seen.addViolation(kindUpdatedRegressed, d.url, "entry %s has changed and is older than before, of %s", feedxml.Excerpt(it.ID), it.Updated.Raw)
		}
		return feed.Put
	case d.dialect == Snapshots && !d.late:
		return feed.Put // the newer document counts, and they come in order
	}
	isOlder := order < 0
	if order == 0 {
		// An old document of the walk precedes the published version.
		isOlder = compareKnown(d.asOf(), s.trustedTime(m.document, d.now)) < 0 || d.late && m.page != hashKey(d.url).pageNumber()
	}
	if isOlder {
		d.seen.addViolation(kindStaleDropped, d.url, "entry %s is older than its published version", feedxml.Excerpt(it.ID))
		return ""
	}
	return feed.Put
}

// decideTombstone decides about a tombstone. It is published if the topic has the entry and
// the published version is not newer.
func (s *decider) decideTombstone(d *document, it *item, m fingerprint, inTopic bool) feed.Operation {
	when, was := instantOf(it.Updated.Time), s.trustedTime(m.updated, d.now)
	switch {
	case d.broken && inTopic && !m.deleted:
		d.withheld = true
		d.seen.addViolation(kindDeletesWithheld, d.url, "there is a tombstone of %s in a document that is not well-formed; it is not deleted", feedxml.Excerpt(it.ID))
		return ""
	case !inTopic:
		d.seen.addViolation(kindUnknownTombstone, d.url, "there is a tombstone of %s, which the topic does not have", feedxml.Excerpt(it.ID))
		return ""
	case m.deleted:
		return ""
	case was != 0 && when < was:
		d.seen.addViolation(kindStaleDropped, d.url, "the tombstone of %s is older than the published version of the entry", feedxml.Excerpt(it.ID))
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
	if d.archive && d.believe != 0 && d.updated > d.believe {
		d.seen.addViolation(kindArchiveTooNew, d.url, "the archive says that it is of %s, which is later than the feed's document; its date is not believed", d.meta.Updated.Raw)
		d.updated = 0
	}
	var odd []feed.Violation
	d.dialect, d.deletes, odd = s.documentDialect(&d.meta)
	d.deletes = d.deletes && !d.archive && !d.partial
	for _, v := range odd {
		v.Page = d.url
		d.seen.addAll([]feed.Violation{v})
	}
	if d.versions.times > 0 {
		d.seen.addViolation(kindDuplicateID, d.url, "%d entries have an ID that another has, such as %s; of each ID one is taken", d.versions.times, feedxml.Excerpt(d.versions.repeated))
	}
	if d.shared > 0 {
		d.seen.addViolation(kindSharedID, d.url, "%d entries have the ID of another one, such as %s, and another link, date, enclosure or title; their IDs are extended", d.shared, feedxml.Excerpt(d.sharedID))
	}
	switch d.order = s.profile.order; {
	case d.order != feedxml.NoOrder:
	case d.meta.Order != feedxml.NoOrder:
		d.order = d.meta.Order
	case cur.Order != feedxml.NoOrder && cur.Order != feedxml.Mixed:
		d.order = cur.Order
	case d.meta.PublishedOrder == feedxml.OldestFirst:
		d.order = feedxml.OldestFirst // RSS has no update times
	default:
		d.order = feedxml.NewestFirst
	}
	if d.order == d.meta.Order && d.order != feedxml.Mixed {
		if cur.Order != feedxml.NoOrder && cur.Order != d.order && s.profile.order == feedxml.NoOrder {
			d.seen.addViolation(kindOrderChanged, d.url, "the entries of the document run %s, where they ran %s before", d.order, cur.Order)
		}
	}
}

// documentDialect returns the dialect of a document: the configured one, or else the
// detected one.
func (s *decider) documentDialect(m *feedxml.Meta) (Dialect, bool, []feed.Violation) {
	found, deletes, odd := dialectOf(m)
	if m.Format == feedxml.JSON {
		return found, false, odd // a window or paged: JSON Feed has no other dialect, and deletes nothing
	}
	switch forced := s.profile.forced; {
	case forced == "" && found == Archived && isAtomHopper(m):
		return Paged, false, odd
	case forced == "":
		return found, deletes, odd
	case forced == Complete && found != Complete:
		asked := *m
		asked.Complete, asked.Incremental = true, feedxml.Unset
		return dialectOf(&asked)
	case s.cfg.Dialect == "feed-history" && (found == Complete || found == ArchivedElement || found == Snapshots):
		return found, deletes, odd
	default:
		return forced, deletes && forced == Complete, odd
	}
}

// trustAhead is the greatest distance into the future at which an update time is compared with
// others; a later one would block every later change of the entry. A day covers all time zones.
const trustAhead = 24 * time.Hour

// trustedTime returns t, or 0 if t is further in the future than trustAhead.
func (s *decider) trustedTime(t instant, now time.Time) instant {
	if t > instantOf(now.Add(trustAhead)) {
		return 0
	}
	return t
}

// isSuperseded reports whether a newer document of the walk has the version of an entry
// that the topic had when the walk began, so that this document would take the topic
// back to an older version. If no document has it, only the newest version of the walk is
// published, unless the dates show that this one is newer. A topic's version from an archive that
// is older than the document is older, whatever newer documents have.
func (s *decider) isSuperseded(d *document, it *item, m fingerprint) bool {
	if d.depth == 0 || s.pending == nil {
		return false
	}
	l, ok := s.pending.topicVersions[hashKey(it.ID)]
	updated := s.trustedTime(instantOf(it.Updated.Time), d.now)
	switch {
	case !ok || l.depth >= d.depth || !l.supersedes(updated, s.pending.dialect) || hasPage(s.pending.behind, m.page):
		return false
	case l.same:
		return true
	case l.hash == it.shortHash():
		return false // the newest version, whose place is in the oldest document that has it
	}
	return s.pending.dialect == Snapshots || compareKnown(updated, s.trustedTime(m.updated, d.now)) == 0
}

// missingIDs returns the sorted IDs of the entries that the topic has and the document
// lacks, but for those that its tombstones delete.
func (s *decider) missingIDs(d *document) []string {
	var ids []string
	for id, raw := range s.topic.Marks() {
		if m, ok := parseFingerprint(raw); ok && !m.deleted && !d.versions.hasEntry(id) && !d.versions.deletes(id, s.trustedTime(m.updated, d.now)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// countLive counts the entries of the topic that are not deleted.
func (s *decider) countLive() int {
	n := 0
	for _, raw := range s.topic.Marks() {
		if m, ok := parseFingerprint(raw); ok && !m.deleted {
			n++
		}
	}
	return n
}

// hadEntries reports whether the feed ever had an entry.
func (s *decider) hadEntries(cur *cursor) bool {
	return s.topic.Marked() || len(cur.Seen) > 0
}

// wantsAny reports whether any entry of a document has to be published.
func (s *decider) wantsAny(cur *cursor, d *document) bool {
	if d.buffer.cut != nil {
		return true
	}
	probe := *d
	probe.seen = violationSet{}
	return slices.ContainsFunc(d.buffer.items, func(it *item) bool { return s.publishDecision(cur, &probe, it) != "" })
}
