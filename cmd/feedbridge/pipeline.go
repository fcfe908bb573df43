package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// batchEntities is how many entities of a page are read at once, so that a commit
// to any bus can take them.
const batchEntities = nats.MaxEntities

// readAhead is how many bytes of entities may wait for the bus, for each feed.
const readAhead = 1 << 20

// newSource returns the source for a feed. What it reads is not filtered.
func newSource(f config.Feed, hosts *source.Hosts, observe func(source.Exchange), log *slog.Logger) (bridge.Source, error) {
	client, err := source.NewClient(f.Source, source.Options{UserAgent: userAgent(), Hosts: hosts, Observe: observe})
	if err != nil {
		return nil, err
	}
	return datareplication.New(datareplication.Config{
		Config:        f.Source,
		Start:         f.Start,
		Gap:           f.Gap,
		BatchEntities: batchEntities,
	}, client, log), nil
}

// newBridge wires a feed to its topic: the source, the gate that leaves out
// what the topic holds or the bus cannot take, the loop, and the sink.
func newBridge(name, writer string, f config.Feed, b *buses, hosts *source.Hosts, adm *admin.Server, extra bridge.Observer, log *slog.Logger) (*bridge.Bridge, error) {
	log = log.With("feed", name)
	observer := adm.AddFeed(admin.FeedOptions{
		Name: name, URL: withoutSecrets(f.Source.URL), Format: datareplication.Kind,
		Bus: f.To.Bus, Topic: f.To.Topic,
		Every: f.Every, Freshness: f.Freshness,
		Describe: describe,
	})
	src, err := newSource(f, hosts, func(e source.Exchange) { observer.Exchanged(e.Method, e.Status, e.Err, e.Took) }, log)
	if err != nil {
		return nil, fmt.Errorf("feed %s: %w", name, err)
	}
	snk, limits := b.sink(name, f)
	all := observers{observer}
	if extra != nil {
		all = append(all, extra)
	}
	return &bridge.Bridge{
		Feed: name, Kind: datareplication.Kind, Writer: writer,
		Source:    &sink.Gate{Source: src, IDs: snk.IDs(), Fits: snk.Fits, Oversize: f.Oversize, Log: log},
		Sink:      snk,
		Every:     f.Every,
		Limits:    limits,
		ReadAhead: readAhead,
		Log:       log,
		Observer:  all,
	}, nil
}

// describe puts a cursor into words for the status.
func describe(c feed.Cursor) any {
	if len(c) == 0 {
		return nil
	}
	place, err := datareplication.Describe(c)
	if err != nil {
		return err.Error()
	}
	return place
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

func withoutSecrets(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
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
