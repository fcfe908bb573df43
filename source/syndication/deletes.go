package syndication

import (
	"strings"
	"time"
)

const (
	// leastHold is the least time for which deletes are held back. A shop whose
	// database is down shows an empty document to every client for minutes; another
	// copy, or this one after a restart, may read it again within the same second.
	leastHold = 15 * time.Minute
	// mostFresh bounds the freshness lifetime of a document that prolongs the hold. A
	// bridge does not wait longer either.
	mostFresh = time.Hour
)

// takeDeletes returns the IDs of entries that have vanished from a complete document,
// at most room of them, sorted. more reports that there are others.
func (p publisher) takeDeletes(d *document, pos *progress, room int) (ids []string, more bool) {
	ids = p.s.missingIDs(d)
	if len(ids) == 0 {
		p.cur.Held = nil
		return nil, false
	}
	if tooMany(len(ids), pos.Live, p.s.cfg.MaxDeleteRatio) && p.holdBack(d, ids, pos.Live) {
		return nil, false
	}
	if room = max(room, 0); len(ids) > room {
		pos.Live = 0
		return ids[:room], true
	}
	p.cur.Held = nil
	return ids, false
}

// holdBack reports whether deletes are held back. They are until the wait is over and
// the same entries are missing from the document that is read then.
func (p publisher) holdBack(d *document, ids []string, of int) bool {
	these := hashOf(strings.Join(ids, "\x00"))
	if h := p.cur.Held; h != nil && h.Deletes == these {
		return d.now.Unix() < h.Until
	}
	// A second copy from a cache proves nothing, so wait until it has expired.
	wait := max(leastHold, p.s.cfg.Every, min(askedToWait(p.s.cfg.Hints, d.response, d.meta.Hints, d.now), mostFresh))
	until := d.now.Add(wait)
	d.seen.addViolation(kindDeletesHeld, d.url, "%d of %d entries have vanished from the feed at once (max_delete_ratio %v); they are deleted if the same are missing at %s",
		len(ids), of, p.s.cfg.MaxDeleteRatio, until.UTC().Format(time.RFC3339))
	p.s.log.Warn("most of the feed has vanished; its deletes are held back", "url", d.url, "vanished", len(ids), "of", of, "until", until.UTC())
	p.cur.Held = &hold{Deletes: these, Vanished: len(ids), Of: of, Since: d.now.Unix(), Until: until.Unix()}
	return true
}
