package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/source/datareplication/sample"
)

const (
	demoPageSize = 100
	// demoBacklog is how many entities the sample feed has at its birth.
	demoBacklog = 2500
	// demoInterval is the time from one entity to the next.
	demoInterval = 400 * time.Millisecond
)

func (a *app) demoCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a growing sample feed, a bus, and the bridge between them",
		Long: `Demo serves a sample feed over HTTP that keeps growing (the orders of a shop),
runs a JetStream server, and copies the feed to the topic "orders". It needs
nothing but itself. Ctrl-C ends it; another run goes on where this one stopped.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), dir) },
	}
	cmd.Flags().StringVar(&dir, "data-dir", "feedbridge-demo", "where the bus keeps its messages")
	return cmd
}

func (a *app) demo(ctx context.Context, dir string) error {
	d, err := loadDemo(dir)
	if err != nil {
		return err
	}
	listener, err := d.listen()
	if err != nil {
		return err
	}
	if err := d.save(dir); err != nil {
		return errors.Join(err, listener.Close())
	}
	sampleFeed := sample.New(sample.Options{PageSize: demoPageSize, Entity: sample.Orders(d.at)})
	sampleFeed.SetLen(d.length(time.Now()))
	feedURL := "http://" + listener.Addr().String() + "/feed/latest"

	cfg, err := config.Load(config.Options{Environ: []string{
		"FEEDBRIDGE_DATA_DIR=" + dir,
		"FEEDBRIDGE_FEEDS_ORDERS_URL=" + feedURL,
		"FEEDBRIDGE_FEEDS_ORDERS_EVERY=1s",
		"FEEDBRIDGE_LOG_LEVEL=warn",
		"FEEDBRIDGE_BUSES_EMBEDDED_EMBEDDED_LISTEN=" + freeOr("127.0.0.1:4222"),
		"FEEDBRIDGE_ADMIN_LISTEN=" + freeOr("127.0.0.1:9321"),
	}})
	if err != nil {
		return err
	}
	screen := newScreen(a.err)
	defer screen.close()
	run := &daemon{cfg: cfg, log: newLog(screen, cfg.Log), watch: screen, started: func(busURL, adminURL string) {
		fmt.Fprintf(screen, `feedbridge demo: a growing feed is being copied to a topic.

  the feed     %s
               curl -i %s
  the bus      %s   topic: orders
               nats --server %s subscribe orders --all
               (go install github.com/nats-io/natscli/nats@latest)
  the status   %s/status
               curl %s/status

  Ctrl-C ends it. Another run goes on where this one stopped (in %s).

`, feedURL, feedURL, busURL, busURL, adminURL, adminURL, dir)
	}}

	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var doors errgroup.Group
	doors.Go(func() error { return serve(serving, listener, sampleFeed) })
	doors.Go(func() error {
		d.grow(serving, sampleFeed)
		return nil
	})
	err = run.run(ctx)
	stopServing()
	return errors.Join(err, doors.Wait())
}

// demoState is what a second run of the demo needs to know, beside what is on
// the bus: the feed has to be the same one.
type demoState struct {
	// Birth is when the feed had demoBacklog entities. From then on it grows
	// with the clock, whether it is served or not.
	Birth time.Time `json:"birth"`
	// Listen is the address of the feed, which is part of its pages' URLs.
	Listen string `json:"listen"`
}

const demoFile = "demo.json"

func loadDemo(dir string) (*demoState, error) {
	d := &demoState{Birth: time.Now().UTC().Truncate(time.Second), Listen: freeOr("127.0.0.1:8055")}
	data, err := os.ReadFile(filepath.Join(dir, demoFile))
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, d); err != nil {
		return nil, fmt.Errorf("%s: %w; delete the directory to start over", filepath.Join(dir, demoFile), err)
	}
	return d, nil
}

func (d *demoState) save(dir string) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, demoFile), append(data, '\n'), 0o644)
}

// listen takes the feed's address. A feed that has been read is at home there:
// at another address its pages would be other pages.
func (d *demoState) listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", d.Listen)
	if err != nil {
		return nil, fmt.Errorf("serve the sample feed: %w; is another demo running? --data-dir makes a second one", err)
	}
	d.Listen = listener.Addr().String()
	return listener, nil
}

// length is the number of entities that the feed has at that time.
func (d *demoState) length(now time.Time) int {
	return demoBacklog + int(max(now.Sub(d.Birth), 0)/demoInterval)
}

// at is when entity number i comes to be.
func (d *demoState) at(i int) time.Time {
	return d.Birth.Add(time.Duration(i-demoBacklog) * demoInterval)
}

// grow lets the feed grow with the clock until ctx ends.
func (d *demoState) grow(ctx context.Context, f *sample.Feed) {
	ticker := time.NewTicker(demoInterval)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			f.SetLen(d.length(now))
		case <-ctx.Done():
			return
		}
	}
}

// serve serves handler until ctx ends.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// freeOr returns the address if nobody listens there, and otherwise one with a
// port that is free.
func freeOr(addr string) string {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return "127.0.0.1:0"
	}
	_ = listener.Close()
	return addr
}
