package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// configurable adds the flag that names the configuration file to a command.
func (a *app) configurable(cmd *cobra.Command) *cobra.Command {
	const flag = "config"
	cmd.Flags().StringVarP(&a.file, flag, "c", a.getenv("FEEDBRIDGE_CONFIG"), "the configuration `FILE`; default $FEEDBRIDGE_CONFIG.\nVariables FEEDBRIDGE_... can set any key")
	_ = cmd.MarkFlagFilename(flag, "yaml", "yml") // the flag is there
	cmd.Flags().StringArrayVar(&a.set, "set", nil, "set a `KEY=VALUE` of the configuration, such as\nfeeds.orders.every=30s; may be repeated")
	return cmd
}

// getenv returns a variable of the environment, the last one if it is set several times, without blanks behind it.
func (a *app) getenv(name string) string {
	for _, e := range slices.Backward(a.environ) {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return strings.TrimRight(value, " \t\r\n")
		}
	}
	return ""
}

// defaultFile is the usual name of a configuration file. It is not read unless the command
// line names it: a daemon must not depend on the directory it was started in. Errors of all commands
// that were given no file name it; see [app.reportError].
const defaultFile = "feedbridge.yaml"

// configOptions returns the sources of the configuration: those of the start and of each reload.
func (a *app) configOptions(url, topic string) config.Options {
	return config.Options{File: a.file, Environ: a.environ, Set: a.set, URL: url, Topic: topic}
}

// loadConfig reads the configuration that the command line and the environment name, and with
// a URL adds its feed, which goes to topic, or to the default topic if that is empty.
func (a *app) loadConfig(url, topic string) (*config.Config, error) {
	a.fileless = a.file == "" && url == ""
	cfg, err := config.Load(a.configOptions(url, topic))
	if err == nil {
		a.redact = safetext.NewRedactor(cfg.SecretParameters...).WithFile(a.file)
	}
	errs, ok := errors.AsType[config.Errors](err)
	switch {
	case !ok:
		return cfg, err
	case !slices.ContainsFunc(errs, func(e *config.Error) bool { return e.Source != "URL" }):
		// The command line has only a URL; do not name keys.
		return nil, &usageError{fmt.Errorf("invalid URL: %s", errs[0].Text)}
	case len(errs) == 1 && errs[0].Key == "feeds" && errs[0].Source == "":
		return nil, &usageError{errors.New("no feed is configured: name a file with -c, or set FEEDBRIDGE_FEEDS_<NAME>_URL; beside 'feedbridge run URL', add --set feeds.NAME.url=URL")}
	}
	return nil, err
}

// configuredFeed returns the feed with that name, and the configuration.
func (a *app) configuredFeed(name string) (*config.Config, config.Feed, error) {
	cfg, err := a.loadConfig("", "")
	if err != nil {
		return nil, config.Feed{}, err
	}
	f, ok := cfg.Feeds[name]
	if !ok && len(cfg.FeedsFrom) > 0 {
		cfg, _ = daemon.ReadLists(context.Background(), cfg, daemon.Options{Version: programVersion()})
		f, ok = cfg.Feeds[name]
	}
	if !ok {
		return nil, config.Feed{}, &usageError{fmt.Errorf("there is no feed %q in the configuration, only: %s",
			name, strings.Join(slices.Sorted(maps.Keys(cfg.Feeds)), ", "))}
	}
	return cfg, f, nil
}

// feedOrURL returns the feed that a command line names, by its URL or by its name in the
// configuration, which has its headers and credentials.
func (a *app) feedOrURL(arg string) (config.Feed, error) {
	if arg == "" {
		return config.Feed{}, &usageError{errors.New("the URL is empty")}
	}
	if config.CheckName(arg) == nil {
		_, f, err := a.configuredFeed(arg)
		if usage, ok := errors.AsType[*usageError](err); ok {
			err = &usageError{fmt.Errorf("%q is no URL, so it names a feed, but %w", arg, usage.err)}
		}
		return f, err
	}
	if a.file != "" && a.file != a.getenv("FEEDBRIDGE_CONFIG") {
		return config.Feed{}, &usageError{errors.New("a URL and -c exclude each other: name a feed of the file, or leave out -c")}
	}
	if len(a.set) > 0 {
		return config.Feed{}, &usageError{errors.New("a URL and --set exclude each other: name a configured feed, or leave out --set")}
	}
	return feedOfURL(arg)
}

// feedOfURL returns the feed of a URL with the defaults of the configuration.
func feedOfURL(url string) (config.Feed, error) {
	bare := &app{}
	cfg, err := bare.loadConfig(url, "")
	if err != nil {
		return config.Feed{}, err
	}
	for _, f := range cfg.Feeds {
		return f, nil
	}
	return config.Feed{}, fmt.Errorf("no feed was made of %q", url)
}

// completeFeeds returns the names of the configured feeds, for completion in a shell.
func (a *app) completeFeeds(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cfg, err := a.loadConfig("", "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(cfg.Feeds)), cobra.ShellCompDirectiveNoFileComp
}

// loadBuses reads the configuration for its buses and served feeds. It need not have a feed.
func (a *app) loadBuses() (*config.Config, error) {
	a.fileless = a.file == ""
	cfg, err := config.Load(config.Options{File: a.file, Environ: a.environ, Set: a.set, Feedless: true})
	if err == nil {
		a.redact = safetext.NewRedactor(cfg.SecretParameters...).WithFile(a.file)
	}
	return cfg, err
}
