package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/trace"
)

// readAhead limits how much a feed reads ahead: its own limit in bytes, and the budget that
// all feeds share.
type readAhead struct {
	feed   int
	budget *bridge.Budget
}

// newBridge builds the bridge of a feed: the source, the gate that skips entities that the
// topic holds or the bus cannot take, and the sink.
func newBridge(name, writer string, f config.Feed, b *buses, hosts *source.Hosts, reading readAhead, adm *admin.Server, redact *safetext.Redactor, traces *trace.Tracer, o Options) (*bridge.Bridge, error) {
	log := o.Log.With("feed", name)
	snk, limits := b.openSink(name, f)
	var observer *admin.Feed
	share := reading.budget.Share()
	sources, err := NewSources(f, SourceOptions{
		Version: o.Version, IDs: snk.IDs(), Hosts: hosts, Budget: reading.budget, Memory: share, Redact: redact,
		Wrap:    traces.Transport,
		Observe: func(e source.Exchange) { observer.Exchanged(e.Method, e.Status, e.Err, e.Took) },
	}, log)
	if err != nil {
		return nil, fmt.Errorf("feed %s: %w", name, err)
	}
	observer = adm.AddFeed(admin.FeedOptions{
		Name: name, URL: redact.URL(f.Source.URL), Format: string(f.Format),
		Bus: f.To.Bus, Topic: f.To.Topic,
		Every: f.Every, Freshness: f.Freshness,
		Describe: sources.Describe, CountLacking: sources.CountLacking,
	})
	all := observers{observer}
	if o.Observer != nil {
		all = append(all, o.Observer)
	}
	traced := traces.Feed(trace.FeedOptions{Name: name, System: b.system(f.To.Bus), Topic: f.To.Topic, Header: f.To.TraceHeader})
	var warned sync.Once
	return &bridge.Bridge{
		Feed: name, Writer: writer,
		Open: func(ctx context.Context, kind string) (bridge.Source, string, error) {
			src, kind, err := sources.Open(ctx, kind)
			if kind == syndication.Kind {
				warned.Do(func() { warnOfRetention(ctx, snk, log) })
			}
			return &sink.Gate{Source: traced.Source(src), IDs: snk.IDs(), Fits: snk.Fits, Oversize: f.Oversize, Log: log, Redact: redact}, kind, err
		},
		Sink:        traced.Sink(snk),
		Reconnected: b.conns[f.To.Bus].Reconnected,
		Every:       f.Every,
		Limits:      limits,
		ReadAhead:   reading.feed,
		Share:       share,
		Log:         log,
		Observer:    all,
	}, nil
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

func (o observers) Settled(b feed.Batch, took time.Duration) {
	for _, each := range o {
		each.Settled(b, took)
	}
}

func (o observers) Entered(s bridge.Status) {
	for _, each := range o {
		each.Entered(s)
	}
}
