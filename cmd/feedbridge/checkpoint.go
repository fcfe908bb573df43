package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// checkpointCommand returns the command "checkpoint", the parent of "show", "set" and "reset".
func checkpointCommand(a *app) *cobra.Command {
	return commandGroup("checkpoint", "Show and move the stored position of a feed",
		`Checkpoint shows and moves the position up to which a feed has been published.
The position is stored on the bus, with the entities. The daemon may be running: it
continues at the new position within half a minute, or within 5 minutes if the
feed is halted.`,
		checkpointShowCommand(a), checkpointSetCommand(a), checkpointResetCommand(a))
}

// topic is the topic of a configured feed, on a bus that answers.
type topic struct {
	config.Feed
	feed  string // its name
	bus   *daemon.Bus
	store *daemon.CheckpointStore
	log   *slog.Logger
	close func()
	// redact hides the secrets of URLs in errors.
	redact *safetext.Redactor
}

// openTopic connects to the bus of a configured feed's topic. The caller closes the topic.
func openTopic(ctx context.Context, a *app, name string) (*topic, error) {
	cfg, f, err := a.configuredFeed(name)
	if err != nil {
		return nil, err
	}
	log := a.newLog(a.err, config.Log{Level: "error"})
	b, err := daemon.OpenBus(ctx, cfg, f.To.Bus, log)
	if err != nil {
		return nil, err
	}
	if err := b.Check(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("bus %s: %w", f.To.Bus, err)
	}
	return &topic{f, name, b, b.Checkpoints(name, f), log, b.Close, a.redact}, nil
}
