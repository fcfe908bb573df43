package serve

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/singleflight"

	"github.com/feedbridge/feedbridge/feed"
)

// pageBuilder builds the pages of a feed, and keeps them in its PageCache. Its methods may
// be called from any goroutine.
type pageBuilder struct {
	cfg     *Config
	log     Log
	spans   *spanCache
	find    messageFinder
	format  Format
	decoder decoder
	memory  *PageCache
	// density is the number of bytes for each position on the page that was built last.
	density atomic.Int64

	flights singleflight.Group // the builds of pages

	ahead uint64 // the number of pages that are built before they are requested

	inflight inflightBuilds
}

func newPageBuilder(cfg *Config, log Log) *pageBuilder {
	return &pageBuilder{
		cfg: cfg, log: log, spans: &spanCache{log: log}, find: messageFinder{log}, format: cfg.Format, decoder: decoder{cfg.Name, cfg.Snapshot.Every > 0}, memory: cfg.Memory,
		ahead: lead, inflight: inflightBuilds{pages: map[pageKey]*inflight{}},
	}
}

// currentPage returns the current version of a page, from the cache or newly built. A page
// without entities is returned, too, and must not be served. The caller releases the page.
func (pb *pageBuilder) currentPage(ctx context.Context, key pageKey) (*page, error) {
	span, err := pb.spans.Span(ctx)
	if err != nil {
		return nil, err
	}
	if p := pb.memory.acquirePage(key); p != nil {
		if p.isCurrent(span) {
			return p, nil
		}
		pb.memory.releasePage(p)
	}
	name := fmt.Sprint(key.kind, " ", key.id)
	p, err := shareCall(ctx, &pb.flights, name, func(ctx context.Context) (*page, error) {
		// Another goroutine may have built it since.
		if p := pb.memory.acquirePage(key); p != nil {
			pb.memory.releasePage(p)
			if p.isCurrent(span) {
				return p, nil
			}
		}
		return pb.buildPage(ctx, key)
	})
	if err != nil {
		return nil, err
	}
	pb.memory.retainPage(p)
	return p, nil
}

// lead is the default number of pages that are built before they are requested.
const lead = 2

// buildAhead builds the pages after p in the background, because the client that requested p will
// request them next. Each begins when the summary of the one before it is known, while that one
// waits for the bus to confirm that its messages still exist. It does nothing while all slots for
// builds are taken.
func (pb *pageBuilder) buildAhead(p *page) {
	if p.kind != closedPage || !p.after.ok {
		return
	}
	var missing []pageKey
	for k := p.after.k; k < p.after.k+pb.ahead; k++ {
		key := p.pageKey
		key.id.k = k
		if key.id.endPosition() > p.span.End {
			break
		}
		if next := pb.memory.acquirePage(key); next != nil {
			pb.memory.releasePage(next)
			continue
		}
		missing = append(missing, key)
	}
	if len(missing) == 0 {
		return
	}
	go func() {
		for _, key := range missing {
			slot := pb.memory.builds.TryAcquire()
			if slot == nil {
				return
			}
			slot.Release()
			b := pb.inflight.announce(key)
			go func() {
				defer pb.inflight.end(key, b)
				if next, err := pb.currentPage(context.Background(), key); err == nil {
					pb.memory.releasePage(next)
				}
			}()
			<-b.read
			if b.sum == nil {
				return
			}
		}
	}()
}

// buildPage makes a page.
func (pb *pageBuilder) buildPage(ctx context.Context, key pageKey) (*page, error) {
	slot, err := pb.memory.builds.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer slot.Release()
	b := pb.inflight.announce(key)
	defer pb.inflight.end(key, b)
	ask := pb.spans.Span
	for range 5 {
		span, err := ask(ctx)
		if err != nil {
			return nil, err
		}
		if span.Epoch != key.id.epoch {
			return nil, errGone
		}
		p, err := pb.buildAt(ctx, key, span, b)
		if err != nil {
			return nil, err
		}
		// The page is complete only if its messages still exist. Messages that came
		// meanwhile do not count: otherwise the newest page would be out of date as soon
		// as it is made, and would be made for every client.
		now, err := pb.log.Span(ctx)
		if err != nil {
			return nil, err
		}
		if now.Epoch == span.Epoch && (now.First == span.First || key.id.isWhole(now)) {
			if pb.memory.storePage(p); p.linked && p.body == nil {
				return nil, errFull
			}
			return p, nil
		}
		ask = pb.spans.spanNow
	}
	return nil, errMoved
}

// buildAt makes a page as of a span.
func (pb *pageBuilder) buildAt(ctx context.Context, key pageKey, span feed.Span, b *inflight) (*page, error) {
	p := &page{pageKey: key, span: span, linked: pb.cfg.isLinked(), boundary: pageBoundary(key.id, nil)}
	if key.kind == subscription {
		newest, err := pb.find.newestMessage(ctx, span, key.id.size)
		if err != nil {
			return nil, err
		}
		// At least the entries of the newest archive, for clients that do not know archives.
		p.from = min(newest/key.id.size, max(key.id.k, 1)-1)
	}
	if !p.linked && p.kind == closedPage && p.isSealed() {
		b.started.Store(true)
	}
	r := pb.newReading(ctx, p, xxhash.New())
	err := r.writeEntities(ctx)
	if errors.Is(err, errClash) {
		// Nobody can write an entity that has such a hash of itself in it.
		r = pb.newReading(ctx, p, sha256.New())
		if err = r.writeEntities(ctx); errors.Is(err, errClash) {
			p.boundary = pageBoundary(key.id, r.hash.Sum(nil))
			r = pb.newReading(ctx, p, xxhash.New())
			err = r.writeEntities(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	p.contentType = pb.format.contentType(p)
	p.sum, p.entities, p.modified, p.dated = r.own.own, r.entities, r.modified, r.dated
	b.setSummary(&p.sum)
	if err := pb.neighbours(ctx, p, r); err != nil {
		return nil, err
	}
	r.finishPage()
	return p, nil
}

// neighbours finds the pages that the links of p lead to.
func (pb *pageBuilder) neighbours(ctx context.Context, p *page, r *reading) (err error) {
	switch {
	case p.id.k == 0 || !p.id.isWhole(p.span) && !p.linked:
	case p.kind == subscription:
		// The archive that it begins with, if there is one. Those behind that have nothing
		// besides, and clients that read on from an archive would read entries twice.
		p.before.k, p.before.ok, err = pb.find.previousPage(ctx, p.id.withNumber(p.from+1), p.span)
	case p.linked: // nothing in front of it was read
		p.before.k, p.before.ok, err = pb.find.previousPage(ctx, p.id, p.span)
	case len(r.before.own.ids) > 0:
		p.before = neighbour{p.id.k - 1, true}
	default:
		p.before.k, p.before.ok, err = pb.find.previousPage(ctx, p.id.withNumber(p.id.k-1), p.span)
	}
	if err != nil || !p.isSealed() || p.kind == subscription {
		return err
	}
	if r.next > 0 {
		p.after = neighbour{r.next / p.id.size, true}
	} else {
		p.after.k, p.after.ok, err = pb.find.nextPage(ctx, p.id, p.span)
	}
	if p.linked && p.after.ok && p.id.withNumber(p.after.k).endPosition() > p.span.End {
		p.after.ok = false // an archive is linked to when it is full
	}
	return err
}

// summaryOf returns the summary of the page before another, if it is known.
func (pb *pageBuilder) summaryOf(ctx context.Context, key pageKey) (_ summary, ok bool) {
	if b := pb.inflight.started(key); b != nil {
		select {
		case <-b.read:
			if b.sum != nil {
				return *b.sum, true
			}
		case <-ctx.Done():
		}
	}
	known := pb.memory.acquirePage(key)
	if known == nil {
		return summary{}, false
	}
	defer pb.memory.releasePage(known)
	return known.sum, known.isSealed()
}

// newReading returns a reading that has not begun.
func (pb *pageBuilder) newReading(ctx context.Context, p *page, sum hash.Hash) *reading {
	r := &reading{f: pb, p: p, low: p.id.firstPosition(), high: min(p.id.endPosition(), p.span.End), whole: true, hash: sum}
	r.before = newNormalizer(0)
	if p.kind == subscription {
		r.low = p.id.withNumber(p.from).firstPosition()
	}
	if p.kind == eventList {
		r.low, r.high = p.id.k, p.next
	}
	r.from = r.low
	if p.kind == closedPage && p.id.k > 0 && p.id.isWhole(p.span) && !p.linked {
		front := p.pageKey
		front.id.k--
		if sum, known := pb.summaryOf(ctx, front); known {
			r.before.own = sum
		} else {
			r.from = front.id.firstPosition()
		}
	}
	r.from, r.low = max(r.from, p.span.First), max(r.low, p.span.First)
	r.own = newNormalizer(r.high - min(r.low, r.high))
	return r
}

// newestPage returns the newest page that has a message, nil if there is none.
func (pb *pageBuilder) newestPage(ctx context.Context) (*page, error) {
	for range 5 {
		span, err := pb.spans.Span(ctx)
		if err != nil || span.First >= span.End {
			return nil, err
		}
		id := pageID{epoch: span.Epoch, size: uint64(pb.cfg.PageSize)}
		id.k = (span.End - 1) / id.size
		p, err := pb.currentPage(ctx, pageKey{feed: pb.cfg, id: id})
		if err == nil && p.entities == 0 {
			// The newest positions have no message.
			front := p.before
			pb.memory.releasePage(p)
			if !front.ok && !id.isWhole(span) {
				front.k, front.ok, err = pb.find.previousPage(ctx, id, span)
			}
			if err != nil || !front.ok {
				return nil, err
			}
			p, err = pb.currentPage(ctx, pageKey{feed: pb.cfg, id: id.withNumber(front.k)})
		}
		if !errors.Is(err, errGone) {
			return p, err
		}
	}
	return nil, errMoved
}

// findPage returns a page if it is served: it has a message, and retention has not reached
// it. The newest page is served as long as it has a message.
func (pb *pageBuilder) findPage(ctx context.Context, key pageKey) (*page, error) {
	id := key.id
	for range 5 {
		span, err := pb.spans.Span(ctx)
		if err != nil {
			if errors.Is(err, feed.ErrNoTopic) {
				err = errGone
			}
			return nil, err
		}
		if err := pb.checkServed(ctx, id, span); err != nil {
			return nil, err
		}
		p, err := pb.currentPage(ctx, key)
		switch {
		case errors.Is(err, feed.ErrNoTopic):
			return nil, errGone
		case err != nil:
			return nil, err
		case id.isWhole(span) && !id.isWhole(p.span):
			// It was when the page was asked for.
			pb.memory.releasePage(p)
			continue
		case p.entities > 0:
			return p, nil
		}
		pb.memory.releasePage(p)
		if id.firstPosition() < span.First {
			return nil, errGone
		}
		return nil, errNoPage
	}
	return nil, errMoved
}

// checkServed returns why a page is not served, as far as that follows from its positions.
func (pb *pageBuilder) checkServed(ctx context.Context, id pageID, span feed.Span) error {
	switch {
	case span.Epoch != id.epoch:
		return errGone
	case id.firstPosition() >= span.End || pb.cfg.isLinked() && id.endPosition() > span.End:
		return errNoPage
	case id.isWhole(span):
		return nil
	case id.endPosition() <= span.First || pb.cfg.isLinked():
		return errGone
	}
	_, newer, err := pb.find.nextPage(ctx, id, span)
	if err == nil && newer {
		return errGone
	}
	return err
}
