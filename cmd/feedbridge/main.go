// Command feedbridge copies HTTP feeds to message topics: each entity once, in
// order, with no state but the bus.
//
// It is configured by a YAML file (-c, or FEEDBRIDGE_CONFIG) and by
// environment variables, which package config describes. It logs to standard
// error: text on a terminal and JSON otherwise, except for the stack trace of a crash. It serves /healthz, /readyz, /metrics and /status at
// admin.listen (127.0.0.1:9321).
//
// It exits with 0 on success, with 1 on failure, and with 2 if the command line or the configuration is wrong. The
// first SIGINT or SIGTERM lets the commits in flight finish, for as long as
// grace says, and ends any other command within 5s; another one, more than a second later, ends it at once. SIGHUP makes
// 'feedbridge run' read its configuration again.
package main

import (
	"io"
	"os"
	"runtime/debug"

	"github.com/feedbridge/feedbridge/daemon"
)

// collectAt is the growth of the heap, in percent, after which it is collected (GOGC). At 70 a copy
// to Kafka takes 5 MiB more memory, and with Go's default of 100 more than that.
const collectAt = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	daemon.LimitMemory()
	os.Exit(runProgram(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// runProgram runs the program and returns its exit code.
func runProgram(args, environ []string, in io.Reader, out, errw io.Writer) int {
	a := &app{environ: environ, in: in, out: out, err: errw}
	ctx, stop := untilSignal(a.stopLimit, a.reportKilled)
	defer stop()
	root := newRootCommand(a)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errw)
	cmd, err := root.ExecuteContextC(ctx)
	return a.reportError(cmd, err)
}
