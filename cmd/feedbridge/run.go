package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run [URL]",
		Short: "Copy the configured feeds until stopped",
		Long: `Run copies every configured feed to its topic until it is stopped.

With a URL and no file, that feed goes into an embedded JetStream server, which
keeps its data in ./feedbridge-data and listens on 127.0.0.1:4222.`,
		Example: `  feedbridge run https://shop.example.com/feed/latest
  feedbridge run -c feedbridge.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &usageError{fmt.Errorf("want one URL at most, got %d arguments", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			url := ""
			if len(args) == 1 {
				url = args[0]
			}
			cfg, err := a.load(url)
			if err != nil {
				return err
			}
			if len(cfg.Feeds) == 0 {
				return &usageError{errors.New("there is no feed: name a URL, a file with -c, or set FEEDBRIDGE_FEEDS_<NAME>_URL")}
			}
			screen := newScreen(a.err)
			defer screen.close()
			d := &daemon{cfg: cfg, log: newLog(screen, cfg.Log)}
			if screen.terminal {
				d.watch = screen
			}
			return d.run(cmd.Context())
		},
	}
}
