package datareplication

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// openPage gets the page of the cursor, up to its place. It returns nil if the feed
// ends at the place, as it did before.
func (w *pageWalk) openPage(ctx context.Context) (*openPage, error) {
	s, cur := w.s, &w.cur
	for earlier := 0; ; {
		etag, full := cur.ETag, time.Unix(cur.Full, 0)
		known := s.end.matches(*cur)
		if known {
			etag, full = s.end.etag, s.end.full
		}
		switch {
		case !s.trusts(full):
			etag = ""
		case known:
			if same, err := s.sameEnd(ctx); same || err != nil {
				return nil, w.asLostPosition(err)
			}
		}
		p, err := s.get(ctx, cur.Page, etag)
		if err != nil {
			return nil, w.asLostPosition(err)
		}
		if p == nil {
			if !known {
				if now := time.Now(); full.After(now) {
					full = now
				}
				s.end = end{page: cur.Page, index: cur.Index, digest: cur.Digest, etag: etag, full: full}
			}
			return nil, nil
		}
		skipped := ""
		if !known && cur.Index == 0 {
			skipped, err = w.checkPrev(ctx, p)
		}
		if err == nil && skipped == "" {
			if err = w.skipRead(ctx, p); err == nil {
				return p, nil
			}
		}
		p.body.Close()
		if earlier++; err == nil && earlier > headsPerCall {
			err = broken(Loop, p.Self, "more than %d prev links in a row lead to pages that next links skip", headsPerCall)
		}
		if err != nil {
			return nil, err
		}
		cur.Page = skipped
		*w.trail = trail{} // this page comes again
	}
}

// sameEnd asks by HEAD whether the feed still ends where it ended, if its
// server gives no ETag and its Last-Modified can tell.
func (s *Source) sameEnd(ctx context.Context) (bool, error) {
	if s.end.etag != "" || !s.end.settled || s.noHead {
		return false, nil
	}
	h, err := s.head(ctx, s.end.page)
	if err != nil {
		return false, err
	}
	return !s.noHead && h.Next == "" && h.Modified.Equal(s.end.modified) && h.length == s.end.length, nil
}

// checkPrev looks at the links of a page of which nothing has been read. If they
// show that another page has to be read before it, it returns that page.
func (w *pageWalk) checkPrev(ctx context.Context, p *openPage) (earlier string, err error) {
	w.seen.add(p.violations...)
	came := w.cur.Came
	if came == "" || p.Prev == came {
		return "", nil
	}
	if p.Prev != "" {
		h, err := w.s.head(ctx, p.Prev)
		switch {
		case err != nil && !errors.Is(err, feed.ErrPermanent) && !isGone(err):
			return "", err
		case err == nil && h.Self == came:
			return "", nil // the same page by another name
		case err == nil && (h.Next == p.Self || h.Next == w.cur.Page) && h.Modified.Unix() >= w.cur.Modified:
			// The next link has skipped a page that is newer than all that was
			// read, as one does that leads to whatever page is the latest.
			earlier = p.Prev
		}
		w.seen.add(violation(LinksAsymmetric, p.Self, "its prev link leads to %s, but the page whose next link leads here is %s", p.Prev, came))
	}
	if earlier == "" && p.Modified.Unix() < w.cur.Modified {
		// Nothing may be published twice because the feed leads back to where
		// it has been, and trail notices only after a round or two.
		return "", w.s.checkLoop(ctx, p, came)
	}
	return earlier, nil
}

// checkLoop fails if the next links lead from p back to the page whose next link
// led to p.
func (s *Source) checkLoop(ctx context.Context, p *openPage, came string) error {
	next := p.Next
	for n := 0; next != "" && n < headsPerCall; n++ {
		if next == came {
			return broken(Loop, came, "the next links lead in a circle by way of %s", p.Self)
		}
		h, err := s.head(ctx, next)
		switch {
		case err != nil && !errors.Is(err, feed.ErrPermanent) && !isGone(err):
			return err
		case err != nil:
			return nil // it shows when the walk gets there
		}
		next = h.Next
	}
	return nil
}

// skipRead reads up to the place and makes sure that it is the place.
func (w *pageWalk) skipRead(ctx context.Context, p *openPage) error {
	cur := &w.cur
	var sum digest
	var e feed.Entity
	for p.parsed < cur.Index {
		used := w.s.reserved.used
		var err error
		e, _, err = p.entity(ctx, true) // its violations were seen when it was new
		if errors.Is(err, errPageEnd) {
			return lost(PageChanged, p.Self, "the page had %d entities and has %d now", cur.Index, p.parsed)
		}
		if err != nil {
			return err
		}
		sum = sum.add(&e)
		w.s.reserved.shrink(used)
	}
	switch {
	case cur.Index == 0:
	case !isStoredID(cur.Last, e.ID):
		return lost(PageChanged, p.Self, "entity number %d of the page was %s and is %s now", cur.Index, cur.Last, e.ID).forCertain()
	case sum != cur.Digest:
		if sum != w.s.changed {
			w.s.changed = sum
			w.seen.add(violation(PageChanged, p.Self, "entities that were read before have other contents now, somewhere in the first %d", cur.Index))
		}
		w.replaced, cur.Digest = cur.Digest, sum
	}
	return nil
}

// asLostPosition turns errors that say that the page of the cursor is gone or out
// of reach into a lostPosition (case 84).
func (w *pageWalk) asLostPosition(err error) error {
	switch page := w.cur.Page; {
	case isGone(err):
		return lost(PageGone, page, "the page where reading goes on is gone: %v", err)
	case page == w.named && w.s.refused(err, page):
		return lost(PageGone, page, "the page where reading goes on is out of reach: %v", err).forCertain()
	}
	return err
}

// refused says whether err may be the client's refusal to ask for a page: the
// feed has moved to another host since the cursor was made, and so has its
// url in the configuration.
func (s *Source) refused(err error, page string) bool {
	return errors.Is(err, feed.ErrPermanent) && statusOf(err) == 0 && origin(page) != origin(s.cfg.URL)
}

func origin(page string) string {
	u, err := url.Parse(page)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}
