// Package bridge copies one feed to one topic, exactly.
//
// A [Bridge] has a [Source], which reads the feed from a cursor, and a [Sink],
// which appends entities to the topic together with the checkpoint that holds
// the next cursor. The bus is the only state: the loop asks the sink where the
// topic stands, reads on from there and commits, and after any error, a lost
// answer, a conflict with another copy or a crash, it asks again. Starting and
// recovering are the same code.
//
// # Non-obvious
//
// Each of these was once wrong in this package or in a prototype of it. A test covers each.
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
//     session ends: that look has renewed the sink's fence, so the sink would accept a
//     commit that continues from the old cursor.
//   - The topic may go back to an earlier state, as after a power cut or a restored
//     backup, while copies hold newer knowledge. The bridge itself trusts only what
//     Resume returns. The sink must compare more than a sequence number in its fence,
//     because numbers are given out again, and must forget IDs unless the topic is a
//     continuation of the one that they were loaded from.
//   - The channel that announces a reconnect is taken before the session begins. If it
//     were taken after the error, a reconnect in between would be missed, and the feed
//     would wait for up to a minute on a bus that works.
//   - A reconnect ends only waits after errors of the sink. An upstream that failed, or
//     asked for a wait, has not changed because the bus is back.
//   - A poll does not wait for budget before it has found 64 KiB. Otherwise feeds that
//     have the whole budget and are stuck, because their bus or their server does not
//     answer, would stop all feeds, and polls that find nothing would wait for each other.
//   - A wait for budget never needs what only the waiting feed can return. A feed that
//     waits before it reads ahead holds batches that will be committed, and commits need
//     no budget. A feed that waits in the middle of an entity, with a part of it in
//     memory, may be one of many of which each needs more than is left. So one of them at
//     a time goes on without budget, until its batch is committed.
package bridge

import (
	"context"
	"time"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/feed"
)

// A Source reads a feed. It keeps no state between calls that its answers
// depend on: all that it knows of its place is in the cursor. What it may keep
// is what saves work, such as an open connection.
//
// A Source is used by one goroutine at a time.
type Source interface {
	// Next reads on from after and returns what comes next in the feed's
	// order. A batch without entities whose cursor equals after means that
	// there is nothing new. It returns what is whole and in order: when a page
	// breaks off it first returns the entities before the break, and the error
	// at the next call. An error that matches [feed.ErrPermanent] needs a
	// person; any other is worth another try, not before RetryAfter has passed
	// if the error has such a method (see [RetryLater]).
	Next(ctx context.Context, after feed.Cursor) (feed.Batch, error)
}

// A Releaser is a Source that can drop what it holds in memory. A bridge calls Release
// when it has read and will wait: after an error or a panic of the source or the sink,
// when it stops, and when it goes on with a source of another kind.
type Releaser interface {
	Source
	// Release drops what saves work and is large. It is not called during Next. Next may
	// be called again after it.
	Release()
}

// A Sink appends to one topic and keeps the checkpoint there too. It is used
// by one goroutine at a time; any number of Sinks, in any number of processes,
// may write to the same topic.
type Sink interface {
	// Resume returns what the last Commit left, whoever made it, and the zero
	// Checkpoint for an empty topic. A topic with messages and no checkpoint
	// is [checkpoint.ErrMissing]. Resume is also what cures every error.
	Resume(ctx context.Context) (checkpoint.Checkpoint, error)
	// Commit appends entities in order and stores cp, all or nothing, and
	// returns when the bus has made them durable. It fails with
	// [checkpoint.ErrConflict] if anyone else has committed since this Sink's
	// last Resume or Commit. After any error the caller does not know whether
	// the commit took place, or will yet, and must Resume before it commits
	// again. A commit that takes place after a Resume has returned is
	// impossible once the next Commit has succeeded.
	Commit(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint) error
}

// A Stager is a Sink that can send a commit's entities ahead, while the bus is
// busy with the commit before it.
type Stager interface {
	Sink
	// CommitStaging is Commit. While it waits for the bus it calls next, at
	// most once and not after it has returned: next returns the entities that
	// the following commit will have, or none. They are sent ahead, and are no
	// part of the topic until that commit makes them so. If it is never made,
	// or has other entities, they are forgotten.
	CommitStaging(ctx context.Context, entities []feed.Entity, cp checkpoint.Checkpoint, next func() []feed.Entity) error
}

// RetryLater is met by errors that know how long to wait before it makes sense
// to try again, as after a Retry-After header.
type RetryLater interface {
	error
	RetryAfter() time.Duration
}

// Limits say how large a commit serves a sink best. Zero means no limit.
type Limits struct {
	Entities int // number of entities
	Bytes    int // sum of [feed.Entity.Size]
}
