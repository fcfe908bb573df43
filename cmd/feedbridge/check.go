package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
)

// checkCommand returns the command "check", which tries the configuration and its connections.
func checkCommand(a *app) *cobra.Command {
	var connect, asJSON bool
	cmd := a.configurable(&cobra.Command{
		Use:   "check",
		Short: "Validate the configuration and print it with all defaults",
		Long: `Check validates the configuration, from the file and the environment, and
prints it with all defaults and with secrets as ***. Beside each value that is no
default it prints the line of the file, the variable or the flag that has set it.
It also reads the lists of feeds_from. It reports all errors at once, and exits
with 2 if there are any, also if a list cannot be read at the moment.

With --connect it tries every bus, feed and topic, and whether the addresses of
its servers are free, without publishing or creating anything. It prints a line
for each instead of the configuration, and exits with 1 unless all of them work.`,
		Example: `  feedbridge check -c feedbridge.yaml
  feedbridge check -c feedbridge.yaml --connect --json | jq '.connections[] | select(.ok|not)'`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := checked{}
			cfg, err := a.loadConfig("", "")
			if err == nil {
				err = daemon.CheckBuild(cfg)
			}
			err = cmp.Or(err, daemon.CheckTraces())
			if err == nil {
				found.OK = true
				found.Configuration, err = cfg.YAML()
			}
			switch {
			case err != nil && asJSON:
				found.Errors = problemsOf(err)
				return errors.Join(printReport(a.out, a.redact, found), err)
			case err != nil:
				return err
			case !asJSON && !connect:
				if _, err := a.out.Write(found.Configuration); err != nil {
					return err
				}
			}
			if len(cfg.FeedsFrom) > 0 {
				cfg, err = readLists(cmd.Context(), a, cfg)
				found.Errors, found.OK = problemsOf(err), err == nil
				if !asJSON { // comments, as the configuration is YAML
					p, origins := &printer{w: a.out}, cfg.Origins()
					p.printLine("# %s with those of the lists", withNoun(len(cfg.Feeds), "feed", "feeds"))
					for _, name := range slices.Sorted(maps.Keys(cfg.ListOf)) {
						p.printLine("# feeds.%s.url: %s # %s", name, a.redact.URL(cfg.Feeds[name].Source.URL), origins["feeds."+name+".url"])
					}
				}
			}
			if connect {
				// As text each is printed at once, as JSON all of them in the end.
				l := lookOf(a, a.out)
				report := func(c daemon.Connection) { fmt.Fprintln(a.out, l.paintFirst(c.String())) }
				if asJSON {
					report = func(daemon.Connection) {}
				}
				opts := daemon.Options{Version: programVersion(), Log: a.newLog(a.err, config.Log{Level: "error"})}
				found.Connections = daemon.CheckConnections(cmd.Context(), cfg, opts, daemonRuns(cmd.Context(), a), report)
				err = errors.Join(err, countFailures(found.Connections))
				found.OK = err == nil
			}
			if asJSON {
				found.Origins = cfg.Origins()
				return errors.Join(printReport(a.out, a.redact, found), err)
			}
			return err
		},
	})
	cmd.Flags().BoolVar(&connect, "connect", false, "try every bus, feed, topic and address, and the fleet")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// daemonRuns reports whether the daemon of the configuration answers.
func daemonRuns(ctx context.Context, a *app) bool {
	client, err := a.openAdmin()
	return err == nil && client.checkConfig(a.file) == nil && client.do(ctx, http.MethodGet, "/readyz", &daemonReadiness{}, http.StatusServiceUnavailable) == nil
}

// readLists returns the configuration with the feeds of its lists, and an error of type [config.Errors] if there are
// any in them.
func readLists(ctx context.Context, a *app, cfg *config.Config) (*config.Config, error) {
	cfg, refused := daemon.ReadLists(ctx, cfg, daemon.Options{Version: programVersion()})
	var errs config.Errors
	for _, err := range refused {
		e, ok := errors.AsType[*config.Error](err)
		if !ok {
			e = &config.Error{Text: err.Error() + "; run would copy the other feeds, and not be ready until it has read the list"}
		}
		e.Text = a.redact.Text(e.Text) // it may quote a URL
		errs = append(errs, e)
	}
	if len(errs) == 0 {
		return cfg, nil
	}
	return cfg, errs
}

// checked is the result of check.
type checked struct {
	OK            bool                `json:"ok"`
	Errors        []problem           `json:"errors,omitempty"`
	Configuration yamlText            `json:"configuration,omitempty"`
	Origins       map[string]string   `json:"origins,omitempty"` // of values that are no defaults, by their keys
	Connections   []daemon.Connection `json:"connections,omitempty"`
}

// problem is an error in the configuration.
type problem struct {
	Source string `json:"source,omitempty"` // a file or a variable
	Line   int    `json:"line,omitempty"`
	Key    string `json:"key,omitempty"`
	Text   string `json:"text"`
}

func problemsOf(err error) []problem {
	errs, ok := errors.AsType[config.Errors](err)
	if err != nil && !ok {
		return []problem{{Text: err.Error()}}
	}
	problems := make([]problem, len(errs))
	for i, e := range errs {
		problems[i] = problem(*e)
	}
	return problems
}

// yamlText is YAML that is encoded in JSON as the same value.
type yamlText []byte

func (y yamlText) MarshalJSON() ([]byte, error) {
	var v any
	if err := yaml.Unmarshal(y, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// countFailures returns an error if a connection does not work.
func countFailures(connections []daemon.Connection) error {
	failed := 0
	for _, c := range connections {
		if !c.OK {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d connections do not work", failed, len(connections))
	}
	return nil
}
