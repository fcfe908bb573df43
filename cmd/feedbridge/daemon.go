package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/source"
)

// daemon is a running feedbridge: its feeds, each on its own, and the server
// that tells of them.
type daemon struct {
	cfg   *config.Config
	log   *slog.Logger
	watch bridge.Observer // may be nil
	// started is told where the bus and the status are, once they are there.
	// It may be nil.
	started func(busURL, adminURL string)
}

// run runs until ctx ends, and then lets the commits in flight finish. The
// feeds stop before the doors close.
func (d *daemon) run(ctx context.Context) error {
	buses, err := openBuses(ctx, d.cfg, false, d.log)
	if err != nil {
		return err
	}
	defer buses.close()

	writer := writerName()
	adm := admin.New(admin.Options{Version: programVersion(), Started: time.Now(), Writer: writer, Buses: buses.checks(d.cfg), Log: d.log})
	hosts := &source.Hosts{}
	var bridges []*bridge.Bridge
	for _, name := range slices.Sorted(maps.Keys(d.cfg.Feeds)) {
		b, err := newBridge(name, writer, d.cfg.Feeds[name], buses, hosts, adm, d.watch, d.log)
		if err != nil {
			return err
		}
		bridges = append(bridges, b)
	}

	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var doors errgroup.Group
	adminURL := ""
	if d.cfg.Admin.Listen != "" {
		listener, err := admin.Listen(d.cfg.Admin.Listen)
		if err != nil {
			return err
		}
		adminURL = "http://" + listener.Addr().String()
		doors.Go(func() error { return adm.Serve(serving, listener) })
	}
	busURL := ""
	if buses.server != nil {
		busURL = buses.server.URL()
	}
	d.log.Info("feedbridge is up", "version", programVersion(), "writer", writer, "feeds", len(bridges), "embedded_bus", busURL, "admin", adminURL)
	if d.started != nil {
		d.started(busURL, adminURL)
	}

	var work errgroup.Group
	for _, b := range bridges {
		work.Go(func() error { return b.Run(ctx) })
	}
	err = d.wait(ctx, &work)
	stopServing()
	return errors.Join(err, doors.Wait())
}

// wait returns when all work has ended, or when the grace time after the end
// of ctx is over.
func (d *daemon) wait(ctx context.Context, work *errgroup.Group) error {
	done := make(chan error, 1)
	go func() { done <- work.Wait() }()
	<-ctx.Done()
	d.log.Info("stopping", "grace", d.cfg.Grace)
	timer := time.NewTimer(d.cfg.Grace)
	defer timer.Stop()
	select {
	case err := <-done:
		d.log.Info("stopped")
		return err
	case <-timer.C:
		return fmt.Errorf("a commit was still under way after the grace time of %v; the next start finds out whether it took place", d.cfg.Grace)
	}
}
