// Package serve serves a topic as a feed over HTTP, so that clients that speak only
// HTTP can follow a bus.
//
// A [Feed] is one topic in one format; a [Server] serves several. Nothing is
// stored. A page of a feed is the messages at the positions [k·n, (k+1)·n) of
// the topic, and its URL has the topic's epoch, n and k. So every copy of the
// server has the same pages with the same bytes. A page never changes once there is a
// page behind it, not by a restart and not by another page size. Clients that are
// reading pages of one size can finish when the size changes.
//
//	/feeds/NAME                      the events of a feed of the format http-feeds
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
//   - Clients do not load the bus. However many clients request a page, it is read
//     once; a client that leaves does not end the reading that others wait for.
//   - A [PageCache] bounds the pages in memory, those that slow clients are being sent
//     included. A page that does not fit is read from the bus while
//     it is sent.
package serve

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strings"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/serve/snapshot"
)

// Feed is one topic that is served. Any number of goroutines may use it.
type Feed struct {
	cfg         *Config
	credentials *credentials
	builder     *pageBuilder
	handler     *handler
	viewer      *viewer
	snapshots   *snapshot.Store // nil if the feed has none
}

// New returns a Feed of the topic that log reads. Its error lists all errors
// of cfg, and matches [feed.ErrPermanent].
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
		cfg.Memory = NewPageCache(0)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.PublicURL = strings.TrimSuffix(cfg.PublicURL, "/")
	cfg.Log = cfg.Log.With("feed", cfg.Name)
	pages := newPageBuilder(&cfg, log)
	out := &outage{log: cfg.Log}
	f := &Feed{cfg: &cfg, credentials: &credentials{cfg: &cfg}, builder: pages}
	if cfg.Snapshot.Every > 0 {
		f.snapshots = snapshot.NewStore(snapshot.Topic{Span: pages.spans.spanNow, Entities: pages.snapshotEntities}, snapshot.Options{
			Config: cfg.Snapshot, PageSize: cfg.PageSize, Turn: cfg.Memory.snapshots, Log: cfg.Log,
		})
	}
	f.viewer = &viewer{cfg: &cfg, log: log, spans: pages.spans, find: pages.find, snapshots: f.snapshots, outage: out}
	f.handler = &handler{cfg: &cfg, credentials: f.credentials, pages: pages, outage: out, snapshots: &snapshotHandler{&cfg, pages.spans, f.snapshots}}
	return f, nil
}

// ServeHTTP answers requests for /feeds/NAME/….
func (f *Feed) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.handler.ServeHTTP(w, r) }

// View returns a summary of the feed that is at most a second old. Its error matches
// [feed.ErrNoTopic] if there is no topic.
func (f *Feed) View(ctx context.Context) (View, error) { return f.viewer.currentView(ctx) }

// Run builds snapshots until ctx ends, if the feed has any.
func (f *Feed) Run(ctx context.Context) {
	if f.snapshots != nil {
		f.snapshots.Run(ctx)
	}
}

// Entities returns the entities that a reader of the whole feed gets now: from the
// oldest page that is served to the newest message. It calls leftOut for
// every message that pages leave out, as it is the same as one before it. It reads
// the topic by itself, not the feed's pages, and holds no more than the IDs of two
// pages.
//
// Feeds in Atom and RSS have none: their readers do not get every message, but
// the newest of each entry.
func (f *Feed) Entities(ctx context.Context, leftOut func()) (iter.Seq2[feed.Entity, error], error) {
	if f.cfg.isLinked() {
		return nil, errors.New("readers of Atom and RSS get only the newest version of each entry, so there is no order to compare; serve the topic as datareplication, too, and compare that")
	}
	if f.cfg.Format == HTTPFeeds {
		return f.builder.eventEntities(ctx)
	}
	newest, err := f.builder.newestPage(ctx)
	if err != nil || newest == nil {
		return func(func(feed.Entity, error) bool) {}, err
	}
	defer f.builder.memory.releasePage(newest)
	id, span := newest.id, newest.span
	// What retention has left begins with oldest, and is read with the page in front
	// of it. The newest page is there whatever it took.
	var oldest, from uint64
	if span.First > 0 {
		from = (span.First + id.size - 1) / id.size
		oldest = from + 1
	}
	if oldest > id.k {
		oldest, from = id.k, id.k
	}
	return func(yield func(feed.Entity, error) bool) {
		for e, err := range f.builder.walkPages(ctx, span, from, span.End) {
			switch {
			case err != nil:
				yield(feed.Entity{}, fmt.Errorf("the topic: %w", err))
				return
			case e.position < id.withNumber(oldest).firstPosition():
			case !e.fits:
				leftOut()
			case !yield(asRead(e.entity), nil):
				return
			}
		}
	}, nil
}
