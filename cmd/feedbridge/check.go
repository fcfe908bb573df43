package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/source"
)

// connectTimeout bounds each connection that check tries.
const connectTimeout = 20 * time.Second

func (a *app) checkCommand() *cobra.Command {
	var connect bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Validate the configuration and print it resolved, secrets masked",
		Long: `Check validates the configuration, from the file and the environment, and
prints it with every default filled in and secrets masked. All errors are
reported at once. With --connect it also tries every bus and every feed.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load("")
			if err != nil {
				return err
			}
			text, err := cfg.YAML()
			if err != nil {
				return err
			}
			if _, err := a.out.Write(text); err != nil || !connect {
				return err
			}
			return a.tryConnections(cmd.Context(), cfg)
		},
	}
	cmd.Flags().BoolVar(&connect, "connect", false, "try every bus and every feed")
	return cmd
}

// tryConnections tries every bus, topic and feed, and reports each on a line.
func (a *app) tryConnections(ctx context.Context, cfg *config.Config) error {
	log := newLog(a.err, config.Log{Level: "error"})
	p := &printer{w: a.err}
	failed := 0
	try := func(what string, attempt func(context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		if err := attempt(ctx); err != nil {
			failed++
			p.line("FAIL  %s: %v", what, err)
			return
		}
		p.line("ok    %s", what)
	}
	buses, err := openBuses(ctx, cfg, true, log)
	if err != nil {
		return err
	}
	defer buses.close()
	up := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(buses.conns)) {
		try("bus "+name, func(ctx context.Context) error {
			err := buses.conns[name].Check(ctx)
			up[name] = err == nil
			return err
		})
	}
	hosts := &source.Hosts{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Feeds)) {
		f := cfg.Feeds[name]
		try("feed "+name, func(ctx context.Context) error {
			client, err := source.NewClient(f.Source, source.Options{UserAgent: userAgent(), Hosts: hosts})
			if err != nil {
				return err
			}
			resp, err := client.Do(ctx, source.Request{Method: http.MethodGet, URL: f.Source.URL})
			if err != nil {
				return err
			}
			return resp.Body.Close()
		})
		if up[f.To.Bus] {
			try("topic "+f.To.Topic+" on bus "+f.To.Bus, func(ctx context.Context) error {
				return buses.sink(name, f).Check(ctx)
			})
		}
	}
	if failed > 0 {
		return errors.Join(p.err, fmt.Errorf("%d of the connections do not work", failed))
	}
	return p.err
}
