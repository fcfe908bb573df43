package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// untilSignal returns a context that ends with the first signal to stop. A later one calls kill
// and ends the process; see awaitKill.
func untilSignal(kill func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, ok := <-signals; !ok {
			return
		}
		cancel()
		if awaitKill(signals) {
			kill()
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

// awaitKill waits, after the first signal, for one that comes more than oneSignal later. It
// reports false if the channel is closed before.
func awaitKill(signals <-chan os.Signal) bool {
	first := time.Now()
	for range signals {
		if time.Since(first) > oneSignal {
			return true
		}
	}
	return false
}

// reloadSignal returns a channel that gets the requests to reload the configuration, and a
// function that ends that.
func reloadSignal() (<-chan os.Signal, func()) {
	signals := make(chan os.Signal, 1) // one that waits covers all that come meanwhile
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}
