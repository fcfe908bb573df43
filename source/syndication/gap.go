package syndication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/retry"
	"github.com/feedbridge/feedbridge/source"
)

const (
	// firstRetry and lastRetry bound the wait before a missing archive is requested
	// again. The wait doubles.
	firstRetry = time.Hour
	lastRetry  = 24 * time.Hour
	// notFeedTimes is the number of error pages with status 200 after which an archive
	// counts as missing.
	notFeedTimes = 3
)

// gapKind returns the kind of violation for an error after which a document is not
// waited for; "" if the error may be temporary.
func gapKind(err error) string {
	page, notFeed := errors.AsType[*errNotFeed](err)
	switch {
	case notFeed && page.times >= notFeedTimes:
		return kindArchiveGone
	case notFeed, !errors.Is(err, feed.ErrPermanent), errors.Is(err, source.ErrTooLarge):
		return ""
	case source.IsGone(err):
		return kindArchiveGone
	case source.StatusOf(err) != 0:
		return kindArchiveRefused
	}
	return kindArchiveForeign
}

// awaitOrSkip decides whether to wait for a document that could not be read. If so,
// kind is "" and wait is the error to return. Otherwise kind is the kind of gap.
func (c *nextCall) awaitOrSkip(ctx context.Context, url string, err error) (kind string, wait error) {
	if kind := gapKind(err); kind != "" || ctx.Err() != nil || errors.Is(err, errAwaitsRest) {
		return kind, err
	}
	if a := c.cur.Awaited; a == nil || a.URL != hashOf(url) {
		c.cur.Awaited = &awaited{URL: hashOf(url), Since: time.Now().Unix()}
		c.noted = true
	}
	// The network may be down. Give up only if the server answered for another
	// document.
	if c.cur.isOverdue(time.Now()) && c.asked {
		return kindArchiveUnreadable, err
	}
	until := time.Unix(c.cur.Awaited.Since, 0).Add(patience).UTC()
	return "", fmt.Errorf("an older document is awaited until %s, and then left out: %w", until.Format(time.RFC3339), err)
}

// retryAt returns the time of the next request for a gap after the given number of
// attempts, in Unix seconds.
func retryAt(err error, times int, now time.Time) int64 {
	wait := lastRetry
	if source.StatusOf(err) != http.StatusGone {
		wait = retry.Backoff{Min: firstRetry, Max: lastRetry}.After(times)
	}
	return now.Add(wait).Unix()
}

// recordGap records an archive that is not waited for, and reports it when it is new or
// its kind has changed.
func (c *nextCall) recordGap(url, kind string, err error) {
	now := time.Now()
	if i := c.cur.gapIndex(url); i >= 0 {
		g := c.cur.Gaps[i]
		reported := g.Kind == kind
		g.Times++
		g.Kind, g.Retry = kind, retryAt(err, g.Times, now)
		c.cur.Gaps = slices.Clone(c.cur.Gaps)
		c.cur.Gaps[i] = g
		if reported {
			return
		}
	}
	c.seen.addViolation(kind, url, "an archive is missing, and with it the older ones: %v", err)
	c.s.log.Error("an archive of the feed is missing; continuing without it", "url", url, "kind", kind, "reason", err)
	if shortURL(url) == "" || c.cur.gapIndex(url) >= 0 {
		return
	}
	all := append(slices.Clone(c.cur.Gaps), gap{URL: url, Kind: kind, Retry: retryAt(err, 0, now)})
	c.cur.Gaps = all[max(0, len(all)-maxGaps):]
}

// closeGap removes a gap whose archive is published.
func (c *nextCall) closeGap(url string) {
	if i := c.cur.gapIndex(url); i >= 0 {
		c.s.log.Info("a missing archive is there again, and published", "url", url)
		c.cur.Gaps = slices.Delete(slices.Clone(c.cur.Gaps), i, i+1)
	}
}
