package syndication

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
)

// gap is an archive that could not be read, and that is no longer waited for. It
// hides everything older than itself.
type gap struct {
	URL   string `json:"url"`
	Kind  string `json:"kind"`
	Since int64  `json:"since"` // Unix seconds
	Retry int64  `json:"retry"` // when to ask again
	Times int    `json:"times"`
}

const (
	// firstRetry and lastRetry bound the wait until a missing archive is asked
	// for again. It doubles.
	firstRetry = time.Hour
	lastRetry  = 24 * time.Hour
	// notFeedTimes is how often an archive may answer with an error page that
	// has status 200, until it counts as missing.
	notFeedTimes = 3
)

// gapKind says whether an error means that a document is not to be had, and not
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

// retryAt is when to ask for a gap again that has been asked for some times.
func retryAt(err error, times int, now time.Time) int64 {
	wait := lastRetry
	if status, ok := errors.AsType[*source.StatusError](err); !ok || status.Status != http.StatusGone {
		wait = min(firstRetry<<min(times, 10), lastRetry)
	}
	return now.Add(wait).Unix()
}

// skip takes note of an archive that is not waited for.
func (r *turn) skip(url, kind string, err error) {
	now := time.Now()
	if i := r.cur.gap(url); i >= 0 {
		g := r.cur.Gaps[i]
		told := g.Kind == kind
		g.Times++
		g.Kind, g.Retry = kind, retryAt(err, g.Times, now)
		r.cur.Gaps = slices.Clone(r.cur.Gaps)
		r.cur.Gaps[i] = g
		if told {
			return
		}
	}
	r.seen.add(kind, url, "an archive is missing, and with it what is older: %v", err)
	r.s.log.Error("an archive of the feed is missing; going on without it", "url", url, "kind", kind, "reason", err)
	if short(url) == "" || r.cur.gap(url) >= 0 {
		return
	}
	all := append(slices.Clone(r.cur.Gaps), gap{URL: url, Kind: kind, Since: now.Unix(), Retry: retryAt(err, 0, now)})
	r.cur.Gaps = all[max(0, len(all)-maxGaps):]
}

// gap returns the index of a gap; -1 if the URL is none.
func (cur *cursor) gap(url string) int {
	return slices.IndexFunc(cur.Gaps, func(g gap) bool { return g.URL == url })
}

// due returns the first gap that is to be asked for again.
func (cur *cursor) due(now time.Time) (gap, bool) {
	for _, g := range cur.Gaps {
		if g.Retry <= now.Unix() {
			return g, true
		}
	}
	return gap{}, false
}

// heal asks for a gap again. What is behind it is published late.
func (r *turn) heal(ctx context.Context, g gap) error {
	s := r.s
	s.job = &job{late: true, healing: g.URL, frontier: g.URL, visited: map[key]bool{}, dialect: r.cur.Dialect}
	err := r.walk(ctx)
	if err != nil || len(s.job.steps) == 0 {
		s.job = nil
	}
	return err
}

// healed forgets a gap.
func (r *turn) healed(url string) {
	if i := r.cur.gap(url); i >= 0 {
		r.s.log.Info("a missing archive is there again, and published", "url", url)
		r.cur.Gaps = slices.Delete(slices.Clone(r.cur.Gaps), i, i+1)
	}
	r.cur.Walk = 0
}
