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
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/safetext"
)

// collectAt is how much the heap grows, in percent, before it is collected. Go's 100
// would take an eighth more memory, which others on the machine can use better.
const collectAt = 70

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	limitMemory()
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
	// redact hides the secrets of URLs in what is shown. It is nil, and knows the
	// usual names of parameters only, until a configuration is loaded.
	redact *safetext.Redactor
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
	return a.tell(cmd, err)
}

// longestError is how many characters a line of an error has on the terminal.
const longestError = 2000

// tell says what went wrong and returns the exit code for it.
func (a *app) tell(cmd *cobra.Command, err error) int {
	if err == nil {
		return exitDone
	}
	w := a.err
	if errs, ok := errors.AsType[config.Errors](err); ok {
		// A line each, file and line number in front, as editors want them.
		fmt.Fprintln(w, errs)
		return exitUsage
	}
	prefix := "feedbridge: "
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(w, prefix+a.redact.Clip(line, longestError))
		prefix = ""
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(w, "Try: %s --help\n", cmd.CommandPath())
		return exitUsage
	}
	return exitFailed
}
