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

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/retry"
)

const (
	// conflictTime limits how long a change of a checkpoint is tried again while other copies commit
	// to the topic.
	conflictTime = time.Minute
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
	// Work is what this copy still does, if the feed does not yield. The change was made on the bus.
	Work string `json:"work,omitempty"`
}

// Poll is the answer to a request that polls a feed.
type Poll struct {
	Feed string `json:"feed"`
	// State is the state of the feed after the poll. It is reading if the poll takes longer
	// than a minute; it continues then. Work is what it waits for, also if the feed does not yield to a
	// poll.
	State bridge.State `json:"state"`
	Work  string       `json:"work,omitempty"`
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
	var r bridge.PauseResult
	err := retryConflicts(ctx, func() (err error) {
		r, err = set(ctx)
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return Pause{}, ctx.Err()
	case errors.Is(err, checkpoint.ErrConflict):
		return Pause{}, fmt.Errorf("nothing was changed: %w, again and again; send the request to that copy", err)
	case err != nil:
		return Pause{}, err
	case r.Checkpoint.IsPaused():
		return Pause{Feed: name, Paused: &r.Checkpoint.Paused, Changed: r.Changed}, nil
	}
	return Pause{Feed: name, Changed: r.Changed}, nil
}

// retryConflicts calls change, which changes a checkpoint, and calls it again while its error is that
// another copy has committed: for conflictTime at most, and until ctx ends.
func retryConflicts(ctx context.Context, change func() error) error {
	for end := time.Now().Add(conflictTime); ; {
		err := change()
		if !errors.Is(err, checkpoint.ErrConflict) || time.Now().After(end) || retry.Sleep(ctx, rand.N(500*time.Millisecond)) != nil {
			return err
		}
	}
}

// feedCommands carries out requests of the admin server for the feeds.
type feedCommands struct {
	mu    sync.Mutex
	feeds map[string]commandedFeed // that this copy runs, by name
	// elsewhere returns a feed that this copy does not run, the member of the fleet that does, which
	// may be empty, and the feed's bus. It is nil without a fleet.
	elsewhere func(name string) (f config.Feed, owner string, b *bus, ok bool)
}

// commandedFeed is a feed that this copy runs.
type commandedFeed struct {
	*bridge.Bridge
	cfg config.Feed
	bus *bus
}

// add makes a bridge the one of its feed, until remove is called.
func (c *feedCommands) add(b *bridge.Bridge, cfg config.Feed, on *bus) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.feeds == nil {
		c.feeds = map[string]commandedFeed{}
	}
	c.feeds[b.Feed] = commandedFeed{b, cfg, on}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.feeds[b.Feed].Bridge == b {
			delete(c.feeds, b.Feed)
		}
	}
}

// addTo makes the admin server answer the requests.
func (c *feedCommands) addTo(adm *admin.Server) {
	adm.AddChange("/feeds/{feed}/pause", c.servePause(true))
	adm.AddChange("/feeds/{feed}/resume", c.servePause(false))
	adm.AddChange("/feeds/{feed}/poll", c.servePoll)
}

// find returns the feed that a request names.
func (c *feedCommands) find(r *http.Request) (commandedFeed, error) {
	name := r.PathValue("feed")
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.feeds[name]; ok {
		return f, nil
	}
	names := slices.Sorted(maps.Keys(c.feeds))
	return commandedFeed{}, &admin.ChangeError{Status: http.StatusNotFound, Errs: []error{
		fmt.Errorf("there is no feed %q; there are: %s", name, strings.Join(names, ", ")),
	}}
}

// findElsewhere returns the feed that a request names, if this copy has it and does not run it.
func (c *feedCommands) findElsewhere(r *http.Request) (name string, f config.Feed, owner string, b *bus, ok bool) {
	name = r.PathValue("feed")
	c.mu.Lock()
	_, running := c.feeds[name]
	c.mu.Unlock()
	if running || c.elsewhere == nil {
		return name, f, "", nil, false
	}
	f, owner, b, ok = c.elsewhere(name)
	return name, f, owner, b, ok
}

// pauseOnBus pauses or resumes a feed by a commit to its topic, beside the copies that run it.
func pauseOnBus(ctx context.Context, name string, f config.Feed, b *bus, pause bool) (Pause, error) {
	conn, err := b.open(ctx)
	if err != nil {
		return Pause{}, err
	}
	return (&Bus{conn: conn}).PauseFeed(ctx, name, f, pause)
}

// send calls command with the feed that a request names. If a reload stops its bridge meanwhile, it
// calls command again with the one that takes its place.
func (c *feedCommands) send(r *http.Request, command func(commandedFeed) error) error {
	var last *bridge.Bridge
	var stopped error
	for {
		f, err := c.find(r)
		switch {
		case err != nil:
			return err
		case f.Bridge == last:
			return stopped
		}
		if err = command(f); err == nil {
			return nil
		}
		last, stopped = f.Bridge, commandError(f.Feed, err)
		if !errors.Is(err, bridge.ErrStopped) {
			return stopped
		}
	}
}

func (c *feedCommands) servePause(pause bool) admin.Change {
	return func(ctx context.Context, r *http.Request) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*conflictTime)
		defer cancel()
		var answer Pause
		if name, f, _, b, ok := c.findElsewhere(r); ok {
			answer, err := pauseOnBus(ctx, name, f, b, pause)
			if err != nil {
				return nil, commandError(name, err)
			}
			return answer, nil
		}
		err := c.send(r, func(f commandedFeed) (err error) {
			answer, err = retryPause(ctx, f.Feed, func(ctx context.Context) (bridge.PauseResult, error) { return f.SetPaused(ctx, pause) })
			switch {
			case errors.Is(err, bridge.ErrBusy):
				answer, err = pauseOnBus(ctx, f.Feed, f.cfg, f.bus, pause)
				answer.Work = f.Work().String()
			case ctx.Err() != nil:
				err = fmt.Errorf("no answer within %v, and it is not known whether this was stored; the feed is %v", 2*conflictTime, f.Work())
			}
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
	err := c.send(r, func(f commandedFeed) error {
		answer = Poll{Feed: f.Feed, State: bridge.Reading}
		polled, err := f.Poll(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, bridge.ErrBusy):
			answer.Work = f.Work().String()
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

// commandError returns the answer to a command to a feed that failed with err.
func commandError(name string, err error) error {
	return &admin.ChangeError{Status: http.StatusServiceUnavailable, Errs: []error{fmt.Errorf("feed %s: %w", name, err)}}
}
