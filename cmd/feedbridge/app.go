package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// The exit codes of the program.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// app is the environment of a command: its variables, its streams, and the configuration
// file that the command line names.
type app struct {
	environ []string
	in      io.Reader
	answers *bufio.Reader // of in, once a question was asked
	out     io.Writer
	err     io.Writer
	file    string   // -c
	set     []string // --set
	admin   adminFlags
	// fileless is set when a configuration is read and no file is named.
	fileless bool
	// redact hides the secrets of URLs in output. Until a configuration is loaded it is
	// nil, and hides parameters with the usual names only.
	redact *safetext.Redactor
	// log is that of a daemon whose log is JSON: its errors are lines of it, too.
	log atomic.Pointer[slog.Logger]
	// queue is what a daemon writes to instead of standard error.
	queue atomic.Pointer[daemon.LogQueue]
	// isDaemon is set by the commands that run a daemon, which ends by itself.
	isDaemon atomic.Bool
}

// stopLimit returns how long the command may take to end after a signal; 0 for no limit.
func (a *app) stopLimit() time.Duration {
	if a.isDaemon.Load() {
		return 0
	}
	return stopTime
}

// newLog returns a logger that writes to w, which writes to standard error.
func (a *app) newLog(w io.Writer, cfg config.Log) *slog.Logger {
	log, _ := a.newLeveledLog(w, cfg)
	return log
}

// newLeveledLog is newLog with the level, which can be changed.
func (a *app) newLeveledLog(w io.Writer, cfg config.Log) (*slog.Logger, *slog.LevelVar) {
	// The method value would keep the redactor of now: a configuration may be loaded later.
	clip := func(text string, most int) string { return a.redact.Clip(text, most) }
	return daemon.NewLog(w, cfg, isTerminal(a.err), clip)
}

// longestError is the most characters of a line of an error on the terminal.
const longestError = 2000

// reportError prints an error, if there is one, and returns the exit code for it.
func (a *app) reportError(cmd *cobra.Command, err error) int {
	defer a.flushLog()
	if err == nil {
		return exitDone
	}
	w := a.errors()
	if errs, ok := errors.AsType[config.Errors](err); ok {
		// One line each that begins with the file and the line number, which editors parse.
		fmt.Fprintln(w, errs)
		a.hintFile()
		return exitUsage
	}
	if log := a.log.Load(); log != nil {
		log.Error("feedbridge ended with an error", "error", err)
		return exitFailed
	}
	prefix, redact := "feedbridge: ", a.redact.WithFile(a.file)
	for line := range strings.Lines(err.Error()) {
		text := strings.TrimLeft(line, " ") // the indentation of YAML must stay
		fmt.Fprintln(w, prefix+line[:len(line)-len(text)]+redact.Clip(text, longestError))
		prefix = ""
	}
	a.hintFile()
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(w, "Try: %s --help\n", cmd.CommandPath())
		return exitUsage
	}
	return exitFailed
}

// hintFile names the configuration file in this directory to someone who might have meant it.
func (a *app) hintFile() {
	if _, err := os.Stat(defaultFile); err == nil && a.fileless {
		fmt.Fprintf(a.errors(), "No configuration file was named, but there is one here: add -c %s\n", defaultFile)
	}
}

// reportKilled reports that the process ends before its command has.
func (a *app) reportKilled(reason string) {
	defer a.flushLog()
	if log := a.log.Load(); log != nil {
		log.Error("feedbridge ended with an error", "error", errors.New(reason))
		return
	}
	fmt.Fprintln(a.errors(), "feedbridge: "+reason)
}

// errors returns the writer of standard error.
func (a *app) errors() io.Writer {
	if queue := a.queue.Load(); queue != nil {
		return queue
	}
	return a.err
}

// flushTime is how long the end of a daemon waits for the lines of its log to be read.
const flushTime = time.Second

// flushLog waits until the log of a daemon is written.
func (a *app) flushLog() {
	if queue := a.queue.Load(); queue != nil {
		queue.Flush(flushTime)
	}
}
