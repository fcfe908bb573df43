package serve

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"iter"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/feedbridge/feedbridge/feed"
)

// format writes pages.
type format interface {
	// contentType is what a page is.
	contentType(p *page) string
	// entity appends an entity to a page.
	entity(b []byte, p *page, e *entity) []byte
	// frame returns what stands in front of the entities and behind them.
	frame(f *Feed, p *page) (head, tail []byte)
	// linked says that a page has its links within, and its newest entity first.
	linked() bool
}

var formats = map[Format]format{DataReplication: multipart{}, Atom: atomFormat{}, RSS: rssFormat{}}

var (
	// errGone says that a page was there, or may have been, and is not any more.
	errGone = errors.New("it is gone")
	// errMoved says that retention took messages, or the topic was made anew,
	// whenever a page was read.
	errMoved = errors.New("the topic changes faster than it can be read")
	// errClash says that an entity has the page's boundary in it.
	errClash = errors.New("an entity has the boundary in it")
	// errNoPage says that there has never been a page.
	errNoPage = errors.New("there is no such page")
	// errFull says that there is no memory for a document that has to be held to be
	// sent, because what is there is being sent.
	errFull = errors.New("the memory for pages is full of pages that are being sent")
	// errTooLarge says that a document cannot be made.
	errTooLarge = errors.New("a document is too large to be held in memory: set a smaller page_size")
)

// page returns a page as it is now. A page that has no entities is none. Whoever
// gets a page releases it.
func (f *Feed) page(ctx context.Context, key pageKey) (*page, error) {
	span, err := f.topic.Span(ctx)
	if err != nil {
		return nil, err
	}
	if p := f.memory.get(key); p != nil {
		if p.current(span) {
			return p, nil
		}
		f.memory.release(p)
	}
	name := fmt.Sprint(key.kind, " ", key.base, " ", key.id)
	p, err := together(ctx, &f.topic.flights, name, func(ctx context.Context) (*page, error) {
		// It may have been made since we looked.
		if p := f.memory.get(key); p != nil {
			f.memory.release(p)
			if p.current(span) {
				return p, nil
			}
		}
		return f.build(ctx, key)
	})
	if err != nil {
		return nil, err
	}
	f.memory.hold(p)
	return p, nil
}

// lead is how many pages are made that nobody has asked for yet. With two, the second
// is read while the first is finished.
const lead = 2

// ahead makes the pages behind p, unless there is enough to do without: who asked
// for p will ask for these next.
func (f *Feed) ahead(p *page) {
	if f.testOnlyIdle || p.kind != closedPage || !p.after.ok {
		return
	}
	for k := p.after.k; k < p.after.k+lead; k++ {
		key := p.pageKey // one for each page, which is made while this goes on
		key.id.k = k
		if key.id.end() > p.span.End {
			return
		}
		if next := f.memory.get(key); next != nil {
			f.memory.release(next)
			continue
		}
		if !f.memory.builds.TryAcquire(1) {
			return
		}
		f.memory.builds.Release(1)
		go func() {
			if next, err := f.page(context.Background(), key); err == nil {
				f.memory.release(next)
			}
		}()
	}
}

// build makes a page.
func (f *Feed) build(ctx context.Context, key pageKey) (*page, error) {
	if err := f.memory.builds.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer f.memory.builds.Release(1)
	ask := f.topic.Span
	for range 5 {
		span, err := ask(ctx)
		if err != nil {
			return nil, err
		}
		if span.Epoch != key.id.epoch {
			return nil, errGone
		}
		p, err := f.buildAt(ctx, key, span)
		if err != nil {
			return nil, err
		}
		// What was read is all that there was only if it is there still. What came
		// meanwhile is no matter: if that were remembered, the newest page would be
		// out of date as soon as it is made, and be made for every client.
		now, err := f.topic.log.Span(ctx)
		if err != nil {
			return nil, err
		}
		if now.Epoch == span.Epoch && (now.First == span.First || key.id.whole(now)) {
			if f.memory.put(p); p.linked && p.body == nil {
				return nil, errFull
			}
			return p, nil
		}
		ask = f.topic.spanNow
	}
	return nil, errMoved
}

// buildAt makes a page as of a span.
func (f *Feed) buildAt(ctx context.Context, key pageKey, span feed.Span) (*page, error) {
	p := &page{pageKey: key, span: span, linked: f.format.linked(), boundary: boundary(key.id, nil)}
	if key.kind == subscription {
		newest, err := f.topic.newest(ctx, span, key.id.size)
		if err != nil {
			return nil, err
		}
		// At least what the newest archive has, for clients that do not know archives.
		p.from = min(newest/key.id.size, max(key.id.k, 1)-1)
	}
	seen := f.looksAt(p)
	defer seen(nil)
	r := f.read(ctx, p, xxhash.New())
	err := r.write(ctx)
	if errors.Is(err, errClash) {
		// Nobody can write an entity that has such a hash of itself in it.
		r = f.read(ctx, p, sha256.New())
		if err = r.write(ctx); errors.Is(err, errClash) {
			p.boundary = boundary(key.id, r.hash.Sum(nil))
			r = f.read(ctx, p, xxhash.New())
			err = r.write(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	p.contentType = f.format.contentType(p)
	p.sum, p.entities, p.modified = r.own.own, r.entities, r.modified
	seen(&p.sum)
	if err := f.neighbours(ctx, p, r); err != nil {
		return nil, err
	}
	r.finish()
	return p, nil
}

// neighbours finds the pages that the links of p lead to.
func (f *Feed) neighbours(ctx context.Context, p *page, r *reading) (err error) {
	switch {
	case p.id.k == 0 || !p.id.whole(p.span) && !p.linked:
	case p.kind == subscription:
		// The archive that it begins with, if there is one. Those behind that have nothing
		// besides, and clients that read on from an archive would read entries twice.
		p.before.k, p.before.ok, err = f.topic.before(ctx, p.id.at(p.from+1), p.span)
	case p.linked: // nothing in front of it was read
		p.before.k, p.before.ok, err = f.topic.before(ctx, p.id, p.span)
	case len(r.before.own.ids) > 0:
		p.before = neighbour{p.id.k - 1, true}
	default:
		p.before.k, p.before.ok, err = f.topic.before(ctx, p.id.at(p.id.k-1), p.span)
	}
	if err != nil || !p.sealed() || p.kind == subscription {
		return err
	}
	if r.next > 0 {
		p.after = neighbour{r.next / p.id.size, true}
	} else {
		p.after.k, p.after.ok, err = f.topic.after(ctx, p.id, p.span)
	}
	if p.linked && p.after.ok && p.id.at(p.after.k).end() > p.span.End {
		p.after.ok = false // an archive is linked to when it is full
	}
	return err
}

// peek is how many positions behind a page are read with it, to find the message
// that makes the page behind it one. Asking for it by itself would take about as
// long as the page.
const peek = 8

// reading is the reading of a page's messages, for the page to be made or for
// it to be sent.
type reading struct {
	f *Feed
	p *page
	// from is the first position to read, low the first of the page itself, and
	// high the one behind the last.
	from, low, high uint64
	before, own     *sifter
	// next is the first position behind the page that has a message, if it has
	// been read.
	next uint64
	// What has been read so far.
	entities int
	modified time.Time

	// What has been written: all of it if it is not too much to be held. ends has
	// where each entity ends, in a format that puts the newest first.
	b    []byte
	ends []int
	// versions has what each entity of a document is a version of.
	versions []version
	whole    bool
	hash     hash.Hash
	n        int64
}

// A look is the reading of a page that others wait for who make the page behind it:
// they need to know what is on it, and find the topic read up to there.
type look struct {
	done chan struct{}
	sum  *summary // nil if it came to nothing
}

// looksAt says that a page is being read. It is over when seen is called, with what
// is on the page or with nil; other calls do nothing.
func (f *Feed) looksAt(p *page) (seen func(*summary)) {
	if p.linked || p.kind != closedPage || !p.sealed() {
		return func(*summary) {}
	}
	l := &look{done: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks[p.id] = l
	return func(sum *summary) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.looks[p.id] == l {
			delete(f.looks, p.id)
			l.sum = sum
			close(l.done)
		}
	}
}

// front returns what is on the page in front of another, if that is known.
func (f *Feed) front(ctx context.Context, key pageKey) (_ summary, ok bool) {
	f.mu.Lock()
	l := f.looks[key.id]
	f.mu.Unlock()
	if l != nil {
		select {
		case <-l.done:
			if l.sum != nil {
				return *l.sum, true
			}
		case <-ctx.Done():
		}
	}
	known := f.memory.get(key)
	if known == nil {
		return summary{}, false
	}
	defer f.memory.release(known)
	return known.sum, known.sealed()
}

// read returns a reading that has not begun.
func (f *Feed) read(ctx context.Context, p *page, sum hash.Hash) *reading {
	r := &reading{f: f, p: p, low: p.id.first(), high: min(p.id.end(), p.span.End), whole: true, hash: sum}
	r.before = newSifter(0)
	if p.kind == subscription {
		r.low = p.id.at(p.from).first()
	}
	r.from = r.low
	if p.kind == closedPage && p.id.k > 0 && p.id.whole(p.span) && !p.linked {
		front := p.pageKey
		front.id.k--
		if sum, known := f.front(ctx, front); known {
			r.before.own = sum
		} else {
			r.from = front.id.first()
		}
	}
	r.from, r.low = max(r.from, p.span.First), max(r.low, p.span.First)
	r.own = newSifter(r.high - min(r.low, r.high))
	return r
}

// all are the page's entities.
func (r *reading) all(ctx context.Context) iter.Seq2[*entity, error] {
	return func(yield func(*entity, error) bool) {
		if r.from >= r.high {
			return
		}
		var header feed.Header
		for record, err := range r.f.topic.log.Read(ctx, r.from, min(r.high+peek, r.p.span.End)) {
			if err != nil {
				yield(nil, err)
				return
			}
			if record.Position >= r.high {
				r.next = record.Position
				return
			}
			e := r.f.entity(r.p.id.epoch, record, header)
			header = e.header
			if record.Position < r.low {
				r.before.add(&e)
				continue
			}
			r.own.before = r.before.own
			if !r.p.linked && !r.own.add(&e) {
				continue
			}
			r.entities++
			switch {
			case !r.p.linked:
				r.modified = e.modified
			case r.modified.Before(e.stamp()):
				r.modified = e.stamp()
			}
			if !yield(&e, nil) {
				return
			}
		}
	}
}

// write reads and writes all entities. It fails with errClash if the boundary
// does not do, when it has seen them all.
func (r *reading) write(ctx context.Context) error {
	// About as much as the last page of the feed had for so many positions.
	guess := r.f.dense.Load() * int64(r.high-min(r.low, r.high))
	r.b = make([]byte, 0, min(guess+guess/16, r.f.memory.largest)+slack)
	var clash error
	for e, err := range r.all(ctx) {
		if err != nil {
			return err
		}
		begin := len(r.b)
		r.b = r.f.format.entity(r.b, r.p, e)
		part := r.b[begin:]
		if !r.p.linked && clashes(part, r.p.boundary) {
			clash = errClash
		}
		if err := r.add(part); err != nil {
			return err
		}
		if r.p.linked {
			r.versions = append(r.versions, version{e.entryID, e.op != feed.Patch})
		}
	}
	return clash
}

// add adds an entity that has been written behind the others.
func (r *reading) add(part []byte) error {
	r.n += int64(len(part))
	r.hash.Write(part)
	if r.n > r.f.memory.largest {
		if r.p.linked {
			return errTooLarge
		}
		r.whole = false
	}
	switch {
	case !r.whole:
		r.b = r.b[:0]
	case r.p.linked:
		r.ends = append(r.ends, len(r.b))
	}
	return nil
}

// version is an entity that others with the same ID may have replaced.
type version struct {
	id    string
	whole bool // it replaces those before it
}

// finish gives the page its bytes, once all else of it is known.
func (r *reading) finish() {
	p := r.p
	head, tail := r.f.format.frame(r.f, p)
	chunks := r.chunks()
	p.length = int64(len(head)) + r.n + int64(len(tail))
	r.hash.Write(head)
	r.hash.Write(tail)
	p.tag = fmt.Sprintf("%x-%x", p.length, r.hash.Sum(nil))
	if !r.whole {
		return
	}
	if positions := int64(r.high - min(r.low, r.high)); positions > 0 {
		r.f.dense.Store(r.n / positions)
	}
	if len(head) == 0 {
		if p.body = append(r.b, tail...); cap(p.body) > len(p.body)+len(p.body)/8+slack {
			p.body = slices.Clone(p.body)
		}
		return
	}
	p.body = append(make([]byte, 0, p.length), head...)
	for _, chunk := range chunks {
		p.body = append(p.body, chunk...)
	}
	p.body = append(p.body, tail...)
}

// slack is how much more a page may take than it has, besides an eighth of it.
const slack = 1 << 10

// chunks are what the body is made of, in its order. A document has the newest
// entry first. Of those with the same ID it has the newest alone: they are versions
// of one entry, whose own times need not tell which is newer, and many readers take
// the last that they see for it.
func (r *reading) chunks() (chunks [][]byte) {
	if !r.p.linked || !r.whole {
		return [][]byte{r.b}
	}
	replaced := map[string]bool{}
	for i, end := range slices.Backward(r.ends) {
		begin := 0
		if i > 0 {
			begin = r.ends[i-1]
		}
		v := r.versions[i]
		if replaced[v.id] {
			r.n -= int64(end - begin)
			continue
		}
		replaced[v.id] = v.whole
		chunks = append(chunks, r.b[begin:end])
	}
	return chunks
}

// newest returns the newest page that has a message, nil if there is none.
func (f *Feed) newest(ctx context.Context) (*page, error) {
	for range 5 {
		span, err := f.topic.Span(ctx)
		if err != nil || span.First >= span.End {
			return nil, err
		}
		id := pageID{epoch: span.Epoch, size: uint64(f.cfg.PageSize)}
		id.k = (span.End - 1) / id.size
		p, err := f.page(ctx, pageKey{feed: f, id: id})
		if err == nil && p.entities == 0 {
			// The newest positions have no message.
			front := p.before
			f.memory.release(p)
			if !front.ok && !id.whole(span) {
				front.k, front.ok, err = f.topic.before(ctx, id, span)
			}
			if err != nil || !front.ok {
				return nil, err
			}
			p, err = f.page(ctx, pageKey{feed: f, id: id.at(front.k)})
		}
		if !errors.Is(err, errGone) {
			return p, err
		}
	}
	return nil, errMoved
}

// find returns a page that is to be had: there is a message on it, and retention
// has not reached it. The newest page is to be had as long as it has a message.
func (f *Feed) find(ctx context.Context, key pageKey) (*page, error) {
	id := key.id
	for range 5 {
		span, err := f.topic.Span(ctx)
		if err != nil {
			if errors.Is(err, feed.ErrNoTopic) {
				err = errGone
			}
			return nil, err
		}
		if err := f.served(ctx, id, span); err != nil {
			return nil, err
		}
		p, err := f.page(ctx, key)
		switch {
		case errors.Is(err, feed.ErrNoTopic):
			return nil, errGone
		case err != nil:
			return nil, err
		case id.whole(span) && !id.whole(p.span):
			// It was when the page was asked for.
			f.memory.release(p)
			continue
		case p.entities > 0:
			return p, nil
		}
		f.memory.release(p)
		if id.first() < span.First {
			return nil, errGone
		}
		return nil, errNoPage
	}
	return nil, errMoved
}

// served says why a page is not to be had, as far as its positions tell.
func (f *Feed) served(ctx context.Context, id pageID, span feed.Span) error {
	switch {
	case span.Epoch != id.epoch:
		return errGone
	case id.first() >= span.End || f.format.linked() && id.end() > span.End:
		return errNoPage
	case id.whole(span):
		return nil
	case id.end() <= span.First || f.format.linked():
		return errGone
	}
	_, newer, err := f.topic.after(ctx, id, span)
	if err == nil && newer {
		return errGone
	}
	return err
}
