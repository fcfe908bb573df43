package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// batchEntities is how many entities of a page are read at once, so that a commit
// to any bus can take them.
const batchEntities = nats.MaxEntities

// sources are those that can read a feed. Which one does, its configuration says,
// or its checkpoint, or else the feed itself. Open is for one goroutine.
type sources struct {
	feed   config.Feed
	client *source.Client
	held   *sink.IDs
	budget syndication.Budget // nil for no bound
	log    *slog.Logger
	opened map[string]bridge.Source // by their kind: they remember what saves work
	// redact hides the secrets of URLs in the headers of entities and in errors. It may
	// be nil.
	redact *safetext.Redactor

	mu    sync.Mutex    // guards what follows
	found config.Format // what the feed was seen to be last
	kind  string        // of the source that was opened last
}

func newSources(f config.Feed, held *sink.IDs, opts source.Options, log *slog.Logger) (*sources, error) {
	opts.UserAgent = userAgent()
	client, err := source.NewClient(f.Source, opts)
	if err != nil {
		return nil, err
	}
	return &sources{feed: f, client: client, held: held, log: log, redact: opts.Redact, opened: map[string]bridge.Source{}}, nil
}

// open returns the source to read with, and its kind. kind is that of the
// checkpoint's cursor, or empty.
func (s *sources) open(ctx context.Context, kind string) (bridge.Source, string, error) {
	if configured := s.feed.Format.Kind(); configured != "" {
		kind = configured
	}
	if kind == "" {
		format, err := s.find(ctx)
		if err != nil {
			return nil, "", err
		}
		kind = format.Kind()
	}
	if s.opened[kind] == nil {
		src, err := s.build(kind)
		if err != nil {
			return nil, "", err
		}
		s.opened[kind] = src
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kind = kind
	return s.opened[kind], kind, nil
}

// build returns a new source of a kind.
func (s *sources) build(kind string) (bridge.Source, error) {
	f := s.feed
	switch kind {
	case datareplication.Kind:
		return s.datareplication(), nil
	case syndication.Kind:
		if f.Start.ID != "" || f.Start.Snapshot != "" {
			return nil, feed.Permanent(fmt.Errorf("start: %s is a place in a datareplication feed, and this one is Atom or RSS; set beginning, now, or a time such as 2026-01-01T00:00:00Z", f.Start))
		}
		cfg := syndication.Config{
			Config: f.Source, Settings: f.Syndication, Every: f.Every, BatchEntities: batchEntities, Budget: s.budget,
			Start: syndication.Start{Now: f.Start.Now, At: f.Start.At}, Redact: s.redact,
		}
		if f.Format != "auto" {
			cfg.Format = feedxml.Format(f.Format)
		}
		return syndication.New(cfg, s.client, s.held, s.log), nil
	}
	return nil, feed.Permanent(fmt.Errorf("the checkpoint was made by a source of the kind %q, which this version of feedbridge does not have; run a newer one", kind))
}

func (s *sources) datareplication() *datareplication.Source {
	return datareplication.New(datareplication.Config{
		Config: s.feed.Source, Start: s.feed.Start, Gap: s.feed.Gap, BatchEntities: batchEntities,
	}, s.client, s.log)
}

// find asks the feed what it is, and says so when that is new.
func (s *sources) find(ctx context.Context) (config.Format, error) {
	format, err := detect(ctx, s.client, s.feed.Source.URL)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found != format {
		s.log.Info("found out the format of the feed", "format", string(format), "url", s.feed.Source.URL)
	}
	s.found = format
	return format, nil
}

// describe returns the format of the feed, as far as it is known, and the place of
// a checkpoint in it. The checkpoint may be one that was followed since it was
// read, and not say of what kind it is.
func (s *sources) describe(cp checkpoint.Checkpoint) (format string, shown any) {
	s.mu.Lock()
	format, kind := cmp.Or(string(s.found), string(s.feed.Format)), cmp.Or(cp.Source, s.kind)
	s.mu.Unlock()
	place, err := placeOf(kind, cp.Cursor)
	if err != nil {
		return format, err.Error()
	}
	switch p := place.(type) {
	case datareplication.Place:
		format = datareplication.Kind
	case syndication.Place:
		format = cmp.Or(string(p.Format), format)
	}
	return format, place
}

// errMaybeIndex says what to do if a URL that serves JSON is that of a snapshot.
var errMaybeIndex = errors.New("if it is the index of a snapshot, set start to snapshot: and this url, and url to that of the feed")

// detect finds out what a URL serves: by its media type if that is multipart, and
// by the root element of the document if not. A feed that answers with 204 has no
// entities yet, as datareplication feeds say it. It reads no more than it needs.
func detect(ctx context.Context, client *source.Client, url string) (config.Format, error) {
	resp, err := client.Do(ctx, source.Request{Method: http.MethodGet, URL: url})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.Status == http.StatusNoContent {
		return datareplication.Kind, nil
	}
	contentType := resp.Header.Get("Content-Type")
	if main, _, _ := strings.Cut(contentType, "/"); strings.EqualFold(strings.TrimSpace(main), "multipart") {
		return datareplication.Kind, nil
	}
	format, err := feedxml.Detect(resp.Body, feedxml.Options{URL: resp.URL.String(), ContentType: contentType})
	if errors.Is(err, feedxml.ErrNotFeed) {
		err = fmt.Errorf("the url serves neither a datareplication feed (multipart pages) nor Atom or RSS: %w", err)
		if media, _, _ := mime.ParseMediaType(contentType); media == "application/json" || strings.HasSuffix(media, "+json") {
			err = fmt.Errorf("%w; %w", err, errMaybeIndex)
		}
		return "", feed.Permanent(err)
	}
	switch {
	case err != nil:
		return "", err
	case format == feedxml.RDF:
		format = feedxml.RSS
	}
	return config.Format(format), nil
}
