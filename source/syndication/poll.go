package syndication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// ask asks for the subscription document.
func (r *turn) ask(ctx context.Context, now time.Time) (*document, error) {
	s, cur := r.s, &r.cur
	q := question{url: s.subscription(cur), order: r.expected()}
	if cur.Doc != nil && cur.Doc.URL == hashOf(q.url) {
		q.from, q.order = cur.Doc, cur.Doc.Order
	} else if cur.At == hashOf(q.url) && !cur.Held.due(s.cfg.MaxDeleteRatio, now) && now.Sub(time.Unix(cur.Full, 0)) < s.cfg.FullEvery && !r.recheckDue(now) {
		q.etag, q.modified = cur.ETag, cur.Modified
	}
	d, err := s.read(ctx, cur, q)
	status, ok := errors.AsType[*source.StatusError](err)
	if ok && q.url != s.cfg.URL && (status.Status == http.StatusNotFound || status.Status == http.StatusGone) {
		s.log.Warn("the feed is not where it had moved to; asking where it was", "url", q.url, "error", err)
		cur.URL, cur.From, cur.Moved = "", "", nil
		return r.ask(ctx, now)
	}
	if ok && status.Status == http.StatusGone {
		return nil, &goneError{err}
	}
	if err != nil {
		return nil, s.unreadable(err)
	}
	s.unread = 0
	r.goOn(d)
	s.redirected(cur, q.url, d.response)
	return d, nil
}

// unreadTimes is how often in a row the subscription document may be unreadable
// until only its provider can help. Documents that are just being written, and error
// pages with the status 200, are gone by then as a rule.
const unreadTimes = 5

// unreadable returns the error that a poll fails with if the subscription document
// could not be read.
func (s *Source) unreadable(err error) error {
	if !isUnreadable(err) {
		return err
	}
	if s.unread++; s.unread < unreadTimes {
		return err
	}
	return feed.Permanent(fmt.Errorf("the document could not be read %d times in a row, so its provider has to act: %w", s.unread, err))
}

// isUnreadable reports whether an error is about what a document consists of.
func isUnreadable(err error) bool {
	for _, kind := range []error{feedxml.ErrNotFeed, feedxml.ErrTruncated, feedxml.ErrMalformed, feedxml.ErrTrailing, feedxml.ErrTooLarge, feedxml.ErrCharset} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// goneError says that the feed has ended: 410, which providers send on purpose.
type goneError struct{ err error }

func (e *goneError) Error() string {
	return "the feed is gone for good, its provider says; take it out of the configuration. It is asked for once a day, and after a restart: " + e.err.Error()
}

func (e *goneError) Unwrap() error { return e.err }

// RetryAfter is a day. Not to ask at all would take a person to start again a feed
// whose server has said so by mistake.
func (e *goneError) RetryAfter() time.Duration { return 24 * time.Hour }

// notModified takes note of an answer without a document.
func (r *turn) notModified(d *document) {
	if d.response.Status != http.StatusNotModified || r.cur.At != hashOf(d.url) && r.cur.URL != d.response.URL.String() {
		return
	}
	for _, v := range []struct {
		at    *string
		field string
	}{{&r.cur.ETag, "ETag"}, {&r.cur.Modified, "Last-Modified"}} {
		if value := validator(d.response.Header.Get(v.field)); value != "" {
			*v.at = value
		}
	}
}

// unchanged says whether a document is the one that was published last.
func (r *turn) unchanged(d *document, now time.Time) bool {
	return r.cur.Body == d.hash && !d.partial && r.cur.Doc == nil && !r.cur.Held.due(r.s.cfg.MaxDeleteRatio, now) && r.cur.At != "" && !r.recheckDue(now)
}

// subscribed returns the current document where the feed's URL is that of an
// archive.
func (r *turn) subscribed(ctx context.Context, d *document) (*document, error) {
	if !d.meta.Archive || d.meta.Complete || d.partial {
		return d, nil
	}
	current, n := d.meta.Link("current")
	url := withoutFragment(current.Href)
	switch {
	case n == 0 || url == "":
		return nil, feed.Permanent(fmt.Errorf("%s is an archive, which does not change any more, and does not say where the current document is; set url to that", d.url))
	case url == withoutFragment(d.url) || url == withoutFragment(d.response.URL.String()):
		return d, nil
	}
	r.seen.add(LinkToArchive, d.url, "the url is that of an archive; %s is read, to which it leads", url)
	next, err := r.s.read(ctx, &r.cur, question{url: url, order: r.expected()})
	if err != nil {
		return nil, err
	}
	if next.unmodified || next.meta.Archive && !next.meta.Complete {
		return nil, feed.Permanent(fmt.Errorf("%s is an archive, and so is %s, to which it leads as the current document; set url to that", d.url, url))
	}
	if short(url) != "" {
		r.cur.URL, r.cur.From = url, hashOf(r.s.cfg.URL)
	}
	return next, nil
}

// foreign returns an error if a document is of another format than the feed is
// known to be of. Its entries would have other IDs: all of them would be
// published again, and those of a complete feed deleted under the old ones.
func (r *turn) foreign(d *document) error {
	is, want, was := d.meta.Format, r.s.cfg.Format, r.cur.Format
	switch {
	case want != "" && is != want && (is != feedxml.RDF || want != feedxml.RSS):
		return feed.Permanent(fmt.Errorf("%s: the document is %s, and the feed is configured as %s; if that is what it should be, set its format to that, or to auto", d.url, is, want))
	case was != "" && is != was:
		return feed.Permanent(fmt.Errorf("%s: the document is %s, and the feed was %s until now; its entries may have other IDs, and then all of them are published again: "+
			"if that is right, start it over with 'feedbridge checkpoint reset'", d.url, is, was))
	}
	return nil
}

// verdict takes note of what the feed is.
func (r *turn) verdict(d *document) {
	cur := &r.cur
	if cur.Dialect == "" && !d.unsure {
		r.s.log.Info("the feed is recognised", "url", d.url, "format", string(d.meta.Format), "dialect", string(d.dialect))
		cur.Rewalk = r.s.holdsAny(cur)
	}
	if d.unsure {
		// Its links to older documents may be missing; the next one will tell.
		cur.Format = d.meta.Format
		return
	}
	if cur.Dialect != "" && cur.Dialect != d.dialect {
		r.seen.add(DialectChanged, d.url, "the feed was %s and is %s now", cur.Dialect, d.dialect)
		r.s.log.Warn("the feed has changed its dialect", "url", d.url, "before", string(cur.Dialect), "now", string(d.dialect))
	}
	if d.dialect == Paged && cur.Dialect != Paged && !r.s.profile.tail && !r.s.profile.steady {
		r.seen.add(PagedLossy, d.url, "the feed is paged: its pages change while they are read, so entries may be missed (RFC 5005, section 3)")
	}
	if d.partial {
		r.seen.add(Partial, d.url, "the answer has a part of the document (226), which was not asked for; nothing is taken for deleted")
	}
	if this, n := d.meta.Link("this"); n > 0 && d.dialect == Snapshots && cur.Doc == nil && cur.has(withoutFragment(this.Href)) {
		r.seen.add(NotPermanent, d.url, "the document says that it is %s, which was another before", this.Href)
	}
	cur.Format = d.meta.Format
	cur.Dialect = d.dialect
	if d.meta.Order == feedxml.NewestFirst || d.meta.Order == feedxml.OldestFirst {
		cur.Order = d.meta.Order
	}
}

// holdsAny says whether the feed ever had an entry.
func (s *Source) holdsAny(cur *cursor) bool {
	for range s.held.Marks() {
		return true
	}
	return len(cur.Seen) > 0
}
