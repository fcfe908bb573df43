package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/daemon"
)

// pauseCommand returns the command "pause", which pauses a feed for all copies.
func pauseCommand(a *app) *cobra.Command {
	return changePause(a, true, &cobra.Command{
		Use:   "pause FEED",
		Short: "Pause a feed for all copies",
		Long: `Pause stops the reading and publishing of a feed on all copies of the program, also
after restarts, until 'feedbridge resume'. The pause is part of the checkpoint on
the bus. Nothing is lost unless entities leave the feed meanwhile.

If the daemon's socket answers, or admin.token is configured and the daemon runs, or
with --admin, the daemon makes the change. Otherwise the command makes it on the bus itself;
running copies then stop reading within half a minute.`,
		Example: `  feedbridge pause -c feedbridge.yaml orders`,
	})
}

// resumeCommand returns the command "resume", which ends a pause.
func resumeCommand(a *app) *cobra.Command {
	return changePause(a, false, &cobra.Command{
		Use:   "resume FEED",
		Short: "End the pause of a feed",
		Long: `Resume ends the pause of a feed. Reading continues after the last published entity.
The change is made like that of 'feedbridge pause'; if the command makes it on the
bus itself, running copies continue within half a minute.`,
		Example: `  feedbridge resume -c feedbridge.yaml orders`,
	})
}

// changePause makes cmd pause a feed, or end its pause.
func changePause(a *app, pause bool, cmd *cobra.Command) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = exactArgs("FEED"), a.completeFeeds
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		changed, onBus, err := setPaused(cmd.Context(), a, args[0], pause)
		if err != nil {
			return err
		}
		before, after, copies := "was not paused", "is resumed", "; running copies continue within half a minute"
		if pause {
			since := ", since " + changed.Paused.Format(time.RFC3339)
			before, after = "was paused already"+since, "is paused"+since[1:]
			copies = ": nothing more is published, and running copies stop reading within half a minute"
		}
		p := &printer{w: a.out, redact: a.redact}
		switch {
		case !changed.Changed:
			p.printLine("%s %s", changed.Feed, before)
		case onBus:
			p.printLine("%s %s%s", changed.Feed, after, copies)
		default:
			p.printLine("%s %s", changed.Feed, after)
		}
		printBusy(p, changed)
		return p.err
	}
	return a.addAdminFlags(cmd)
}

// printBusy prints what the daemon still does, if the feed does not yield.
func printBusy(p *printer, changed daemon.Pause) {
	if changed.Work != "" {
		p.printLine("the daemon is still %s, and publishes nothing until it has ended and seen this change", changed.Work)
	}
}

// setPaused pauses or resumes a feed: by the daemon if the user may change it and it answers,
// or has named it; otherwise on the bus.
func setPaused(ctx context.Context, a *app, name string, pause bool) (changed daemon.Pause, onBus bool, err error) {
	named := a.admin.url != "" || a.admin.tokenFile != ""
	client, err := a.openAdmin()
	if err != nil && named {
		return daemon.Pause{}, false, err
	}
	if err == nil && (named || client.mayChange()) {
		a.reportFound(client)
		action := "resume"
		if pause {
			action = "pause"
		}
		err := client.post(ctx, "/feeds/"+url.PathEscape(name)+"/"+action, &changed)
		if named || !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) {
			return changed, false, err
		}
	}
	t, err := openTopic(ctx, a, name)
	if err != nil {
		return daemon.Pause{}, false, err
	}
	defer t.close()
	changed, err = t.bus.PauseFeed(ctx, name, t.Feed, pause)
	return changed, true, err
}

// pollCommand returns the command "poll", which polls a feed now.
func pollCommand(a *app) *cobra.Command {
	return a.addAdminFlags(&cobra.Command{
		Use:   "poll FEED",
		Short: "Make a running daemon poll a feed now",
		Long: `Poll makes a running daemon poll a feed now, also one that waits after an error, and
prints what it has published. It waits for a minute; a longer poll continues
without it. It needs the daemon's socket or admin.token. The exit code is 0 unless the
poll fails or the feed is paused.`,
		Example:           `  feedbridge poll -c feedbridge.yaml orders`,
		Args:              exactArgs("FEED"),
		ValidArgsFunction: a.completeFeeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.openAdmin()
			if err != nil {
				return err
			}
			a.reportFound(client)
			var polled daemon.Poll
			if err := client.post(cmd.Context(), "/feeds/"+url.PathEscape(args[0])+"/poll", &polled); err != nil {
				return err
			}
			admin := ""
			if a.admin.url != "" && a.file == "" { // the output names the file in its commands
				admin = "--admin " + a.admin.url + " "
			}
			return printPoll(&printer{w: a.out, redact: a.redact}, polled, admin)
		},
	})
}

// printPoll prints the result of a poll. It returns the error of the poll, in which quoted commands have the flag --admin.
func printPoll(p *printer, polled daemon.Poll, admin string) error {
	count := func(n int) string { return withNoun(n, "entity", "entities") }
	switch polled.State {
	case bridge.Paused:
		return fmt.Errorf("the feed is paused; continue with 'feedbridge resume %s'", admin+polled.Feed)
	case bridge.Retrying, bridge.Halted:
		return fmt.Errorf("the feed is %s: %s", polled.State, polled.Error)
	case bridge.Standby:
		p.printLine("another copy publishes %s, and this one stands by", polled.Feed)
	case bridge.Idle:
		p.printLine("%s: %s published, %s left out as duplicates; the topic has all of the feed", polled.Feed, count(polled.Published), count(polled.Duplicates))
	default:
		p.printLine("%s: the poll has not ended and continues (%s); follow it with 'feedbridge status --watch %s'", polled.Feed, polled.Work, admin+polled.Feed)
	}
	return p.err
}
