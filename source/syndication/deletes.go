package syndication

import (
	"context"
	"slices"
	"strings"
)

// fewEntries is how many entries a complete feed has to have for its deletes to
// be guarded.
const fewEntries = 20

// deletes are the entries that have vanished from a complete document, as many as
// there is room for. They come in the order of their IDs.
func (r *turn) deletes(d *document, pos *position, room int) (ids []string, more bool) {
	ids = r.s.missing(d)
	if len(ids) == 0 {
		r.cur.Hold = ""
		return nil, false
	}
	hold := hashOf(strings.Join(ids, "\x00"))
	tooMany := pos.Live >= fewEntries && float64(len(ids)) > r.s.cfg.MaxDeleteRatio*float64(pos.Live)
	if tooMany && !pos.Approved && r.cur.Hold != hold {
		d.seen.add(DeletesHeld, d.url, "%d of %d entries have vanished from the feed at once (max_delete_ratio %v); they are deleted if the next poll sees the same",
			len(ids), pos.Live, r.s.cfg.MaxDeleteRatio)
		r.s.log.Warn("most of the feed has vanished; waiting for the next poll to see the same", "url", d.url, "vanished", len(ids), "of", pos.Live)
		r.cur.Hold = hold
		return nil, false
	}
	if room = max(room, 0); len(ids) > room {
		pos.Approved = true
		return ids[:room], true
	}
	r.cur.Hold = ""
	return ids, false
}

// missing are the entries that the topic has and the document has not, sorted.
func (s *Source) missing(d *document) []string {
	var ids []string
	for id, raw := range s.held.Marks() {
		if m, ok := parseMark(raw); ok && !m.deleted && !d.fold.has(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// live counts the entries that the topic has.
func (s *Source) live() int {
	n := 0
	for _, raw := range s.held.Marks() {
		if m, ok := parseMark(raw); ok && !m.deleted {
			n++
		}
	}
	return n
}

// strict reads a complete document once more, strictly, if something has vanished
// from it: nothing is deleted on the word of a document that not every parser
// reads.
func (r *turn) strict(ctx context.Context, d *document) (*document, error) {
	for try := 0; d.deletes && !d.strict && len(r.s.missing(d)) > 0 && try < 3; try++ {
		q := d.question
		q.strict, q.etag, q.modified = true, "", ""
		again, err := r.s.read(ctx, &r.cur, q)
		switch {
		case err != nil && !isParse(err):
			return nil, err
		case err != nil:
			d.deletes, d.withheld = false, true
			d.seen.add(DeletesWithheld, d.url, "entries have vanished from the feed, and are not deleted: %v", err)
			return d, nil
		case again.unmodified:
			continue
		}
		d = again
	}
	return d, nil
}
