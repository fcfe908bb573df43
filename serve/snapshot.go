package serve

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// Snapshot says how to build snapshots: the current state of a topic, so that who
// comes late need not read all of its history. Each copy of a server has its own.
type Snapshot struct {
	// Every is how long after one snapshot the next is begun. Zero builds none.
	Every time.Duration
	// Key returns what a message describes: of those with the same key, the newest
	// PUT counts, with each PATCH behind it, and none of them behind a DELETE. One
	// without a key goes by its ID. Default: all go by their IDs.
	Key func(header feed.Header, body []byte) (key string, ok bool)
	// Keys is how many keys are held in memory at a time. A topic with more is read
	// more often than twice. Default 200,000, about 16 MiB.
	Keys int
	// PageBytes is about how large the bodies on a page are together. Default 1 MB.
	PageBytes int
	// Dir is where snapshots are kept while they are served. Default: the system's
	// directory for temporary files.
	Dir string
}

const (
	snapshotKeys      = 200_000
	snapshotPageBytes = 1_000_000
	// kept is how many snapshots there are at a time: the newest, and the one that
	// readers may be in the middle of.
	kept = 2
	// retrySnapshot is when a snapshot is tried again that could not be built.
	retrySnapshot = time.Minute
)

func (s Snapshot) validate() []error {
	var errs []error
	for _, n := range []struct {
		key   string
		value int64
	}{{"every", int64(s.Every)}, {"keys", int64(s.Keys)}, {"page_bytes", int64(s.PageBytes)}} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("snapshot.%s: must not be negative", n.key))
		}
	}
	return errs
}

// snapshots has a feed's snapshots.
type snapshots struct {
	f   *Feed
	cfg Snapshot

	mu   sync.Mutex
	list []*snapshot // the newest first
}

func newSnapshots(f *Feed) *snapshots {
	cfg := f.cfg.Snapshot
	if cfg.Keys == 0 {
		cfg.Keys = snapshotKeys
	}
	if cfg.PageBytes == 0 {
		cfg.PageBytes = snapshotPageBytes
	}
	return &snapshots{f: f, cfg: cfg}
}

// snapshot is one that is whole.
type snapshot struct {
	id string
	// created is the time of the first entity that is not in it. It is that of
	// entities and not of our clock: a message may be new to the topic, and old.
	created  time.Time
	boundary string
	span     feed.Span // of the topic when it was begun
	pages    []snapshotPage

	reading sync.RWMutex // held by those who read file
	file    *os.File     // nil when it was dropped
}

type snapshotPage struct {
	from, to int64 // in the file
	modified time.Time
}

// Run builds snapshots until ctx ends, if the feed has any.
func (f *Feed) Run(ctx context.Context) {
	if f.snapshot == nil {
		return
	}
	defer f.snapshot.drop(0)
	for {
		wait := f.cfg.Snapshot.Every
		if err := f.snapshot.renew(ctx); err != nil && ctx.Err() == nil {
			f.log.Warn("a snapshot could not be built", "error", err)
			wait = min(wait, retrySnapshot)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// renew builds a snapshot, unless the newest one is as the topic is.
func (s *snapshots) renew(ctx context.Context) error {
	span, err := s.f.topic.spanNow(ctx)
	if err != nil {
		return err
	}
	if newest := s.newest(); newest != nil && newest.span == span {
		return nil
	}
	begun := time.Now()
	built, err := s.build(ctx, span)
	if err != nil {
		return err
	}
	// From here on it can be seen.
	s.mu.Lock()
	s.list = append([]*snapshot{built}, s.list...)
	s.mu.Unlock()
	s.drop(kept)
	s.f.log.Info("a snapshot was built", "id", built.id, "pages", len(built.pages), "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

func (s *snapshots) newest() *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return nil
	}
	return s.list[0]
}

// drop lets go of all but the newest n snapshots, when nobody reads them any more.
func (s *snapshots) drop(n int) {
	s.mu.Lock()
	old := s.list[min(n, len(s.list)):]
	s.list = s.list[:len(s.list)-len(old)]
	s.mu.Unlock()
	for _, o := range old {
		go o.close()
	}
}

func (s *snapshot) close() {
	s.reading.Lock()
	defer s.reading.Unlock()
	_ = s.file.Close()
	_ = os.Remove(s.file.Name()) // where it could not be removed while it was open
	s.file = nil
}

// build reads the topic and writes a snapshot of it. The keys are gone through in
// ranges of their hashes, each as large as memory allows: once over the topic to
// find out which messages make the state, and once more to write these.
func (s *snapshots) build(ctx context.Context, span feed.Span) (_ *snapshot, err error) {
	end, at, err := s.end(ctx, span)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(s.cfg.Dir, "feedbridge-snapshot-*")
	if err != nil {
		return nil, err
	}
	// A process that is killed leaves nothing behind.
	_ = os.Remove(file.Name())
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // which never fails
	built := &snapshot{
		id: fmt.Sprintf("%s-%d-%x", span.Epoch, span.End, secret[:4]), created: at, span: span, file: file,
		// Nobody could put it into a message: these are older.
		boundary: fmt.Sprintf("feedbridge-%x", secret),
	}
	defer func() {
		if err != nil {
			built.close()
		}
	}()
	w := &snapshotWriter{s: built, b: bufio.NewWriterSize(file, 64<<10), entities: s.f.cfg.PageSize, bytes: s.cfg.PageBytes}
	for from := uint64(0); ; {
		live, to, err := s.find(ctx, span, end, from)
		if err != nil {
			return nil, err
		}
		if err := s.write(ctx, span, end, live, w); err != nil {
			return nil, err
		}
		if to == math.MaxUint64 {
			break
		}
		from = to + 1
	}
	if err := w.end(); err != nil {
		return nil, err
	}
	now, err := s.f.topic.spanNow(ctx)
	if err == nil && now.Epoch != span.Epoch {
		err = errMoved
	}
	return built, err
}

// hash128 is that of a key. Its first half says which range it is in.
type hash128 [2]uint64

func (s *snapshots) key(e *entity) hash128 {
	key, ok := "", false
	if s.cfg.Key != nil {
		key, ok = s.cfg.Key(e.header, e.body)
	}
	if !ok {
		key = e.id
	}
	sum := sha256.Sum256([]byte(key))
	return hash128{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

// end returns where the snapshot ends and the feed has to be read on, by time:
// at the first message of the topic's last second. With a part of a second, who
// reads both would meet old versions behind new ones.
func (s *snapshots) end(ctx context.Context, span feed.Span) (position uint64, at time.Time, err error) {
	for width := uint64(2 * s.f.cfg.PageSize); ; width *= 4 {
		from := max(span.First, span.End-min(width, span.End))
		position, at = from, time.Unix(0, 0)
		seconds := 0
		for e, err := range s.entities(ctx, span, from, span.End) {
			if err != nil {
				return 0, time.Time{}, err
			}
			if e.modified.After(at) {
				position, at = e.position, e.modified
				seconds++
			}
		}
		if seconds > 1 || from == span.First {
			return position, at, nil
		}
	}
}

// keyed is an entity and what it is about.
type keyed struct {
	entity
	key hash128
}

// entities are those of the topic at some positions, as they are on the feed's
// pages: with the same IDs and times, and without what is left out there.
func (s *snapshots) entities(ctx context.Context, span feed.Span, from, to uint64) iter.Seq2[*keyed, error] {
	return func(yield func(*keyed, error) bool) {
		if from >= to {
			return
		}
		id := pageID{epoch: span.Epoch, size: uint64(s.f.cfg.PageSize)}
		page := id.at(from / id.size) // that is being read
		page = page.at(max(page.k, 1) - 1)
		sift := newSifter(summary{})
		for r, err := range s.f.topic.log.Read(ctx, max(span.First, page.first()), to) {
			if err != nil {
				yield(nil, err)
				return
			}
			if k := r.Position / id.size; k > page.k {
				var front summary
				if k == page.k+1 && id.at(k).whole(span) {
					front = sift.own
				}
				sift, page = newSifter(front), id.at(k)
			}
			e := keyed{entity: s.f.entity(span.Epoch, r)}
			e.key = s.key(&e.entity) // which may be the ID that it has by itself
			if sift.add(&e.entity) && e.position >= from && !yield(&e, nil) {
				return
			}
		}
	}
}

// find returns the positions of the newest PUTs that nothing has deleted, of the
// keys from one hash on to another.
func (s *snapshots) find(ctx context.Context, span feed.Span, end, from uint64) (live map[hash128]uint64, to uint64, err error) {
	live, to = map[hash128]uint64{}, math.MaxUint64
	for e, err := range s.entities(ctx, span, span.First, end) {
		if err != nil {
			return nil, 0, err
		}
		if e.key[0] < from || e.key[0] > to {
			continue
		}
		switch e.op {
		case feed.Put:
			live[e.key] = e.position
		case feed.Delete:
			delete(live, e.key)
		}
		for len(live) > s.cfg.Keys && to > from {
			to = from + (to-from)/2
			maps.DeleteFunc(live, func(key hash128, _ uint64) bool { return key[0] > to })
		}
	}
	return live, to, nil
}

// write writes the messages that make the state.
func (s *snapshots) write(ctx context.Context, span feed.Span, end uint64, live map[hash128]uint64, w *snapshotWriter) error {
	if len(live) == 0 {
		return nil
	}
	for e, err := range s.entities(ctx, span, span.First, end) {
		if err != nil {
			return err
		}
		at, ok := live[e.key]
		if !ok || e.position != at && (e.op != feed.Patch || e.position < at) {
			continue
		}
		if err := w.add(&e.entity); err != nil {
			return err
		}
	}
	return nil
}

// snapshotWriter cuts a snapshot into pages.
type snapshotWriter struct {
	s               *snapshot
	b               *bufio.Writer
	entities, bytes int // that a page may have
	at              int64
	page            snapshotPage
	n, size         int // of the page
	chunk           []byte
}

// add takes an entity. One that is larger than a page has a page of its own.
func (w *snapshotWriter) add(e *entity) error {
	if w.n > 0 && (w.n == w.entities || w.size+len(e.body) > w.bytes) {
		if err := w.end(); err != nil {
			return err
		}
	}
	p := page{boundary: w.s.boundary}
	w.chunk = multipart{}.entity(w.chunk[:0], &p, e)
	w.n, w.size, w.at = w.n+1, w.size+len(e.body), w.at+int64(len(w.chunk))
	if w.page.modified.Before(e.modified) {
		w.page.modified = e.modified
	}
	_, err := w.b.Write(w.chunk)
	return err
}

// end ends a page.
func (w *snapshotWriter) end() error {
	if w.n == 0 {
		return nil
	}
	_, tail := multipart{}.frame(nil, &page{boundary: w.s.boundary})
	w.at += int64(len(tail))
	w.page.to = w.at
	w.s.pages = append(w.s.pages, w.page)
	w.page, w.n, w.size = snapshotPage{from: w.at}, 0, 0
	if _, err := w.b.Write(tail); err != nil {
		return err
	}
	return w.b.Flush()
}

// index is what a snapshot is served as.
type index struct {
	ID        string   `json:"id"`
	CreatedAt string   `json:"createdAt"`
	Pages     []string `json:"pages"`
}

// serve answers for the newest snapshot, for the index of one, and for a page.
func (s *snapshots) serve(w http.ResponseWriter, r *http.Request, name, base string) error {
	if name == "latest" {
		newest := s.newest()
		if newest == nil {
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
			return say(http.StatusServiceUnavailable, "The first snapshot is being built.")
		}
		// Who reads it finds it again by its own URL when there is a newer one.
		w.Header().Set("Cache-Control", s.f.caching(false))
		http.Redirect(w, r, base+"/snapshots/"+newest.id, http.StatusFound)
		return nil
	}
	id, number, ofPage := strings.Cut(name, "/")
	k, err := strconv.Atoi(number)
	s.mu.Lock()
	var at *snapshot
	for _, o := range s.list {
		if o.id == id && (!ofPage || err == nil && k >= 0 && k < len(o.pages) && strconv.Itoa(k) == number) {
			at = o
		}
	}
	if at != nil {
		at.reading.RLock() // it is closed by those who took it off the list
		defer at.reading.RUnlock()
	}
	s.mu.Unlock()
	if at == nil {
		return say(http.StatusGone, "There is no such snapshot, or no such page of it, or there are newer ones. The newest is at %s/snapshots/latest.", s.f.path())
	}
	if !ofPage {
		return s.index(w, r, at, base)
	}
	p := at.pages[k]
	h := w.Header()
	h.Set("Content-Type", multipart{}.contentType(&page{boundary: at.boundary}))
	h.Set("ETag", `"`+id+"-"+number+`"`)
	h.Set("Cache-Control", s.f.caching(true))
	http.ServeContent(w, r, "", p.modified, io.NewSectionReader(at.file, p.from, p.to-p.from))
	return nil
}

func (s *snapshots) index(w http.ResponseWriter, r *http.Request, at *snapshot, base string) error {
	in := index{ID: at.id, CreatedAt: at.created.Format(time.RFC3339), Pages: make([]string, len(at.pages))}
	for k := range in.Pages {
		in.Pages[k] = fmt.Sprintf("%s/snapshots/%s/%d", base, at.id, k)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return errors.New("a list of strings cannot be written") // it can
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("ETag", `"`+at.id+`"`)
	h.Set("Cache-Control", s.f.caching(true))
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(body)))
	return nil
}
