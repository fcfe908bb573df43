// Command feedbridge copies HTTP feeds to message topics: each entity once, in
// order, with no state but the bus.
//
// It is configured by a YAML file (-c, or FEEDBRIDGE_CONFIG) and by
// environment variables, which package config describes. It logs to standard
// error, text on a terminal and JSON elsewhere, and serves /healthz, /readyz,
// /metrics and /status at admin.listen (127.0.0.1:9321).
//
// It exits with 0 when it has done what it was asked for, with 1 when that
// failed, and with 2 when the command line or the configuration is wrong. The
// first SIGINT or SIGTERM lets the commits in flight finish, for as long as
// grace says; the second ends it at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
)

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// The exit codes of the program.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// app is what every command needs of the world around it.
type app struct {
	environ []string
	in      io.Reader
	out     io.Writer
	err     io.Writer
	file    string // -c
}

// run runs the program and returns its exit code.
func run(args, environ []string, in io.Reader, out, errw io.Writer) int {
	ctx, stop := untilSignal(errw)
	defer stop()
	a := &app{environ: environ, in: in, out: out, err: errw}
	root := a.command()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errw)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(errw, "feedbridge: %v\n", err)
	var configErrors config.Errors
	var usage *usageError
	switch {
	case errors.As(err, &configErrors):
		return exitUsage
	case errors.As(err, &usage):
		fmt.Fprintf(errw, "Try: %s --help\n", cmd.CommandPath())
		return exitUsage
	}
	return exitFailed
}

// untilSignal returns a context that ends with the first signal to stop. The
// second ends the process.
func untilSignal(errw io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, ok := <-signals; !ok {
			return
		}
		cancel()
		if _, ok := <-signals; ok {
			fmt.Fprintln(errw, "feedbridge: ended by the second signal")
			os.Exit(exitFailed)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
	}
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "feedbridge",
		Short: "Copy HTTP feeds to message topics, each entity once and in order",
		Long: `feedbridge polls HTTP feeds and puts what is new in them onto NATS JetStream as
ordered messages: for each feed its topic holds exactly the feed's entities,
in order, each once, after any crash and on any number of copies.

Start with 'feedbridge demo', which needs nothing, or 'feedbridge run URL'.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("there is no command %q%s", args[0], suggestion(cmd, args[0]))}
			}
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.PersistentFlags().StringVarP(&a.file, "config", "c", "", "the configuration file; default $FEEDBRIDGE_CONFIG")
	root.AddCommand(
		a.runCommand(), a.tailCommand(), a.inspectCommand(), a.checkCommand(),
		a.checkpointCommand(), a.demoCommand(), a.configCommand(), a.versionCommand(),
	)
	return root
}

// usageError says that the command line is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// exactly wants n arguments, named for people.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return &usageError{fmt.Errorf("want %d argument(s) %v, got %d", len(names), names, len(args))}
	}
}

func suggestion(cmd *cobra.Command, name string) string {
	near := cmd.SuggestionsFor(name)
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", near[0])
}

// load reads the configuration that the command line and the environment name.
func (a *app) load(url string) (*config.Config, error) {
	file := a.file
	if file == "" {
		for _, e := range a.environ {
			if value, ok := strings.CutPrefix(e, "FEEDBRIDGE_CONFIG="); ok {
				file = value
			}
		}
	}
	return config.Load(config.Options{File: file, Environ: a.environ, URL: url})
}
