package syndication

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// identify makes the hash.
func (d *document) identify() {
	m := &d.meta
	fmt.Fprintf(d.digest, "%v %v %q %q\n", m.Complete, m.Archive, m.Incremental, m.Prev)
	for _, l := range m.Links {
		fmt.Fprintf(d.digest, "%q %q\n", l.Rel, l.Href)
	}
	d.hash = hex.EncodeToString(d.digest.Sum(nil)[:12])
	d.digest = nil
}

// judge finds out what follows from the whole of a document.
func (s *Source) judge(cur *cursor, d *document) {
	d.updated = s.trusted(instantOf(d.meta.Updated.Time), d.now)
	if d.updated == 0 && d.meta.Format != feedxml.Atom {
		if t, _, ok := message.ParseDate(d.response.Header.Get("Last-Modified")); ok {
			d.updated = s.trusted(instantOf(t), d.now)
		}
	}
	if d.archive && d.believe != 0 && d.updated >= d.believe && d.meta.Format != feedxml.Atom {
		d.seen.add(ArchiveTooNew, d.url, "the archive says it is of %s, and is older than the feed's document, which says it is not; its date is not believed", d.meta.Updated.Raw)
		d.updated = 0
	}
	var odd []feed.Violation
	d.dialect, d.deletes, odd = s.dialect(&d.meta)
	d.deletes = d.deletes && !d.archive && !d.partial
	for _, v := range odd {
		v.Page = d.url
		d.seen.addAll([]feed.Violation{v})
	}
	if d.fold.times > 0 {
		d.seen.add(DuplicateID, d.url, "%d entries have an ID that another has, such as %s; of each ID one is taken", d.fold.times, feedxml.Excerpt(d.fold.repeated))
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
			d.seen.add(OrderChanged, d.url, "the entries of the document run %s, where they ran %s before", d.order, cur.Order)
		}
	}
}

// dialect is the dialect of a document, as far as the configuration leaves it
// open.
func (s *Source) dialect(m *feedxml.Meta) (Dialect, bool, []feed.Violation) {
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

// trusted is t, or 0 if it is so far in the future that it cannot be right.
func (s *Source) trusted(t instant, now time.Time) instant {
	if t > instantOf(now.Add(s.cfg.TrustAhead)) {
		return 0
	}
	return t
}
