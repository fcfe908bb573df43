package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/source/datareplication/sample"
)

const (
	demoPageSize = 100
	// demoBacklog is the number of entities of a new sample feed.
	demoBacklog = 2500
	// demoInterval is the time from one entity to the next.
	demoInterval = 400 * time.Millisecond

	// The ports of a demo. It has others where these are in use.
	demoFeedPort   = 8055
	demoBusPort    = 4222
	demoStatusPort = 9321
	demoServePort  = 8080

	demoFile   = "demo.json"
	demoConfig = "feedbridge.yaml"
)

// demoState is stored beside the bus, so that a second run of the demo serves the same feed.
type demoState struct {
	// Birth holds the time when the feed had demoBacklog entities. Since then it grows with
	// the clock, whether it is served or not.
	Birth time.Time `json:"birth"`
	// Listen is the address of the feed, which is part of its pages' URLs: at
	// another address they would be other pages.
	Listen string `json:"listen"`
}

// openDemo opens the address of the demo that was run in dir, or starts a new
// one there.
func openDemo(ctx context.Context, dir string) (*demoState, net.Listener, error) {
	file := filepath.Join(dir, demoFile)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return newDemo(ctx, dir)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the data of the demo: %w; name another directory with --data-dir", err)
	}
	d := &demoState{}
	if err := json.Unmarshal(data, d); err != nil || d.Birth.IsZero() || d.Listen == "" {
		return nil, nil, fmt.Errorf("%s was not written by a demo; name another directory with --data-dir", file)
	}
	listener, err := listenTCP(ctx, d.Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, nil, fmt.Errorf("the address of this demo's feed, %s, is in use: if another demo runs in %s, name a directory for this one with --data-dir", d.Listen, dir)
	case err != nil:
		return nil, nil, fmt.Errorf("serve the sample feed: %w", err)
	}
	return d, listener, nil
}

func newDemo(ctx context.Context, dir string) (*demoState, net.Listener, error) {
	listener, err := listenTCP(ctx, availableAddress(ctx, localhost(demoFeedPort)))
	if err != nil {
		return nil, nil, fmt.Errorf("serve the sample feed: %w", err)
	}
	d := &demoState{Birth: time.Now().UTC().Truncate(time.Second), Listen: listener.Addr().String()}
	if err := d.saveState(dir); err != nil {
		_ = listener.Close()
		return nil, nil, fmt.Errorf("store the data of the demo in %q: %w; name another directory with --data-dir", dir, err)
	}
	return d, listener, nil
}

// saveState fails if another demo has started there meanwhile.
func (d *demoState) saveState(dir string) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, demoFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return errors.Join(err, f.Close())
}

// entityCount is the number of entities that the feed has at that time.
func (d *demoState) entityCount(now time.Time) int {
	return demoBacklog + int(max(now.Sub(d.Birth), 0)/demoInterval)
}

// newFeed returns a server of the feed.
func (d *demoState) newFeed() (*serve.Server, error) {
	f, err := serve.New(serve.Config{Name: "orders", PageSize: demoPageSize}, demoOrders{d, sample.Orders(d.timeOf)})
	return serve.NewServer(serve.ServerOptions{}, f), err
}

// timeOf returns when entity number i is added.
func (d *demoState) timeOf(i int) time.Time {
	return d.Birth.Add(time.Duration(i-demoBacklog) * demoInterval)
}

// demoOrders are the entities of the feed as a topic.
type demoOrders struct {
	*demoState
	order func(i int) feed.Entity
}

// Span implements [serve.Log].
func (d demoOrders) Span(context.Context) (feed.Span, error) {
	return feed.Span{End: uint64(d.entityCount(time.Now())), Epoch: "demo"}, nil
}

// Read implements [serve.Log].
func (d demoOrders) Read(_ context.Context, from, to uint64) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		for at := from; at < to; at++ {
			e := d.order(int(at))
			if !yield(feed.Record{Position: at, Time: e.Modified, Header: message.Header("", e), Body: e.Body}, nil) {
				return
			}
		}
	}
}

// writeDemoConfig writes the configuration of the demo in dir, unless there is one, and returns its path.
func writeDemoConfig(dir, feedURL string) (string, error) {
	file := filepath.Join(dir, demoConfig)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return file, nil
	}
	if err != nil {
		return "", fmt.Errorf("write the configuration of the demo: %w", err)
	}
	quoted := strings.ReplaceAll(strconv.Quote(dir), "${", "$${")
	_, err = fmt.Fprintf(f, demoText, quoted, localhost(demoBusPort), feedURL, localhost(demoServePort), localhost(demoStatusPort))
	return file, errors.Join(err, f.Close())
}

const demoText = `# The configuration of the demo. After a change run 'feedbridge reload -c' with this file.
# A port that is in use when the demo starts is replaced by a free one.
data_dir: %s      # also has the socket by which commands find the demo
buses:
  demo: {embedded: {listen: "%s"}}
feeds:
  orders:                              # also the name of the topic
    url: %s
    every: 1s                          # wait between polls that find nothing new
serve:
  listen: %s
  feeds:
    orders: {from: {topic: orders}}    # the topic as a feed again
admin: {listen: "%s"}
`
