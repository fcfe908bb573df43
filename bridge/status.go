package bridge

import (
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// State is the current activity of a bridge.
type State string

// The states of a bridge.
const (
	// Starting: nothing is known yet. If many feeds start, it waits for its turn.
	Starting State = "starting"
	// Reading: it reads and publishes, or polls.
	Reading State = "reading"
	// Idle: all that upstream had is published; it waits for the next poll.
	Idle State = "idle"
	// Standby: another copy publishes the feed; it waits for its turn.
	Standby State = "standby"
	// Retrying: a transient error has occurred; it tries again.
	Retrying State = "retrying"
	// Halted: a permanent error has occurred, which requires action by a person. It tries
	// again slowly and publishes nothing meanwhile.
	Halted State = "halted"
	// Paused: a person has paused the feed, for all copies. It waits until the feed is
	// resumed.
	Paused State = "paused"
	// Stopped: it has ended after its context.
	Stopped State = "stopped"
)

// Status describes the state of a bridge.
type Status struct {
	State State
	Since time.Time
	// Until is the time of the next attempt, or zero during an attempt.
	Until time.Time
	// Checkpoint is the newest checkpoint that this copy has seen. Its Writer is the copy
	// that published last.
	Checkpoint checkpoint.Checkpoint
	// Confirmed returns when the bus last confirmed the newest checkpoint that this copy has seen:
	// the sink returned or stored it, or [Bridge.Unchanged] has shown it. A bridge that is Idle or
	// Paused reads its checkpoint when that is 30 to 45 seconds ago, so an older time means that the
	// bus does not answer. It is the zero time before the first answer. Any goroutine may call it. Nil if the bridge is
	// Stopped.
	Confirmed func() time.Time
	// Err holds the error that made the bridge Standby, Retrying or Halted.
	Err error
	// Attempt is the number of failures in a row, if the bridge is Retrying or Halted.
	Attempt int
}

// An Observer receives the events of a bridge. Its methods must not block, may be called
// from two goroutines at the same time, and must not keep the entities.
type Observer interface {
	// Polled is called after every call of the source, with its result and
	// how long it took.
	Polled(b feed.Batch, err error, took time.Duration)
	// Processed is called once for every batch, when its entities are in the topic. It may be
	// several batches of the source, joined to one. took is the time of the commit, or zero if
	// the batch needed none.
	Processed(b feed.Batch, took time.Duration)
	// Entered is called when the state changes.
	Entered(s Status)
}
