package serve

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/serve/snapshot"
)

// viewLifetime is how long a view of a topic is cached.
const viewLifetime = time.Second

// View summarizes a served feed for operators and for the list of feeds.
type View struct {
	// Span holds the range of positions of the topic, which may have gaps.
	Span feed.Span
	// Newest holds the time when the bus stored the newest message, zero if there is none.
	Newest time.Time
	// Snapshot is the ID of the newest snapshot, "" if there is none or nothing in it,
	// and Created the time that it is of.
	Snapshot string
	Created  time.Time
	// Unmatched counts the PATCHes and DELETEs that it leaves out because nothing was PUT
	// with their keys. Perhaps the configured key is wrong.
	Unmatched int
	// Building is the progress of the snapshot that is being built, if one is.
	Building snapshot.Progress
}

// viewer makes the views of a feed.
type viewer struct {
	cfg       *Config
	log       Log
	spans     *spanCache
	find      messageFinder
	snapshots *snapshot.Store // nil if the feed has none
	outage    *outage

	flights singleflight.Group // reads a view once for all concurrent callers

	mu   sync.Mutex // protects last, err and at
	last View
	err  error // why there is no view
	at   time.Time
}

// currentView returns a view that is at most viewLifetime old.
func (v *viewer) currentView(ctx context.Context) (View, error) {
	v.mu.Lock()
	last, err, at := v.last, v.err, v.at
	v.mu.Unlock()
	if time.Since(at) < viewLifetime {
		return last, err
	}
	// A caller that leaves early does not decide what others see.
	return shareCall(ctx, &v.flights, "view", func(ctx context.Context) (View, error) {
		view, err := v.readView(ctx)
		v.outage.logChange(err)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.last, v.err, v.at = view, err, time.Now()
		return view, err
	})
}

// readView asks the topic for a view.
func (v *viewer) readView(ctx context.Context) (View, error) {
	span, err := v.spans.Span(ctx)
	if err != nil {
		return View{}, err
	}
	// It is not the page that is asked for, which may be large.
	last, ok, err := v.find.previousPage(ctx, pageID{span.Epoch, 1, span.End}, span)
	if err != nil || !ok {
		return View{Span: span}, err
	}
	view := View{Span: span}
	for r, err := range v.log.Read(ctx, last, last+1) {
		if err != nil {
			return View{}, err
		}
		view.Newest = r.Time.UTC()
	}
	if v.snapshots != nil {
		view.Building = v.snapshots.Progress()
		if newest := v.snapshots.Newest(); newest != nil && newest.Pages() > 0 {
			view.Snapshot, view.Created, view.Unmatched = newest.ID, newest.Created.UTC(), newest.Unmatched
		}
	}
	return view, nil
}
