package bridge

import (
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// State is what a bridge is doing.
type State string

// The states of a bridge.
const (
	// Starting: nothing is known yet.
	Starting State = "starting"
	// Reading: it reads and publishes, or polls.
	Reading State = "reading"
	// Idle: all that upstream had is published; it waits for the next poll.
	Idle State = "idle"
	// Standby: another copy publishes the feed; it waits for its turn.
	Standby State = "standby"
	// Retrying: something failed that will likely work again by itself.
	Retrying State = "retrying"
	// Halted: something failed that a person must look at. It tries again
	// slowly and publishes nothing meanwhile.
	Halted State = "halted"
	// Stopped: Run has returned.
	Stopped State = "stopped"
)

// Status is what a bridge is doing, and since when.
type Status struct {
	State State
	Since time.Time
	// Until is when the next attempt is due; zero while one is under way.
	Until time.Time
	// Checkpoint is the newest that this copy has seen. Its Writer tells
	// which copy published last.
	Checkpoint checkpoint.Checkpoint
	// Err is why the bridge is Standby, Retrying or Halted.
	Err error
}

// An Observer is told what a bridge does. Its methods must not block, may be
// called from two goroutines at a time, and must not keep the entities.
type Observer interface {
	// Polled is called after every call of the source, with its result and
	// how long it took.
	Polled(b feed.Batch, err error, took time.Duration)
	// Settled is called once for every batch that has been committed, with
	// how long that took, or that needed no commit, with zero.
	Settled(b feed.Batch, took time.Duration)
	// Entered is called when the bridge starts to do something else.
	Entered(s Status)
}
