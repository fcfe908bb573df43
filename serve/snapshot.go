package serve

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

// Snapshot says how to build snapshots: the current state of a topic, so that who
// comes late need not read all of its history. They are of the moments that are
// multiples of Every, whenever they are built, and made of the topic alone: so
// all copies of a server have the same ones, under the same URLs, and so has one
// that was restarted. Where a topic or a configuration differs, so do the URLs.
type Snapshot struct {
	// Every is how long after the moment of one snapshot that of the next is, 24h
	// being every midnight in UTC. Zero builds none.
	Every time.Duration
	// Key returns what a message describes: of those with the same key, the newest
	// PUT counts, with each PATCH behind it, and none of them behind a DELETE. One
	// without a key goes by its ID. Default: all go by their IDs. A tombstone without
	// such a key deletes what was PUT in a record with its record's key.
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
	// settled is how long after its moment a snapshot is built. What the bus took
	// before the moment can be read by then, on clocks that differ by as much.
	settled = 10 * time.Second
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

	mu   sync.Mutex  // guards what follows
	list []*snapshot // the newest first
	// complete says that there is what there would be without a restart.
	complete bool
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
	// id is the epoch, the end, and a hash of all that readers get: what has the
	// same URL has the same bytes, whoever built it and by whatever configuration.
	id string
	// end is the position of the first message that is not in it, and created the
	// time that this has on the feed. It is not that of our clock: a message may be
	// new to the topic, and old.
	end     uint64
	created time.Time
	span    feed.Span // of the topic when it was begun
	pages   []snapshotPage
	// unmatched is how many PATCHes and DELETEs are of nothing that was PUT.
	unmatched int

	reading sync.RWMutex // held by those who read file
	file    *os.File     // nil when it was dropped
}

type snapshotPage struct {
	from, to int64 // in the file
	modified time.Time
	boundary string
}

// parseSnapshotID reads the epoch and the end out of an ID.
func parseSnapshotID(id string) (epoch string, end uint64, ok bool) {
	parts := strings.Split(id, "-")
	if len(parts) != 3 {
		return "", 0, false
	}
	end, err := strconv.ParseUint(parts[1], 10, 64)
	return parts[0], end, err == nil
}

// cause is the text of what is at the bottom of an error, which is the same each time,
// as names of temporary files are not.
func cause(err error) string {
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err.Error()
}

// Run builds snapshots until ctx ends, if the feed has any.
func (f *Feed) Run(ctx context.Context) {
	if f.snapshot == nil {
		return
	}
	defer f.snapshot.drop(0)
	failing := "" // why, as was last said
	for {
		err := f.snapshot.renew(ctx, time.Now())
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		wait := f.snapshot.moment(now).Add(f.cfg.Snapshot.Every + settled).Sub(now)
		if err != nil {
			wait = min(wait, retrySnapshot)
		}
		switch {
		case err != nil && cause(err) != failing:
			failing = cause(err)
			f.log.Warn("a snapshot could not be built", "error", err)
		case err == nil && failing != "":
			failing = ""
			f.log.Info("snapshots can be built again")
		}
		for wait > 0 {
			step := min(wait, retrySnapshot)
			timer := time.NewTimer(step)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			if wait -= step; f.snapshot.outlived(ctx) {
				break // nobody gets them any more
			}
		}
	}
}

// outlived says whether the topic was made anew since the newest snapshot.
func (s *snapshots) outlived(ctx context.Context) bool {
	newest := s.newest()
	if newest == nil {
		return false
	}
	span, err := s.f.topic.Span(ctx)
	return err == nil && span.Epoch != newest.span.Epoch
}

// moment is the one whose snapshot is the newest that can be built now.
func (s *snapshots) moment(now time.Time) time.Time {
	return now.Add(-settled).Truncate(s.cfg.Every)
}

// renew builds the newest snapshot. After a start it builds the one before too:
// readers may be in the middle of that.
func (s *snapshots) renew(ctx context.Context, now time.Time) error {
	moment := s.moment(now)
	if err := s.add(ctx, moment, true); err != nil {
		return err
	}
	if !s.complete { // nobody else sets it
		if err := s.add(ctx, moment.Add(-s.cfg.Every), false); err != nil {
			return err
		}
		s.mu.Lock()
		s.complete = true
		s.mu.Unlock()
	}
	return nil
}

// add builds the snapshot of a moment, unless it is there.
func (s *snapshots) add(ctx context.Context, moment time.Time, newest bool) error {
	span, err := s.f.topic.spanNow(ctx)
	if err != nil {
		return err
	}
	end, created, err := s.end(ctx, span, moment)
	if err != nil || s.has(func(o *snapshot) bool {
		return o.end == end && o.created.Equal(created) && o.span.Epoch == span.Epoch && o.span.First == span.First
	}) {
		return err
	}
	if err := s.f.memory.snapshots.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.f.memory.snapshots.Release(1)
	begun := time.Now()
	built, err := s.build(ctx, span, end, created)
	if err != nil {
		return err
	}
	if s.has(func(o *snapshot) bool { return o.id == built.id }) {
		built.close() // retention took nothing that was in it
		return nil
	}
	// From here on it can be seen.
	s.mu.Lock()
	place := len(s.list)
	if newest {
		place = 0
	}
	s.list = slices.Insert(s.list, place, built)
	s.mu.Unlock()
	s.drop(kept)
	s.f.log.Info("a snapshot was built", "id", built.id, "pages", len(built.pages), "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

func (s *snapshots) has(is func(*snapshot) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.list, is)
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
func (s *snapshots) build(ctx context.Context, span feed.Span, end uint64, created time.Time) (_ *snapshot, err error) {
	file, err := os.CreateTemp(s.cfg.Dir, "feedbridge-snapshot-*")
	if err != nil {
		return nil, err
	}
	// A process that is killed leaves nothing behind.
	_ = os.Remove(file.Name())
	built := &snapshot{end: end, created: created, span: span, file: file}
	defer func() {
		if err != nil {
			built.close()
		}
	}()
	w := &snapshotWriter{s: built, entities: s.f.cfg.PageSize, bytes: s.cfg.PageBytes, hash: sha256.New()}
	var all matches
	for from := uint64(0); ; {
		live, to, found, err := s.find(ctx, span, end, from)
		if err != nil {
			return nil, err
		}
		all.add(found)
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
	built.id = fmt.Sprintf("%s-%d-%x", span.Epoch, end, w.sum())
	now, err := s.f.topic.spanNow(ctx)
	if err == nil && now.Epoch != span.Epoch {
		err = errMoved
	}
	if all.late > 0 && err == nil {
		s.f.log.Warn("the times of a topic with snapshots run back by more than a page; what is late may be in neither a snapshot nor the feed behind it; "+
			"have the bus date messages, on Kafka by message.timestamp.type=LogAppendTime", "messages", all.late)
	}
	if built.unmatched = all.unmatched(span); built.unmatched > 0 && err == nil {
		s.f.log.Warn("a snapshot leaves out PATCHes and DELETEs of what was never PUT; set snapshot.key to what they have in common with their PUT",
			"id", built.id, "patches", all.patches, "deletes", all.deletes, "matching", all.matching)
	}
	return built, err
}

// hash128 is that of a key. Its first half says which range it is in.
type hash128 [2]uint64

func hashOf(key []byte) hash128 {
	sum := sha256.Sum256(key)
	return hash128{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

// keyed returns an entity, which r has, with its keys. A tombstone that does not say by
// itself what it is a version of goes by its record's key, which may be that of many.
func (s *snapshots) keyed(e entity, r *feed.Record) keyed {
	key, ok := e.id, false
	if s.cfg.Key == nil {
		id, _ := e.header.Get(message.ContentID)
		ok = id != "" // as in entity
	} else {
		with := e
		if r.Key != nil {
			with.addKey(r.Key)
		}
		var found string
		if found, ok = s.cfg.Key(with.header, e.body); ok {
			key = found
		}
	}
	k := keyed{entity: e, key: hashOf([]byte(key))}
	if r.Key != nil {
		k.record = hashOf(r.Key)
		k.erases = r.Tombstone && e.op == feed.Delete && !ok
	}
	return k
}

// end returns where the snapshot of a moment ends and the feed has to be read on,
// by time: at the first message of the last second before the moment that has any.
// With a part of a second, who reads both would meet old versions behind new ones.
// Without that second, it matters to nobody whether more messages come, and when.
// Without any in front of it the snapshot is empty, and of the time zero: readers
// begin at the feed's beginning, and miss nothing of what comes late.
func (s *snapshots) end(ctx context.Context, span feed.Span, moment time.Time) (position uint64, at time.Time, err error) {
	for width := uint64(2 * s.f.cfg.PageSize); ; width *= 4 {
		from := max(span.First, span.End-min(width, span.End))
		position, at = 0, time.Time{}
		seconds := 0
		for e, err := range s.entities(ctx, span, from, span.End) {
			if err != nil {
				return 0, time.Time{}, err
			}
			if !e.modified.Before(moment) {
				break
			}
			if e.modified.After(at) {
				position, at = e.position, e.modified
				seconds++
			}
		}
		switch {
		case seconds > 1:
			return position, at, nil
		case from == span.First:
			return 0, time.Unix(0, 0).UTC(), nil
		}
	}
}

// keyed is an entity and what it is about.
type keyed struct {
	entity
	key hash128
	// record is the key of its record, zero if that has none.
	record hash128
	// erases says that it deletes whatever was PUT in a record with that key: it is a
	// tombstone, and these have nothing that could say more.
	erases bool
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
		sift := newSifter(0)
		var header feed.Header
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
				sift, page = newSifter(id.size), id.at(k)
				sift.before = front
			}
			e := s.keyed(s.f.entity(span.Epoch, r, header), &r) // by the ID that it has by itself
			header = e.header
			if sift.add(&e.entity) && e.position >= from && !yield(&e, nil) {
				return
			}
		}
	}
}

// matches counts the PATCHes and DELETEs with keys that nothing was PUT with, and the
// matching ones. Of a topic with more keys than are held at a time it counts some.
type matches struct {
	patches, deletes, matching int
	// late is how many messages are older than one in front of them, on the feed too.
	late int
}

func (m *matches) add(o matches) {
	m.patches, m.deletes, m.matching, m.late = m.patches+o.patches, m.deletes+o.deletes, m.matching+o.matching, max(m.late, o.late)
}

// unmatched is how many tell that the keys are not right. Retention may have taken the
// PUTs of some, but not those of all.
func (m *matches) unmatched(span feed.Span) int {
	if span.First > 0 && m.matching > 0 {
		return 0
	}
	return m.patches + m.deletes
}

// put is the newest PUT of a key.
type put struct {
	at     uint64  // its position, or one of those below
	record hash128 // the key of its record, zero if that has none
}

// In place of a position: what was PUT and deleted, and what is written.
const (
	deleted = math.MaxUint64 - iota
	written
)

// living is what nothing has deleted.
type living struct {
	puts map[hash128]put
	// erased has the newest tombstones, by the keys of their records, as far as they
	// have not been applied yet. To find what each deletes, all has to be gone through:
	// so that is done for many at once.
	erased map[hash128]uint64
	// forgetful of what was deleted, and may be deleted again.
	forgetful bool
}

// remove removes what has a key.
func (l *living) remove(key hash128, p put) {
	if l.forgetful {
		delete(l.puts, key)
		return
	}
	l.puts[key] = put{deleted, p.record}
}

// erase applies the tombstones.
func (l *living) erase() {
	if len(l.erased) == 0 {
		return
	}
	for key, p := range l.puts {
		if at, ok := l.erased[p.record]; ok && p.at < at {
			l.remove(key, p)
		}
	}
	clear(l.erased)
}

// forget forgets what was deleted.
func (l *living) forget() {
	maps.DeleteFunc(l.puts, func(_ hash128, p put) bool { return p.at == deleted })
}

// find returns the newest PUTs that nothing has deleted, of the keys from one hash on
// to another.
func (s *snapshots) find(ctx context.Context, span feed.Span, end, from uint64) (live map[hash128]put, to uint64, found matches, err error) {
	l := living{puts: map[hash128]put{}, erased: map[hash128]uint64{}}
	to = math.MaxUint64
	var newest time.Time
	for e, err := range s.entities(ctx, span, span.First, end) {
		if err != nil {
			return nil, 0, matches{}, err
		}
		if e.modified.Before(newest) {
			found.late++
		} else {
			newest = e.modified
		}
		if e.erases {
			// Of whatever range: what it deletes has other keys.
			if l.erased[e.record] = e.position; len(l.erased) > s.cfg.Keys/8 {
				l.erase()
			}
		}
		if e.key[0] < from || e.key[0] > to {
			continue
		}
		p, known := l.puts[e.key]
		switch {
		case e.op == feed.Put:
			l.puts[e.key] = put{e.position, e.record}
		case known:
			found.matching++
		case l.forgetful || e.erases:
		case e.op == feed.Patch:
			found.patches++
		default:
			found.deletes++
		}
		if e.op == feed.Delete && known {
			l.remove(e.key, p)
		}
		if all := len(l.puts); all > s.cfg.Keys && !l.forgetful {
			l.forget()
			l.forgetful = len(l.puts) < all
		}
		for len(l.puts) > s.cfg.Keys && to > from {
			to = from + (to-from)/2
			maps.DeleteFunc(l.puts, func(key hash128, _ put) bool { return key[0] > to })
			found = matches{} // some were of keys that come later
		}
	}
	l.erase()
	l.forget()
	return l.puts, to, found, nil
}

// write writes the messages that make the state. What retention takes meanwhile is
// missing, and so are the PATCHes of it.
func (s *snapshots) write(ctx context.Context, span feed.Span, end uint64, live map[hash128]put, w *snapshotWriter) error {
	if len(live) == 0 {
		return nil
	}
	for e, err := range s.entities(ctx, span, span.First, end) {
		if err != nil {
			return err
		}
		switch p, ok := live[e.key]; {
		case ok && p.at == e.position:
			live[e.key] = put{at: written}
		case p.at == written && e.op == feed.Patch:
		default:
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
	entities, bytes int       // that a page may have
	hash            hash.Hash // of the pages
	// The page, which is held in memory until it is whole: where each of its parts
	// begins, and how large their bodies are.
	page  snapshotPage
	b     []byte
	parts []int
	size  int
}

// noBoundary keeps the place of a page's boundary.
var noBoundary = boundaryOf(make([]byte, sha256.Size))

// add takes an entity. One that is larger than a page has a page of its own.
func (w *snapshotWriter) add(e *entity) error {
	if n := len(w.parts); n > 0 && (n == w.entities || w.size+len(e.body) > w.bytes) {
		if err := w.end(); err != nil {
			return err
		}
	}
	w.parts, w.size = append(w.parts, len(w.b)), w.size+len(e.body)
	w.b = multipart{}.entity(w.b, &page{boundary: noBoundary}, e)
	if w.page.modified.Before(e.modified) {
		w.page.modified = e.modified
	}
	return nil
}

// end ends a page.
func (w *snapshotWriter) end() error {
	if len(w.parts) == 0 {
		return nil
	}
	sum := sha256.Sum256(w.b)
	w.hash.Write(sum[:])
	// Nobody can write an entity that has such a hash of itself in it.
	w.page.boundary = boundaryOf(sum[:])
	for _, at := range w.parts {
		copy(w.b[at+len("--"):], w.page.boundary)
	}
	_, tail := multipart{}.frame(nil, &page{boundary: w.page.boundary})
	w.b = append(w.b, tail...)
	w.page.to = w.page.from + int64(len(w.b))
	w.s.pages = append(w.s.pages, w.page)
	_, err := w.s.file.Write(w.b)
	w.page, w.b, w.parts, w.size = snapshotPage{from: w.page.to}, w.b[:0], w.parts[:0], 0
	return err
}

// sum is a hash of the snapshot.
func (w *snapshotWriter) sum() []byte {
	fmt.Fprint(w.hash, w.s.created.Unix())
	return w.hash.Sum(nil)[:16]
}

// index is what a snapshot is served as.
type index struct {
	ID        string   `json:"id"`
	CreatedAt string   `json:"createdAt"`
	Pages     []string `json:"pages"`
}

// serve answers for the newest snapshot, for the index of one, and for a page.
func (s *snapshots) serve(w http.ResponseWriter, r *http.Request, name, base string) error {
	// What is of a topic that is not there any more is gone with it. While the bus is
	// away, it is not known to be.
	span, err := s.f.topic.Span(r.Context())
	gone := errors.Is(err, feed.ErrNoTopic)
	of := func(o *snapshot) bool { return !gone && (err != nil || o.span.Epoch == span.Epoch) }
	if name == "latest" {
		newest := s.newest()
		switch {
		case gone:
			return err
		case newest == nil || !of(newest):
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
			return say(http.StatusServiceUnavailable, "The first snapshot is being built.")
		}
		// Who reads it finds it again by its own URL when there is a newer one.
		w.Header().Set("Cache-Control", s.f.caching(false))
		http.Redirect(w, r, base+"/snapshots/"+newest.id, http.StatusFound)
		return nil
	}
	id, number, ofPage := strings.Cut(name, "/")
	s.mu.Lock()
	var at *snapshot
	if i := slices.IndexFunc(s.list, func(o *snapshot) bool { return o.id == id && of(o) }); i >= 0 {
		at = s.list[i]
		at.reading.RLock() // it is closed by those who took it off the list
		defer at.reading.RUnlock()
	}
	coming := at == nil && s.coming(id)
	s.mu.Unlock()
	_, _, ours := parseSnapshotID(id)
	k, err := strconv.Atoi(number)
	switch {
	case at == nil && !ours:
		return say(http.StatusNotFound, "There is no such snapshot. The newest is at %s/snapshots/latest.", s.f.home())
	case gone:
		return errGone
	case coming:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		return say(http.StatusServiceUnavailable, "This snapshot is not there yet, and may be being built.")
	case at == nil:
		return say(http.StatusGone, "This snapshot is gone: there are newer ones. The newest is at %s/snapshots/latest.", s.f.home())
	case ofPage && (err != nil || k < 0 || k >= len(at.pages) || strconv.Itoa(k) != number):
		return say(http.StatusNotFound, "This snapshot has no such page. Its index is at %s/snapshots/%s.", s.f.home(), id)
	}
	if !ofPage {
		return s.index(w, r, at, base)
	}
	p := at.pages[k]
	h := w.Header()
	h.Set("Content-Type", multipart{}.contentType(&page{boundary: p.boundary}))
	h.Set("Vary", "Accept")
	if wantsHTML(r) {
		h.Set("Content-Type", "text/plain; charset=utf-8") // which browsers show
	}
	h.Set("ETag", `"`+id+"-"+number+`"`)
	h.Set("Cache-Control", s.f.caching(true))
	http.ServeContent(w, r, "", p.modified, io.NewSectionReader(at.file, p.from, p.to-p.from))
	return nil
}

// coming says whether a snapshot that is not there may come. It may as long as
// those from before a restart are not there, and if it ends behind our newest: then
// another copy of the server has been faster. The caller holds s.mu.
func (s *snapshots) coming(id string) bool {
	epoch, end, ok := parseSnapshotID(id)
	if !ok || s.complete && len(s.list) > 0 && (epoch != s.list[0].span.Epoch || end <= s.list[0].end) {
		return false
	}
	return true
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
