package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// line is an entity as tail prints it. The body is text if it is UTF-8, and
// base64 else.
type line struct {
	ID       string         `json:"id"`
	Op       feed.Operation `json:"operation"`
	Modified time.Time      `json:"modified"`
	Headers  [][2]string    `json:"headers"`
	Body     *string        `json:"body,omitempty"`
	Base64   []byte         `json:"body_base64,omitempty"`
	Page     string         `json:"page"`
}

func newLine(e *feed.Entity) line {
	l := line{ID: e.ID, Op: e.Op, Modified: e.Modified, Headers: make([][2]string, len(e.Header)), Page: e.Page}
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

func (a *app) tailCommand() *cobra.Command {
	var (
		from   string
		follow bool
		limit  int
	)
	cmd := &cobra.Command{
		Use:   "tail URL|FEED",
		Short: "Print a feed's entities as JSON lines; publishes nothing",
		Long: `Tail prints the entities of a feed, one JSON object a line, up to the end that
the feed has now. It publishes nothing and stores nothing. FEED is the name of a
feed in the configuration, whose headers and credentials are used then.`,
		Example: `  feedbridge tail https://shop.example.com/feed/latest
  feedbridge tail --from now --follow https://shop.example.com/feed/latest
  feedbridge tail --from 2026-01-01T00:00:00Z --limit 10 -c feedbridge.yaml orders`,
		Args: exactly("URL or FEED"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := a.oneFeed(args[0])
			if err != nil {
				return err
			}
			if from != "" {
				if f.Start, err = datareplication.ParseStart(from); err != nil {
					return &usageError{err}
				}
			}
			log := newLog(a.err, config.Log{Level: "warn"})
			src, err := newSource(f, &source.Hosts{}, nil, log)
			if err != nil {
				return err
			}
			out := bufio.NewWriter(a.out)
			encoder := json.NewEncoder(out)
			encoder.SetEscapeHTML(false)
			printed := 0
			err = readFeed(cmd.Context(), src, follow, f.Every, log, func(b feed.Batch) error {
				warn(log, b.Violations)
				for i := range b.Entities {
					if limit > 0 && printed == limit {
						return errEnough
					}
					if err := encoder.Encode(newLine(&b.Entities[i])); err != nil {
						return err
					}
					printed++
				}
				return out.Flush()
			})
			if errors.Is(err, errEnough) {
				err = nil
			}
			return errors.Join(err, out.Flush())
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "where to start: beginning, now, 2026-01-01T00:00:00Z, or id:<content-id>@<time>; default the feed's start")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on at the end, and poll for more")
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "print that many entities at most")
	return cmd
}

var errEnough = errors.New("enough")

func warn(log *slog.Logger, violations []feed.Violation) {
	for _, v := range violations {
		log.Warn("the feed breaks its specification", "kind", v.Kind, "page", v.Page, "detail", v.Detail)
	}
}
