package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/source/datareplication/sample"
)

// demoCommand returns the command "demo", which copies and serves a sample feed.
func demoCommand(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a sample feed, a NATS server, and the bridge between them",
		Long: `Demo serves a growing sample feed over HTTP (the orders of a shop), runs a NATS
server, copies the feed to the topic "orders", and serves the topic as a feed
again. No other program is needed. Ctrl-C ends it; the next run continues where
this one stopped.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd.Context(), a, dir) },
	}
	cmd.Flags().StringVar(&dir, "data-dir", "feedbridge-demo", "the `DIRECTORY` where the bus keeps its messages;\na second demo at the same time needs another one")
	return cmd
}

// runDemo runs the sample feed and a daemon that copies it, until ctx ends.
func runDemo(ctx context.Context, a *app, dir string) error {
	d, listener, err := openDemo(ctx, dir)
	if err != nil {
		return err
	}
	defer listener.Close()
	feedURL := "http://" + d.Listen + "/feed/latest"
	status, progress := newStatusLine(a.err), &progress{feeds: 1}
	level := "info"
	if status.width != nil {
		level = "warn" // the status line shows the rest
	}
	cfg, err := config.Load(config.Options{Environ: []string{
		"FEEDBRIDGE_DATA_DIR=" + dir,
		"FEEDBRIDGE_FEEDS_ORDERS_URL=" + feedURL,
		"FEEDBRIDGE_FEEDS_ORDERS_EVERY=1s",
		"FEEDBRIDGE_LOG_LEVEL=" + level,
		"FEEDBRIDGE_BUSES_DEMO_EMBEDDED_LISTEN=" + addressOrFree(ctx, demoBusPort),
		"FEEDBRIDGE_ADMIN_LISTEN=" + addressOrFree(ctx, demoStatusPort),
		"FEEDBRIDGE_SERVE_LISTEN=" + addressOrFree(ctx, demoServePort),
		"FEEDBRIDGE_SERVE_FEEDS_ORDERS_FROM_TOPIC=orders",
	}})
	if err != nil {
		return err
	}
	log := a.newLog(status, cfg.Log)
	daemon.CaptureStandardLog(log)
	opts := daemon.Options{Version: programVersion(), Log: log, Observer: progress, Started: func(at daemon.Addresses) {
		fmt.Fprintf(status, demoBanner, feedURL, programName(), feedURL, at.Bus, at.Bus, at.Feeds, at.Status, programName(), at.Status, dir)
	}}

	sampleFeed := sample.New(sample.Options{PageSize: demoPageSize, Entity: sample.Orders(d.timeOf)})
	sampleFeed.SetLen(d.entityCount(time.Now()))
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var upstream errgroup.Group
	upstream.Go(func() error { return serveUntil(serving, listener, sampleFeed) })
	upstream.Go(func() error {
		d.addEntities(serving, sampleFeed)
		return nil
	})
	stop := status.showUntilStopped(progress.statusText)
	a.isDaemon.Store(true)
	err = daemon.Run(ctx, cfg, opts)
	stop()
	stopServing()
	return errors.Join(err, upstream.Wait())
}

const demoBanner = `
A feed that keeps growing is copied to a topic, each entity once and in order.

  the feed     %s
               %s tail --from now --follow %s
  the topic    orders, on %s
               nats --server %s subscribe orders --all
               (go install github.com/nats-io/natscli/nats@latest)
  and back     %s, the topic as a feed again
  the status   %s/ in a browser, or
               %s status --admin %s

Ctrl-C ends it, and another run continues where this one stopped. Its data is
in %s; with another --data-dir it starts over.

`

// programName returns the command that runs this program again: go run has put it
// into a temporary directory.
func programName() string {
	_, err := os.Stat("cmd/feedbridge/main.go")
	return calledAs(filepath.ToSlash(os.Args[0]), err == nil)
}

// calledAs is programName for a program at file, run in the module's directory
// or not. go run has its programs in go-build or go-build123, and runs those
// of other modules too.
func calledAs(file string, inModule bool) string {
	if inModule && strings.Contains(file, "/go-build") {
		return "go run ./cmd/feedbridge"
	}
	return file
}
