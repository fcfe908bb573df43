package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/safetext"
	"github.com/feedbridge/feedbridge/source"
)

// daemon is a running feedbridge: its feeds, each on its own, and the server
// that tells of them.
type daemon struct {
	cfg   *config.Config
	log   *slog.Logger
	watch bridge.Observer // of all feeds; may be nil
	// started is told where things are, once they are there. It may be nil.
	started func(addresses)
}

// addresses are the URLs of what a daemon has opened; empty for what it has not.
type addresses struct {
	bus    string // the embedded one
	status string
	feeds  string // those that are served
}

// run runs until ctx ends, and then lets the commits in flight finish. The
// feeds stop before the doors close.
func (d *daemon) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.log.Debug("connecting to the buses", "buses", len(d.cfg.Buses))
	buses, err := openBuses(ctx, d.cfg, runEmbedded, d.log)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // stopped while it was waiting for a bus
	case err != nil:
		return err
	}
	defer buses.close()
	door, err := d.listen()
	if err != nil {
		return err
	}
	if door != nil {
		defer door.Close()
	}

	writer := writerName()
	_, connections := connectionLimits(openFiles(), 0)
	redact := safetext.NewRedactor(d.cfg.SecretParameters...)
	adm := admin.New(admin.Options{Version: programVersion(), Started: time.Now(), Writer: writer, Buses: buses.checks(d.cfg), Log: d.log, Connections: connections, Redact: redact})
	bridges, err := d.bridges(writer, buses, adm, redact)
	if err != nil {
		return err
	}
	served, servedDoor, err := d.serve(ctx, buses, adm)
	if err != nil {
		return err
	}
	if servedDoor != nil {
		defer servedDoor.Close()
	}
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var doors errgroup.Group
	if door != nil {
		doors.Go(func() error {
			// A daemon that nobody can look at is of no use to an operator.
			defer cancel()
			return adm.Serve(serving, door)
		})
	}
	if servedDoor != nil {
		doors.Go(func() error {
			defer cancel()
			return served.Serve(serving, servedDoor)
		})
	}
	d.announce(writer, buses, door, servedDoor)

	var work errgroup.Group
	for _, b := range bridges {
		work.Go(func() error { return b.Run(ctx) })
	}
	err = d.wait(ctx, &work)
	stopServing()
	return errors.Join(err, doors.Wait())
}

// listen opens the door for health and status, if there is to be one.
func (d *daemon) listen() (net.Listener, error) {
	if d.cfg.Admin.Listen == "" {
		return nil, nil
	}
	return admin.Listen(d.cfg.Admin.Listen)
}

// bridges wires all feeds, in the order of their names.
func (d *daemon) bridges(writer string, buses *buses, adm *admin.Server, redact *safetext.Redactor) ([]*bridge.Bridge, error) {
	hosts := &source.Hosts{}
	reading := readAhead{feed: int(d.cfg.ReadAhead.Feed), budget: bridge.NewBudget(d.cfg.ReadAhead.Total)}
	var bridges []*bridge.Bridge
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(d.cfg.Feeds)) {
		b, err := newBridge(name, writer, d.cfg.Feeds[name], buses, hosts, reading, adm, redact, d.watch, d.log)
		bridges, errs = append(bridges, b), append(errs, err)
	}
	return bridges, errors.Join(errs...)
}

// announce says that the daemon is up, and where.
func (d *daemon) announce(writer string, buses *buses, door, served net.Listener) {
	attrs := []any{"version", programVersion(), "writer", writer, "feeds", len(d.cfg.Feeds)}
	var at addresses
	if buses.server != nil {
		at.bus = buses.server.URL()
		attrs = append(attrs, "embedded_bus", at.bus, "data_dir", d.cfg.DataDir)
	}
	if door != nil {
		at.status = "http://" + door.Addr().String()
		attrs = append(attrs, "status", at.status+"/status")
	}
	if served != nil {
		at.feeds = scheme(d.cfg.Serve) + "://" + served.Addr().String()
		attrs = append(attrs, "served_feeds", len(d.cfg.Serve.Feeds), "serve", at.feeds)
	}
	d.log.Info("feedbridge is up", attrs...)
	if d.started != nil {
		d.started(at)
	}
}

// wait returns when all work has ended after the end of ctx, or when the grace
// time is over.
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
		return fmt.Errorf("stopped without waiting any longer: a commit was still under way after the grace time of %v; the next start finds out by itself whether it took place", d.cfg.Grace)
	}
}
