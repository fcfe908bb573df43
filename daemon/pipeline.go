package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/trace"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
)

// readAhead limits how much a feed reads ahead: its own limit in bytes, and the budget that
// all feeds share.
type readAhead struct {
	feed   int
	budget *readahead.Budget
}

// pipelines builds the bridges of feeds. Its fields are what all feeds share.
type pipelines struct {
	writer  string
	hosts   *source.Hosts
	reading readAhead
	adm     *admin.Server
	redact  *safetext.Redactor
	// failures logs the errors of all feeds.
	failures *failureLog
	traces   *trace.Tracer // nil if none are sent
	opts     Options
	pacer    *bridge.Pacer
	titles   atomic.Pointer[config.Config] // has the titles of the feeds
}

// newBridge builds the bridge of a feed: the source, the gate that skips entities that the
// topic holds or the bus cannot take, and the sink. It reads no file and makes no connection,
// so it cannot fail: if something is missing, the bridge halts and tries again.
//
// The feed takes the place of one with the same name on the admin server.
func (p *pipelines) newBridge(name string, f *config.Feed, snk *lazySink) *bridge.Bridge {
	log := p.opts.Log.With("feed", name)
	share := p.reading.budget.Share()
	sources := &feedSources{feed: f}
	observer := p.addObserver(name, f, sources, snk.CommitsBy)
	all := observers{observer, p.failures.newObserver(name, *f)}
	if p.opts.Observer != nil {
		all = append(all, p.opts.Observer)
	}
	traced := p.traces.Feed(trace.FeedOptions{Name: name, System: snk.bus.system(), Topic: f.To.Topic})
	host, gap := p.hosts.StartGap(f.Source.URL, f.Source.Limits.Rate, f.Every)
	var warned sync.Once
	return &bridge.Bridge{
		Feed: name, Writer: p.writer,
		Open: func(ctx context.Context, kind string) (feed.Source, string, error) {
			opened, err := sources.open(SourceOptions{
				Version: p.opts.Version, IDs: snk.IDs(), Hosts: p.hosts, ReadAhead: share, FeedMemory: int64(p.reading.feed), Redact: p.redact,
				Wrap:    p.traces.Transport,
				Observe: func(e source.Exchange) { observer.Exchanged(e.Method, e.Status, e.Err, e.Took) },
			}, log)
			if err != nil {
				return nil, "", err
			}
			src, kind, err := opened.Open(ctx, kind)
			if kind == syndication.Kind {
				warned.Do(func() { warnOfRetention(ctx, snk, log) })
			}
			return &sink.Gate{Source: traced.Source(src), IDs: snk.IDs(), Fits: snk.Fits, Oversize: f.Oversize, Log: log, Redact: p.redact}, kind, err
		},
		Sink:        traced.Sink(snk),
		Reconnected: snk.bus.reconnected,
		Every:       f.Every,
		Limits:      commitLimits(snk.bus.conf),
		ReadAhead:   p.reading.feed,
		Share:       share,
		Unchanged:   snk.Unchanged,
		Pacer:       p.pacer,
		Host:        host,
		StartGap:    gap,
		Spacing:     sources.spacing,
		Log:         log,
		Observer:    all,
	}
}

// addObserver returns the observer of a feed that the admin server shows.
func (p *pipelines) addObserver(name string, f *config.Feed, sources *feedSources, commitsBy func() string) *admin.Feed {
	return p.adm.AddFeed(admin.FeedOptions{
		Name: name, Title: func() string { return p.titles.Load().Title(name) }, URL: p.redact.URL(f.Source.URL), Format: string(f.Format),
		Bus: f.To.Bus, Topic: f.To.Topic,
		Every: f.Every, Freshness: f.Freshness,
		Describe: sources.describe, CommitsBy: commitsBy,
	})
}

// showFeed makes the admin server show a feed that this copy does not run.
func (p *pipelines) showFeed(name string, f config.Feed) {
	p.addObserver(name, &f, &feedSources{feed: &f}, nil)
}

// feedSources are the sources of a feed, from the first time on that all of its files could be
// read.
type feedSources struct {
	feed   *config.Feed
	opened atomic.Pointer[Sources]
}

// open returns the sources. It is for one goroutine at a time.
func (s *feedSources) open(o SourceOptions, log *slog.Logger) (*Sources, error) {
	if opened := s.opened.Load(); opened != nil {
		return opened, nil
	}
	opened, err := newSources(s.feed, o, log)
	if err != nil {
		return nil, feed.Permanent(err)
	}
	s.opened.Store(opened)
	return opened, nil
}

// describe is [Sources.Describe], also before the sources are opened.
func (s *feedSources) describe(cp checkpoint.Checkpoint) admin.Description {
	return cmp.Or(s.opened.Load(), &Sources{feed: s.feed}).Describe(cp)
}

// warnOfRetention logs a warning if the bus deletes messages of the topic in time. A source
// of Atom and RSS reads from the topic which entries were published.
func warnOfRetention(ctx context.Context, snk topicSink, log *slog.Logger) {
	limits, err := snk.RetentionLimits(ctx)
	switch {
	case err != nil:
		log.Debug("cannot read the retention of the topic", "error", err)
	case len(limits) > 0:
		log.Warn("the topic does not keep all of its messages; entries whose messages it deletes are published again, and their deletes are missed", "limits", strings.Join(limits, ", "))
	}
}

// WriterName returns a name for this process among those that publish the same feeds: the
// host's name, the process id and a random number.
func WriterName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}

// observers calls each of several observers, in order.
type observers []bridge.Observer

func (o observers) Polled(b feed.Batch, err error, took time.Duration) {
	for _, each := range o {
		each.Polled(b, err, took)
	}
}

func (o observers) Processed(b feed.Batch, took time.Duration) {
	for _, each := range o {
		each.Processed(b, took)
	}
}

func (o observers) Entered(s bridge.Status) {
	for _, each := range o {
		each.Entered(s)
	}
}

// spacing is [source.Client.Spacing].
func (s *feedSources) spacing() time.Duration {
	if opened := s.opened.Load(); opened != nil {
		return opened.client.Spacing()
	}
	return 0
}
