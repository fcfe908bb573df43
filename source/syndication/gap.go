package syndication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/retry"
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
	if status, ok := errors.AsType[*source.StatusError](err); ok {
		switch {
		case !errors.Is(err, feed.ErrPermanent):
			return ""
		case status.Status == http.StatusNotFound || status.Status == http.StatusGone:
			return ArchiveGone
		}
		return ArchiveRefused
	}
	if page, ok := errors.AsType[*errNotFeed](err); ok {
		if page.times >= notFeedTimes {
			return ArchiveGone
		}
		return ""
	}
	if errors.Is(err, feed.ErrPermanent) && !errors.Is(err, source.ErrTooLarge) {
		return ArchiveForeign
	}
	return ""
}

// awaitOrSkip decides whether to wait for a document that could not be read. If so,
// kind is "" and wait is the error to return. Otherwise kind is the kind of gap.
func (t *turn) awaitOrSkip(ctx context.Context, url string, err error) (kind string, wait error) {
	if kind := gapKind(err); kind != "" || ctx.Err() != nil {
		return kind, err
	}
	if a := t.cur.Awaited; a == nil || a.URL != hashOf(url) {
		t.cur.Awaited = &awaited{URL: hashOf(url), Since: time.Now().Unix()}
		t.noted = true
	}
	// The network may be down. Give up only if the server answered for another
	// document.
	if t.cur.isOverdue(time.Now()) && t.asked {
		return ArchiveUnreadable, err
	}
	until := time.Unix(t.cur.Awaited.Since, 0).Add(patience).UTC()
	return "", fmt.Errorf("an older document is awaited until %s, and then left out: %w", until.Format(time.RFC3339), err)
}

// retryAt returns the time of the next request for a gap after the given number of
// attempts, in Unix seconds.
func retryAt(err error, times int, now time.Time) int64 {
	wait := lastRetry
	if status, ok := errors.AsType[*source.StatusError](err); !ok || status.Status != http.StatusGone {
		wait = retry.Backoff{Min: firstRetry, Max: lastRetry}.After(times)
	}
	return now.Add(wait).Unix()
}

// recordGap records an archive that is not waited for, and reports it when it is new or
// its kind has changed.
func (t *turn) recordGap(url, kind string, err error) {
	now := time.Now()
	if i := t.cur.gapIndex(url); i >= 0 {
		g := t.cur.Gaps[i]
		told := g.Kind == kind
		g.Times++
		g.Kind, g.Retry = kind, retryAt(err, g.Times, now)
		t.cur.Gaps = slices.Clone(t.cur.Gaps)
		t.cur.Gaps[i] = g
		if told {
			return
		}
	}
	t.seen.addViolation(kind, url, "an archive is missing, and with it what is older: %v", err)
	t.s.log.Error("an archive of the feed is missing; going on without it", "url", url, "kind", kind, "reason", err)
	if shortURL(url) == "" || t.cur.gapIndex(url) >= 0 {
		return
	}
	all := append(slices.Clone(t.cur.Gaps), gap{URL: url, Kind: kind, Since: now.Unix(), Retry: retryAt(err, 0, now)})
	t.cur.Gaps = all[max(0, len(all)-maxGaps):]
}

// closeGap removes a gap whose archive is published.
func (t *turn) closeGap(url string) {
	if i := t.cur.gapIndex(url); i >= 0 {
		t.s.log.Info("a missing archive is there again, and published", "url", url)
		t.cur.Gaps = slices.Delete(slices.Clone(t.cur.Gaps), i, i+1)
	}
	t.cur.Walk = 0
}

// postponeGap postpones the next request for a gap that cannot be read at the moment.
func (t *turn) postponeGap(url string, err error) {
	if i := t.cur.gapIndex(url); i >= 0 {
		t.cur.Gaps = slices.Clone(t.cur.Gaps)
		g := &t.cur.Gaps[i]
		g.Times++
		g.Retry = retryAt(err, g.Times, time.Now())
	}
}
