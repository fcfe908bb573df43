package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/sink"
)

// tailOptions are the options of tail.
type tailOptions struct {
	topicTail
	format config.Format
}

// tailCommand returns the command "tail", which prints the entities of a feed.
func tailCommand(a *app) *cobra.Command {
	var o tailOptions
	cmd := a.configurable(&cobra.Command{
		Use:   "tail URL|FEED | tail --topic TOPIC",
		Short: "Print a feed's entities, or a topic's messages, as JSON lines",
		Long: `Tail prints the entities of a feed, one JSON object per line, up to the present
end of the feed. It publishes nothing and stores nothing. FEED is the name of a
feed in the configuration; its headers and credentials are used.

With --topic it prints the messages of a topic on a bus of the configuration in
the same form, with their positions and the time at which the bus stored them.`,
		Example: `  feedbridge tail https://shop.example.com/feed/latest
  feedbridge tail --from now --follow --every 5s https://shop.example.com/feed/latest
  feedbridge tail --from 2026-01-01T00:00:00Z --limit 10 -c feedbridge.yaml orders
  feedbridge tail -c feedbridge.yaml --topic orders --from now --follow`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.topic == "" {
				return exactArgs("URL or FEED")(cmd, args)
			}
			return exactArgs()(cmd, args)
		},
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkOptions(cmd.Flags().Changed); err != nil {
				return err
			}
			if o.topic != "" {
				o.every = cmp.Or(o.every, time.Second)
				return o.printTopic(cmd.Context(), a)
			}
			return o.printFeed(cmd.Context(), a, args[0])
		},
	})
	addStartFlag(cmd, &o.from, "the `POSITION` to start at: beginning, now, 2026-01-01T00:00:00Z,\nand of a feed id:<content-id>@<time> or snapshot:<url>; default the\nfeed's own start, and the beginning of a topic")
	addFormatFlag(cmd, &o.format)
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "continue at the end, and poll for more")
	cmd.Flags().DurationVar(&o.every, "every", 0, "with --follow, the time between polls; default the feed's own,\nand 1s of a topic")
	addCountFlag(cmd, &o.limit, "limit", "n", "print at most `N` entities")
	cmd.Flags().StringVar(&o.topic, "topic", "", "print the messages of this `TOPIC`")
	cmd.Flags().StringVar(&o.bus, "bus", "", "the `BUS` of the topic; default the only one that is configured")
	cmd.Flags().IntVar(&o.partition, "partition", -1, "one `PARTITION` of a Kafka topic; default all, one after the other")
	return cmd
}

// checkOptions returns an error for options that do not go together. given reports whether an
// option was given.
func (o *tailOptions) checkOptions(given func(name string) bool) error {
	switch {
	case given("every") && !o.follow:
		return &usageError{errors.New("--every is the time between the polls of --follow; add --follow or leave out --every")}
	case given("every") && o.every < shortestEvery:
		return &usageError{fmt.Errorf("--every must be at least %s", shortestEvery)}
	case given("partition") && o.partition < 0:
		return &usageError{errors.New("--partition must be at least 0")}
	case o.topic != "" && o.format != "":
		return &usageError{errors.New("--format is the format of a feed; leave it out with --topic")}
	case o.topic == "" && (o.bus != "" || o.partition != -1):
		return &usageError{errors.New("--bus and --partition are for --topic")}
	}
	return nil
}

// printFeed prints the entities of a feed, which is the name of a configured one or a URL.
func (o *tailOptions) printFeed(ctx context.Context, a *app, name string) error {
	f, err := a.feedOrURL(name)
	if err != nil {
		return err
	}
	if o.from != nil {
		f.Start = *o.from
	}
	f.Every, f.Format = cmp.Or(o.every, f.Every), cmp.Or(o.format, f.Format)
	return tailFeed(ctx, a, f, o.follow, o.limit)
}

// shortestEvery is the shortest time between polls, as in the configuration.
const shortestEvery = 100 * time.Millisecond

// errEnough ends the reading when all requested entities are printed.
var errEnough = errors.New("enough")

// tailFeed prints the entities of a feed.
func tailFeed(ctx context.Context, a *app, f config.Feed, follow bool, limit int) error {
	log := a.newLog(a.err, config.Log{Level: "warn"})
	sources, err := daemon.NewSources(f, daemon.SourceOptions{Version: programVersion(), IDs: sink.NewIDs(0), Once: !follow, Redact: a.redact}, log)
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
