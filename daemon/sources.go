package daemon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/httpfeed"
	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// SourceOptions are the options of the sources of a feed. Only IDs is required.
type SourceOptions struct {
	// Version holds the version of the program, for the User-Agent.
	Version string
	// IDs are those that the topic holds. Sources of Atom and RSS compare with them.
	IDs *sink.IDs
	// ReadAhead is the feed's share of the budget for what all feeds read ahead; nil for no bound.
	ReadAhead *readahead.Share
	// FeedMemory is [config.Config.FeedMemory]; zero for its default.
	FeedMemory int64
	// Hosts has the connections and pauses that several feeds share; nil for its own.
	Hosts *source.Hosts
	// Observe is called after each request. It may be nil.
	Observe func(source.Exchange)
	// Wrap is that of [source.Options]. It may be nil.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Once is that of [syndication.Config].
	Once bool
	// Documents is that of [syndication.Bounds], and SearchPages of [datareplication.Config]; zero for their defaults.
	Documents int
	// Redact hides the secrets of URLs in the headers of entities and in errors. Nil hides parameters
	// with the usual names only.
	Redact *safetext.Redactor
}

// Sources are the sources that can read one feed, one for each kind of format. The kind is
// the configured one, or that of the checkpoint, or else it is detected from the answer
// of the feed's URL. All methods but Describe are for one goroutine at a time.
type Sources struct {
	feed   *config.Feed
	client *source.Client
	opts   SourceOptions
	log    *slog.Logger
	opened []openedSource // one of each kind; they cache validators and pages

	mu     sync.Mutex    // guards the fields below
	found  config.Format // the format that was detected last
	kind   string        // of the source that was opened last
	search func() string // describes the search of that source
	// walkFrom is the number of pages of a snapshot that were read at walkAt, when Describe was first called in it.
	walkFrom int
	walkAt   time.Time
}

// openedSource is the source of a kind.
type openedSource struct {
	kind   string
	source feed.Source
}

// NewSources returns the sources of a feed. It makes no request. It returns an error if a
// file that the feed's configuration names cannot be read.
func NewSources(f config.Feed, o SourceOptions, log *slog.Logger) (*Sources, error) {
	return newSources(&f, o, log)
}

// newSources is NewSources for a feed whose configuration does not change.
func newSources(f *config.Feed, o SourceOptions, log *slog.Logger) (*Sources, error) {
	userAgent := "feedbridge/" + o.Version + " (+https://github.com/feedbridge/feedbridge)"
	client, err := source.NewClient(f.Source, source.Options{UserAgent: userAgent, Hosts: o.Hosts, Observe: o.Observe, Wrap: o.Wrap, Log: log, Redact: o.Redact})
	if err != nil {
		return nil, err
	}
	return &Sources{feed: f, client: client, opts: o, log: log}, nil
}

// Open returns the source to read with, and its kind. kind is that of the
// checkpoint's cursor, or empty. Open makes a request only if it has to detect the
// format. It returns the same source for the same kind each time.
func (s *Sources) Open(ctx context.Context, kind string) (feed.Source, string, error) {
	if configured := s.feed.Format.Kind(); configured != "" {
		kind = configured
	}
	if kind == "" {
		format, err := s.detectFormat(ctx, s.client.HandOver)
		if err != nil {
			return nil, "", err
		}
		kind = format.Kind()
	}
	opened, err := s.sourceOf(kind)
	if err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kind = kind
	if src, ok := opened.(*syndication.Source); ok {
		s.search = src.Search
	}
	return opened, kind, nil
}

// sourceOf returns the source of a kind, always the same.
func (s *Sources) sourceOf(kind string) (feed.Source, error) {
	for _, o := range s.opened {
		if o.kind == kind {
			return o.source, nil
		}
	}
	src, err := s.newSource(kind)
	if err != nil {
		return nil, err
	}
	s.opened = append(s.opened, openedSource{kind, src})
	return src, nil
}

// newSource returns a new source of a kind.
func (s *Sources) newSource(kind string) (feed.Source, error) {
	f := s.feed
	switch kind {
	case datareplication.Kind:
		return s.datareplication(), nil
	case httpfeed.Kind:
		if f.Start.Snapshot != "" || f.Start.ID != "" && !f.Start.IsEvent() {
			return nil, feed.Permanent(fmt.Errorf("start: %s is a position in a datareplication feed, and this one is http-feeds; set beginning, now, a time such as 2026-01-01T00:00:00Z, or after: and the id of an event", f.Start))
		}
		cfg := httpfeed.Config{Config: f.Source, Start: f.Start}
		return httpfeed.New(cfg, s.client, s.opts.IDs.Committed, s.opts.Redact, s.log), nil
	case syndication.Kind:
		if f.Start.ID != "" || f.Start.Snapshot != "" {
			return nil, feed.Permanent(fmt.Errorf("start: %s is a position in a datareplication feed, and this one is Atom or RSS; set beginning, now, or a time such as 2026-01-01T00:00:00Z", f.Start))
		}
		bounds := syndication.Defaults().Bounds
		bounds.Memory = cmp.Or(s.opts.FeedMemory, bounds.Memory)
		bounds.Documents = cmp.Or(s.opts.Documents, bounds.Documents)
		cfg := syndication.Config{
			Config: f.Source, Settings: f.Syndication, Every: f.Every, Budget: s.opts.ReadAhead.Budget(), Bounds: bounds,
			Start: f.Start, Redact: s.opts.Redact, Once: s.opts.Once,
		}
		if f.Format != "auto" {
			cfg.Format = feedxml.Format(f.Format)
		}
		return syndication.New(cfg, s.client, s.opts.IDs, s.log), nil
	}
	return nil, feed.Permanent(fmt.Errorf("the checkpoint was made by a source of the kind %q, which this version of feedbridge does not have; run a newer version", kind))
}

func (s *Sources) datareplication() *datareplication.Source {
	return datareplication.New(datareplication.Config{
		Config: s.feed.Source, Start: s.feed.Start, Gap: s.feed.Gap, Memory: s.opts.ReadAhead, SearchPages: s.opts.Documents,
	}, s.client, s.log)
}

// DetectFormat requests the feed's URL and returns the format that it serves. It logs the
// format when that is new. The error is permanent if the URL does not serve a feed.
func (s *Sources) DetectFormat(ctx context.Context) (config.Format, error) {
	return s.detectFormat(ctx, closeResponse)
}

// detectFormat is DetectFormat, and calls keep with a response that the source of that format
// can go on with.
func (s *Sources) detectFormat(ctx context.Context, keep keepResponse) (config.Format, error) {
	format, err := detectFormat(ctx, s.client, s.feed.Source.URL, s.opts.Redact, keep)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found != format {
		s.log.Info("detected the format of the feed", "format", string(format), "url", s.feed.Source.URL)
	}
	s.found = format
	return format, nil
}

// Describe describes a checkpoint, which need not say of what kind it is if a source has been opened. It may
// be called concurrently.
func (s *Sources) Describe(cp checkpoint.Checkpoint) admin.Description {
	s.mu.Lock()
	d := admin.Description{Format: cmp.Or(string(s.found), string(s.feed.Format))}
	kind, search := cmp.Or(cp.Source, s.kind), s.search
	s.mu.Unlock()
	if search != nil {
		d.Search = search()
	}
	info, err := DescribeCursor(kind, cp.Cursor)
	if err != nil {
		d.Cursor = err.Error()
		return d
	}
	d.Cursor = info
	switch p := info.(type) {
	case datareplication.CursorInfo:
		d.Format, d.Search, d.Snapshot = datareplication.Kind, p.Search().String(), s.describeSnapshot(p, time.Now())
	case httpfeed.CursorInfo:
		d.Format = httpfeed.Kind
	case syndication.CursorInfo:
		d.Format = cmp.Or(string(p.Format), d.Format)
		gaps, deletes := p.Lacks()
		d.Lacking = &admin.Lacking{Gaps: gaps, Deletes: deletes, Until: p.HeldUntil}
	}
	return d
}

// describeSnapshot returns the position in a snapshot, and from the second call on the rate and the time left.
func (s *Sources) describeSnapshot(p datareplication.CursorInfo, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Snapshot == "" || s.walkAt.IsZero() || p.SnapshotRead < s.walkFrom {
		s.walkFrom, s.walkAt = p.SnapshotRead, now
	}
	speed := float64(p.SnapshotRead-s.walkFrom) / now.Sub(s.walkAt).Seconds()
	if left := status.TimeLeft(float64(p.SnapshotPages-p.SnapshotRead), speed); left != "" {
		return fmt.Sprintf("%s, %.2g pages a second, %s", p.Snapshot, speed, left)
	}
	return p.Snapshot
}

// Commit adds the IDs of published entities to those that the topic holds. Only a caller
// that has no sink calls it.
func (s *Sources) Commit(published []feed.Entity) { s.opts.IDs.Commit(published) }

// ReadSnapshot reads the snapshot whose index the feed's URL is, and hands its entities to
// take. It returns the index; its ID is empty if the URL does not serve an index.
func (s *Sources) ReadSnapshot(ctx context.Context, take func(feed.Batch) error) (datareplication.Snapshot, error) {
	return s.datareplication().ReadSnapshot(ctx, s.feed.Source.URL, take)
}

// keepResponse takes a response to a request, and the part of its body that was read. It closes
// the response.
type keepResponse func(r source.Request, resp *source.Response, read []byte)

func closeResponse(_ source.Request, resp *source.Response, _ []byte) { resp.Body.Close() }

// detectFormat returns the format of the document at a URL: by its media type if that is multipart,
// and by its root element or version if not. An answer of 204 is a datareplication feed
// without entities. The body is read as far as needed, and keep gets the rest.
func detectFormat(ctx context.Context, client *source.Client, url string, redact *safetext.Redactor, keep keepResponse) (config.Format, error) {
	get := source.Request{Method: http.MethodGet, URL: url}
	resp, err := client.Do(ctx, get)
	if err != nil {
		return "", err
	}
	if isMultipart(resp) {
		keep(get, resp, nil)
		return datareplication.Kind, nil
	}
	var read bytes.Buffer
	switch mediaType(resp) {
	case "application/cloudevents-batch+json":
		keep(get, resp, nil)
		return httpfeed.Kind, nil
	case "text/event-stream": // which does not end
		resp.Body.Close()
		return "", feed.Permanent(newNotFeedError(resp, []byte("event"), redact))
	}
	_, _ = io.CopyN(&read, resp.Body, 512) // an error comes again
	document := func() io.Reader {
		return io.MultiReader(bytes.NewReader(read.Bytes()), io.TeeReader(resp.Body, &read))
	}
	if bytes.HasPrefix(bytes.TrimSpace(read.Bytes()), []byte("[")) && httpfeed.Detect(document()) {
		keep(get, resp, read.Bytes())
		return httpfeed.Kind, nil
	}
	contentType := resp.Header.Get("Content-Type")
	format, err := feedxml.Detect(document(), feedxml.Options{URL: resp.URL.String(), ContentType: contentType})
	if err != nil {
		defer resp.Body.Close()
		return "", explainNotFeed(err, resp, &read, redact)
	}
	keep(get, resp, read.Bytes())
	if format == feedxml.RDF {
		format = feedxml.RSS
	}
	return config.Format(format), nil
}

// explainNotFeed returns the error for a document whose format was not detected, of which read was read. Text and
// XML that break off, and what is malformed where a feed may begin, may be a feed at the next request.
func explainNotFeed(err error, resp *source.Response, read *bytes.Buffer, redact *safetext.Redactor) error {
	kinds := []error{feedxml.ErrNotFeed, feedxml.ErrTruncated, feedxml.ErrMalformed, feedxml.ErrCharset, feedxml.ErrTooLarge}
	if !slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) }) {
		return err // of the connection
	}
	if _, readErr := io.CopyN(read, resp.Body, max(0, mostOfPage-int64(read.Len()))); readErr != nil && !errors.Is(readErr, io.EOF) {
		return readErr
	}
	notFeed := newNotFeedError(resp, read.Bytes(), redact)
	switch {
	case errors.Is(err, feedxml.ErrNotFeed), notFeed.binary:
		return feed.Permanent(notFeed)
	case len(bytes.TrimSpace(read.Bytes())) == 0:
		return notFeed
	}
	return err
}

// isMultipart reports whether a response is a page of a datareplication feed, or 204 of one that has
// no entities yet.
func isMultipart(resp *source.Response) bool {
	main, _, _ := strings.Cut(resp.Header.Get("Content-Type"), "/")
	return resp.Status == http.StatusNoContent || strings.EqualFold(strings.TrimSpace(main), "multipart")
}

// mediaType returns the media type of a response, in lower case and without parameters.
func mediaType(resp *source.Response) string {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return media
}
