package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/admin/page"
	"github.com/feedbridge/feedbridge/admin/status"
)

// pageSource selects the rows of the status pages. A page has a few rows of thousands of
// feeds, so feeds are selected and sorted by their names, states and one value each. A status
// is made only of the feeds on the page.
type pageSource struct{ server *Server }

// Feeds implements [page.Source].
func (p pageSource) Feeds(ctx context.Context, q page.Query) (page.Feeds, error) {
	s, now := p.server, time.Now()
	all := s.allFeeds()
	answer := page.Feeds{Config: s.config.status(s.opts.Redact), All: len(all), States: map[string]int{}}
	var found []sortKey
	for _, f := range all {
		if !matches(q.Search, f.opts.Name, f.opts.URL, f.opts.Bus, f.opts.Topic) {
			continue
		}
		key := newSortKey(f, q.Sort, now)
		answer.States[key.state]++
		if q.State == "" || q.State == key.state {
			found = append(found, key)
		}
	}
	sortFeeds(found, q)
	answer.Found = len(found)
	from, to := q.Slice(len(found))
	for _, key := range found[from:to] {
		row := key.feed.feedStatus(now)
		row.PublishedByMinute = key.feed.publishedByMinute(now)
		answer.Rows = append(answer.Rows, &row)
	}
	for _, bus := range s.allBuses() {
		answer.Buses = append(answer.Buses, bus.lastStatus(ctx, s.opts.Redact))
	}
	return redacted(s, answer)
}

// Feed implements [page.Source].
func (p pageSource) Feed(name string) (status.Feed, bool, error) {
	all := p.server.allFeeds()
	i, ok := slices.BinarySearchFunc(all, name, func(f *Feed, name string) int { return cmp.Compare(f.opts.Name, name) })
	if !ok {
		return status.Feed{}, false, nil
	}
	row, err := redacted(p.server, all[i].feedDetails(time.Now()))
	return row, true, err
}

// Served implements [page.Source].
func (p pageSource) Served(ctx context.Context, q page.Query) (page.Served, error) {
	all := p.server.allServed()
	answer := page.Served{All: len(all)}
	found := slices.DeleteFunc(all, func(f *Served) bool {
		return !matches(q.Search, f.opts.Name, f.opts.URL, f.opts.Bus, f.opts.Topic)
	})
	answer.Found = len(found)
	from, to := q.Slice(len(found))
	answer.Rows = inspectServed(ctx, found[from:to])
	return redacted(p.server, answer)
}

// matches reports whether one of the texts contains search, which is in lower case.
func matches(search string, texts ...string) bool {
	return search == "" || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), search) })
}

// redacted returns v as a program reads it from /status: with the secrets of URLs hidden and
// the length of every text bounded.
func redacted[T any](s *Server, v T) (shown T, err error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return shown, err
	}
	err = json.Unmarshal(s.opts.Redact.JSON(body.Bytes(), longestText), &shown)
	return shown, err
}

// sortKey is a feed with its state, and the value by which it is sorted; NaN if that is
// not known.
type sortKey struct {
	feed  *Feed
	state string
	value float64
}

// newSortKey returns a feed with its state, and its value of a column.
func newSortKey(f *Feed, column page.Column, now time.Time) sortKey {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &f.record
	state, _ := r.bridgeState(now)
	key := sortKey{feed: f, state: string(state), value: math.NaN()}
	switch column {
	case page.ByState:
		key.value = float64(page.Severity(key.state))
	case page.ByTotal:
		key.value = float64(r.status.Checkpoint.Count)
	case page.ByRecent:
		key.value = float64(f.history.total(now))
	case page.ByLag:
		if lag, known := r.publishLag(); known {
			key.value = lag.Seconds()
		}
	case page.ByCommit:
		if at := r.status.Checkpoint.At; !at.IsZero() {
			key.value = float64(at.UnixNano())
		}
	case page.ByNext:
		if key.value = 0; r.status.Until.After(now) {
			key.value = float64(r.status.Until.UnixNano())
		}
	}
	return key
}

// sortFeeds sorts feeds, which are in the order of their names.
func sortFeeds(keys []sortKey, q page.Query) {
	if q.Sort == page.ByName {
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
