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
	// inUse is used, and held is not yet, since heldSince.
	inUse, held listEntries
	heldSince   time.Time
	// confirmed is set if a person has confirmed inUse, to this copy or to another member of the fleet.
	confirmed bool
	failure   string    // the last error, which is logged once
	succeeded time.Time // the last attempt that worked
	lookedAt  time.Time // the last attempt because other members have another version
	// added is what the configuration in use has of the list; nil before the first version.
	added *addedList

	// The goroutine's own: the file, or the validators of the URL, of the version that was read last.
	file               os.FileInfo
	etag, lastModified string
}

// listEntries are the entries of a list that was read. The digest is the same for the same names and URLs. It is empty
// if there is no list.
type listEntries struct {
	all    []config.Entry
	digest string
}

func newListEntries(all []config.Entry) listEntries {
	lines := make([]string, len(all))
	for i, e := range all {
		lines[i] = e.Name + "\x00" + e.URL
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return listEntries{all, hex.EncodeToString(sum[:8])}
}

// addedList is what a configuration has of a list.
type addedList struct {
	feeds, bad  int
	fingerprint string
	// entries is the digest of the entries, which are confirmed if these are.
	entries   string
	confirmed bool
	// moved are the feeds that had another URL in the version before.
	moved []string
}

func newLists(version string, redact *safetext.Redactor, log *slog.Logger) *lists {
	return &lists{
		opts: source.Options{UserAgent: "feedbridge/" + version + " (+https://github.com/feedbridge/feedbridge)", Redact: redact, Log: log}, log: log,
		changed: make(chan struct{}, 1), noted: make(chan struct{}, 1), byName: map[string]*list{}, logged: map[string]bool{},
	}
}

// configure watches the configured lists until ctx ends, and looks at all of them now. A list whose address has
// changed keeps its entries until the other one was read.
func (s *lists) configure(ctx context.Context, configured map[string]config.List) (first *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = &sync.WaitGroup{}
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
			continue
		}
		l := &list{name: name, cfg: cfg, wake: make(chan struct{}, 1)}
		if before != nil {
			before.stop()
			l.inUse, l.confirmed, l.added = before.inUse, before.confirmed, before.added
		}
		var watching context.Context
		watching, l.stop = context.WithCancel(ctx)
		s.byName[name] = l
		first.Add(1)
		go s.watch(watching, l, sync.OnceFunc(first.Done))
	}
	return first
}

// watch looks at a list again and again, sooner after an error. It calls looked after the first time.
func (s *lists) watch(ctx context.Context, l *list, looked func()) {
	every := listFileEvery
	if l.cfg.URL != "" {
		every = l.cfg.Every
	}
	client, err := s.open(l)
	again := retry.Backoff{Min: listFileEvery, Max: every}
	for {
		wait := every
		if err == nil {
			err = s.look(ctx, l, client)
		} else {
			s.update(l, nil, false, err)
		}
		if err != nil {
			wait = again.Next()
		} else {
			again = retry.Backoff{Min: listFileEvery, Max: every}
		}
		err = nil
		looked()
		select {
		case <-time.After(retry.Jitter(wait)):
		case <-l.wake:
		case <-ctx.Done():
			return
		}
		if client == nil {
			client, err = s.open(l)
		}
	}
}

// open returns the client for a list; nil for a file.
func (s *lists) open(l *list) (*source.Client, error) {
	if l.cfg.URL == "" {
		return nil, nil //nolint:nilnil // a file needs none
	}
	return source.NewClient(l.cfg.Source(), s.opts)
}

// look reads a list, unless it is the same as before.
func (s *lists) look(ctx context.Context, l *list, client *source.Client) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var data []byte
	var changed bool
	var err error
	if client != nil {
		data, changed, err = l.request(ctx, client)
	} else {
		data, changed, err = l.readFile()
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
	data, err = io.ReadAll(io.LimitReader(file, config.MaxList+1))
	l.file = info
	return data, true, err
}

// request returns the document at the URL, unless it is not modified.
func (l *list) request(ctx context.Context, client *source.Client) (data []byte, changed bool, err error) {
	resp, err := client.Do(ctx, source.Request{Method: http.MethodGet, URL: l.cfg.URL, IfNoneMatch: l.etag, IfModifiedSince: l.lastModified})
	if err != nil {
		return nil, false, listError(err)
	}
	defer resp.Body.Close()
	switch resp.Status {
	case http.StatusNotModified:
		return nil, false, nil
	case http.StatusNoContent:
		return nil, false, errors.New("the server answers without a list (204)")
	}
	if data, err = io.ReadAll(resp.Body); err != nil {
		return nil, false, listError(err)
	}
	l.etag, l.lastModified = resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	return data, true, nil
}

// listError replaces the error about a page that is too large, whose cure is a key that lists do not have.
func listError(err error) error {
	if errors.Is(err, source.ErrTooLarge) && strings.Contains(err.Error(), "limits.page") {
		return config.ErrListTooLarge
	}
	return err
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
			log.Error(message, "error", text, "feeds", len(l.inUse.all))
		}
		return
	}
	if l.failure != "" {
		signalIf(s.noted, true)
		log.Info("the list of feeds can be read again")
		l.heldSince = time.Now() // it may have been another one meanwhile
	}
	l.failure, l.succeeded = "", time.Now()
	version := l.held
	if changed {
		version = newListEntries(entries)
	}
	switch lost := lostFeeds(l.inUse.all, version.all); {
	case version.digest == "": // it was not changed, and is not held
		return
	case version.digest == l.inUse.digest:
		s.hold(l, listEntries{})
		return
	case mustHold(len(l.inUse.all), len(version.all), lost):
		if version.digest != l.held.digest {
			s.hold(l, version)
			log.Warn("a list has lost most of its feeds, and is not used yet; it is used when it has stayed the same for 15 minutes, or with 'feedbridge reload --yes'",
				"feeds", len(l.inUse.all), "lost", lost)
		}
		if time.Since(l.heldSince) < holdFor {
			return
		}
	}
	s.use(l, version, false)
}

// hold holds a version of a list, or none. The caller holds the lock.
func (s *lists) hold(l *list, version listEntries) {
	signalIf(s.noted, version.digest != l.held.digest)
	l.held, l.heldSince = version, time.Now()
}

// use uses a version of a list. The caller holds the lock.
func (s *lists) use(l *list, version listEntries, confirmed bool) {
	l.inUse, l.held, l.confirmed = version, listEntries{}, confirmed
	signalIf(s.changed, true)
}

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
		if l.added != nil {
			read[name] = fleet.List{
				URLs: map[string]string{}, Failed: l.failure != "",
				Entries: l.added.entries, Held: l.held.digest, Confirmed: l.added.confirmed,
			}
		}
	}
	return read
}

// status returns the rows of the lists in /status, in order.
func (s *lists) status() (rows []status.List) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		l := s.byName[name]
		row := status.List{List: name, Source: cmp.Or(l.cfg.URL, l.cfg.File), Error: l.failure}
		if l.added != nil {
			row.Feeds, row.BadEntries, row.Digest = l.added.feeds, l.added.bad, l.added.fingerprint
			row.MovedFeeds, row.Moved = len(l.added.moved), l.added.moved[:min(len(l.added.moved), namedTopics)]
		}
		if at := l.succeeded.UTC(); !l.succeeded.IsZero() {
			row.LastSuccess = &at
		}
		if l.held.digest != "" {
			at := l.heldSince.UTC()
			row.Held = &status.HeldList{Feeds: len(l.held.all), Lost: lostFeeds(l.inUse.all, l.held.all), Since: &at}
		}
		rows = append(rows, row)
	}
	return rows
}

// useHeld uses the lists that are held, and confirms those that other members of the fleet hold; a is nil without one.
func (s *lists) useHeld(a *fleet.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.byName {
		switch {
		case l.held.digest != "":
			s.use(l, l.held, true)
		case a != nil && len(a.HeldBy(name)) > 0:
			s.use(l, l.inUse, true)
		}
	}
}

// useConfirmed uses the versions that are held, and that another member of the fleet has confirmed.
func (s *lists) useConfirmed(a fleet.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.byName {
		if l.held.digest != "" && a.Confirms(name, l.held.digest) {
			s.use(l, l.held, true)
		}
	}
}

// mustHold reports whether a list with n feeds now, which had some before and lost some of these, may be a mistake:
// more than half of them, or all.
func mustHold(before, n, lost int) bool {
	return before >= leastHeld && 2*lost > before || before > 0 && n == 0
}

// lostFeeds returns how many entries are not among those now.
func lostFeeds(before, now []config.Entry) (lost int) {
	type key struct{ name, url string }
	kept := make(map[key]bool, len(now))
	for _, e := range now {
		kept[key{e.Name, e.URL}] = true
	}
	for _, e := range before {
		if !kept[key{e.Name, e.URL}] {
			lost++
		}
	}
	return lost
}

// addTo returns cfg with the feeds of the lists. Those that running has keep their names and topics. It logs the errors
// of entries, each once.
func (s *lists) addTo(cfg, running *config.Config) *config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := map[string][]config.Entry{}
	for name, l := range s.byName {
		entries[name] = l.inUse.all
	}
	cfg, refused := cfg.WithLists(entries, running)
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
	return cfg
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
		before := l.added
		if l.added = nil; l.inUse.digest == "" {
			continue
		}
		l.added = &addedList{feeds: len(versions[name].URLs), fingerprint: versions[name].Fingerprint(), entries: l.inUse.digest, confirmed: l.confirmed, moved: moved[name]}
		for _, err := range refused {
			if err.Source == "feeds_from."+name {
				l.added.bad++
			}
		}
		if len(moved[name]) > 0 {
			slices.Sort(moved[name])
			s.log.Warn("feeds of a list have another URL than before, and go on in the same topics; give an entry another name if it is another feed",
				"list", name, "count", len(moved[name]), "feeds", namedList(moved[name]))
		} else if before != nil && before.entries == l.added.entries {
			l.added.moved = before.moved // they are shown until the list changes
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
	s.configure(ctx, cfg.FeedsFrom).Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	entries := map[string][]config.Entry{}
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		l := s.byName[name]
		if entries[name] = l.inUse.all; l.failure != "" {
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
	client, err := s.open(l)
	if err != nil {
		return nil, err
	}
	if _ = s.look(ctx, l, client); l.failure != "" {
		return nil, errors.New(l.failure)
	}
	return l.inUse.all, ctx.Err()
}
