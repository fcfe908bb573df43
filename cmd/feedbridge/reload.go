package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
)

func reloadCommand(a *app) *cobra.Command {
	var asJSON, yes bool
	cmd := a.addAdminFlags(&cobra.Command{
		Use:   "reload",
		Short: "Make the running daemon read its configuration again",
		Long: `Reload makes the running daemon read its configuration again, as SIGHUP does,
and prints what has changed. Only feeds and buses whose settings or files differ
are restarted. A wrong configuration changes nothing: its errors are printed, and
the exit code is 1.`,
		Example: `  feedbridge reload -c feedbridge.yaml
  feedbridge reload --admin unix:/run/feedbridge/admin.sock`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.openAdmin()
			if _, ok := errors.AsType[config.Errors](err); ok {
				// The daemon cannot be asked. Show what else it would refuse.
				if _, all := a.loadConfig("", ""); all != nil {
					err = all
				}
			}
			if err != nil {
				return err
			}
			a.reportFound(client)
			var done daemon.Reloaded
			path := "/reload"
			if yes {
				path += "?lists=use"
			}
			if err := client.post(cmd.Context(), path, &done); err != nil {
				return err
			}
			if asJSON {
				return printReport(a.out, a.redact, done)
			}
			p := &printer{w: a.out, redact: a.redact}
			if printReloaded(p, done) == 0 {
				p.printLine("no feed, bus or served feed has changed")
			}
			return p.err
		},
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&yes, "yes", false, "look at the lists of feeds, and use those that have lost most of their\nfeeds, and are held")
	return cmd
}

// printReloaded prints a line for each kind of change, and returns their number.
func printReloaded(p *printer, done daemon.Reloaded) (lines int) {
	done.Changes(func(kind, how string, names []string) {
		if kind == "served" {
			kind = "served feeds"
		}
		p.printLine("%s", fmt.Sprintf("%s %s: %d (%s)", kind, how, len(names), strings.Join(names, ", ")))
		lines++
	})
	for _, l := range done.LeftBehind {
		p.printLine("the feed %s was stopped and does not end; it is left behind: %s", l.Feed, l.Work)
		lines++
	}
	for _, l := range done.Held {
		p.printLine("the list %s %s", l.List, l.HeldList)
		lines++
	}
	for _, list := range slices.Sorted(maps.Keys(done.Confirmed)) {
		p.printLine("the list %s: its version in this copy is confirmed for the members that held it, which use it now (%s)", list, strings.Join(done.Confirmed[list], ", "))
		lines++
	}
	return lines
}
