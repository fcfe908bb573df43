package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

const (
	// tryTimeout bounds each connection that check tries.
	tryTimeout = 20 * time.Second
	// triesAtOnce is how many feeds are tried at a time.
	triesAtOnce = 8
)

// connection is something that a daemon would connect to, and whether that
// works.
type connection struct {
	Kind  string `json:"kind"` // bus, feed, snapshot of feed, topic, server, served feed or snapshots of served feed
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Note  string `json:"note,omitempty"`
	Error string `json:"error,omitempty"`
}

func newConnection(kind, name, note string, err error) connection {
	c := connection{Kind: kind, Name: name, OK: err == nil, Note: note}
	if err != nil {
		c.Error = err.Error()
	}
	return c
}

// String is a line for a person.
func (c connection) String() string {
	text := fmt.Sprintf("FAIL  %s %s: %s", c.Kind, c.Name, c.Error)
	if c.OK {
		text = fmt.Sprintf("ok    %s %s", c.Kind, c.Name)
	}
	if c.Note != "" {
		text += " (" + c.Note + ")"
	}
	return text
}

// tryConnections tries all that the configuration names, and tells of each as
// soon as it is known: the buses, then every feed and the topic that it goes
// to, then the server and every topic that is served. Nothing is said of a topic
// on a bus that does not work.
func tryConnections(ctx context.Context, cfg *config.Config, log *slog.Logger, tell func(connection)) []connection {
	var all []connection
	redact := safetext.NewRedactor(cfg.SecretParameters...)
	found := func(c connection) {
		// What is cut from an error may be the name of a parameter whose value is left.
		c.Error, c.Note = redact.Clip(c.Error, longestError), redact.Clip(c.Note, longestError)
		all = append(all, c)
		tell(c)
	}
	working := map[string]*buses{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Buses)) {
		b, note, err := tryBus(ctx, cfg, name, log)
		if b != nil {
			defer b.close()
		}
		if b != nil && err == nil {
			working[name] = b
		}
		found(newConnection("bus", name, note, err))
	}

	names := slices.Sorted(maps.Keys(cfg.Feeds))
	tried := make([]chan []connection, len(names))
	for i := range tried {
		tried[i] = make(chan []connection, 1)
	}
	go func() {
		var trying errgroup.Group
		trying.SetLimit(triesAtOnce)
		hosts := &source.Hosts{}
		for i, name := range names {
			trying.Go(func() error {
				tried[i] <- tryFeed(ctx, name, cfg.Feeds[name], source.Options{Hosts: hosts, Redact: redact}, working, log)
				return nil
			})
		}
	}()
	for i := range tried {
		for _, c := range <-tried[i] {
			found(c)
		}
	}
	if cfg.Serve != nil {
		found(newConnection("server", cfg.Serve.Listen, "", tryServer(cfg.Serve)))
		for _, name := range slices.Sorted(maps.Keys(cfg.Serve.Feeds)) {
			f := cfg.Serve.Feeds[name]
			if b := working[f.From.Bus]; b != nil {
				found(tryServed(ctx, name, cfg, b, all))
			}
			if f.Snapshot.Every > 0 {
				found(tryToKeep(name, f.Snapshot))
			}
		}
	}
	return all
}

// tryServer reads the files that the server of feeds needs. It does not listen: the
// daemon may run.
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

// tryServed asks what a topic has that is served as a feed, and reads a message:
// who may look at a topic need not be able to read it. One that a feed of the same
// configuration creates need not be there, if before has nothing against that topic.
func tryServed(ctx context.Context, name string, cfg *config.Config, b *buses, before []connection) connection {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	from := cfg.Serve.Feeds[name].From
	note := from.Topic + " on bus " + from.Bus
	log := b.log(from)
	span, err := log.Span(ctx)
	unfit := slices.ContainsFunc(before, func(c connection) bool { return c.Kind == "topic" && c.Name == note && !c.OK })
	if by := creator(cfg, from); by != "" && !unfit && errors.Is(err, feed.ErrNoTopic) {
		// A topic that is there, and lacks the partition alone, is created by nobody.
		from.Partition = 0
		if _, none := b.log(from).Span(ctx); errors.Is(none, feed.ErrNoTopic) {
			return newConnection("served feed", name, note+", not there yet: run creates it for the feed "+by, nil)
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

// creator returns the feed that creates a topic, with what is served of it; empty if
// none does.
func creator(cfg *config.Config, from config.From) string {
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

// tryToKeep tries whether snapshots can be written where they are to be kept.
func tryToKeep(name string, s config.Snapshot) connection {
	dir := cmp.Or(s.Dir, os.TempDir())
	file, err := os.CreateTemp(dir, "feedbridge-snapshot-*")
	if err != nil {
		err = fmt.Errorf("%w; set serve.feeds.%s.snapshot.dir to a directory where files can be made", err, name)
	} else {
		err = errors.Join(file.Close(), os.Remove(file.Name()))
	}
	return newConnection("snapshots of served feed", name, "in "+dir, err)
}

// tryBus returns the bus if it can be asked about topics.
func tryBus(ctx context.Context, cfg *config.Config, name string, log *slog.Logger) (b *buses, note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	alone := *cfg
	alone.Buses = map[string]config.Bus{name: cfg.Buses[name]}
	b, err = openBuses(ctx, &alone, attachEmbedded, log)
	switch {
	case errors.Is(err, errNoEmbedded):
		return nil, "not there yet: run creates it in " + filepath.Clean(cfg.DataDir), tryToListen(ctx, cfg.Buses[name].Embedded.Listen)
	case err != nil:
		return nil, "", err
	}
	return b, "", b.conns[name].Check(ctx)
}

// tryFeed reads as much of a feed as it takes to see that it is one, and looks
// at its topic if its bus works.
func tryFeed(ctx context.Context, name string, f config.Feed, opts source.Options, working map[string]*buses, log *slog.Logger) []connection {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	format, err := tryUpstream(ctx, f, opts, log)
	found := []connection{newConnection("feed", name, string(format), err)}
	if f.Start.Snapshot != "" {
		note, err := trySnapshot(ctx, f, opts, log)
		found = append(found, newConnection("snapshot of feed", name, note, err))
	}
	if b := working[f.To.Bus]; b != nil {
		snk, _ := b.sink(name, f)
		found = append(found, newConnection("topic", f.To.Topic+" on bus "+f.To.Bus, "", snk.Check(ctx)))
	}
	return found
}

// trySnapshot reads the index of the snapshot that a feed starts with.
func trySnapshot(ctx context.Context, f config.Feed, opts source.Options, log *slog.Logger) (note string, err error) {
	all, err := newSources(f, sink.NewIDs(1), opts, log)
	if err != nil {
		return "", err
	}
	sn, _, err := all.datareplication().Snapshot(ctx, f.Start.Snapshot)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s of %s, %s", sn.ID, sn.Created.Format(time.RFC3339), count(sn.Pages, "page", "pages")), nil
}

// tryUpstream returns what a feed is.
func tryUpstream(ctx context.Context, f config.Feed, opts source.Options, log *slog.Logger) (config.Format, error) {
	// Its end takes fewer requests than its beginning.
	f.Start = datareplication.Start{Now: true}
	all, err := newSources(f, sink.NewIDs(1), opts, log)
	if err != nil {
		return "", err
	}
	format := f.Format
	if format != datareplication.Kind {
		if format, err = all.find(ctx); err != nil {
			return "", err
		}
	}
	switch {
	case f.Format != "auto" && f.Format != format:
		return "", fmt.Errorf("the feed is %s, and is configured as %s; set its format to that, or to auto", format, f.Format)
	case format != datareplication.Kind:
		return format, nil
	}
	src, _, err := all.open(ctx, datareplication.Kind)
	if err == nil {
		_, err = src.Next(ctx, nil)
	}
	return format, err
}
