package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/safetext"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

func (a *app) tailCommand() *cobra.Command {
	var (
		from   startFlag
		format formatFlag
		follow bool
		limit  limitFlag
	)
	cmd := a.configurable(&cobra.Command{
		Use:   "tail URL|FEED",
		Short: "Print a feed's entities as JSON lines; publishes nothing",
		Long: `Tail prints the entities of a feed, one JSON object a line, up to the end that
the feed has now. It publishes nothing and stores nothing. FEED is the name of a
feed in the configuration, whose headers and credentials are used then.`,
		Example: `  feedbridge tail https://shop.example.com/feed/latest
  feedbridge tail --from now --follow https://shop.example.com/feed/latest
  feedbridge tail --from 2026-01-01T00:00:00Z --limit 10 -c feedbridge.yaml orders`,
		Args:              exactly("URL or FEED"),
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := a.feedOrURL(args[0])
			if err != nil {
				return err
			}
			if from.set {
				f.Start = from.Start
			}
			return a.tail(cmd.Context(), format.of(f), follow, int(limit))
		},
	})
	cmd.Flags().Var(&from, "from", "where to start: beginning, now, 2026-01-01T00:00:00Z,\nid:<content-id>@<time>, or snapshot:<url>; default the feed's own start")
	format.add(cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on at the end, and poll for more")
	cmd.Flags().VarP(&limit, "limit", "n", "print that many entities at most")
	return cmd
}

// errEnough ends the reading when all that was asked for is printed.
var errEnough = errors.New("enough")

func (a *app) tail(ctx context.Context, f config.Feed, follow bool, limit int) error {
	log := a.newLog(a.err, config.Log{Level: "warn"})
	all, err := newSources(f, sink.NewIDs(0), source.Options{Redact: a.redact}, log)
	if err != nil {
		return err
	}
	lines := newEntityWriter(a.out)
	err = readFeed(ctx, all, follow, f.Every, nil, log, func(b feed.Batch) error {
		warn(log, b.Violations)
		if limit > 0 && len(b.Entities) >= limit {
			return errors.Join(lines.write(b.Entities[:limit]), errEnough)
		}
		limit -= min(limit, len(b.Entities))
		return lines.write(b.Entities)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func warn(log *slog.Logger, violations []feed.Violation) {
	for _, v := range violations {
		log.Warn("the feed breaks its specification", "kind", v.Kind, "page", v.Page, "detail", v.Detail)
	}
}

// entityWriter writes entities as JSON lines. Values are complete; characters that
// a terminal obeys are escaped.
type entityWriter struct {
	w       io.Writer
	buffer  bytes.Buffer
	encoder *json.Encoder
}

func newEntityWriter(w io.Writer) *entityWriter {
	e := &entityWriter{w: w}
	e.encoder = json.NewEncoder(&e.buffer)
	e.encoder.SetEscapeHTML(false)
	return e
}

func (w *entityWriter) write(entities []feed.Entity) error {
	for i := range entities {
		w.buffer.Reset()
		if err := w.encoder.Encode(newEntityLine(&entities[i])); err != nil {
			return err
		}
		if _, err := w.w.Write(safetext.JSON(w.buffer.Bytes())); err != nil {
			return err
		}
	}
	return nil
}

// entityLine is an entity as tail prints it. The body is text if it is UTF-8,
// and base64 else.
type entityLine struct {
	ID       string         `json:"id"`
	Op       feed.Operation `json:"operation"`
	Modified time.Time      `json:"modified"`
	Headers  [][2]string    `json:"headers"`
	Body     *string        `json:"body,omitempty"`
	Base64   []byte         `json:"body_base64,omitempty"`
	Page     string         `json:"page"`
}

func newEntityLine(e *feed.Entity) entityLine {
	l := entityLine{ID: e.ID, Op: e.Op, Modified: e.Modified, Headers: make([][2]string, len(e.Header)), Page: e.Page}
	for i, f := range e.Header {
		l.Headers[i] = [2]string{f.Name, f.Value}
	}
	if utf8.Valid(e.Body) {
		text := string(e.Body)
		l.Body = &text
	} else {
		l.Base64 = e.Body
	}
	return l
}

// startFlag is a flag whose value is a start position.
type startFlag struct {
	datareplication.Start
	set bool
}

func (*startFlag) Type() string { return "POSITION" }

func (f *startFlag) Set(text string) error {
	f.set = true
	return f.UnmarshalText([]byte(text))
}

func (f *startFlag) String() string {
	if !f.set {
		return ""
	}
	return f.Start.String()
}

// formatFlag is a flag whose value is the format of a feed.
type formatFlag struct{ format config.Format }

func (f *formatFlag) add(cmd *cobra.Command) {
	cmd.Flags().Var(f, "format", "datareplication, atom or rss; default auto, or what the\nconfiguration says")
}

// of returns the feed with the format of the flag, if that is set.
func (f *formatFlag) of(feed config.Feed) config.Feed {
	feed.Format = cmp.Or(f.format, feed.Format)
	return feed
}

func (*formatFlag) Type() string { return "FORMAT" }

func (f *formatFlag) Set(text string) (err error) {
	f.format, err = config.ParseFormat(text)
	return err
}

func (f *formatFlag) String() string { return string(f.format) }

// limitFlag is a flag whose value is a number of entities; 0 is no limit.
type limitFlag int

func (*limitFlag) Type() string { return "N" }

func (f *limitFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("want a number of entities, 1 or more")
	}
	*f = limitFlag(n)
	return nil
}

func (f *limitFlag) String() string {
	if *f == 0 {
		return ""
	}
	return strconv.Itoa(int(*f))
}
