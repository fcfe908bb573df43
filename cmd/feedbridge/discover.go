package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/sink"
)

// discoverCommand returns the command "discover", which prints the feeds of a page.
func discoverCommand(a *app) *cobra.Command {
	var asJSON, guess bool
	cmd := &cobra.Command{
		Use:   "discover URL",
		Short: "Print the feeds of a web page, with their newest entries",
		Long: `Discover prints the feeds that a page names in its link elements or in the header
Link: the format and the dialect of each, its title, its newest three entries and
the mean time between them. If URL is that of a feed, it prints that feed. It
publishes nothing. Feeds on other hosts must have public addresses.

It exits with 1 if no feed can be read.`,
		Example: `  feedbridge discover https://shop.example.com
  feedbridge discover --guess --json https://shop.example.com | jq -r '.feeds[].url'`,
		Args: exactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			sources, err := sourcesOfURL(a, args[0])
			if err != nil {
				return err
			}
			feeds, err := sources.Discover(cmd.Context(), guess)
			switch {
			case err != nil:
				return err
			case asJSON:
				err = printReport(a.out, a.redact, struct {
					Feeds []daemon.FoundFeed `json:"feeds"`
				}{feeds})
			default:
				err = printFound(a.out, a.redact, feeds)
			}
			if err == nil && !slices.ContainsFunc(feeds, daemon.FoundFeed.IsFeed) {
				err = fmt.Errorf("%s is a page that names %s, and none can be read", a.redact.URL(args[0]), withNoun(len(feeds), "feed", "feeds"))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&guess, "guess", false, "request the usual paths, too: /feed, /rss.xml, /atom.xml,\n/feed.json and /index.xml")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// sourcesOfURL returns the sources of a URL, with the defaults of the configuration.
func sourcesOfURL(a *app, url string) (*daemon.Sources, error) {
	f, err := feedOfURL(url)
	if err != nil {
		return nil, err
	}
	return sourcesOfFeed(a, f)
}

// sourcesOfFeed returns the sources of a feed whose entities are not published.
func sourcesOfFeed(a *app, f config.Feed) (*daemon.Sources, error) {
	log := a.newLog(a.err, config.Log{Level: "warn"})
	return daemon.NewSources(f, daemon.SourceOptions{Version: programVersion(), IDs: sink.NewIDs(0), Once: true, Redact: a.redact}, log)
}

// printFound prints feeds that were found.
func printFound(w io.Writer, redact *safetext.Redactor, feeds []daemon.FoundFeed) error {
	p := &printer{w: w, redact: redact}
	for i, f := range feeds {
		if i > 0 {
			p.printLine("")
		}
		p.printLine("%s", f.URL)
		show := func(name, value string) {
			if value != "" {
				p.printLine("  %-9s %s", ownText(name), value)
			}
		}
		show("format", string(f.Format))
		show("dialect", string(f.Dialect))
		show("title", f.Title)
		for _, e := range f.Newest {
			at := "no date             "
			if !e.Time.IsZero() {
				at = e.Time.Format(time.RFC3339)
			}
			p.printLine("  entry     %s  %s", ownText(at), e.Title)
		}
		show("interval", f.Interval)
		show("error", f.Error)
	}
	return p.err
}

// longestLook is how long run looks for the feeds of a page before it starts.
const longestLook = 10 * time.Second

// followPage returns the URL of the only feed of the page at a URL, or the URL itself if there is no such page. It
// prints the feeds and returns an error if there are several, or if the only one cannot be read, and for a topic that is given: a provider's page for an
// outage may name another feed than the one in the topic.
func followPage(ctx context.Context, a *app, url, topic string) (string, error) {
	sources, err := sourcesOfURL(a, url)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	feeds := sources.FindFeeds(ctx)
	switch {
	case len(feeds) == 0:
		return url, nil
	case len(feeds) == 1 && topic == "" && feeds[0].IsFeed():
		return feeds[0].URL, nil
	}
	if err := printFound(a.out, a.redact, feeds); err != nil {
		return "", err
	}
	return "", fmt.Errorf("%s is a page that names %s; run one of them, by its URL", a.redact.URL(url), withNoun(len(feeds), "feed", "feeds"))
}
