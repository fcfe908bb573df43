package source

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/limit"
)

const (
	// firstAhead is the number of pages that are requested ahead before the first one has arrived, and
	// maxPagesAhead limits it afterwards.
	firstAhead, maxPagesAhead = 4, 16
	// aheadChunk is the memory that each page ahead has at least, in bytes, and largeAheadChunk
	// the unit in which it is acquired for a long page; see [Response.isLong].
	aheadChunk      = 32 << 10
	largeAheadChunk = 256 << 10
	// aheadPatience is how long a page whose turn it is waits for its header before the pages
	// after it are dropped. A server that answers one request at a time may be sending one of
	// those, and would not finish, because its body is not read.
	aheadPatience = 5 * time.Second
	// maxAhead limits the bytes of one page that are read ahead. The rest stays on the
	// connection until the page is read.
	maxAhead = 2 << 20
)

// PagesAhead requests the pages with which a feed is expected to continue while the pages
// before them are read. A wrong expectation costs a request and changes no entity: a page is
// returned only when its URL is requested.
//
// Their number follows the upstream: it is that of the pages which are read in the time that one of
// them needs to arrive.
//
// It is used by one goroutine. A caller that stops reading must call Close.
type PagesAhead struct {
	client  *Client
	fetches []*fetch // in the order of the pages
	number  int      // of pages that are requested ahead, if so many are known
	most    int      // limits number
	steady  bool     // whether a page has arrived before its turn
}

// PagesAhead returns a PagesAhead for the client's feed.
func (c *Client) PagesAhead() *PagesAhead {
	most := max(0, cmp.Or(c.cfg.PagesAhead, maxPagesAhead))
	return &PagesAhead{client: c, number: min(firstAhead, most), most: most}
}

// Number returns the number of pages that Expect requests now. It is 0 only if no page is ever requested ahead.
func (a *PagesAhead) Number() int { return a.number }

// Expect requests the pages with these URLs, which the caller will request next, in this order.
// It does not wait. Pages of earlier calls that are not among them are dropped. It
// requests fewer if their number, their memory or the limit of the host does not allow more.
// The end of ctx ends the requests.
func (a *PagesAhead) Expect(ctx context.Context, urls ...string) {
	urls = urls[:min(len(urls), a.number)]
	same := 0
	for same < min(len(urls), len(a.fetches)) && a.fetches[same].url == urls[same] {
		same++
	}
	a.keep(same, len(a.fetches), len(a.fetches))
	for _, url := range urls[same:] {
		f := a.client.startFetch(ctx, url)
		if f == nil {
			return
		}
		a.fetches = append(a.fetches, f)
		f.pages = len(a.fetches)
	}
}

// Get requests a page without conditions, like [Client.Do]. If the page was requested ahead, it
// returns that answer, and drops the pages that were expected before it. A request ahead that
// has failed before is repeated, unless its error is permanent: so an error that passes by itself
// is never older than the call, and an answer such as 410 counts once. One whose context has ended
// is repeated in any case.
func (a *PagesAhead) Get(ctx context.Context, url string) (*Response, error) {
	i := slices.IndexFunc(a.fetches, func(f *fetch) bool { return f.url == url })
	if i < 0 {
		return a.client.Do(ctx, Request{Method: http.MethodGet, URL: url})
	}
	f := a.fetches[i]
	a.fetches[i] = nil
	a.keep(0, i, i+1)
	if f.ctx.Err() != nil || f.hasFailedForNow() {
		f.drop()
		return a.client.Do(ctx, Request{Method: http.MethodGet, URL: url})
	}
	needed, arrived := f.neededAhead(a.number, a.steady)
	a.number, a.steady = min(max(1, needed), a.most), a.steady || arrived
	select {
	case <-f.answered:
	case <-time.After(aheadPatience):
		a.Close()
	}
	return f.take(ctx)
}

// neededAhead returns the number of pages to request ahead after the page has come to its turn, while
// number were. How many were needed is known only of a page that has arrived before. Until one has,
// steady is false and the number doubles. Afterwards it grows by one: where the processor or the line is
// the bound, a page is late however many are requested, and all of them take memory.
func (f *fetch) neededAhead(number int, steady bool) (needed int, arrived bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.took > 0:
	case steady:
		return number + 1, false
	default:
		return 2 * number, false
	}
	// One page more covers the variation.
	needed = 1 + int(math.Ceil(float64(f.pages)*float64(f.took)/float64(max(time.Since(f.begun), f.took))))
	return number + cmp.Compare(needed, number), true
}

// Close drops all pages that were requested ahead. Their requests have ended when it returns.
func (a *PagesAhead) Close() { a.keep(0, len(a.fetches), len(a.fetches)) }

// keep drops the fetches from index from up to index to, and keeps those before from and those
// at index rest and after.
func (a *PagesAhead) keep(from, to, rest int) {
	dropped := a.fetches[from:to]
	for _, f := range dropped {
		f.cancel() // all at once, because each may take a moment to end
	}
	for _, f := range dropped {
		f.drop()
	}
	a.fetches = slices.Concat(a.fetches[:from], a.fetches[rest:])
}

// fetch is a page that is requested ahead. Its goroutine reads the body into memory until it is
// the page's turn, or there is no more memory. Then the reader of the page goes on where
// the goroutine has stopped.
type fetch struct {
	client *Client
	slot   *limit.Slot // of the host
	url    string
	begun  time.Time
	pages  int             // that are read from begun to its turn
	ctx    context.Context // of the request; ended by cancel, too
	cancel context.CancelFunc

	answered chan struct{} // closed when response and err are set
	response *Response
	err      error
	body     io.ReadCloser // of response; belongs to the goroutine until it has ended
	turn     chan struct{} // closed when the page is to be read
	done     chan struct{} // closed when the goroutine has ended, and the body belongs to the reader
	arrived  chan struct{} // has a capacity of one; wakes the reader

	mu     sync.Mutex // guards the fields below
	chunks []*chunk   // that were read and not yet returned
	lost   error      // set if chunks were dropped
	failed error      // of the body, while the goroutine read it
	// took is the time in which as much has arrived as there is memory for; 0 if the turn came before.
	took time.Duration
}

// chunk is a part of a body. The goroutine of the fetch writes to bytes[end:].
type chunk struct {
	bytes      []byte
	start, end int // the bytes that were read and not yet returned
}

// aheadBuffers has the memory of chunks that were dropped, by its size.
var aheadBuffers = map[int]*sync.Pool{aheadChunk: {}, largeAheadChunk: {}}

func newChunk(size int) *chunk {
	if kept, ok := aheadBuffers[size].Get().(*[]byte); ok {
		return &chunk{bytes: *kept}
	}
	return &chunk{bytes: make([]byte, size)}
}

// drop makes the memory of the chunk available to other fetches. The goroutine of the fetch has
// ended, or the chunk is full. In the latter case the goroutine may still look at its fields, so
// they do not change.
func (c *chunk) drop() { aheadBuffers[len(c.bytes)].Put(&c.bytes) }

// startFetch requests a page ahead. It returns nil if there is no memory for it, or the limit
// of the host is reached.
func (c *Client) startFetch(ctx context.Context, url string) *fetch {
	slot := c.hosts.acquireAhead(c.origin.Host)
	if slot == nil {
		return nil
	}
	if !c.hosts.PageBudget.TryAcquire(aheadChunk) {
		slot.Release()
		return nil
	}
	f := &fetch{
		client: c, slot: slot, url: url, begun: time.Now(),
		answered: make(chan struct{}), turn: make(chan struct{}), done: make(chan struct{}), arrived: make(chan struct{}, 1),
		chunks: []*chunk{newChunk(aheadChunk)},
	}
	f.ctx, f.cancel = context.WithCancel(ctx)
	go f.run()
	return f
}

// run requests the page and reads it. It returns when it is the page's turn, or when f.ctx ends.
func (f *fetch) run() {
	defer close(f.done)
	f.request()
	if f.err == nil {
		if err := f.readBody(); err != nil {
			if _, ok := errors.AsType[*feed.PanicError](err); ok {
				f.body = http.NoBody // it may panic again; cancel frees its connection
			}
			f.mu.Lock()
			f.failed = err
			f.mu.Unlock()
			f.wake()
		}
	}
	select {
	case <-f.turn:
	case <-f.ctx.Done():
		// A feed that waits, or is read by another copy, holds no memory and no connection.
		f.free(f.ctx.Err())
		if f.err == nil {
			f.body.Close()
		}
	}
}

// request requests the page.
func (f *fetch) request() {
	defer close(f.answered)
	defer feed.RecoverPanic(&f.err) // a permanent error, so it is delivered at the page's turn
	f.response, f.err = f.client.Do(f.ctx, Request{Method: http.MethodGet, URL: f.url})
	if f.err == nil {
		f.response.Ahead, f.body = true, f.response.Body
	}
}

// readBody reads the body until it ends, it is the page's turn, or there is no more memory. It
// returns the error that ended the body.
func (f *fetch) readBody() (err error) {
	defer feed.RecoverPanic(&err)
	defer f.noteArrival()
	for read := 0; ; {
		f.mu.Lock()
		c := f.chunks[len(f.chunks)-1]
		f.mu.Unlock()
		for c.end < len(c.bytes) { // only this goroutine changes end
			select {
			case <-f.turn:
				return nil
			default:
			}
			got, err := f.body.Read(c.bytes[c.end:])
			f.mu.Lock()
			c.end += got
			f.mu.Unlock()
			f.wake()
			if err == io.EOF { // only the bare value is a good end
				return nil // the body returns it again to the reader
			}
			if err != nil {
				return err
			}
		}
		if read += len(c.bytes); read > maxAhead-largeAheadChunk {
			return nil
		}
		next := f.acquireChunk(read)
		if next == nil {
			return nil
		}
		f.mu.Lock()
		f.chunks = append(f.chunks, next)
		f.mu.Unlock()
	}
}

// noteArrival notes how long the page took, unless its turn has come.
func (f *fetch) noteArrival() {
	select {
	case <-f.turn:
	default:
		f.mu.Lock()
		f.took = max(1, time.Since(f.begun))
		f.mu.Unlock()
	}
}

// acquireChunk returns a chunk for the bytes of the body after the first read ones, or nil if there
// is no memory for them.
func (f *fetch) acquireChunk(read int) *chunk {
	if f.response.isLong() && f.response.length-int64(read) > aheadChunk && f.client.hosts.PageBudget.TryAcquire(largeAheadChunk) {
		return newChunk(largeAheadChunk)
	}
	if f.client.hosts.PageBudget.TryAcquire(aheadChunk) {
		return newChunk(aheadChunk)
	}
	return nil
}

func (f *fetch) wake() {
	select {
	case f.arrived <- struct{}{}:
	default:
	}
}

// hasFailedForNow reports whether the request or its body has failed with an error that may pass
// by itself.
func (f *fetch) hasFailedForNow() bool {
	select {
	case <-f.answered:
	default:
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := cmp.Or(f.err, f.failed)
	return err != nil && !errors.Is(err, feed.ErrPermanent)
}

// take returns the response to the reader of the page.
func (f *fetch) take(ctx context.Context) (*Response, error) {
	unwatch := context.AfterFunc(ctx, f.cancel)
	close(f.turn)
	<-f.answered
	if f.err != nil {
		unwatch()
		f.drop()
		return nil, f.err
	}
	response := *f.response
	response.Body = &aheadBody{f, unwatch}
	return &response, nil
}

// drop ends the request and returns its memory.
func (f *fetch) drop() {
	f.cancel()
	<-f.done
	f.free(http.ErrBodyReadAfterClose)
	if f.err == nil {
		f.body.Close()
	}
	f.slot.Release()
}

// free drops all chunks. A reader gets the error reason for them.
func (f *fetch) free(reason error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.chunks) > 0 {
		f.lost = reason
	}
	for _, c := range f.chunks {
		c.drop()
		f.client.hosts.PageBudget.Release(int64(len(c.bytes)))
	}
	f.chunks = nil
}

// readChunk reads from the chunks. last reports that no more bytes will come to them. After them
// it returns the error of the body, if there is one.
func (f *fetch) readChunk(p []byte, last bool) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.chunks) > 0 {
		c := f.chunks[0]
		n := copy(p, c.bytes[c.start:c.end])
		c.start += n
		if c.start < c.end || c.end < len(c.bytes) && !last {
			return n, nil
		}
		c.drop()
		f.client.hosts.PageBudget.Release(int64(len(c.bytes)))
		f.chunks = f.chunks[1:]
		if n > 0 {
			return n, nil
		}
	}
	return 0, cmp.Or(f.lost, f.failed)
}

// aheadBody is the body of a page that was requested ahead.
type aheadBody struct {
	fetch   *fetch
	unwatch func() bool
}

func (b *aheadBody) Read(p []byte) (int, error) {
	f := b.fetch
	for len(p) > 0 {
		last := false
		select {
		case <-f.done:
			last = true
		default:
		}
		if n, err := f.readChunk(p, last); n > 0 || err != nil {
			return n, err
		}
		if last {
			break
		}
		select {
		case <-f.arrived:
		case <-f.done:
		}
	}
	return f.body.Read(p)
}

// Close makes the connection available for other requests, or closes it if too much of the
// body is left.
func (b *aheadBody) Close() error {
	if b.fetch == nil {
		return nil
	}
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-b.fetch.done: // at the latest with the next bytes
	case <-timer.C:
		b.fetch.cancel()
		<-b.fetch.done
	}
	b.unwatch()
	b.fetch.free(http.ErrBodyReadAfterClose)
	err := b.fetch.body.Close()
	b.fetch.cancel()
	b.fetch.slot.Release()
	b.fetch = nil
	return err
}
