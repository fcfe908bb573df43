package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/safetext"
)

func (a *app) checkpointCommand() *cobra.Command {
	return group("checkpoint", "Show and move the stored position of a feed",
		`Checkpoint shows and moves the position up to which a feed has been published.
The position lies on the bus, beside the entities. A daemon may be running: it
takes up a position that was moved within half a minute.`,
		a.checkpointShow(), a.checkpointSet(), a.checkpointReset())
}

func (a *app) checkpointShow() *cobra.Command {
	var asJSON bool
	cmd := a.configurable(&cobra.Command{
		Use:               "show FEED",
		Short:             "Show how far a feed has been published",
		Args:              exactly("FEED"),
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.openTopic(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer t.close()
			cp, err := t.sink.Checkpoint(cmd.Context())
			if err != nil {
				return err
			}
			p := newPosition(cp, t.Feed)
			if asJSON {
				return printJSON(a.out, p)
			}
			return p.print(a.out, a.redact)
		},
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) checkpointSet() *cobra.Command {
	var yes bool
	cmd := a.configurable(&cobra.Command{
		Use:   "set FEED POSITION",
		Short: "Move the position of a feed",
		Long: `Set makes reading go on at POSITION: beginning, now,
2026-01-01T00:00:00Z, in datareplication feeds id:<content-id>@<time> (behind
that entity) or snapshot:<url of its index>, or the cursor that 'checkpoint show
--json' has printed. It shows what will happen and asks, unless --yes is given.

Moving back publishes nothing twice as far as the topic's newest IDs reach
(dedupe_window), and in Atom and RSS nothing that the topic has as it is now;
moving forward leaves entities out of the topic for good.`,
		Example:           `  feedbridge checkpoint set -c feedbridge.yaml orders 2026-01-01T00:00:00Z`,
		Args:              exactly("FEED", "POSITION"),
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPosition(args[1]); err != nil {
				return &usageError{err}
			}
			return a.move(cmd.Context(), args[0], args[1], yes)
		},
	})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) checkpointReset() *cobra.Command {
	var yes bool
	cmd := a.configurable(&cobra.Command{
		Use:   "reset FEED",
		Short: "Forget the position of a feed, so that it is read from its configured start",
		Long: `Reset makes reading go on at the start that is configured for the feed. The
topic keeps what it holds. It shows what will happen and asks, unless --yes is
given.`,
		Args:              exactly("FEED"),
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.move(cmd.Context(), args[0], "", yes)
		},
	})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// topic is the topic of a configured feed, on a bus that answers.
type topic struct {
	config.Feed
	feed  string // its name
	sink  stored
	log   *slog.Logger
	close func()
	// redact hides the secrets of URLs in errors.
	redact *safetext.Redactor
}

func (a *app) openTopic(ctx context.Context, name string) (*topic, error) {
	cfg, f, err := a.configuredFeed(name)
	if err != nil {
		return nil, err
	}
	// Only the feed's own bus matters here.
	cfg.Buses = map[string]config.Bus{f.To.Bus: cfg.Buses[f.To.Bus]}
	log := a.newLog(a.err, config.Log{Level: "error"})
	b, err := openBuses(ctx, cfg, attachEmbedded, log)
	if err != nil {
		return nil, err
	}
	if err := b.conns[f.To.Bus].Check(ctx); err != nil {
		b.close()
		return nil, fmt.Errorf("bus %s: %w", f.To.Bus, err)
	}
	snk, _ := b.sink(name, f)
	return &topic{f, name, snk, log, b.close, a.redact}, nil
}
