package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/safetext"
	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/verify"
)

func (a *app) verifyCommand() *cobra.Command {
	v := verification{limit: 100, window: verify.DefaultWindow}
	var asJSON bool
	cmd := a.configurable(&cobra.Command{
		Use:   "verify --feed URL|FEED (--feed URL|FEED | --topic TOPIC | --served NAME)",
		Short: "Compare a feed with a topic, or with another feed",
		Long: `Verify reads a feed and a topic, or two feeds, side by side, and reports what the
second does not have (missing), has beside it (extra), has in another place
(reordered), or has in another form (different, with the names of what differs).
It changes nothing, and holds no more than a window of each, however long they
are. FEED is the name of a feed in the configuration, which also names the bus.

--topic is for a topic that feedbridge filled from the feed: it has the feed's
entities as they are. --served is for a feed that is made of a topic, whoever
wrote it: NAME is one of serve.feeds in the configuration, and its topic is taken
for what it is as that feed, with the IDs and times that messages get there, and
without those that repeat one.

It exits with 0 if both are the same, with 1 if they differ or one of them cannot
be read, and with 2 if the command line or the configuration is wrong. What is
published meanwhile may show as a difference at the end. A feed or a bus that
does not answer for a while is asked again, at the place that was reached.`,
		Example: `  feedbridge verify -c feedbridge.yaml --feed orders --topic orders
  feedbridge verify -c feedbridge.yaml --feed http://127.0.0.1:8080/feeds/orders/latest --served orders
  feedbridge verify --feed https://shop.example.com/feed/latest --feed http://127.0.0.1:8080/feeds/orders/latest`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.verify(cmd.Context(), v)
			if r == nil {
				return err
			}
			if asJSON {
				return errors.Join(printReport(a.out, a.redact, r), err)
			}
			return errors.Join(r.print(a.out, a.redact), err)
		},
	})
	cmd.Flags().StringArrayVar(&v.feeds, "feed", nil, "a `FEED` to compare, by its URL or its name in the configuration")
	cmd.Flags().StringVar(&v.topic, "topic", "", "the `TOPIC` to compare it with")
	cmd.Flags().StringVar(&v.served, "served", "", "the feed to compare it with as its topic has it: a `NAME` of serve.feeds")
	cmd.Flags().StringVar(&v.bus, "bus", "", "the `BUS` of the topic; default the only one that is configured")
	cmd.Flags().Var(&v.from, "from", "where feeds start, as for tail; default the feed's own start")
	cmd.Flags().Var(&v.window, "window", "look that many entities ahead for one that is in another place")
	cmd.Flags().VarP(&v.limit, "limit", "n", "stop after that many differences")
	cmd.Flags().DurationVar(&v.retryFor, "retry-for", 5*time.Minute, "for that long try again what may pass by itself, and go on where it was")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// verification is what verify is asked for.
type verification struct {
	feeds      []string
	topic, bus string
	served     string
	from       startFlag
	window     limitFlag
	limit      limitFlag
	retryFor   time.Duration
}

// errDiffer says what the exit code says.
var errDiffer = errors.New("they differ; what can be behind it, and what to do, is in operations.md under \"Comparing a feed with its topic\"")

// verify compares. It returns a report of what it saw even if it could not get to
// the end; nil if it could not begin.
func (a *app) verify(ctx context.Context, v verification) (*comparison, error) {
	switch {
	case len(v.feeds) == 0:
		return nil, &usageError{errors.New("--feed is missing: want a URL, or the name of a feed in the configuration")}
	case len(v.feeds) == 1 && v.topic == "" && v.served == "":
		return nil, &usageError{errors.New("what to compare with is missing: want --topic, --served or another --feed")}
	case len(v.feeds) > 2, len(v.feeds) == 2 && v.topic+v.served != "", v.topic != "" && v.served != "":
		return nil, &usageError{errors.New("two are compared: want one --feed with --topic or --served, or two")}
	case v.topic == "" && v.bus != "":
		return nil, &usageError{errors.New("--bus is for --topic")}
	}
	screen := newScreen(a.err)
	log := a.newLog(screen, config.Log{Level: "warn"})
	var streams []stream
	for _, name := range v.feeds {
		s, err := a.feedStream(ctx, name, v, log)
		if err != nil {
			return nil, err
		}
		streams = append(streams, s)
	}
	if v.topic != "" || v.served != "" {
		of := a.topicStream
		if v.served != "" {
			of = a.servedStream
		}
		s, closeBus, err := of(ctx, v, log)
		if err != nil {
			return nil, err
		}
		defer closeBus()
		streams = append(streams, s)
	}
	r := &comparison{Streams: [2]string{streams[0].name, streams[1].name}, Window: int(v.window), Differences: []verify.Difference{}}
	var progress verifyProgress
	stop := screen.live(progress.line)
	defer stop()

	started := time.Now()
	var err error
	r.Summary, err = verify.Compare(progress.first.count(streams[0].entities), progress.second.count(streams[1].entities), int(v.window), func(d verify.Difference) bool {
		progress.differences.Add(1)
		r.Differences = append(r.Differences, d)
		return len(r.Differences) < int(v.limit)
	})
	r.remark(streams)
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

// comparison is what verify finds out.
type comparison struct {
	Streams [2]string `json:"streams"`
	Error   string    `json:"error,omitempty"`
	// Window is how far ahead it looked, in entities.
	Window int    `json:"window"`
	Took   string `json:"took"`
	verify.Summary
	// Remarks are sentences about what the numbers do not say.
	Remarks []string `json:"remarks,omitempty"`
	// Differences are no more than the limit.
	Differences []verify.Difference `json:"differences"`
}

// remark says what was not compared, and what may come of comparing what grows.
func (r *comparison) remark(streams []stream) {
	for _, s := range streams {
		if s.remark != nil && s.remark() != "" {
			r.Remarks = append(r.Remarks, s.remark())
		}
	}
	only := func(n int) bool { return n > 0 && n == r.Missing+r.Extra+r.Reordered+r.Different }
	short := "%s is the same as far as it goes, and %d short. If something was published meanwhile, or is still being copied, compare again."
	if !r.Complete {
		short = strings.Replace(short, "%d", "at least %d", 1)
	}
	switch {
	case only(r.Missing) && *r.Differences[0].First == r.Second:
		r.Remarks = append(r.Remarks, fmt.Sprintf(short, "The second", r.Missing))
	case only(r.Extra) && *r.Differences[0].Second == r.First:
		r.Remarks = append(r.Remarks, fmt.Sprintf(short, "The first", r.Extra))
	}
}

// print writes the sums for a person.
func (r *comparison) print(w io.Writer, redact *safetext.Redactor) error {
	p := &printer{w: w, redact: redact}
	p.line("first        %s, %s read", r.Streams[0], count(r.First, "entity", "entities"))
	p.line("second       %s, %s read", r.Streams[1], count(r.Second, "entity", "entities"))
	if r.Complete {
		p.line("compared     to their ends, in %s, looking ahead %s", r.Took, count(r.Window, "entity", "entities"))
	} else {
		p.line("compared     not to their ends, for %s, looking ahead %s", r.Took, count(r.Window, "entity", "entities"))
	}
	for _, s := range r.Remarks {
		p.line("remark       %s", s)
	}
	p.line("equal        %d", r.Equal)
	for _, found := range []struct {
		kind verify.Kind
		n    int
	}{{verify.Missing, r.Missing}, {verify.Extra, r.Extra}, {verify.Reordered, r.Reordered}, {verify.Different, r.Different}} {
		if found.n > 0 {
			p.line("%-12s %d", found.kind, found.n)
		}
	}
	for _, d := range r.Differences {
		p.line("  %s", d)
	}
	return p.err
}

// stream is a row of entities with its name for the report.
type stream struct {
	name     string
	entities iter.Seq2[feed.Entity, error]
	// remark, if any, says what there is to say when the entities have been read.
	remark func() string
}

// feedStream returns a feed from its start to the end that it has now.
func (a *app) feedStream(ctx context.Context, name string, v verification, log *slog.Logger) (stream, error) {
	reader := a
	if !feedNames.MatchString(name) {
		reader = &app{} // what is configured is for the topic alone
	}
	f, err := reader.feedOrURL(name)
	if err != nil {
		return stream{}, err
	}
	if v.from.set {
		f.Start = v.from.Start
	}
	all, err := newSources(f, sink.NewIDs(0), source.Options{Redact: a.redact}, log)
	if err != nil {
		return stream{}, err
	}
	return stream{name: "feed " + a.redact.URL(f.Source.URL), entities: func(yield func(feed.Entity, error) bool) {
		err := readFeed(ctx, all, false, 0, &tries{limit: v.retryFor, log: log}, log, func(b feed.Batch) error {
			warn(log, b.Violations)
			for _, e := range b.Entities {
				if !yield(e, nil) {
					return errEnough
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(feed.Entity{}, err)
		}
	}}, nil
}

// buses returns the configuration for its buses: if the feed is named by its URL,
// there need be none in it.
func (a *app) buses() (*config.Config, error) {
	cfg, err := config.Load(config.Options{File: a.file, Environ: a.environ, Feedless: true})
	if err == nil {
		a.redact = safetext.NewRedactor(cfg.SecretParameters...)
	}
	return cfg, err
}

// servedStream returns what a topic is now as a feed that is served of it, and what
// closes the connection to its bus.
func (a *app) servedStream(ctx context.Context, v verification, log *slog.Logger) (_ stream, closeBus func(), err error) {
	cfg, err := a.buses()
	if err != nil {
		return stream{}, nil, err
	}
	if cfg.Serve == nil {
		return stream{}, nil, &usageError{errors.New("--served names one of serve.feeds, and the configuration has none: say where it is with -c")}
	}
	served, ok := cfg.Serve.Feeds[v.served]
	if !ok {
		return stream{}, nil, &usageError{fmt.Errorf("want --served with one of these: %s", strings.Join(slices.Sorted(maps.Keys(cfg.Serve.Feeds)), ", "))}
	}
	s := stream{name: fmt.Sprintf("served feed %s, of topic %s on bus %s", v.served, served.From.Topic, served.From.Bus)}
	b, err := openBus(ctx, cfg, served.From.Bus, log)
	if err != nil {
		return stream{}, nil, err
	}
	served.Auth = config.ServedAuth{} // nobody asks
	f, err := newServed(v.served, served, v.patient(b.log(served.From), log), serve.NewMemory(cfg.Serve.Memory), nil, log)
	leftOut := 0
	if err == nil {
		s.entities, err = f.Entities(ctx, func() { leftOut++ })
	}
	if err != nil {
		b.close()
		return stream{}, nil, fmt.Errorf("%s: %w", s.name, err)
	}
	s.remark = func() string {
		if leftOut == 0 {
			return ""
		}
		return fmt.Sprintf("%s left out of the feed: what repeats one on the same page or on the page in front.", count(leftOut, "message is", "messages are"))
	}
	return s, b.close, nil
}

// patient is a topic that is asked again when it cannot be read.
func (v verification) patient(topic serve.Log, log *slog.Logger) serve.Log {
	return &patientLog{Log: topic, limit: v.retryFor, log: log}
}

// openBus connects to one of the configured buses.
func openBus(ctx context.Context, cfg *config.Config, name string, log *slog.Logger) (*buses, error) {
	alone := *cfg
	alone.Buses = map[string]config.Bus{name: cfg.Buses[name]}
	return openBuses(ctx, &alone, attachEmbedded, log)
}

// topicStream returns a topic as it is now, and what closes the connection to its
// bus.
func (a *app) topicStream(ctx context.Context, v verification, log *slog.Logger) (_ stream, closeBus func(), err error) {
	cfg, err := a.buses()
	if err != nil {
		return stream{}, nil, err
	}
	names := slices.Sorted(maps.Keys(cfg.Buses))
	name := v.bus
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	if _, ok := cfg.Buses[name]; !ok {
		return stream{}, nil, &usageError{fmt.Errorf("want --bus with one of these: %s", strings.Join(names, ", "))}
	}
	b, err := openBus(ctx, cfg, name, log)
	if err != nil {
		return stream{}, nil, err
	}
	s := stream{name: fmt.Sprintf("topic %s on bus %s", v.topic, name)}
	topic, err := v.logOf(ctx, b.conns[name], log)
	foreign := 0
	if err == nil {
		s.entities, err = recorded(ctx, topic, &foreign)
	}
	s.remark = func() string {
		if foreign == 0 {
			return ""
		}
		return fmt.Sprintf("%s no Content-ID, so feedbridge did not write all of it. To compare it with a feed that is served of it, name that with --served.", count(foreign, "message has", "messages have"))
	}
	if err != nil {
		b.close()
		return stream{}, nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return s, b.close, nil
}

// logOf returns the topic, if it has one order. Between partitions there is none.
func (v verification) logOf(ctx context.Context, on conn, log *slog.Logger) (serve.Log, error) {
	c, ok := on.(*kafka.Conn)
	if !ok {
		return v.patient(on.(*nats.Conn).Log(v.topic, ""), log), nil
	}
	switch _, err := v.patient(c.Log(v.topic, 1), log).Span(ctx); {
	case err == nil:
		return nil, errors.New("it has several partitions, so its order is not the feed's, and cannot be compared with it")
	case !errors.Is(err, feed.ErrNoTopic):
		return nil, err
	}
	return v.patient(c.Log(v.topic, 0), log), nil
}

// recorded returns the entities that a topic has now. A message that has no
// Content-ID goes by its position, and is counted as foreign.
func recorded(ctx context.Context, topic serve.Log, foreign *int) (iter.Seq2[feed.Entity, error], error) {
	span, err := topic.Span(ctx)
	if err != nil {
		return nil, err
	}
	return func(yield func(feed.Entity, error) bool) {
		for r, err := range topic.Read(ctx, span.First, span.End) {
			if err != nil {
				yield(feed.Entity{}, fmt.Errorf("the topic: %w", err))
				return
			}
			e, err := message.Entity(r.Header, r.Body)
			if err != nil {
				yield(feed.Entity{}, fmt.Errorf("the topic, at position %d: %w", r.Position, err))
				return
			}
			if e.ID == "" {
				*foreign++
				e.ID = fmt.Sprintf("position %d", r.Position)
			}
			if !yield(e, nil) {
				return
			}
		}
	}, nil
}

// verifyProgress is what a person sees who watches.
type verifyProgress struct {
	first, second counter
	differences   atomic.Int64
}

func (p *verifyProgress) line() string {
	return fmt.Sprintf("%d and %d entities  %s", p.first.n.Load(), p.second.n.Load(), count(int(p.differences.Load()), "difference", "differences"))
}

// counter counts the entities of a stream as they are read.
type counter struct{ n atomic.Int64 }

func (c *counter) count(entities iter.Seq2[feed.Entity, error]) iter.Seq2[feed.Entity, error] {
	return func(yield func(feed.Entity, error) bool) {
		for e, err := range entities {
			c.n.Add(1)
			if !yield(e, err) {
				return
			}
		}
	}
}
