package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

const (
	// tryTimeout bounds each connection that is tried.
	tryTimeout = 20 * time.Second
	// triesAtOnce limits the number of feeds that are tried at a time.
	triesAtOnce = 8
)

// Connection is something that a daemon would connect to, and whether that
// works.
type Connection struct {
	Kind  string `json:"kind"` // bus, fleet, feed, snapshot of feed, topic, admin server, server, served feed or snapshots of served feed
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Note  string `json:"note,omitempty"`
	Error string `json:"error,omitempty"`
}

// longestError is the most characters of an error.
const longestError = 2000

func newConnection(kind, name, note string, err error) Connection {
	c := Connection{Kind: kind, Name: name, OK: err == nil, Note: note}
	if err != nil {
		c.Error = err.Error()
	}
	return c
}

// String returns the result as a line of text.
func (c Connection) String() string {
	text := fmt.Sprintf("FAIL  %s %s: %s", c.Kind, c.Name, c.Error)
	if c.OK {
		text = fmt.Sprintf("ok    %s %s", c.Kind, c.Name)
	}
	if c.Note != "" {
		text += " (" + c.Note + ")"
	}
	return text
}

// CheckConnections tries everything that the configuration names, except the fleet: the buses, then every
// feed and its topic, then the admin server, the server of feeds and every topic that is served. It returns
// the results in that order, and calls report with each as soon as it is known. Topics on a
// bus that does not work are left out. Nothing is published or created. Each connection is
// given 20 seconds. If the daemon of the configuration is running, it may have the addresses of the servers.
func CheckConnections(ctx context.Context, cfg *config.Config, o Options, running bool, report func(Connection)) []Connection {
	c := connectionCheck{cfg: cfg, opts: o, redact: safetext.NewRedactor(cfg.SecretParameters...).WithFile(cfg.File()), running: running, report: report, working: map[string]*Bus{}}
	for _, name := range slices.Sorted(maps.Keys(cfg.Buses)) {
		b, note, err := tryBus(ctx, cfg, name, o.Log)
		if b != nil {
			defer b.Close()
		}
		if b != nil && err == nil {
			c.working[name] = b
		}
		c.addResult(newConnection("bus", name, note, err))
	}
	c.tryFeeds(ctx)
	if at := cfg.Admin.Listen; at != "" {
		note, err := c.tryListener(admin.Listen(at))
		c.addResult(newConnection("admin server", at, note, err))
	}
	if cfg.Serve != nil {
		c.tryServe(ctx)
	}
	return c.results
}

// connectionCheck is one call of [CheckConnections].
type connectionCheck struct {
	cfg     *config.Config
	opts    Options
	redact  *safetext.Redactor
	running bool // a daemon with the configuration
	report  func(Connection)
	working map[string]*Bus // the buses that work
	results []Connection
}

// addResult records and reports a result.
func (c *connectionCheck) addResult(r Connection) {
	// The cut part of an error may be the name of a parameter whose value remains.
	r.Error, r.Note = c.redact.Clip(r.Error, longestError), c.redact.Clip(r.Note, longestError)
	c.results = append(c.results, r)
	c.report(r)
}

// tryFeeds tries the feeds, several at a time, and reports them in the order of their names.
func (c *connectionCheck) tryFeeds(ctx context.Context) {
	names := slices.Sorted(maps.Keys(c.cfg.Feeds))
	tried := make([]chan []Connection, len(names))
	for i := range tried {
		tried[i] = make(chan []Connection, 1)
	}
	go func() {
		var trying errgroup.Group
		trying.SetLimit(triesAtOnce)
		opts := SourceOptions{Version: c.opts.Version, Hosts: &source.Hosts{}, Redact: c.redact}
		for i, name := range names {
			trying.Go(func() error {
				tried[i] <- tryFeed(ctx, name, c.cfg.Feeds[name], opts, c.working, c.opts.Log)
				return nil
			})
		}
	}()
	for i := range tried {
		for _, r := range <-tried[i] {
			c.addResult(r)
		}
	}
}

// tryServe tries the server of feeds, and the topics and directories of the served feeds.
func (c *connectionCheck) tryServe(ctx context.Context) {
	serve := c.cfg.Serve
	note, err := c.tryListener(listenServer(ctx, serve))
	c.addResult(newConnection("server", serve.Listen, note, errors.Join(err, tryServer(serve))))
	for _, name := range slices.Sorted(maps.Keys(serve.Feeds)) {
		f := serve.Feeds[name]
		if b := c.working[f.From.Bus]; b != nil {
			c.addResult(tryServed(ctx, name, c.cfg, b, c.results))
		}
		if f.Snapshot.Every > 0 {
			c.addResult(checkSnapshotDir(name))
		}
	}
}

// tryListener closes a listener, or returns why there is none.
func (c *connectionCheck) tryListener(l net.Listener, err error) (note string, _ error) {
	switch {
	case err == nil:
		return "", l.Close()
	case c.running:
		return "the daemon is running", nil
	}
	return "", err
}

// tryServer reads the files that the server of feeds needs.
func tryServer(cfg *config.Serve) error {
	_, err := newCertificate(cfg.TLS)
	errs := []error{err}
	for _, name := range slices.Sorted(maps.Keys(cfg.Feeds)) {
		if _, err := servedAuth(cfg.Feeds[name].Auth); err != nil {
			errs = append(errs, fmt.Errorf("serve.feeds.%s.auth: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// tryServed returns whether a topic that is served as a feed can be read. It reads a message,
// as an account may be allowed to look at a topic and not to read it. A topic that a feed of
// the same configuration creates need not exist, unless before has an error for that topic.
func tryServed(ctx context.Context, name string, cfg *config.Config, b *Bus, before []Connection) Connection {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	from := cfg.Serve.Feeds[name].From
	note := from.Topic + " on bus " + from.Bus
	log := b.Log(from)
	span, err := log.Span(ctx)
	badTopic := slices.ContainsFunc(before, func(c Connection) bool { return c.Kind == "topic" && c.Name == note && !c.OK })
	if by := feedCreating(cfg, from); by != "" && !badTopic && errors.Is(err, feed.ErrNoTopic) {
		// An existing topic is never given more partitions.
		from.Partition = 0
		if _, none := b.Log(from).Span(ctx); errors.Is(none, feed.ErrNoTopic) {
			return newConnection("served feed", name, note+", does not exist yet: run creates it for the feed "+by, nil)
		}
	}
	if err != nil {
		return newConnection("served feed", name, note, err)
	}
	if span.First == span.End {
		note += ", empty"
	}
	for _, err = range log.Read(ctx, span.First, span.End) {
		break
	}
	return newConnection("served feed", name, note, err)
}

// feedCreating returns the name of the feed whose run creates the topic, stream or partition that
// is served; empty if none does.
func feedCreating(cfg *config.Config, from config.From) string {
	for _, name := range slices.Sorted(maps.Keys(cfg.Feeds)) {
		to := cfg.Feeds[name].To
		switch stream := to.Stream; {
		case to.Bus != from.Bus || to.Topic != from.Topic:
		case to.Kafka != nil && to.Kafka.Create && from.Partition < to.Kafka.Partitions:
			return name
		case stream != nil && stream.Create && (from.Stream == "" || from.Stream == nats.Topic{Subject: to.Topic, Stream: *stream}.StreamName()):
			return name
		}
	}
	return ""
}

// checkSnapshotDir returns whether snapshots can be written to their directory.
func checkSnapshotDir(name string) Connection {
	dir := os.TempDir()
	file, err := os.CreateTemp(dir, "feedbridge-snapshot-*")
	if err != nil {
		err = fmt.Errorf("%w; set the variable TMPDIR to a directory where files can be created", err)
	} else {
		err = errors.Join(file.Close(), os.Remove(file.Name()))
	}
	return newConnection("snapshots of served feed", name, "in "+dir, err)
}

// tryBus connects to a bus. It returns nil if topics cannot be asked about; the error may be
// nil then, for an embedded bus that does not exist yet.
func tryBus(ctx context.Context, cfg *config.Config, name string, log *slog.Logger) (b *Bus, note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	b, err = OpenBus(ctx, cfg, name, log)
	switch {
	case errors.Is(err, errNoEmbedded):
		return nil, "does not exist yet: run creates it in " + filepath.Clean(cfg.DataDir), tryToListen(ctx, cfg.Buses[name].Embedded.Listen)
	case err != nil:
		return nil, "", err
	}
	return b, "", b.Check(ctx)
}

// tryFeed reads as much of a feed as it takes to detect its format, and checks its topic if
// its bus works.
func tryFeed(ctx context.Context, name string, f config.Feed, o SourceOptions, working map[string]*Bus, log *slog.Logger) []Connection {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	o.IDs = sink.NewIDs(1)
	format, err := tryUpstream(ctx, f, o, log)
	found := []Connection{newConnection("feed", name, string(format), err)}
	if f.Start.Snapshot != "" {
		note, err := trySnapshot(ctx, f, o, log)
		found = append(found, newConnection("snapshot of feed", name, note, err))
	}
	if b := working[f.To.Bus]; b != nil {
		snk := b.conn.sink(name, f)
		found = append(found, newConnection("topic", f.To.Topic+" on bus "+f.To.Bus, "", snk.Check(ctx)))
	}
	return found
}

// trySnapshot reads the index of the snapshot that a feed starts with.
func trySnapshot(ctx context.Context, f config.Feed, o SourceOptions, log *slog.Logger) (note string, err error) {
	sources, err := NewSources(f, o, log)
	if err != nil {
		return "", err
	}
	sn, _, err := sources.datareplication().Snapshot(ctx, f.Start.Snapshot)
	if err != nil {
		return "", err
	}
	pages := "pages"
	if sn.Pages == 1 {
		pages = "page"
	}
	return fmt.Sprintf("%s of %s, %d %s", sn.ID, sn.Created.Format(time.RFC3339), sn.Pages, pages), nil
}

// tryUpstream returns the format of a feed.
func tryUpstream(ctx context.Context, f config.Feed, o SourceOptions, log *slog.Logger) (config.Format, error) {
	// Its end takes fewer requests than its beginning.
	f.Start = source.Start{Now: true}
	sources, err := NewSources(f, o, log)
	if err != nil {
		return "", err
	}
	format := f.Format
	if format != datareplication.Kind {
		if format, err = sources.DetectFormat(ctx); err != nil {
			return "", err
		}
	}
	switch {
	case f.Format != "auto" && f.Format != format:
		return "", fmt.Errorf("the feed is %s, and is configured as %s; set its format to that, or to auto", format, f.Format)
	case format != datareplication.Kind:
		return format, nil
	}
	src, _, err := sources.Open(ctx, datareplication.Kind)
	if err == nil {
		_, err = src.Next(ctx, nil, feed.LargestBatch)
	}
	return format, err
}

// tryToListen returns an error if one cannot listen at an address.
func tryToListen(ctx context.Context, addr string) error {
	listener, err := listenTCP(ctx, addr)
	if err != nil {
		return err
	}
	return listener.Close()
}
