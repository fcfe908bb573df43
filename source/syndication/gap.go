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
	// firstRetry and lastRetry bound the wait until a missing archive is asked
	// for again. It doubles.
	firstRetry = time.Hour
	lastRetry  = 24 * time.Hour
	// notFeedTimes is how often an archive may answer with an error page that
	// has status 200, until it counts as missing.
	notFeedTimes = 3
)

// gapKind reports whether an error means that a document is not available, and not
// just at the moment. "" means that it is worth waiting for.
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

// awaitOrSkip reports whether a document that could not be read is not waited for any
// more, and returns what kind of gap it is then. If it is waited for, kind is "" and
// wait is the error to fail with.
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

// retryAt is when to ask for a gap again that has been asked for some times.
func retryAt(err error, times int, now time.Time) int64 {
	wait := lastRetry
	if status, ok := errors.AsType[*source.StatusError](err); !ok || status.Status != http.StatusGone {
		wait = retry.Backoff{Min: firstRetry, Max: lastRetry}.After(times)
	}
	return now.Add(wait).Unix()
}

// recordGap records an archive that is not waited for.
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

// closeGap forgets a gap.
func (t *turn) closeGap(url string) {
	if i := t.cur.gapIndex(url); i >= 0 {
		t.s.log.Info("a missing archive is there again, and published", "url", url)
		t.cur.Gaps = slices.Delete(slices.Clone(t.cur.Gaps), i, i+1)
	}
	t.cur.Walk = 0
}

// postponeGap puts off a gap that cannot be read at the moment.
func (t *turn) postponeGap(url string, err error) {
	if i := t.cur.gapIndex(url); i >= 0 {
		t.cur.Gaps = slices.Clone(t.cur.Gaps)
		g := &t.cur.Gaps[i]
		g.Times++
		g.Retry = retryAt(err, g.Times, time.Now())
	}
}
