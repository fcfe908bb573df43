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
	"github.com/feedbridge/feedbridge/internal/limit"
	"github.com/feedbridge/feedbridge/internal/retry"
)

const (
	// conflictTime limits how long a change of a checkpoint is tried again while other copies commit
	// to the topic.
	conflictTime = time.Minute
	// pollTimeout limits how long a request waits for the poll that it has caused.
	pollTimeout = time.Minute
	// forwardPoll and forwardPause limit how long the member that runs a feed may take to answer. A pause that
	// it does not answer is made on the bus.
	forwardPoll, forwardPause = pollTimeout + 5*time.Second, 10 * time.Second
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
	// elsewhere returns a feed that this copy does not run. It is nil without a fleet.
	elsewhere func(name string) (f commandedFeed, ok bool)
	// forward is [admin.Server.Forward].
	forward func(ctx context.Context, owner, method, path string, limit time.Duration, answer any) error
}

// commandedFeed is a feed of this copy.
type commandedFeed struct {
	bridge *bridge.Bridge // nil if this copy does not run the feed
	cfg    config.Feed
	bus    *bus
	owner  string // the member of the fleet that runs the feed, if this copy does not; "" if there is none
}

// add makes a bridge the one of its feed, until remove is called.
func (c *feedCommands) add(b *bridge.Bridge, cfg config.Feed, on *bus) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.feeds == nil {
		c.feeds = map[string]commandedFeed{}
	}
	c.feeds[b.Feed] = commandedFeed{bridge: b, cfg: cfg, bus: on}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.feeds[b.Feed].bridge == b {
			delete(c.feeds, b.Feed)
		}
	}
}

// addTo makes the admin server answer the requests.
func (c *feedCommands) addTo(adm *admin.Server) {
	adm.AddChange("/feeds/{feed}/pause", c.servePause(true))
	adm.AddChange("/feeds/{feed}/resume", c.servePause(false))
	adm.AddChange("/feeds/{feed}/poll", c.servePoll)
	adm.AddRead("/feeds/{feed}/newest", c.serveNewest(limit.New(1, 0)))
}

// find returns the feed with a name.
func (c *feedCommands) find(name string) (commandedFeed, error) {
	c.mu.Lock()
	f, ok := c.feeds[name]
	names := slices.Sorted(maps.Keys(c.feeds))
	c.mu.Unlock()
	if !ok && c.elsewhere != nil {
		f, ok = c.elsewhere(name)
	}
	if !ok {
		return f, &admin.ChangeError{Status: http.StatusNotFound, Errs: []error{
			fmt.Errorf("there is no feed %q; there are: %s", name, strings.Join(names, ", ")),
		}}
	}
	return f, nil
}

// pauseOnBus pauses or resumes the feed by a commit to its topic, beside the copies that run it.
func (f commandedFeed) pauseOnBus(ctx context.Context, name string, pause bool) (Pause, error) {
	conn, err := f.bus.open(ctx)
	if err != nil {
		return Pause{}, err
	}
	return (&Bus{conn: conn}).PauseFeed(ctx, name, f.cfg, pause)
}

// send calls command with a feed. If a reload stops its bridge meanwhile, it calls command again with the
// one that takes its place.
func (c *feedCommands) send(name string, command func(commandedFeed) error) error {
	var last *bridge.Bridge
	var stopped error
	for {
		f, err := c.find(name)
		switch {
		case err != nil:
			return err
		case f.bridge != nil && f.bridge == last:
			return stopped
		}
		if err = command(f); err == nil {
			return nil
		}
		last, stopped = f.bridge, commandError(name, err)
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
		name := r.PathValue("feed")
		err := c.send(name, func(f commandedFeed) (err error) {
			if f.bridge == nil {
				// The member that runs the feed notices a pause at once if it makes it.
				if f.owner == "" || admin.IsForwarded(ctx) || c.forward(ctx, f.owner, r.Method, r.URL.EscapedPath(), forwardPause, &answer) != nil {
					answer, err = f.pauseOnBus(ctx, name, pause)
				}
				return err
			}
			answer, err = retryPause(ctx, name, func(ctx context.Context) (bridge.PauseResult, error) { return f.bridge.SetPaused(ctx, pause) })
			switch {
			case errors.Is(err, bridge.ErrBusy):
				answer, err = f.pauseOnBus(ctx, name, pause)
				answer.Work = f.bridge.Work().String()
			case ctx.Err() != nil:
				err = fmt.Errorf("no answer within %v, and it is not known whether this was stored; the feed is %v", 2*conflictTime, f.bridge.Work())
			}
			return err
		})
		return answer, err
	}
}

func (c *feedCommands) servePoll(ctx context.Context, r *http.Request) (any, error) {
	elsewhere := ctx
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	name := r.PathValue("feed")
	answer := Poll{Feed: name, State: bridge.Reading}
	err := c.send(name, func(f commandedFeed) error {
		if f.bridge == nil {
			return c.pollElsewhere(elsewhere, r, name, f.owner, &answer)
		}
		polled, err := f.bridge.Poll(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, bridge.ErrBusy):
			answer.Work = f.bridge.Work().String()
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

// pollElsewhere forwards a poll to the member of the fleet that runs the feed.
func (c *feedCommands) pollElsewhere(ctx context.Context, r *http.Request, name, owner string, answer *Poll) error {
	var err error
	switch {
	case owner == "":
		err = errors.New("no member of the fleet runs it yet; try again in a moment")
	case admin.IsForwarded(ctx):
		err = fmt.Errorf("the request was forwarded to a copy for which %s runs it; the fleet is dividing its feeds, try again in a moment", owner)
	default:
		err = c.forward(ctx, owner, r.Method, r.URL.EscapedPath(), forwardPoll, answer)
		if _, ok := errors.AsType[*admin.ChangeError](err); ok || err == nil {
			return err
		}
		err = fmt.Errorf("it is run by %s, which cannot be asked: %w", owner, err)
	}
	return &admin.ChangeError{Status: http.StatusConflict, Errs: []error{fmt.Errorf("feed %s: %w", name, err)}}
}

// commandError returns the answer to a command to a feed that failed with err.
func commandError(name string, err error) error {
	if _, ok := errors.AsType[*admin.ChangeError](err); ok {
		return err
	}
	return &admin.ChangeError{Status: http.StatusServiceUnavailable, Errs: []error{fmt.Errorf("feed %s: %w", name, err)}}
}
