// Package bridge copies one feed to one topic: all entities, in order, each once.
//
// A [Bridge] has a [Source], which reads the feed from a cursor, and a [Sink], which appends
// entities to the topic together with the checkpoint that has the next cursor. All state is
// on the bus. The loop gets the checkpoint from the sink, reads on from its cursor and
// commits. After any error, a lost answer, a conflict with another copy or a crash, it gets
// the checkpoint again. Starting and recovering are the same code.
//
// # Design notes
//
// Each of these rules was broken once in this package or in a prototype of it. A test covers
// each of them.
//
//   - An empty batch that does not move the cursor is not committed. A copy that
//     commits without need invalidates the fence of the busy copy again and again.
//   - A batch that says More without moving the cursor is treated as the end of the
//     feed for now. Otherwise the loop would spin.
//   - Waits have jitter. Copies that failed together would retry together.
//   - Reading ahead has ended before Resume is called again. Batches that were read
//     and not committed are dropped with their session, and Resume makes the sink
//     forget their IDs.
//   - A stop lets the commit in flight finish. Nothing would be lost without that, but
//     the next start would have to find out whether it took place.
//   - An idle copy reads the checkpoint every 30 s. Otherwise it would not notice that
//     a person has moved the checkpoint, that another copy has published, or that the
//     topic went back to an earlier state. If the checkpoint is another one, the
//     session ends: reading it has renewed the sink's fence, so the sink would accept a
//     commit that continues from the old cursor.
//   - The topic may go back to an earlier state, as after a power cut or a restored
//     backup, while copies hold newer knowledge. The bridge itself trusts only what
//     Resume returns. The sink must compare more than a sequence number in its fence,
//     because numbers are reused then, and must forget IDs unless the topic is a
//     continuation of the one that they were loaded from.
//   - The channel that announces a reconnect is taken before the session begins. If it
//     were taken after the error, a reconnect in between would be missed, and the feed
//     would wait for up to a minute on a bus that works.
//   - A reconnect ends only waits after errors of the sink. An upstream that failed, or
//     asked for a wait, has not changed because the bus is back.
//   - A poll does not wait for budget before it has found 64 KiB. Otherwise feeds that
//     have the whole budget and are stuck, because their bus or their server does not
//     answer, would stop all feeds, and polls that find nothing would wait for each other.
//   - A feed with a backlog that holds no batch waits a second for budget before it reads
//     one without, and keeps its place in the queue meanwhile. If it read without budget at
//     once, or lost its place with each batch, all of its commits would be small as long as
//     other feeds have the budget.
//   - Feeds that wait for budget must not wait for each other. A feed that waits before it
//     reads ahead holds batches that will be committed, and commits need no budget. A feed
//     that waits in the middle of an entity has a part of it in memory, and there may be
//     many such feeds, each of which needs more than the budget has left. So one of them
//     at a time continues without budget until its batch is committed.
package bridge

import (
	"context"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// A Source reads a feed. Its position is in the cursor. State that it keeps between calls
// must only save work, as an open connection does, and not affect its results.
//
// A Source is used by one goroutine at a time.
type Source interface {
	// Next reads on from the cursor after and returns the next entities in the feed's
	// order. A batch without entities whose cursor equals after means that there is
	// nothing new. If a page ends early, Next first returns the complete entities before
	// the end, and the error at the next call. An error that matches [feed.ErrPermanent]
	// requires action by a person. Any other error is retried, after RetryAfter if it has
	// that method (see [RetryLater]).
	Next(ctx context.Context, after feed.Cursor) (feed.Batch, error)
}

// A Releaser is a Source that can free memory. A bridge calls Release when the source may
// not be used for a while: after an error or a panic of the source or the sink, when the
// bridge stops, and when it continues with a source of another kind.
type Releaser interface {
	Source
	// Release drops large state that only saves work, and returns its budget. It is not
	// called during Next. Next may be called again after it.
	Release()
}

// A Sink appends to one topic, which also has the checkpoint. A Sink is used by one
// goroutine at a time. Any number of Sinks, in any number of processes, may write to the
// same topic.
type Sink interface {
	// Resume returns the checkpoint of the last Commit by any Sink, or the zero Checkpoint
	// for an empty topic. For a topic with messages and no checkpoint the error is
	// [checkpoint.ErrMissing]. After any error of Commit, Resume makes the Sink usable
	// again.
	Resume(ctx context.Context) (checkpoint.Checkpoint, error)
	// Commit appends entities in order and stores cp, all or nothing, and returns when
	// the bus has made them durable. It fails with [checkpoint.ErrConflict] if another
	// Sink has committed since the last Resume or Commit of this one. After any error it
	// is unknown whether the commit took place, or still will, and the caller must call
	// Resume before it commits again. Once the next Commit has succeeded, an earlier one
	// can no longer take place.
	Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error
}

// A Stager is a Sink that can send the entities of a commit while the bus processes the
// commit before it.
type Stager interface {
	Sink
	// CommitStaging is Commit. While it waits for the bus it calls next, at most once and
	// not after it has returned. next returns the entities of the following commit, or
	// none. They are sent to the bus, and become part of the topic only with that commit.
	// If that commit is never made, or has other entities, they are dropped.
	CommitStaging(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, next func() []feed.Entity) error
}

// RetryLater is an error that has the time to wait before a retry, as after a Retry-After
// header.
type RetryLater interface {
	error
	RetryAfter() time.Duration
}

// Limits are the limits of joined batches. Zero means no limit.
type Limits struct {
	Entities int // number of entities
	Bytes    int // sum of [feed.Entity.Size]
}
