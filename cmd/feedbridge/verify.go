package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/docs"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/verify"
	"github.com/feedbridge/feedbridge/source"
)

// verifyCommand returns the command "verify", which compares two feeds, or a feed and its topic.
func verifyCommand(a *app) *cobra.Command {
	v := verification{limit: 100, lookahead: verify.DefaultLookahead}
	var asJSON bool
	cmd := a.configurable(&cobra.Command{
		Use:   "verify --feed URL|FEED (--feed URL|FEED | --topic TOPIC | --served NAME)",
		Short: "Compare a feed with a topic, or with another feed",
		Long: `Verify reads a feed and a topic, or two feeds, side by side. It reports entities
that only the first has (missing), that only the second has (extra), that the
second has at another position (reordered), and that differ in content
(different, with the names of the fields). It changes nothing. Its memory is
bounded by --window. FEED is the name of a feed in the configuration, which also
has the bus of the topic.

--topic is for a topic that feedbridge filled from the feed. --served is for a
topic that any program filled: NAME is one of serve.feeds in the configuration.
Then the topic is compared in the form in which it is served: with the IDs and
times that messages get there, and without repeated messages.

Entities in the dead-letter topic TOPIC.dead are not reported as missing.

It exits with 0 if both are the same, with 1 if they differ or one of them cannot
be read, and with 2 if the command line or the configuration is wrong. Entities
that are published during the comparison may be reported as differences at the
end. If a feed or a bus fails for a while, reading is retried from the position
that was reached.`,
		Example: `  feedbridge verify -c feedbridge.yaml --feed orders --topic orders
  feedbridge verify -c feedbridge.yaml --feed http://127.0.0.1:8080/feeds/orders/latest --served orders
  feedbridge verify --feed https://shop.example.com/feed/latest --feed http://127.0.0.1:8080/feeds/orders/latest`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := runVerification(cmd.Context(), a, &v)
			if r == nil {
				return err
			}
			if asJSON {
				return errors.Join(printReport(a.out, a.redact, r), err)
			}
			return errors.Join(r.printText(a.out, a.redact, lookOf(a, a.out)), err)
		},
	})
	cmd.Flags().StringArrayVar(&v.feeds, "feed", nil, "a `FEED` to compare, by its URL or its name in the configuration")
	cmd.Flags().StringVar(&v.topic, "topic", "", "the `TOPIC` to compare it with")
	cmd.Flags().StringVar(&v.served, "served", "", "the served feed to compare it with, a `NAME` of serve.feeds")
	cmd.Flags().StringVar(&v.bus, "bus", "", "the `BUS` of the topic; default the only one that is configured")
	addStartFlag(cmd, &v.from, "the `POSITION` where feeds start, as for tail; default the configured start")
	addCountFlag(cmd, &v.lookahead, "window", "", fmt.Sprintf("search `N` entities ahead for one at another position (default %d)", v.lookahead))
	addCountFlag(cmd, &v.limit, "limit", "n", fmt.Sprintf("stop after `N` differences (default %d)", v.limit))
	cmd.Flags().DurationVar(&v.retryFor, "retry-for", 5*time.Minute, "how long to retry transient errors")
	cmd.Flags().DurationVar(&v.wait, "wait", 0, "how long the topic may take to get each next entity,\nuntil it has all of the feed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// verification has the arguments of verify.
type verification struct {
	feeds      []string
	topic, bus string
	served     string
	from       *source.Start // of the feeds; nil for their own
	lookahead  int
	limit      int
	retryFor   time.Duration
	wait       time.Duration // for the topic
	feedEnded  bool          // set when the feed was read to its end
	// total is the number of positions of the topic, and read of those that were read. Not all have a message.
	total, read atomic.Uint64
}

// errDiffer makes the exit code 1.
var errDiffer = errors.New("they differ; for causes and cures see " + docs.URL + "commands.md#differences")

// checkArguments returns an error unless the arguments name two streams.
func (v *verification) checkArguments() error {
	switch {
	case len(v.feeds) == 0:
		return &usageError{errors.New("--feed is missing: want a URL, or the name of a feed in the configuration")}
	case len(v.feeds) == 1 && v.topic == "" && v.served == "":
		return &usageError{errors.New("the second side is missing: add --topic, --served or another --feed")}
	case len(v.feeds) > 2, len(v.feeds) == 2 && v.topic+v.served != "", v.topic != "" && v.served != "":
		return &usageError{errors.New("want one --feed with --topic or --served, or two --feed")}
	case v.topic == "" && (v.bus != "" || v.wait != 0):
		return &usageError{errors.New("--bus and --wait are for --topic")}
	}
	return nil
}

// openStreams returns the two streams, and a function that closes the bus of the second.
func (v *verification) openStreams(ctx context.Context, a *app, log *slog.Logger) (streams []entityStream, closeBus func(), err error) {
	for _, name := range v.feeds {
		s, err := feedStream(ctx, a, name, v, log)
		if err != nil {
			return nil, nil, err
		}
		streams = append(streams, s)
	}
	if v.topic == "" && v.served == "" {
		return streams, func() {}, nil
	}
	of := topicStream
	if v.served != "" {
		of = servedStream
	}
	s, closeBus, err := of(ctx, a, v, log)
	if err != nil {
		return nil, nil, err
	}
	return append(streams, s), closeBus, nil
}

// runVerification compares two streams. It returns a report even if it did not reach the end,
// and nil if it could not begin.
func runVerification(ctx context.Context, a *app, v *verification) (*comparison, error) {
	if err := v.checkArguments(); err != nil {
		return nil, err
	}
	status := newStatusLine(a.err)
	streams, closeBus, err := v.openStreams(ctx, a, a.newLog(status, config.Log{Level: "warn"}))
	if err != nil {
		return nil, err
	}
	defer closeBus()
	r := &comparison{Streams: [2]string{streams[0].name, streams[1].name}, Lookahead: v.lookahead, Differences: []verify.Difference{}}
	progress := verifyProgress{topic: v, began: time.Now()}
	stop := status.showUntilStopped(progress.statusText)
	defer stop()

	started := time.Now()
	r.Summary, err = verify.Compare(progress.first.countEntities(streams[0].entities), progress.second.countEntities(streams[1].entities), v.lookahead, func(d verify.Difference) bool {
		if d.Kind == verify.Missing && streams[1].dead[d.ID] {
			r.DeadLetters++
			return true
		}
		progress.differences.Add(1)
		r.Differences = append(r.Differences, d)
		return len(r.Differences) < v.limit
	})
	r.Missing -= r.DeadLetters
	r.addRemarks(streams, v.wait)
	r.Took = time.Since(started).Round(time.Millisecond).String()
	switch {
	case ctx.Err() != nil:
		err = errStopped
	case err == nil && !r.Same():
		err = errDiffer
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r, err
}

// verifyProgress counts for the status line.
type verifyProgress struct {
	first, second counter
	differences   atomic.Int64
	topic         *verification // has the positions
	began         time.Time
}

func (p *verifyProgress) statusText() string {
	second, read, total := p.second.n.Load(), p.topic.read.Load(), p.topic.total.Load()
	seconds := max(1, time.Since(p.began).Seconds())
	words := []string{fmt.Sprintf("%d and %d entities", p.first.n.Load(), second)}
	if total > 0 {
		words = append(words, fmt.Sprintf("%d%%", min(100, 100*read/total)))
	}
	words = append(words, formatRate(float64(second)/seconds))
	if left := timeLeft(float64(total)-float64(read), float64(read)/seconds); left != "" {
		words = append(words, left)
	}
	words = append(words, withNoun(int(p.differences.Load()), "difference", "differences"))
	return strings.Join(words, "  ")
}

// counter counts the entities of a stream while they are read.
type counter struct{ n atomic.Int64 }

func (c *counter) countEntities(entities iter.Seq2[feed.Entity, error]) iter.Seq2[feed.Entity, error] {
	return func(yield func(feed.Entity, error) bool) {
		for e, err := range entities {
			c.n.Add(1)
			if !yield(e, err) {
				return
			}
		}
	}
}
