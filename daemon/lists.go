package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/internal/retry"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/source"
)

const (
	// listFileEvery is the wait between looks at a file with a list.
	listFileEvery = 5 * time.Second
	// listTimeout limits a request for a list, with its body.
	listTimeout = 2 * time.Minute
	// firstLists limits how long a start waits for the lists.
	firstLists = 10 * time.Second
	// holdFor is how long a list that has lost most of its feeds must stay the same until it is used.
	holdFor = 15 * time.Minute
	// leastHeld is the number of feeds of the smallest list whose loss of feeds is held. A list that becomes
	// empty is held in any case.
	leastHeld = 20
)

// lists reads the lists of feeds, and keeps the last good version of each.
type lists struct {
	opts source.Options
	log  *slog.Logger
	// changed has a value when the feeds of a list are other ones than before.
	changed chan struct{}
	// noted has a value when the other members of a fleet should know that a list fails or is held, or no longer does.
	noted chan struct{}

	mu     sync.Mutex
	byName map[string]*list
	// logged are the errors of entries that were logged, by their text.
	logged map[string]bool
}

// list is a list that is being watched. Its fields are guarded by lists.mu, but for those of its goroutine.
type list struct {
	name string
	cfg  config.List
	stop context.CancelFunc
	wake chan struct{} // requests a look at once
	// looked is closed at the end of the next look that begins.
	looked chan struct{}
	// inUse is the version that the configuration in use has, and next a newer one, which is held since heldSince if
	// that is not zero. They are confirmed if a person has confirmed them, to this copy or to another member of the
	// fleet.
	inUse, next                   listEntries
	inUseConfirmed, nextConfirmed bool
	heldSince                     time.Time
	held                          status.HeldList // without Since
	failure                       string          // the last error, which is logged once
	succeeded                     time.Time       // the last attempt that worked
	lookedAt                      time.Time       // the last attempt because other members have another version
	// added is what the configuration in use has of the list.
	added addedList

	// The goroutine's own: the client, nil for a file and before its first use, and the file, or the validators of the
	// URL, of the version that was read last.
	client             *source.Client
	file               os.FileInfo
	etag, lastModified string
}

// listEntries are the entries of a list that was read. The digest is the same for the same names, URLs and titles. It is
// empty if there is no list.
type listEntries struct {
	all    []config.Entry
	digest string
}

func newListEntries(all []config.Entry) listEntries {
	lines := make([]string, len(all))
	for i, e := range all {
		lines[i] = e.Name + "\x00" + e.URL + "\x00" + e.Title
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return listEntries{all, hex.EncodeToString(sum[:8])}
}

// addedList is what a configuration has of a list.
type addedList struct {
	feeds, bad  int
	fingerprint string
	// moved are the feeds that had another URL in the version before.
	moved []string
}

func newLists(version string, redact *safetext.Redactor, log *slog.Logger) *lists {
	return &lists{
		opts: source.Options{UserAgent: "feedbridge/" + version + " (+https://github.com/feedbridge/feedbridge)", Redact: redact, Log: log}, log: log,
		changed: make(chan struct{}, 1), noted: make(chan struct{}, 1), byName: map[string]*list{}, logged: map[string]bool{},
	}
}

// configure watches the configured lists until ctx ends, and looks at all of them now. The channels are closed when that
// is done. A list whose address has changed keeps its entries until the other one was read.
func (s *lists) configure(ctx context.Context, configured map[string]config.List) (looked []<-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.byName {
		if _, ok := configured[name]; !ok {
			l.stop()
			delete(s.byName, name)
		}
	}
	for name, cfg := range configured {
		cfg.Defaults = nil // they are not needed to read it
		before := s.byName[name]
		if before != nil && reflect.DeepEqual(before.cfg, cfg) {
			signalIf(before.wake, true)
			looked = append(looked, before.looked)
			continue
		}
		l := &list{name: name, cfg: cfg, wake: make(chan struct{}, 1), looked: make(chan struct{})}
		if before != nil {
			before.stop()
			l.inUse, l.inUseConfirmed, l.added = before.inUse, before.inUseConfirmed, before.added
		}
		var watching context.Context
		watching, l.stop = context.WithCancel(ctx)
		s.byName[name] = l
		looked = append(looked, l.looked)
		go s.watch(watching, l)
	}
	return looked
}

// awaitLooks waits until lists were looked at, or ctx ends.
func awaitLooks(ctx context.Context, looked []<-chan struct{}) {
	for _, one := range looked {
		select {
		case <-one:
		case <-ctx.Done():
		}
	}
}

// watch looks at a list again and again, sooner after an error.
func (s *lists) watch(ctx context.Context, l *list) {
	every := listFileEvery
	if l.cfg.URL != "" {
		every = l.cfg.Every
	}
	again := retry.Backoff{Min: listFileEvery, Max: every}
	for {
		s.mu.Lock()
		looked := l.looked
		l.looked = make(chan struct{})
		s.mu.Unlock()
		wait := every
		if err := s.look(ctx, l); err != nil {
			wait = again.Next()
		} else {
			again = retry.Backoff{Min: listFileEvery, Max: every}
		}
		close(looked)
		select {
		case <-time.After(retry.Jitter(wait)):
		case <-l.wake:
		case <-ctx.Done():
			return
		}
	}
}

// look reads a list, unless it is the same as before.
func (s *lists) look(ctx context.Context, l *list) (err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var data []byte
	var changed bool
	if l.cfg.URL == "" {
		data, changed, err = l.readFile()
	} else if l.client == nil {
		l.client, err = source.NewClient(l.cfg.Source(), s.opts)
	}
	if l.client != nil {
		data, changed, err = l.request(ctx)
	}
	var entries []config.Entry
	if err == nil && changed {
		if entries, err = config.ParseList(data); err != nil {
			l.file, l.etag, l.lastModified = nil, "", "" // look at it again
		}
	}
	if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.update(l, entries, changed, err)
	}
	return err
}

// readFile returns the content of the file, if its time or size has changed.
func (l *list) readFile() (data []byte, changed bool, err error) {
	info, err := os.Stat(l.cfg.File)
	switch {
	case err != nil:
		l.file = nil
		return nil, false, err
	case !info.Mode().IsRegular():
		return nil, false, fmt.Errorf("%s is not a file", l.cfg.File)
	case l.file != nil && os.SameFile(info, l.file) && info.ModTime().Equal(l.file.ModTime()) && info.Size() == l.file.Size():
		return nil, false, nil
	}
	file, err := os.Open(l.cfg.File)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = file.Close() }() // it was only read
	if data, err = io.ReadAll(io.LimitReader(file, config.MaxList+1)); err == nil {
		l.file = info // else it is read again
	}
	return data, true, err
}

// request returns the document at the URL, unless it is not modified.
func (l *list) request(ctx context.Context) (data []byte, changed bool, err error) {
	resp, err := l.client.Do(ctx, source.Request{Method: http.MethodGet, URL: l.cfg.URL, IfNoneMatch: l.etag, IfModifiedSince: l.lastModified})
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	switch resp.Status {
	case http.StatusNotModified:
		return nil, false, nil
	case http.StatusNoContent:
		return nil, false, errors.New("the server answers without a list (204)")
	}
	if data, err = io.ReadAll(resp.Body); err != nil {
		return nil, false, err
	}
	l.etag, l.lastModified = resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	return data, true, nil
}

// update takes the result of a look: other entries if changed is true, or an error, after which the entries before
// stay in use.
func (s *lists) update(l *list, entries []config.Entry, changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log.With("list", l.name)
	if err != nil {
		if text := s.opts.Redact.Text(err.Error()); text != l.failure {
			signalIf(s.noted, l.failure == "")
			l.failure = text
			message := "a list of feeds cannot be read; the feeds that it had before stay"
			if l.inUse.digest == "" {
				message = "a list of feeds cannot be read, and has no feeds yet"
			}
			log.Error(message, "error", text, "feeds", l.added.feeds)
		}
		return
	}
	if l.failure != "" {
		signalIf(s.noted, true)
		log.Info("the list of feeds can be read again")
		if l.isHeld() {
			l.heldSince = time.Now() // it may have been another one meanwhile
		}
	}
	l.failure, l.succeeded = "", time.Now()
	if version := newListEntries(entries); changed && version.digest != l.next.digest {
		signalIf(s.noted, l.isHeld())
		if version.digest == l.inUse.digest {
			version = listEntries{}
		}
		l.setNext(version)
	}
	signalIf(s.changed, l.next.digest != "" && (!l.isHeld() || time.Since(l.heldSince) >= holdFor))
}

// setNext sets the version to use next, or none. The caller holds the lock.
func (l *list) setNext(version listEntries) {
	l.next, l.nextConfirmed, l.heldSince = version, false, time.Time{}
}

// isHeld reports whether the next version was held, perhaps for long enough.
func (l *list) isHeld() bool { return !l.heldSince.IsZero() }

// signalIf sends a value to a channel of capacity 1, if is is true and the channel has none.
func signalIf(c chan struct{}, is bool) {
	if !is {
		return
	}
	select {
	case c <- struct{}{}:
	default:
	}
}

// lookSoon looks at lists of which another member of the fleet has another version: it may be newer. A list that the
// members never read alike is not requested all the time, and not by all members at once.
func (s *lists) lookSoon(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if l := s.byName[name]; l != nil && time.Since(l.lookedAt) >= time.Minute {
			l.lookedAt = time.Now()
			time.AfterFunc(rand.N(5*time.Second), func() { signalIf(l.wake, true) })
		}
	}
}

// readLists returns the lists in the configuration in use that were read, without their feeds. It may be called on nil.
func (s *lists) readLists() map[string]fleet.List {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	read := map[string]fleet.List{}
	for name, l := range s.byName {
		if l.inUse.digest == "" {
			continue
		}
		version := fleet.List{URLs: map[string]string{}, Failed: l.failure != "", Entries: l.inUse.digest, Confirmed: l.inUseConfirmed}
		if l.isHeld() {
			version.Held = l.next.digest
		}
		read[name] = version
	}
	return read
}

// status returns the rows of the lists in /status, in order.
func (s *lists) status() (rows []status.List) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		l := s.byName[name]
		row := status.List{
			List: name, Source: cmp.Or(l.cfg.URL, l.cfg.File), Error: l.failure,
			Feeds: l.added.feeds, BadEntries: l.added.bad, Digest: l.added.fingerprint,
			MovedFeeds: len(l.added.moved), Moved: l.added.moved[:min(len(l.added.moved), namedTopics)],
		}
		if at := l.succeeded.UTC(); !l.succeeded.IsZero() {
			row.LastSuccess = &at
		}
		if at := l.heldSince.UTC(); l.isHeld() {
			row.Held = &status.HeldList{Feeds: l.held.Feeds, Lost: l.held.Lost, Since: &at}
		}
		rows = append(rows, row)
	}
	return rows
}

// confirmOthers confirms the versions in use that other members of the fleet hold, and returns these members by list. a
// is nil without a fleet.
func (s *lists) confirmOthers(a *fleet.Assignment) map[string][]string {
	if a == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	confirmed := map[string][]string{}
	for name, l := range s.byName {
		if members := a.HeldBy(name); len(members) > 0 {
			confirmed[name], l.inUseConfirmed = members, true
			signalIf(s.noted, true)
		}
	}
	return confirmed
}

// useConfirmed uses the versions that are held, and that another member of the fleet has confirmed.
func (s *lists) useConfirmed(a fleet.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.byName {
		if l.isHeld() && a.Confirms(name, l.next.digest) {
			l.nextConfirmed = true
			signalIf(s.changed, true)
		}
	}
}

// choose returns the version to use: the one that was read last, unless it is held, and whether it is confirmed.
func (l *list) choose(confirm bool) (version listEntries, confirmed bool) {
	confirm = confirm || l.nextConfirmed
	if l.next.digest == "" || l.isHeld() && !confirm && time.Since(l.heldSince) < holdFor {
		return l.inUse, l.inUseConfirmed
	}
	return l.next, l.isHeld() && confirm
}

// addTo returns cfg with the feeds of the lists. Those that running has keep their names and topics. A version that has
// lost most of the feeds that running has is held, unless a person confirms it. accept, which is called once cfg is in
// use, records that, and logs the errors of entries, each once. Until then the versions before are in use.
func (s *lists) addTo(cfg, running *config.Config, confirm bool) (_ *config.Config, accept func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions, confirmed, entries := map[string]listEntries{}, map[string]bool{}, map[string][]config.Entry{}
	choose := func(name string, l *list) {
		versions[name], confirmed[name] = l.choose(confirm)
		entries[name] = versions[name].all
	}
	for name, l := range s.byName {
		choose(name, l)
	}
	base := cfg
	cfg, refused := base.WithLists(entries, running)
	held := false
	for name, l := range s.byName {
		if _, ok := base.FeedsFrom[name]; !ok || l.isHeld() || l.next.digest == "" {
			continue
		}
		if before, now, lost := countLost(running, cfg, name); mustHold(before, now, lost) {
			held, l.heldSince, l.held = true, time.Now(), status.HeldList{Feeds: now, Lost: lost}
			signalIf(s.noted, true)
			s.log.Warn("a list has lost most of its feeds, and is not used yet; it is used when it has stayed the same for 15 minutes, or with 'feedbridge reload --yes'",
				"list", name, "feeds", before, "lost", lost)
			choose(name, l)
		}
	}
	if held {
		cfg, refused = base.WithLists(entries, running)
	}
	return cfg, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for name, l := range s.byName {
			changes := l.inUse.digest != versions[name].digest
			switch {
			case l.next.digest == versions[name].digest:
				l.setNext(listEntries{})
			case changes && l.next.digest == "": // a look has found the version before again
				l.setNext(l.inUse)
				signalIf(s.changed, true)
			}
			if changes {
				l.added.moved = nil // they are shown until the list changes
			}
			l.inUse, l.inUseConfirmed = versions[name], confirmed[name]
		}
		s.note(cfg, running, refused)
		logged := map[string]bool{}
		for _, err := range refused {
			text := err.Error()
			if logged[text] = true; !s.logged[text] && len(logged) <= loggedEntries {
				s.log.Error("an entry of a list of feeds is not used; all others are", "error", s.opts.Redact.Text(text))
			}
		}
		if len(refused) > 0 && !maps.Equal(logged, s.logged) {
			s.log.Warn("entries of lists of feeds are not used", "entries", len(refused), "feeds", len(cfg.Feeds))
		}
		s.logged = logged
	}
}

// mustHold reports whether a list that loses some of its feeds may be a mistake: more than half of them, or all.
func mustHold(before, now, lost int) bool {
	return before >= leastHeld && 2*lost > before || before > 0 && now == 0
}

// countLost returns how many feeds of a list running and next have, and how many of the former are lost: next has no
// feed with the same name and URL.
func countLost(running, next *config.Config, list string) (before, now, lost int) {
	for name, of := range running.ListOf {
		if of != list {
			continue
		}
		if before++; next.Feeds[name].Source.URL != running.Feeds[name].Source.URL {
			lost++
		}
	}
	for _, of := range next.ListOf {
		if of == list {
			now++
		}
	}
	return before, now, lost
}

// note records what a configuration has of the lists. The caller holds the lock.
func (s *lists) note(cfg, running *config.Config, refused config.Errors) {
	versions, moved := map[string]fleet.List{}, map[string][]string{}
	for name := range s.byName {
		versions[name] = fleet.List{URLs: map[string]string{}}
	}
	for name, list := range cfg.ListOf {
		to, url := cfg.Feeds[name].To, cfg.Feeds[name].Source.URL
		versions[list].URLs[to.Topic] = url
		if before := running.Feeds[name]; running.ListOf[name] == list && before.Source.URL != url && before.To.Topic == to.Topic {
			moved[list] = append(moved[list], name)
		}
	}
	for name, l := range s.byName {
		if l.inUse.digest == "" {
			continue
		}
		l.added = addedList{feeds: len(versions[name].URLs), fingerprint: versions[name].Fingerprint(), moved: l.added.moved}
		for _, err := range refused {
			if err.Source == "feeds_from."+name {
				l.added.bad++
			}
		}
		if len(moved[name]) > 0 {
			slices.Sort(moved[name])
			l.added.moved = moved[name]
			s.log.Warn("feeds of a list have another URL than before, and go on in the same topics; give an entry another name if it is another feed",
				"list", name, "count", len(moved[name]), "feeds", namedList(moved[name]))
		}
	}
}

// loggedEntries is the most entries with errors that are logged one by one.
const loggedEntries = 20

// ReadLists returns the configuration with the feeds of its lists, each of which is read once, and the errors in
// them. Lists that cannot be read are left out.
func ReadLists(ctx context.Context, cfg *config.Config, o Options) (*config.Config, []error) {
	s := newLists(o.Version, safetext.NewRedactor(cfg.SecretParameters...), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	awaitLooks(ctx, s.configure(ctx, cfg.FeedsFrom))
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	entries := map[string][]config.Entry{}
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		l := s.byName[name]
		if entries[name] = l.next.all; l.failure != "" {
			errs = append(errs, fmt.Errorf("feeds_from.%s: %s", name, l.failure))
		}
	}
	cfg, refused := cfg.WithLists(entries, nil)
	for _, err := range refused {
		errs = append(errs, err)
	}
	return cfg, errs
}

// ReadList reads a list once, and returns its entries.
func ReadList(ctx context.Context, cfg config.List, o Options) ([]config.Entry, error) {
	s := newLists(o.Version, nil, slog.New(slog.DiscardHandler))
	l := &list{cfg: cfg}
	if _ = s.look(ctx, l); l.failure != "" {
		return nil, errors.New(l.failure)
	}
	return l.next.all, ctx.Err()
}
