package main

import (
	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/daemon"
)

// runCommand returns the command "run", which runs the daemon.
func runCommand(a *app) *cobra.Command {
	return a.configurable(&cobra.Command{
		Use:   "run [URL]",
		Short: "Copy feeds until stopped",
		Long: `Run copies every configured feed to its topic until it is stopped. SIGTERM or
Ctrl-C stops reading and waits for the commits in flight; a second one does not wait.

With only a URL, that feed is copied to a NATS server inside feedbridge, which
stores its data in ./feedbridge-data and listens on 127.0.0.1:4222.`,
		Example: `  feedbridge run https://shop.example.com/feed/latest
  feedbridge run -c feedbridge.yaml
  FEEDBRIDGE_FEEDS_ORDERS_URL=https://shop.example.com/feed/latest feedbridge run`,
		Args: optionalArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			url := ""
			if len(args) > 0 {
				url = args[0]
			}
			cfg, err := a.loadConfig(url)
			if err != nil {
				return err
			}
			status, progress := newStatusLine(a.err), &progress{feeds: len(cfg.Feeds)}
			defer status.showUntilStopped(progress.statusText)()
			opts := daemon.Options{Version: programVersion(), Log: a.newLog(status, cfg.Log)}
			if status.width != nil {
				opts.Observer = progress
			}
			return daemon.Run(cmd.Context(), cfg, opts)
		},
	})
}
