package main

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
)

// exportCommand returns the command "export", which prints the configured feeds as a list.
func exportCommand(a *app) *cobra.Command {
	var opml bool
	cmd := a.configurable(&cobra.Command{
		Use:   "export --opml",
		Short: "Print the configured feeds as OPML",
		Long: `Export prints the feeds of the configuration and of its lists as OPML 2.0, for feed
readers, or for feeds_from of another configuration: their names, titles and URLs.
Secrets in URLs are replaced by ***; other keys are not part of OPML.`,
		Example: `  feedbridge export --opml -c feedbridge.yaml >feeds.opml`,
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !opml {
				return &usageError{errors.New("the format is missing: want --opml")}
			}
			return exportOPML(cmd.Context(), a)
		},
	})
	cmd.Flags().BoolVar(&opml, "opml", false, "print OPML 2.0, the only format")
	return cmd
}

// exportOPML prints the configured feeds. It prints nothing if a list cannot be read: whoever reads the result would
// stop the feeds that it lacks.
func exportOPML(ctx context.Context, a *app) error {
	cfg, err := a.loadConfig("", "")
	if err != nil {
		return err
	}
	p := &printer{w: a.err, redact: a.redact}
	cfg, problems := daemon.ReadLists(ctx, cfg, daemon.Options{Version: programVersion()})
	for _, err := range problems {
		if _, ok := errors.AsType[*config.Error](err); !ok {
			return err
		}
		p.printLine("%v", err)
	}
	var entries []config.Entry
	for _, name := range slices.Sorted(maps.Keys(cfg.Feeds)) {
		entries = append(entries, config.Entry{Name: name, URL: a.redact.URL(cfg.Feeds[name].Source.URL), Title: a.redact.Text(cfg.Title(name))})
	}
	text, err := config.FormatOPML(entries)
	if err != nil {
		return err
	}
	if _, err := a.out.Write(text); err != nil {
		return err
	}
	if bytes.Contains(text, []byte("***")) {
		p.printLine("URLs have *** in place of secrets")
	}
	return p.err
}
