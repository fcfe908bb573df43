package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/admin"
	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/retry"
)

const (
	// pauseTimeout limits how long a pause or its end is tried again while other copies
	// commit to the topic.
	pauseTimeout = time.Minute
	// pollTimeout limits how long a request waits for the poll that it has caused.
	pollTimeout = time.Minute
)

// Pause is the answer to a request that pauses or resumes a feed.
type Pause struct {
	Feed string `json:"feed"`
	// Paused holds the time since when the feed is paused; nil if it is not.
	Paused *time.Time `json:"paused"`
	// Changed is false if the feed was paused already, or was not paused.
	Changed bool `json:"changed"`
}

// Poll is the answer to a request that polls a feed.
type Poll struct {
	Feed string `json:"feed"`
	// State is the state of the feed after the poll. It is reading if the poll takes longer
	// than a minute; it continues then.
	State bridge.State `json:"state"`
	// Error is the error of a feed that is retrying or halted.
	Error string `json:"error,omitempty"`
	// Published and Duplicates count the entities that were published, and those that were
	// left out because the topic has them.
	Published  int `json:"published"`
	Duplicates int `json:"duplicates"`
}

// PauseFeed pauses a feed for all copies, or resumes it, by a commit to its topic, which must be
// on this bus. Daemons may be running. If one commits at the same time, PauseFeed tries again
// for a minute; then the error matches [checkpoint.ErrConflict].
func (b *Bus) PauseFeed(ctx context.Context, name string, f config.Feed, pause bool) (Pause, error) {
	snk := b.conn.sink(name, f)
	defer snk.Close()
	return retryPause(ctx, name, func(ctx context.Context) (bridge.PauseResult, error) {
		return bridge.SetPaused(ctx, snk, name, WriterName(), pause)
	})
}

// retryPause calls set, and calls it again while its error is that another copy has committed.
func retryPause(ctx context.Context, name string, set func(context.Context) (bridge.PauseResult, error)) (Pause, error) {
	for end := time.Now().Add(pauseTimeout); ; {
		r, err := set(ctx)
		switch {
		case err == nil && r.Checkpoint.IsPaused():
			return Pause{name, &r.Checkpoint.Paused, r.Changed}, nil
		case err == nil:
			return Pause{name, nil, r.Changed}, nil
		case !errors.Is(err, checkpoint.ErrConflict):
			return Pause{}, err
		case time.Now().After(end):
			return Pause{}, fmt.Errorf("nothing was changed: %w, again and again; send the request to that copy", err)
		}
		if err := retry.Sleep(ctx, rand.N(500*time.Millisecond)); err != nil {
			return Pause{}, err
		}
	}
}

// feedCommands carries out requests of the admin server for the feeds.
type feedCommands struct {
	mu      sync.Mutex
	bridges map[string]*bridge.Bridge // of the feeds that this copy runs, by name
	// elsewhere returns a feed that this copy does not run, the member of the fleet that does, which
	// may be empty, and the feed's bus. It is nil without a fleet.
	elsewhere func(name string) (f config.Feed, owner string, b *bus, ok bool)
}

// add makes a bridge the one of its feed, until remove is called.
func (c *feedCommands) add(b *bridge.Bridge) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bridges == nil {
		c.bridges = map[string]*bridge.Bridge{}
	}
	c.bridges[b.Feed] = b
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.bridges[b.Feed] == b {
			delete(c.bridges, b.Feed)
		}
	}
}

// addTo makes the admin server answer the requests.
func (c *feedCommands) addTo(adm *admin.Server) {
	adm.AddChange("/feeds/{feed}/pause", c.servePause(true))
	adm.AddChange("/feeds/{feed}/resume", c.servePause(false))
	adm.AddChange("/feeds/{feed}/poll", c.servePoll)
}

// find returns the bridge of the feed that a request names.
func (c *feedCommands) find(r *http.Request) (*bridge.Bridge, error) {
	name := r.PathValue("feed")
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.bridges[name]; b != nil {
		return b, nil
	}
	names := slices.Sorted(maps.Keys(c.bridges))
	return nil, &admin.ChangeError{Status: http.StatusNotFound, Errs: []error{
		fmt.Errorf("there is no feed %q; there are: %s", name, strings.Join(names, ", ")),
	}}
}

// findElsewhere returns the feed that a request names, if this copy has it and does not run it.
func (c *feedCommands) findElsewhere(r *http.Request) (name string, f config.Feed, owner string, b *bus, ok bool) {
	name = r.PathValue("feed")
	c.mu.Lock()
	running := c.bridges[name] != nil
	c.mu.Unlock()
	if running || c.elsewhere == nil {
		return name, f, "", nil, false
	}
	f, owner, b, ok = c.elsewhere(name)
	return name, f, owner, b, ok
}

// pauseElsewhere pauses or resumes a feed that this copy does not run, by a commit to its topic.
func pauseElsewhere(ctx context.Context, name string, f config.Feed, b *bus, pause bool) (any, error) {
	conn, err := b.open(ctx)
	if err == nil {
		var answer Pause
		if answer, err = (&Bus{conn: conn}).PauseFeed(ctx, name, f, pause); err == nil {
			return answer, nil
		}
	}
	return nil, &admin.ChangeError{Status: http.StatusServiceUnavailable, Errs: []error{fmt.Errorf("feed %s: %w", name, err)}}
}

// send calls command with the bridge of the feed that a request names. If a reload stops the
// bridge meanwhile, it calls command again with the one that takes its place.
func (c *feedCommands) send(r *http.Request, command func(*bridge.Bridge) error) error {
	var last *bridge.Bridge
	var stopped error
	for {
		b, err := c.find(r)
		switch {
		case err != nil:
			return err
		case b == last:
			return stopped
		}
		if err = command(b); err == nil {
			return nil
		}
		last, stopped = b, commandError(b, err)
		if !errors.Is(err, bridge.ErrStopped) {
			return stopped
		}
	}
}

func (c *feedCommands) servePause(pause bool) admin.Change {
	return func(ctx context.Context, r *http.Request) (any, error) {
		var answer Pause
		if name, f, _, b, ok := c.findElsewhere(r); ok {
			return pauseElsewhere(ctx, name, f, b, pause)
		}
		err := c.send(r, func(b *bridge.Bridge) (err error) {
			answer, err = retryPause(ctx, b.Feed, func(ctx context.Context) (bridge.PauseResult, error) { return b.SetPaused(ctx, pause) })
			return err
		})
		return answer, err
	}
}

func (c *feedCommands) servePoll(ctx context.Context, r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	var answer Poll
	if name, _, owner, _, ok := c.findElsewhere(r); ok {
		err := fmt.Errorf("feed %s: no member of the fleet runs it yet; try again in a moment", name)
		if owner != "" {
			err = fmt.Errorf("feed %s: it is run by %s, another member of the fleet; send the request to that copy with --admin", name, owner)
		}
		return nil, &admin.ChangeError{Status: http.StatusConflict, Errs: []error{err}}
	}
	err := c.send(r, func(b *bridge.Bridge) error {
		answer = Poll{Feed: b.Feed, State: bridge.Reading}
		polled, err := b.Poll(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil
		case err != nil:
			return err
		}
		answer.State, answer.Published, answer.Duplicates = polled.Status.State, polled.Published, polled.Duplicates
		if err := polled.Status.Err; err != nil {
			answer.Error = err.Error()
		}
		return nil
	})
	return answer, err
}

// commandError returns the answer to a command that failed with err.
func commandError(b *bridge.Bridge, err error) error {
	return &admin.ChangeError{Status: http.StatusServiceUnavailable, Errs: []error{fmt.Errorf("feed %s: %w", b.Feed, err)}}
}
