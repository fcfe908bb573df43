package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// stopTime is how long after the first signal a command ends that does not end by itself: it may read a
// document that keeps the parser busy, or write to a pipe that nobody reads. The daemon has limits of its
// own.
const stopTime = 5 * time.Second

// untilSignal returns a context that ends with the first signal to stop. A later one ends the process, and
// so does the end of limit after the first one, unless that is zero; see awaitKill. report reports that
// with the reason.
func untilSignal(limit func() time.Duration, report func(reason string)) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, ok := <-signals; !ok {
			return
		}
		cancel()
		if reason := awaitKill(signals, limit()); reason != "" {
			// Standard error may be a pipe that nobody reads, too.
			time.AfterFunc(oneSignal, func() { os.Exit(exitFailed) })
			report(reason)
			os.Exit(exitFailed)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
	}
}

// oneSignal is how long after the first signal others count as the same: some supervisors send
// two, and a terminal and a wrapper may each send one.
const oneSignal = time.Second

// awaitKill waits, after the first signal, for one that comes more than oneSignal later, or until limit is
// over if there is one. It returns why the process is to end, or "" if the channel is closed before.
func awaitKill(signals <-chan os.Signal, limit time.Duration) (reason string) {
	first := time.Now()
	var over <-chan time.Time
	if limit > 0 {
		over = time.After(limit)
	}
	for {
		select {
		case _, ok := <-signals:
			switch {
			case !ok:
				return ""
			case time.Since(first) > oneSignal:
				return "ended by the second signal, without waiting for commits in flight"
			}
		case <-over:
			return fmt.Sprintf("ended by the signal: what it did has not ended within %v; a change that it was making may be stored", limit)
		}
	}
}

// reloadSignal returns a channel that gets the requests to reload the configuration, and a
// function that ends that.
func reloadSignal() (<-chan os.Signal, func()) {
	signals := make(chan os.Signal, 1) // one that waits covers all that come meanwhile
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}
