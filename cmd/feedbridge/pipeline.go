package main

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
)

// readAhead is how much a feed may read ahead: its own bound in bytes, and the budget that
// all feeds share.
type readAhead struct {
	feed   int
	budget *bridge.Budget
}

// newBridge wires a feed to its topic: the source, the gate that leaves out
// what the topic holds or the bus cannot take, the loop, and the sink.
func newBridge(name, writer string, f config.Feed, b *buses, hosts *source.Hosts, reading readAhead, adm *admin.Server, redact *safetext.Redactor, extra bridge.Observer, log *slog.Logger) (*bridge.Bridge, error) {
	log = log.With("feed", name)
	snk, limits := b.sink(name, f)
	var observer *admin.Feed
	all, err := newSources(f, snk.IDs(), source.Options{
		Hosts: hosts, Redact: redact,
		Observe: func(e source.Exchange) { observer.Exchanged(e.Method, e.Status, e.Err, e.Took) },
	}, log)
	if err != nil {
		return nil, fmt.Errorf("feed %s: %w", name, err)
	}
	all.budget = reading.budget
	observer = adm.AddFeed(admin.FeedOptions{
		Name: name, URL: redact.URL(f.Source.URL), Format: string(f.Format),
		Bus: f.To.Bus, Topic: f.To.Topic,
		Every: f.Every, Freshness: f.Freshness,
		Describe: all.describe,
	})
	watchers := observers{observer}
	if extra != nil {
		watchers = append(watchers, extra)
	}
	var told sync.Once
	return &bridge.Bridge{
		Feed: name, Writer: writer,
		Open: func(ctx context.Context, kind string) (bridge.Source, string, error) {
			src, kind, err := all.open(ctx, kind)
			if kind == syndication.Kind {
				told.Do(func() { warnOfForgetting(ctx, snk, log) })
			}
			return &sink.Gate{Source: src, IDs: snk.IDs(), Fits: snk.Fits, Oversize: f.Oversize, Log: log, Redact: redact}, kind, err
		},
		Sink:        snk,
		Reconnected: b.conns[f.To.Bus].Reconnected,
		Every:       f.Every,
		Limits:      limits,
		ReadAhead:   reading.feed,
		Budget:      reading.budget,
		Log:         log,
		Observer:    watchers,
	}, nil
}

// warnOfForgetting says so if the topic will not keep what a source of Atom and RSS
// goes by.
func warnOfForgetting(ctx context.Context, snk topicSink, log *slog.Logger) {
	limits, err := snk.Forgets(ctx)
	switch {
	case err != nil:
		log.Debug("cannot find out whether the topic keeps all of its messages", "error", err)
	case len(limits) > 0:
		log.Warn("the topic does not keep all of its messages; entries that it forgets are published again, and their deletes are missed", "limits", strings.Join(limits, ", "))
	}
}

// writerName names this copy among those that publish the same feeds.
func writerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}

// observers passes on what it hears to each of several.
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
