// Package syndication polls Atom and RSS feeds.
//
// A [Source] detects how a feed keeps the entries for which its document has no room,
// reads older documents back to the last published one, and compares every entry with
// the version in the topic to decide whether to publish it. The topic is the truth; the
// cursor saves requests. Package feedxml reads the documents.
//
// Elements that describe a document may follow its entries. Only at its end is it known
// whether it has an older document.
package syndication

import (
	"bytes"
	"context"
	"encoding/xml"
	"log/slog"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// Source polls one feed. Next keeps the contract of a bridge's Source: the state that a
// Source keeps between calls saves requests and decides nothing. It is for one
// goroutine at a time.
//
// Three things decide which entries are published: the feed, the cursor, and the
// entries in the topic ([TopicMarks]). The older documents of a feed are found by
// walking back from the subscription document, and published from the oldest on. A
// document that has more to publish than fits into memory is read more than once, each
// time for the next part.
//
// IDs are those of the feed, verbatim, except for control characters, which headers
// cannot carry: those are written as a percent sign and two hexadecimal digits. If several
// items have one ID, those of all but one are extended; see shared_id.go.
type Source struct {
	feedState
	// expect is the cursor at which the pending poll continues.
	expect feed.Cursor
	// bodyReported reports that a change of the body was logged.
	bodyReported bool
}

// New returns a Source for the feed of cfg. Before Next is called again, topic must
// have the entries of the feed in the topic and those that Next has returned.
func New(cfg Config, client *source.Client, topic TopicMarks, log *slog.Logger) *Source {
	s := &Source{feedState: feedState{documentReader: documentReader{
		decider: decider{cfg: cfg, profile: cfg.profile(), topic: topic},
		client:  client, ahead: client.PagesAhead(), log: log, notFeed: map[hashedKey]int{},
		share: share{budget: cfg.Budget, free: unreserved},
	}}}
	for _, name := range cfg.IgnoreChangesIn {
		s.ignored = append(s.ignored, childName(name))
	}
	if cfg.Identity == "link" || cfg.Identity == "content" {
		// IDs that are not used may change with each request.
		s.ignored = append(s.ignored, xml.Name{Space: "*", Local: "guid"}, xml.Name{Space: feedxml.AtomNamespace, Local: "id"})
	}
	return s
}

// Search describes how far the search back to the oldest document that is not published has
// come, if the present call of Next is in one; else it returns "". It may be called
// concurrently.
func (s *Source) Search() string {
	if p := s.search.Load(); p != nil {
		return p.String()
	}
	return ""
}

// Next returns the next batch after a cursor: at most a part of one document.
func (s *Source) Next(ctx context.Context, after feed.Cursor, limits feed.Limits) (feed.Batch, error) {
	s.limits = limits
	returned := false
	defer s.search.Store(nil)
	defer func() {
		if !returned { // it has panicked, so the pending poll may be inconsistent
			s.pending, s.tailPages = nil, nil
		}
		if s.pending == nil {
			s.ahead.Close()
		}
		s.share.releaseUnneeded(s.pending.bufferedBytes())
	}()
	batch, err := s.nextBatch(ctx, after)
	returned = true
	return batch, err
}

func (s *Source) nextBatch(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
	if !bytes.Equal(after, s.expect) {
		s.pending, s.tailPages = nil, nil
	}
	cur, err := decodeCursor(after, s.cfg.Start)
	if err != nil {
		return feed.Batch{}, err
	}
	before := cur
	if err := cur.resolveStart(); err != nil {
		return feed.Batch{}, err
	}
	if len(after) == 0 {
		// Without a cursor, as after a reset, its version does not protect the topic.
		if err := s.checkMarks(); err != nil {
			return feed.Batch{}, err
		}
	}
	changed := s.recordBody(&cur)
	r := &nextCall{s: &s.feedState, cur: cur}
	if p := s.pending; p != nil && p.failed != nil {
		err, p.failed = p.failed, nil
		return feed.Batch{}, err
	} else if p != nil && p.stopped != nil {
		r, p.stopped = p.stopped, nil
		r.asked = false
	}
	batch, err := s.advance(ctx, r)
	if err != nil && r.noted {
		// The start of the wait has to survive a restart, so commit the cursor first.
		s.pending.failed = err
		batch, err = feed.Batch{More: true}, nil
	}
	if err != nil {
		if s.pending != nil && s.pending.at == nil && !r.cur.isOverdue(time.Now()) {
			s.pending.stopped = r // continue there
		} else {
			s.pending = nil
		}
		s.expect = after
		return feed.Batch{}, err
	}
	if changed {
		s.reportBody()
	}
	batch.Cursor = r.cur.encodeCursor()
	if len(after) > 0 && len(batch.Entities) == 0 && !batch.More && equivalent(before, r.cur) {
		batch.Equivalent = after
	}
	batch.Title = s.title
	batch.Violations = r.seen.takeAll()
	if s.newest != 0 {
		batch.Newest = time.Unix(0, int64(s.newest)).UTC()
	}
	s.expect = batch.Cursor
	return batch, nil
}

// advance returns the next batch after the cursor of the call: at most a part of one
// document.
func (s *Source) advance(ctx context.Context, r *nextCall) (feed.Batch, error) {
	if s.profile.tail {
		return tailer{r}.readOn(ctx)
	}
	// The limit ends a call for a document that changes with each request.
	for range 100 {
		if s.pending == nil || s.pending.frontier != "" {
			if batch, done, err := (poller{r}).pollFeed(ctx); done || err != nil {
				return batch, err
			}
		}
		if batch, done, err := (publisher{r}).publishNext(ctx); done || err != nil {
			return batch, err
		}
	}
	return feed.Batch{More: true}, nil
}

// Release returns all budget. It drops the documents in memory, which are read again if
// they are needed. It is called when Next will not be called for a while, and not
// during Next.
func (s *Source) Release() {
	s.ahead.Close()
	switch pending := s.pending; {
	case pending == nil:
	case pending.at != nil:
		// A part of it is published. The cursor has the progress.
		s.pending, s.tailPages = nil, nil
	default:
		pending.released = pending.released || pending.sub != nil
		pending.sub = nil
		for _, st := range pending.steps {
			st.doc = nil
		}
	}
	s.share.releaseUnneeded(0)
}
