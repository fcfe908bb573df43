// Package nats is the sink for NATS JetStream, of nats-server 2.12 or newer.
//
// [Connect] opens a connection to a NATS system, and [Conn.Sink] returns a [Sink] for a topic
// on it. A topic is a subject. It is stored in a stream that has no other subjects unless
// configured otherwise. Its checkpoint is one message on the subject _feedbridge.<topic> in
// the same stream; a consumer that filters on the topic never receives it. [Conn.Log] reads a
// topic back, including messages that other programs have written. docs/nats.md lists the
// permissions that a user needs.
//
// # How a commit works
//
// A commit is the entities, and last the checkpoint. Its headers have the fence, whose argument is in
// fence.go; the checkpoint has Nats-Rollup: sub, so that the stream keeps one, and Nats-TTL: never, so
// that it outlives the stream's age limit. A commit without entities is a plain message.
//
// [Sink.Resume] chooses how the server stores the others. By fast ingest (ADR-50) it stores each
// message as it comes, and drops all that comes after the first that it refuses or misses. It needs
// nats-server 2.14, and a stream that allows it and has only this topic or one replica. Otherwise a
// commit is an atomic batch: the server stages the messages with the same Nats-Batch-Id, and stores all
// of them or none when it receives the one with Nats-Batch-Commit.
//
// # Files
//
// Each file knows only files of the lines above it:
//
//	config.go, message.go, fast_batch.go
//	credentials.go, permission.go, size_limit.go
//	session.go
//	errors.go, open_streams.go
//	client.go
//	fence.go, reader.go, stream_check.go, watch.go, member_keys.go
//	ingest.go, subject_mapping.go, validate.go
//	conn.go, publish.go
//	dedupe_load.go, log.go, fleet.go
//	sink.go
//	inspect.go, retention.go
//
// # Details
//
//   - There is no Nats-Msg-Id: one duplicate within the server's window would refuse a batch
//     without naming the entity. An entity's own header of that name, as every header that a
//     server obeys, is stored under another name.
//   - A server before 2.12 accepts the configuration of a stream with atomic batches, ignores
//     it, and stores staged messages as plain ones. So the sink checks the configuration that
//     the server returns, on each Resume, makes no commit on a connection that is newer than
//     that check, and requires that an acknowledgement names its batch and count. This does not prove that
//     all are stored; see point 6 in fence.go.
//   - The IDs in memory are valid as long as the newest message that they were loaded from is
//     in the stream. Messages are recognised by their batch, and their number in it or
//     Feedbridge-Commit, which the last one of a fast batch has. The IDs
//     may come from any replica: the checkpoint is among the messages, and its arrival ends
//     the load.
//   - Checkpoints use sequences of the stream, too, so positions do not show whether messages
//     were removed from the front of a topic that does not begin with its stream. Therefore
//     the topic's first entity has the header Feedbridge-First, and so have the checkpoints
//     before it.
//   - A [Log] that is read in consecutive parts keeps its consumer for two seconds, with the
//     few messages that were sent for the next part.
//   - Only a stream's leader answers requests about it. Reads are retried, commits never.
//
// # Errors
//
// After any error the sink must resume. errors.go has the errors that a person must cure. A
// wrong last sequence (10071, 10164) is [checkpoint.ErrConflict] if the checkpoint has changed.
// Transient are a batch that
// the server dropped (10176), too many requests or batches (10167, 10210), an expected sequence
// that is not ready (10163), a stream that is not found (10059), because the next Resume has
// the cure, all other errors with status 429 or 5xx, and no answer. All others are permanent.
package nats
