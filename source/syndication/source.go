package syndication

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"log/slog"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// Source polls one feed. Next keeps the contract of a bridge's Source: what a
// Source remembers between calls saves requests and decides nothing. It is for
// one goroutine at a time.
//
// What is published depends on three things: the feed, the cursor, and what the
// topic holds of each entry ([Held]). The older documents of a feed are found by
// walking back from the subscription document, and published from the oldest on.
// A document that has more to publish than fits into memory is read more than
// once, each time for the part that comes next.
//
// IDs are those of the feed, verbatim, but for control characters, which headers
// cannot carry: those are written as a percent sign and two hexadecimal digits.
type Source struct {
	cfg     Config
	profile profile
	share   share
	client  *source.Client
	held    Held
	log     *slog.Logger

	// job is what is left of a poll; expect is the cursor at which it goes on.
	job    *job
	expect feed.Cursor
	// notFeed counts how often in a row a URL has answered with something else.
	notFeed map[key]int
	// ignored are the children of entries that do not count as changes.
	ignored []xml.Name
	newest  instant
	// unread counts how often in a row the subscription document could not be read.
	unread int
	// brokenBy is the fault that was last logged of a document that was repaired.
	brokenBy string
	// round has the pages that were read in mode tail since the last pause.
	round map[key]bool
}

// New returns a Source for the feed that cfg names. held must have what the topic
// holds of the feed, and with it what Next has returned before it is called
// again.
func New(cfg Config, client *source.Client, held Held, log *slog.Logger) *Source {
	cfg.BatchEntities, cfg.BatchBytes = cmp.Or(cfg.BatchEntities, 999), cmp.Or(cfg.BatchBytes, 1<<20)
	s := &Source{cfg: cfg, profile: cfg.profile(), client: client, held: held, log: log, notFeed: map[key]int{}}
	s.share = share{budget: cfg.Budget, free: int64(cfg.BatchBytes)}
	for _, name := range cfg.IgnoreChangesIn {
		s.ignored = append(s.ignored, childName(name))
	}
	if cfg.Identity == "link" || cfg.Identity == "content" {
		// IDs that are not used may change with each reading.
		s.ignored = append(s.ignored, xml.Name{Space: "*", Local: "guid"}, xml.Name{Space: feedxml.AtomNamespace, Local: "id"})
	}
	return s
}

// NextUpTo is Next with at most n entities in the batch; n is 1 or more.
func (s *Source) NextUpTo(ctx context.Context, after feed.Cursor, n int) (feed.Batch, error) {
	most := s.cfg.BatchEntities
	defer func() { s.cfg.BatchEntities = most }()
	s.cfg.BatchEntities = n
	return s.Next(ctx, after)
}

// Next reads on from after: a part of a document at most.
func (s *Source) Next(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
	returned := false
	defer func() {
		if !returned { // it has panicked: nothing that it was at is to be believed
			s.job, s.round = nil, nil
		}
		s.share.keep(s.job.held())
	}()
	batch, err := s.nextBatch(ctx, after)
	returned = true
	return batch, err
}

func (s *Source) nextBatch(ctx context.Context, after feed.Cursor) (feed.Batch, error) {
	if !bytes.Equal(after, s.expect) {
		s.job, s.round = nil, nil
	}
	cur, err := decodeCursor(after, s.cfg.Start)
	if err != nil {
		return feed.Batch{}, err
	}
	if err := cur.resolve(); err != nil {
		return feed.Batch{}, err
	}
	if s.job != nil && s.job.err != nil {
		err, s.job.err = s.job.err, nil
		return feed.Batch{}, err
	}
	r := &turn{s: s, cur: cur}
	if s.job != nil && s.job.failed != nil {
		r, s.job.failed = s.job.failed, nil
		r.asked = false
	}
	batch, err := r.next(ctx)
	if err != nil && r.noted {
		// Since when something is awaited has to outlive a restart.
		s.job.err = err
		batch, err = feed.Batch{More: true}, nil
	}
	if err != nil {
		if s.job != nil && s.job.at == nil && !r.cur.isOverdue(time.Now()) {
			s.job.failed = r // go on from where it failed
		} else {
			s.job = nil
		}
		s.expect = after
		return feed.Batch{}, err
	}
	batch.Cursor = r.cur.encode()
	if before, err := decodeCursor(after, s.cfg.Start); err == nil && len(after) > 0 && len(batch.Entities) == 0 && !batch.More && equivalent(before, r.cur) {
		batch.Equivalent = after
	}
	batch.Violations = r.seen.all()
	if s.newest != 0 {
		batch.Newest = time.Unix(0, int64(s.newest)).UTC()
	}
	s.expect = batch.Cursor
	return batch, nil
}

// turn is one call of Next.
type turn struct {
	s    *Source
	cur  cursor
	seen sightings
	// asked says that the subscription document was there, and noted that the
	// cursor has news though the call fails.
	asked, noted bool
}

func (r *turn) next(ctx context.Context) (feed.Batch, error) {
	if r.s.profile.tail {
		return r.tail(ctx)
	}
	// A document that changes each time could keep this busy for ever.
	for range 100 {
		if r.s.job == nil || r.s.job.frontier != "" {
			if batch, done, err := r.poll(ctx); done || err != nil {
				return batch, err
			}
		}
		if batch, done, err := r.work(ctx); done || err != nil {
			return batch, err
		}
	}
	return feed.Batch{More: true}, nil
}

// poll asks for the subscription document, and for the older ones that it leads
// to. done says that there is nothing to publish.
func (r *turn) poll(ctx context.Context) (batch feed.Batch, done bool, err error) {
	s := r.s
	if s.job != nil {
		return feed.Batch{}, false, r.walkAll(ctx)
	}
	now := time.Now()
	if g, due := r.cur.due(now); due && r.cur.Doc == nil {
		if err := r.heal(ctx, g); err != nil {
			s.log.Warn("a missing archive is still not to be had", "url", g.URL, "error", err)
			r.retryLater(g.URL, err)
		} else if s.job != nil {
			return feed.Batch{}, false, nil
		}
	}
	watched := r.cur.Dialect != "" && r.cur.Doc == nil && s.holdsAny(&r.cur)
	d, err := r.ask(ctx, now)
	if err != nil {
		return feed.Batch{}, false, err
	}
	r.asked = true
	fresh := func() time.Duration { return s.fresh(d.response, r.cur.Hints, now) }
	switch {
	case d.unmodified:
		r.notModified(d)
		return feed.Batch{Fresh: fresh()}, true, nil
	case r.foreign(d) != nil:
		return feed.Batch{}, false, r.foreign(d)
	case r.unchanged(d, now):
		r.cur.settle(d)
		if now.Sub(time.Unix(r.cur.Full, 0)) >= s.cfg.FullEvery {
			r.cur.Full = now.Unix()
		}
		return feed.Batch{Fresh: fresh()}, true, nil
	}
	if d, err = r.subscribed(ctx, d); err != nil {
		return feed.Batch{}, false, err
	}
	if d, err = r.strict(ctx, d); err != nil {
		return feed.Batch{}, false, err
	}
	if err = r.newIdentities(d); err != nil {
		return feed.Batch{}, false, err
	}
	r.verdict(d)
	if started, err := r.start(d); err != nil || started {
		return feed.Batch{Fresh: fresh()}, started, err
	}
	r.begin(d)
	s.job.watched = watched && !d.partial && d.dialect != Complete
	return feed.Batch{}, false, r.walkAll(ctx)
}

// retryLater puts off a gap that is not to be had at the moment.
func (r *turn) retryLater(url string, err error) {
	if i := r.cur.gap(url); i >= 0 {
		r.cur.Gaps = slices.Clone(r.cur.Gaps)
		g := &r.cur.Gaps[i]
		g.Times++
		g.Retry = retryAt(err, g.Times, time.Now())
	}
}

// begin starts to work on the subscription document.
func (r *turn) begin(d *document) {
	s := r.s
	j := &job{
		sub: d, url: d.url, hash: d.hash, believe: d.updated, deletes: d.deletes, withheld: d.withheld,
		walked: r.cur.Walked, dialect: d.dialect, visited: map[key]bool{keyOf(withoutFragment(d.url)): true},
	}
	j.visited[keyOf(withoutFragment(d.response.URL.String()))] = true
	due := r.recheckDue(d.now)
	if due {
		j.recheck = s.cfg.RecheckArchives.Newest
	}
	j.full = due || r.cur.Walked == 0
	j.fresh, j.shared = d.fresh, d.known > 0
	walk := false
	switch d.dialect {
	case Complete:
	case Paged:
		walk = j.full || s.wants(&r.cur, d)
	default:
		walk = true
	}
	s.job = j
	if walk {
		r.walkTo(d)
	}
	if j.frontier != "" {
		j.note(d)
	}
	d.forgetIDs()
}

// walkAll walks, and again if a paged feed has changed meanwhile.
func (r *turn) walkAll(ctx context.Context) error {
	for {
		if err := r.walk(ctx); err != nil {
			return err
		}
		watched := r.s.job.watched
		if again, err := r.stable(ctx); err != nil || !again {
			r.overrun()
			return err
		}
		r.s.job.watched = watched
	}
}
