package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
)

// tailCommand returns the command "tail", which prints the entities of a feed.
func tailCommand(a *app) *cobra.Command {
	var (
		from   startFlag
		format formatFlag
		follow bool
		limit  limitFlag
	)
	cmd := a.configurable(&cobra.Command{
		Use:   "tail URL|FEED",
		Short: "Print a feed's entities as JSON lines, without publishing",
		Long: `Tail prints the entities of a feed, one JSON object per line, up to the present
end of the feed. It publishes nothing and stores nothing. FEED is the name of a
feed in the configuration; its headers and credentials are used.`,
		Example: `  feedbridge tail https://shop.example.com/feed/latest
  feedbridge tail --from now --follow https://shop.example.com/feed/latest
  feedbridge tail --from 2026-01-01T00:00:00Z --limit 10 -c feedbridge.yaml orders`,
		Args:              exactArgs("URL or FEED"),
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := a.feedOrURL(args[0])
			if err != nil {
				return err
			}
			if from.set {
				f.Start = from.Start
			}
			return tailFeed(cmd.Context(), a, format.applyTo(f), follow, int(limit))
		},
	})
	cmd.Flags().Var(&from, "from", "where to start: beginning, now, 2026-01-01T00:00:00Z,\nid:<content-id>@<time>, or snapshot:<url>; default the configured start")
	format.addTo(cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue at the end, and poll for more")
	cmd.Flags().VarP(&limit, "limit", "n", "print at most that many entities")
	return cmd
}

// errEnough ends the reading when all requested entities are printed.
var errEnough = errors.New("enough")

// tailFeed prints the entities of a feed.
func tailFeed(ctx context.Context, a *app, f config.Feed, follow bool, limit int) error {
	log := a.newLog(a.err, config.Log{Level: "warn"})
	sources, err := daemon.NewSources(f, daemon.SourceOptions{Version: programVersion(), IDs: sink.NewIDs(0), Redact: a.redact}, log)
	if err != nil {
		return err
	}
	lines := newEntityWriter(a.out)
	err = readFeed(ctx, sources, follow, f.Every, nil, log, func(b feed.Batch) error {
		logViolations(log, b.Violations)
		if limit > 0 && len(b.Entities) >= limit {
			return errors.Join(lines.writeEntities(b.Entities[:limit]), errEnough)
		}
		limit -= min(limit, len(b.Entities))
		return lines.writeEntities(b.Entities)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// logViolations logs what in a feed breaks its specification.
func logViolations(log *slog.Logger, violations []feed.Violation) {
	for _, v := range violations {
		log.Warn("the feed breaks its specification", "kind", v.Kind, "page", v.Page, "detail", v.Detail)
	}
}
