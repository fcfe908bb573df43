package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
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
	upstream, err := d.newFeed()
	if err != nil {
		return err
	}
	feedURL := "http://" + d.Listen + "/feeds/orders/latest"
	status, progress := newStatusLine(a.err), &progress{feeds: 1}
	file, err := writeDemoConfig(dir, feedURL)
	if err != nil {
		return err
	}
	opts := config.Options{File: file, Environ: a.environ} // as the commands read it
	if status.width != nil {
		opts.Set = []string{"log.level=warn"} // the status line shows the rest
	}
	cfg, err := config.Load(opts)
	if err != nil {
		return err
	}
	opts.Set = append(opts.Set, freePorts(ctx, cfg, func(string) bool { return true })...)
	load := func() (*config.Config, error) { return config.Load(opts) }
	if cfg, err = load(); err != nil {
		return err
	}
	log := a.newLog(status, cfg.Log)
	daemon.CaptureStandardLog(log)
	reload, stopReload := reloadSignal()
	defer stopReload()
	daemonOpts := daemon.Options{Version: programVersion(), Program: programName(), Flags: []string{"-c", file}, Log: log, Observer: progress, Load: load, Reload: reload, Started: func(at daemon.Addresses) {
		fmt.Fprintf(status, demoBanner, commandLines(
			"tail -c "+file+" --topic orders --limit 1",
			"status -c "+file,
			"verify -c "+file+" --feed orders --topic orders --wait 10s",
			"pause -c "+file+" orders",
			"resume -c "+file+" orders",
			"checkpoint show -c "+file+" orders",
		), feedURL, at.Bus, at.Feeds, at.Status, file, dir)
	}}

	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	served := make(chan error, 1)
	go func() { served <- upstream.Serve(serving, listener) }()
	stop := status.showUntilStopped(progress.statusText)
	a.isDaemon.Store(true)
	err = daemon.Run(ctx, cfg, daemonOpts)
	stop()
	stopServing()
	return errors.Join(err, <-served)
}

const demoBanner = `
A feed that keeps growing is copied to a topic, each entity once and in order.
Paste these lines into another terminal, in this directory:

%s
  the feed     %s
  the topic    orders, on %s
  and back     %s/feeds/orders/latest, the topic as a feed again
  the status   %s/ in a browser

Its configuration is %s. Ctrl-C ends it, and another run continues
where this one stopped. Its data is in %s; with another --data-dir it starts over.

`

// commandLines returns lines that run this program.
func commandLines(commands ...string) string {
	return "  " + programName() + " " + strings.Join(commands, "\n  "+programName()+" ") + "\n"
}

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
