package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
)

// runCommand returns the command "run", which runs the daemon.
func runCommand(a *app) *cobra.Command {
	var topic string
	cmd := a.configurable(&cobra.Command{
		Use:   "run [URL]",
		Short: "Copy feeds until stopped",
		Long: `Run copies every configured feed to its topic until it is stopped. SIGTERM or
Ctrl-C stops reading and waits for the commits in flight; a second one does not wait.
SIGHUP, or 'feedbridge reload', reads the configuration again.

With only a URL, that feed is copied to a NATS server inside feedbridge, which
stores its data in ./feedbridge-data and listens on 127.0.0.1:4222, or on a free
port. Its topic has a name made from the URL, or the name that --topic gives. If the URL is a web page
that names one feed, that is copied; of several, run lists them.`,
		Example: `  feedbridge run https://shop.example.com/feed/latest
  feedbridge run --topic orders https://shop.example.com/feed/latest
  feedbridge run -c feedbridge.yaml
  feedbridge run -c feedbridge.yaml --set log.level=debug
  FEEDBRIDGE_FEEDS_ORDERS_URL=https://shop.example.com/feed/latest feedbridge run`,
		Args: optionalArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			url := ""
			if len(args) > 0 {
				url = args[0]
			}
			if topic != "" && url == "" {
				return &usageError{errors.New("--topic is for the feed of a URL; configured feeds have feeds.NAME.to.topic")}
			}
			if info, err := os.Stat(url); err == nil && info.Mode().IsRegular() {
				return &usageError{fmt.Errorf("%q is a file, not a URL; if it is a configuration, write --config %s", url, url)}
			}
			cfg, err := a.loadConfig(url, topic)
			if err != nil {
				return err
			}
			typed := url
			if url != "" {
				if url, err = followPage(cmd.Context(), a, typed, topic); err == nil && url != typed {
					cfg, err = a.loadConfig(url, topic)
				}
				if err != nil {
					return err
				}
			}
			flags := repeatFlags(a)
			if url != "" {
				// Nobody has chosen the addresses that are defaults.
				a.set = append(a.set, freePorts(cmd.Context(), cfg, func(key string) bool { return !cfg.IsSet(key) })...)
				if cfg, err = a.loadConfig(url, topic); err != nil {
					return err
				}
			}
			// The reader of standard error may stop to read, or end, which is no reason to end, too.
			signal.Ignore(syscall.SIGPIPE)
			queue := daemon.NewLogQueue(a.err)
			a.queue.Store(queue)
			status, progress := newStatusLine(a.err), &progress{feeds: len(cfg.Feeds)}
			status.w = queue
			defer status.showUntilStopped(progress.statusText)()
			log, level := a.newLeveledLog(status, cfg.Log)
			if !daemon.IsText(cfg.Log, isTerminal(a.err)) {
				a.log.Store(log)
			}
			daemon.CaptureStandardLog(log)
			if url != typed {
				log.Info("the url is a page with one feed, which is copied", "page", typed, "url", url)
			}
			reload, stopReload := reloadSignal()
			defer stopReload()
			opts := daemon.Options{
				Version: programVersion(), Program: programName(), Flags: flags, Log: log, LogQueue: queue, Level: level, Reload: reload,
				// The environment and the command line are those of the process. The redactor in use stays: a change of
				// secret_parameters needs a restart.
				Load: func() (*config.Config, error) {
					return config.Load(a.configOptions(url, topic))
				},
			}
			if status.width != nil {
				opts.Observer = progress
			}
			if url != "" {
				opts.Started = func(at daemon.Addresses) {
					topic, bus, commands := urlCommands(cfg, url, flags, at)
					if !daemon.IsText(cfg.Log, isTerminal(a.err)) {
						log.Info("these commands, in this directory, show the messages", "topic", topic, "bus", bus, "commands", commands)
						return
					}
					fmt.Fprintf(status, "\nThe messages are in the topic %s on %s. Paste these lines into another\nterminal, in this directory, to see them:\n\n  %s\n\n", topic, bus, strings.Join(commands, "\n  "))
				}
			}
			a.isDaemon.Store(true)
			return daemon.Run(cmd.Context(), cfg, opts)
		},
	})
	cmd.Flags().StringVar(&topic, "topic", "", "the `NAME` of the topic for the feed of URL")
	return cmd
}

// repeatFlags returns the flags by which other commands find the same daemon and bus. Values that may be secrets are
// not repeated.
func repeatFlags(a *app) (flags []string) {
	if a.file != "" {
		flags = append(flags, "-c", a.file)
	}
	for _, set := range a.set {
		if key, _, _ := strings.Cut(set, "="); slices.Contains([]string{"data_dir", "admin.listen", "admin.socket"}, key) {
			flags = append(flags, "--set", set)
		}
	}
	return flags
}

// urlCommands returns where the messages of the feed of a URL are, and commands that show them.
func urlCommands(cfg *config.Config, url string, flags []string, at daemon.Addresses) (topic, bus string, commands []string) {
	for name, f := range cfg.Feeds {
		if f.Source.URL != url {
			continue
		}
		topic, bus = f.To.Topic, f.To.Bus
		if cfg.Buses[bus].Embedded != nil {
			bus = at.Bus
		}
		which := topic
		if len(cfg.Buses) > 1 {
			which += " --bus " + f.To.Bus
		}
		commands = []string{"tail --topic " + which + " --limit 1", "status " + name}
		if at.Socket != "" {
			commands = append(commands, "poll "+name)
		}
		for i, c := range commands {
			verb, rest, _ := strings.Cut(c, " ")
			commands[i] = strings.Join(slices.Concat([]string{programName(), verb}, flags, []string{rest}), " ")
		}
	}
	return topic, bus, commands
}
