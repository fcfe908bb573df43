// Package serve serves a topic as a feed over HTTP, so that those who only speak
// HTTP can follow what is on a bus.
//
// A [Feed] is one topic in one format; a [Server] serves several. Nothing is
// stored. A page of a feed is the messages at the positions [k·n, (k+1)·n) of
// the topic, and its URL has the topic's epoch, n and k. So every copy of the
// server has the same pages with the same bytes; a page never changes once there
// is one behind it, not by a restart and not by another page size; and who is
// half way through the pages of one size finds the rest of them.
//
//	/feeds/NAME/latest               the newest page, in place; the entry point
//	/feeds/NAME/pages/EPOCH-N-K      page K of N positions each
//	/feeds/NAME/snapshots/latest     leads to the newest snapshot, if there are any
//	/feeds/NAME/snapshots/ID         the index of a snapshot
//	/feeds/NAME/snapshots/ID/K       page K of it
//
// # Non-obvious
//
//   - Positions have gaps, and a stretch without any message is no page: links
//     lead around it. The page with the newest message is the newest page, even
//     if the positions behind it have long been passed.
//   - A page depends on the positions of the page in front of it too: the times
//     of its entities must not run back behind those, nor their IDs repeat. So a
//     page is gone (410) as soon as retention takes anything from the page in
//     front of it, and does not change before.
//   - Bus and clients are kept apart. However many clients ask for a page, it is
//     read once; who leaves does not end the reading that others wait for.
//   - What is held in memory is bounded by a [Memory], the pages that slow clients
//     are being sent included. A page that does not fit is read from the bus while
//     it is sent.
package serve

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// A Log is a topic read back by position. Positions grow, may have gaps, and
// never change their message. Any number of goroutines may use it.
//
// An error that does not match [feed.ErrNoTopic] means that the bus cannot be
// asked right now.
type Log interface {
	// Span returns which positions the topic has now.
	Span(ctx context.Context) (feed.Span, error)
	// Read returns the records at the positions [from, to) in order; to is not
	// beyond the end of the last Span. It is read as far as it is ranged over. An
	// error is the last thing that it yields.
	Read(ctx context.Context, from, to uint64) iter.Seq2[feed.Record, error]
}

// A Counter is a Log that knows how many records a topic has without reading them.
type Counter interface {
	// Count returns how many records the topic has now.
	Count(ctx context.Context) (uint64, error)
}

// Format is what a feed is served as.
type Format string

// The formats.
const (
	DataReplication Format = "datareplication"
	Atom            Format = "atom"
	RSS             Format = "rss"
)

// Values returns the valid values.
func (Format) Values() []string { return []string{string(DataReplication), string(Atom), string(RSS)} }

// The bounds of a page's size. A URL may ask for any size within them, as URLs
// of former configurations do.
const (
	DefaultPageSize = 500
	MaxPageSize     = 10_000
)

// Config says how one topic is served.
type Config struct {
	// Name is the feed's name, as in its URL. It is part of the IDs that messages
	// without one get.
	Name string
	// Format is what the feed is served as. Default [DataReplication].
	Format Format
	// PageSize is the number of positions that a page has. Default 500, at most
	// 10,000. A change does not disturb those who read pages of another size.
	PageSize int
	// PublicURL is where the feed lies for those who read it: links start with it,
	// and /latest follows it at the entry point. Without it links lead to the
	// host that the request names, which is right where nothing stands between.
	PublicURL string
	// BusTime dates all entities by when the bus took them. Without it those
	// whose message has a Last-Modified keep theirs, as far as times do not run
	// back. A feed with snapshots has the bus's times always: a snapshot and the
	// feed behind it are divided by time, so what is late would be in neither.
	BusTime bool
	// Auth is what who asks has to know. The zero Auth lets in everyone.
	Auth Auth
	// Title is what the feed is called in Atom and RSS. Default Name.
	Title string
	// Snapshot says how to build snapshots. The zero Snapshot builds none.
	Snapshot Snapshot
	// Memory is what holds pages. Default: one for this feed alone.
	Memory *Memory
	// Log gets what goes wrong.
	Log *slog.Logger
	// Observe is told of each request, when it has been answered: the status, and
	// how long that took. Of one whose client left before that it is told nothing. It may be nil, and is called by several goroutines.
	Observe func(status int, took time.Duration)
}

var names = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// Validate returns everything that is wrong with c, each error starting with
// the key that it is about.
func (c Config) Validate() []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !names.MatchString(c.Name) {
		fail("name: %q must be of lower case letters, digits and -, and start with a letter", c.Name)
	}
	if _, ok := formats[c.Format]; !ok && c.Format != "" {
		fail("format: %q is none: want datareplication, atom or rss", c.Format)
	}
	if c.PageSize < 0 || c.PageSize > MaxPageSize {
		fail("page_size: must be between 1 and %d", MaxPageSize)
	}
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
			fail("public_url: %q must be an http or https URL without user, query and fragment", c.PublicURL)
		case strings.ContainsAny(c.PublicURL, ",;<>\""):
			fail("public_url: %q must not have any of , ; < > \", which clients misread in links", c.PublicURL)
		}
	}
	if c.Snapshot.Every > 0 && c.Format != DataReplication && c.Format != "" {
		fail("snapshot: is for feeds of the format datareplication alone")
	}
	errs = append(errs, c.Auth.validate()...)
	return append(errs, c.Snapshot.validate()...)
}

// Feed is one topic that is served. Any number of goroutines may use it.
type Feed struct {
	cfg      Config
	topic    *topic
	format   format
	memory   *Memory
	snapshot *snapshots
	log      *slog.Logger
	// away says that the bus could not be asked the last time.
	away atomic.Bool
	// dense is how many bytes a position took on the page that was made last.
	dense atomic.Int64

	testOnlyIdle bool // makes no page that nobody has asked for

	mu    sync.Mutex // guards what follows
	seen  seen
	looks map[pageID]*look // at pages that are being read
}

// New returns a Feed of the topic that log reads. Its error says what is wrong
// with cfg, and matches [feed.ErrPermanent].
func New(cfg Config, log Log) (*Feed, error) {
	if errs := cfg.Validate(); errs != nil {
		return nil, feed.Permanent(fmt.Errorf("serve feed %q: %w", cfg.Name, errors.Join(errs...)))
	}
	if cfg.Format == "" {
		cfg.Format = DataReplication
	}
	if cfg.PageSize == 0 {
		cfg.PageSize = DefaultPageSize
	}
	if cfg.Title == "" {
		cfg.Title = cfg.Name
	}
	if cfg.Memory == nil {
		cfg.Memory = NewMemory(0)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.PublicURL = strings.TrimSuffix(cfg.PublicURL, "/")
	cfg.BusTime = cfg.BusTime || cfg.Snapshot.Every > 0
	f := &Feed{
		cfg: cfg, topic: &topic{log: log}, format: formats[cfg.Format], memory: cfg.Memory, looks: map[pageID]*look{},
		log: cfg.Log.With("feed", cfg.Name),
	}
	if cfg.Snapshot.Every > 0 {
		f.snapshot = newSnapshots(f)
	}
	return f, nil
}

// path is where the feed lies on its server.
func (f *Feed) path() string { return "/feeds/" + f.cfg.Name }

// home is what links to the feed start with that need not name a host.
func (f *Feed) home() string {
	if f.cfg.PublicURL != "" {
		return f.cfg.PublicURL
	}
	return f.path()
}

// tell logs that the bus cannot be asked, once until it can be again.
func (f *Feed) tell(err error) {
	switch was := f.away.Swap(err != nil); {
	case err != nil && !was:
		f.log.Warn("a served topic cannot be read", "error", err)
	case err == nil && was:
		f.log.Info("a served topic can be read again")
	}
}

// busFor is how long the bus may take for what one request needs, such as a page
// of large messages. That it does not answer is for the Log to find out, sooner.
const busFor = 2 * time.Minute
