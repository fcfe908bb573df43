// Package kafka is the sink for Apache Kafka 2.5 or newer, and for other systems that speak
// its protocol with transactions.
//
// [Connect] makes a connection to a cluster, [Conn.Sink] makes a [Sink] for a topic on it. The
// checkpoints of all feeds are in one compacted topic, feedbridge.checkpoints, each under the
// key <topic>/<feed>, those of one topic in one partition. [Conn.Log] reads a topic back,
// including messages of other programs.
//
// Consumers must read with isolation.level=read_committed. docs/kafka.md describes permissions,
// keys, compaction and durability for users.
//
// # How a commit works
//
// A commit is one transaction: the entities, and behind them the checkpoint. A feed has one
// transactional id, feedbridge.<topic>/<feed>. Initializing it fences every other copy: from
// then on they cannot commit, and their open transaction is aborted.
//
// [Sink.Resume] only reads, so that idle copies do not fence busy ones. The first
// [Sink.Commit] after a Resume, by a sink that has not committed last,
//
//  1. compares the newest checkpoint with the one that it has resumed from. This is an
//     optimization: most stale copies get [checkpoint.ErrConflict] here, without fencing
//     another copy;
//  2. initializes the transactional id;
//  3. begins a transaction and writes the entities, and then the checkpoint, whose
//     acknowledgement has its offset O;
//  4. waits until the last stable offset of that partition reaches O, reads up to it, and
//     aborts with ErrConflict if the newest checkpoint below O is not the one of step 1;
//  5. commits the transaction.
//
// Later commits are the steps 3 and 5, and step 4 if a connection of the producer was made
// or lost since the last step 4. Not each time: it waits for the transactions of other feeds in the
// partition, and one that stays open would hold up all of them. After any error the producer is closed, and after two minutes
// without a commit; see idleProducer. Then the next Commit begins with step 1.
//
// # Why nothing is lost or comes twice
//
// Let S be a sink whose first commit succeeds, and C any other commit of the feed.
//
//   - If C was confirmed to its coordinator before S initialized the id, its checkpoint has an
//     offset below O, and C has ended when the last stable offset reaches O. So S reads it. The
//     read is linearizable (see readBelow), which no read before step 3 is.
//   - If another sink initialized the id after S did and before S committed, S fails.
//   - If C comes after S, its sink has initialized the id after S committed. Its own step 4
//     finds the checkpoint of S.
//
// The commits of S after that need no read: while they succeed, no other copy has initialized
// the id, unless the cluster went back to an earlier state. Then it may take the epoch of S for
// the current one again, or keep the id and lose checkpoints. But its brokers were restarted,
// or others lead, so the producer's connections have changed, and S reads again. A commit whose
// answer was lost is never repeated. It takes place before the id is initialized again, so step
// 4 finds it, or it is refused. So once the next commit has succeeded, no earlier commit can
// take place.
//
// Resume may read old data. Its result is bound to the checkpoint that it has found: if that is
// not the newest, the whole commit is refused. If it is, Resume has loaded the IDs of all
// messages and dead letters before it, for the checkpoint names the offset that each partition of
// both topics had reached, and Resume waits until the last stable offsets reach these. Nothing is
// read for deduplication without such a lower bound.
//
// # Several copies
//
// A Resume waits for open transactions in the feed's partitions, so it sees a commit that is in
// flight. A copy that dies within a transaction leaves it open; see abandonedTransaction. A
// transaction of another feed or program is not touched.
//
// # Messages that are lost
//
// The header Feedbridge-Topic-Ends of a checkpoint has, by partition, an offset that the topic
// had reached with that commit. A partition that is shorter has lost messages, which is
// [checkpoint.ErrLost]. Each commit compares them before it writes, because its records would
// hide the loss, and compares the offsets of its records after that. Retention removes messages
// at the other end. The header Feedbridge-Topic-Id tells a topic that was deleted and created
// again from the one that its checkpoint is about. The IDs in memory are loaded again unless
// the checkpoint that they belong to is still in the log.
//
// Feedbridge-Dead-Topic-Id and Feedbridge-Dead-Topic-Ends are the same for the dead-letter topic. A
// person may delete that one: with another id it is a new topic, and nothing is lost.
//
// # Pitfalls
//
//   - KAFKA-20734 leaves transactions open that their coordinator reports as ended; see
//     hung_transaction.go.
//   - A coordinator writes the markers of a transaction after it has confirmed the commit,
//     partition by partition. So Resume waits for the partitions of the topic, too.
//   - The last offset of a partition is mostly that of a marker. Progress is counted in offsets,
//     not in records.
//   - A topic that has only aborted records is empty. One whose messages were deleted is not.
//   - max.message.bytes limits a batch as it is stored, compressed. kgo compares before
//     compression, and sends a batch uncompressed if compression makes it larger. [Sink.Fits]
//     counts without compression.
//   - The time of a message is that of its commit. With the entity's own, retention by time
//     would delete old entities at once.
//   - kgo initializes a transactional id again by itself after some errors. From Kafka 2.5 on
//     the cluster refuses that if another producer has initialized it since (KIP-360).
//
// # Duplicates
//
// They are detected by the IDs of the messages that are in the topic; see dedupeLoader. In a
// shared topic only messages whose Feedbridge-Feed header names the feed count. A tombstone
// keeps its mark in its headers until it is compacted away (delete.retention.ms). If several
// entities share a key, only the mark of one of them stays.
//
// The newest version of an entity may be in another partition than those before it, or among the
// dead letters, and so may the newest messages of a window. So a message has a number, in the header
// Feedbridge-Sequence, if it has a mark, or if the topic has keys or dead letters. Each commit
// continues from the highest number in the messages that Resume has loaded and in the checkpoint,
// which the fence makes the newest. 'checkpoint set' and 'reset' keep it. No clock is compared.
//
// # Errors
//
// kgo retries retriable errors until the configured timeout. If they persist, they are
// transient, as are unknown outcomes. PRODUCER_FENCED, INVALID_PRODUCER_EPOCH and
// INVALID_TXN_STATE are [checkpoint.ErrConflict]: another copy has taken the id, or the
// transaction timed out. MESSAGE_TOO_LARGE is [sink.ErrTooLarge]. An error that a person must
// correct is permanent; errors.go has the list. After any error the sink must resume.
package kafka
