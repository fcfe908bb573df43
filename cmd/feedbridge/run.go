package main

import (
	"github.com/spf13/cobra"
)

func (a *app) runCommand() *cobra.Command {
	return a.configurable(&cobra.Command{
		Use:   "run [URL]",
		Short: "Copy feeds until stopped",
		Long: `Run copies every configured feed to its topic until it is stopped. SIGTERM or
Ctrl-C lets the commits in flight finish; a second one does not.

With a URL and nothing else, that feed goes into an embedded JetStream server,
which keeps its data in ./feedbridge-data and listens on 127.0.0.1:4222.`,
		Example: `  feedbridge run https://shop.example.com/feed/latest
  feedbridge run -c feedbridge.yaml
  FEEDBRIDGE_FEEDS_ORDERS_URL=https://shop.example.com/feed/latest feedbridge run`,
		Args: atMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			url := ""
			if len(args) > 0 {
				url = args[0]
			}
			cfg, err := a.load(url)
			if err != nil {
				return err
			}
			screen, progress := newScreen(a.err), &progress{feeds: len(cfg.Feeds)}
			defer screen.live(progress.line)()
			d := &daemon{cfg: cfg, log: a.newLog(screen, cfg.Log)}
			if screen.width != nil {
				d.watch = progress
			}
			return d.run(cmd.Context())
		},
	})
}
