package datareplication

import (
	"context"
	"errors"

	"github.com/feedbridge/feedbridge/feed"
)

// When an entity is added to the newest page, a range of its bytes is requested, from the last
// entity that was read on. The first entity of the range must be that one, at the same byte and
// with the same digest. So a range proves as well as the whole page that the entities after it
// are new. It does not show whether earlier entities have changed, which is a violation and
// moves no position. So the whole page is read at any doubt, and at the latest when its ETag
// is no longer trusted. A range does not extend that trust.
//
// A range is never compressed, so its ETag is not the one of a page that was (RFC 9110, section
// 8.8.3.3). The first range after such a page is therefore sent even if nothing was added. Its
// ETag is the one to ask with from then on.

// errTail reports that a range does not begin with the entity before the position.
var errTail = errors.New("the range does not begin with the entity that was read last")

// requestTail requests the newest page from the entity before the position on, unless its ETag
// is still etag; then it returns nil. If the server does not send that range, or if it
// does not begin with the entity, it requests the whole page.
func (w *pageWalk) requestTail(ctx context.Context, etag string) (*openPage, error) {
	r, url := w.r, w.cur.Page
	p, err := r.pages.requestRange(ctx, url, etag, r.newestEnd.tail, r.newestEnd.full)
	switch {
	case err == nil && (p == nil || !p.isTail):
		if p != nil && r.newestEnd.packed && !p.packed {
			r.tails.refuse() // the server ignores ranges, and would compress the page otherwise
		}
		return p, nil
	case err == nil:
		if err = w.checkTail(ctx, p); err == nil {
			return p, nil
		}
		p.body.Close()
		p.parts.Close()
	case !errors.Is(err, feed.ErrPermanent):
		r.tails.refuse()
		return nil, err
	}
	r.tails.refuse()
	if ctx.Err() != nil {
		return nil, err
	}
	r.log.Info("the server did not send only the end of the page; requesting the whole page", "page", url, "reason", err)
	return r.pages.requestPage(ctx, url, "")
}

// checkTail reads the first entity of a tail. It fails unless that is the entity before the
// position, where it was. It fails, too, if there is no ETag: each poll would be answered with a range.
func (w *pageWalk) checkTail(ctx context.Context, p *openPage) error {
	r, cur := w.r, &w.cur
	used := r.pages.reserved.used
	defer func() { r.pages.reserved.freeSince(used) }()
	p.parsed = cur.Index - 1
	e, _, err := p.nextEntity(ctx, true) // its violations were reported when it was new
	if err != nil {
		return err
	}
	end := r.newestEnd.tail
	if p.etag == "" || p.Self != cur.Page || p.last.offset != end.offset || !isStoredID(cur.Last, e.ID) || end.before.addEntity(&e) != cur.Digest {
		return errTail
	}
	p.last.before = end.before
	return nil
}
