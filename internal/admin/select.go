package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/admin/statuspage"
)

// pageSource selects the rows of the status pages. A page has a few rows of thousands of
// feeds, so feeds are selected and sorted by their names, states and one value each. A status
// is made only of the feeds on the page.
type pageSource struct{ *inventory }

// Feeds is that of [statuspage.Options].
func (p pageSource) Feeds(ctx context.Context, q statuspage.Query) statuspage.Feeds {
	now := time.Now()
	all := p.contents().feeds
	var buses []status.Bus
	for _, bus := range p.contents().buses {
		buses = append(buses, bus.status(ctx, false, p.redact))
	}
	fleet, summary := p.overview(now)
	answer := statuspage.Feeds{Summary: summary, Config: p.config.status(p.redact), Fleet: fleet, Buses: buses, Lists: p.lists.status(), LeftBehind: showLeftBehind(p.contents().left, p.redact), SlowHosts: p.slowHosts(), All: len(all), States: map[string]int{}}
	var found []sortKey
	for _, f := range all {
		key := newSortKey(f, q.Sort, now)
		if !anyContains(q.Search, f.opts.Name, key.title, f.opts.URL, f.opts.Bus, f.opts.Topic) {
			continue
		}
		answer.States[key.state]++
		if q.State == "" || q.State == key.state {
			found = append(found, key)
		}
	}
	sortFeeds(found, q)
	answer.Found = len(found)
	from, to := q.Slice(len(found))
	for _, key := range found[from:to] {
		row := key.feed.status(now)
		row.Cursor = p.decodeCursor(row.Cursor)
		answer.Rows = append(answer.Rows, &row)
	}
	return answer
}

// Feed is that of [statuspage.Options].
func (p pageSource) Feed(ctx context.Context, name string) (status.Feed, bool) {
	all := p.contents().feeds
	i, ok := all.find(name)
	if !ok {
		return status.Feed{}, false
	}
	row := p.details(ctx, all[i])
	row.Cursor = p.decodeCursor(row.Cursor)
	return row, true
}

// Served is that of [statuspage.Options].
func (p pageSource) Served(ctx context.Context, q statuspage.Query) statuspage.Served {
	all := p.contents().served
	answer := statuspage.Served{All: len(all)}
	found := slices.DeleteFunc(slices.Clone(all), func(f *Served) bool {
		return !anyContains(q.Search, f.opts.Name, f.opts.URL, f.opts.Bus, f.opts.Topic)
	})
	answer.Found = len(found)
	from, to := q.Slice(len(found))
	answer.Rows = inspectServed(ctx, found[from:to])
	return answer
}

// anyContains reports whether one of the texts contains search, which is in lower case.
func anyContains(search string, texts ...string) bool {
	return search == "" || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), search) })
}

// decodeCursor returns the description of a cursor as a program reads it from /status: as JSON, with the
// secrets of URLs hidden and the length of every text bounded.
func (p pageSource) decodeCursor(info any) (shown any) {
	b, err := json.Marshal(info)
	if err == nil {
		err = json.Unmarshal(p.redact.JSON(b, longestText), &shown)
	}
	if err != nil {
		return err.Error()
	}
	return shown
}

// sortKey is a feed with its title and state, and the value by which it is sorted; NaN if that is
// not known.
type sortKey struct {
	feed  *Feed
	title string
	state string
	value float64
}

// newSortKey returns a feed with its state, and its value of a column.
func newSortKey(f *Feed, column statuspage.Column, now time.Time) sortKey {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.feedInfo.view(&f.record, now)
	state, _ := v.shownState()
	key := sortKey{feed: f, title: v.title(), state: string(state), value: math.NaN()}
	switch column {
	case statuspage.ByState:
		key.value = float64(statuspage.Severity(key.state))
	case statuspage.ByTotal:
		key.value = float64(v.r.status.Checkpoint.Count)
	case statuspage.ByRecent:
		key.value = float64(f.history.activity.total(status.Minutes, now))
	case statuspage.ByLag:
		if lag, known := v.r.publishLag(); known {
			key.value = lag.Seconds()
		}
	case statuspage.ByCommit:
		if at := v.r.status.Checkpoint.At; !at.IsZero() {
			key.value = float64(at.UnixNano())
		}
	case statuspage.ByNext:
		if key.value = 0; v.r.status.Until.After(now) {
			key.value = float64(v.r.status.Until.UnixNano())
		}
	}
	return key
}

// sortFeeds sorts feeds, which are in the order of their names.
func sortFeeds(keys []sortKey, q statuspage.Query) {
	if q.Sort == statuspage.ByName {
		if q.Descending {
			slices.Reverse(keys)
		}
		return
	}
	slices.SortStableFunc(keys, func(a, b sortKey) int {
		switch unknownA, unknownB := math.IsNaN(a.value), math.IsNaN(b.value); {
		case unknownA || unknownB:
			return int(oneIf(unknownA) - oneIf(unknownB))
		case q.Descending:
			return cmp.Compare(b.value, a.value)
		}
		return cmp.Compare(a.value, b.value)
	})
}
