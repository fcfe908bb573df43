// Package kafka is the sink for Apache Kafka 2.5 or newer, and for what speaks
// its protocol with transactions.
//
// [Connect] makes a connection to a cluster, [Conn.Sink] makes a [Sink] for a
// topic on it. The checkpoints of all feeds lie in one compacted topic,
// feedbridge.checkpoints, each under the key <topic>/<feed>, those of one topic in
// one partition. [Conn.Log] reads a topic back, whoever wrote it.
//
// Consumers must read with isolation.level=read_committed. Others see what was
// aborted, too.
//
// # How a commit works
//
// A commit is one transaction: the entities, and the checkpoint. The cluster
// commits both or neither. What keeps two copies apart are two transactional ids,
// feedbridge.<topic>/<feed> and the same with /2: whoever initializes them last is
// the only one that can commit, and what others have under way with them is
// aborted. A sink commits with them by turns, for after a commit the cluster takes
// some milliseconds to write the markers of the transaction, and the next of the
// same id would have to wait for that.
//
// Initializing them disturbs whoever is at work. Therefore [Sink.Resume] only reads:
// a copy that sits idle resumes now and then, and two copies would stop each other
// for ever. The first [Sink.Commit] after a Resume, by a sink that is not the one
// to have committed last,
//
//  1. compares the newest checkpoint with the one that it has resumed from. If
//     they differ it is [checkpoint.ErrConflict], and nobody was disturbed;
//  2. makes two clients and initializes the transactional ids (the fence), the
//     first one first. The cluster answers when what was under way is aborted, or
//     committed if its writer had said so already;
//  3. waits until all that the topic and the partition of checkpoints have by then
//     is committed or aborted (their last stable offsets pass their ends). Before
//     that, a checkpoint that the predecessor has committed may be hidden behind a
//     transaction of another feed, and entities that were aborted may hang (see
//     below);
//  4. compares once more;
//  5. commits with the first id.
//
// Later commits are the fifth step alone, with each id in its turn, for as long as
// nothing goes wrong: if another copy has taken the id, the cluster refuses them.
// After any error the clients are closed, and the next Commit starts with the first
// step.
//
// Why nothing is lost or comes twice: that the first commit succeeds shows that
// nobody has initialized the first id since this sink has. Whoever else holds the
// second id has held it from before, and lost it to this sink, or has initialized it
// without holding the first, and fails at its own first commit. So between a sink's
// second comparison and its first commit nobody else can commit; and who does later
// has initialized both ids before its second comparison, which finds all that this
// sink has committed. A commit whose answer was lost is never repeated: the clients
// are closed, and Resume reads what became of it. It may still be on its way when
// Resume reads; then it takes place before its id is initialized anew, and the
// comparison after that finds it; or it comes later, and is refused. So once the
// next commit has succeeded, no commit from before can take place.
//
// Why two copies make progress: a copy that is fenced gets ErrConflict, and stands
// by before it tries again. Whoever has fenced last is at a commit that only
// another fence can stop, and every other copy's Resume waits for that commit to
// end before it returns, for as long as a living copy's commit should take (see
// below). On a cluster that is slower than that, two copies get less done than one.
//
// # What is not obvious
//
//   - A copy that dies within a transaction leaves it open. It hides everything
//     behind its first record, in each partition that it has written to, until its
//     timeout. Resume asks the cluster how the transactional ids stand: if the
//     same transaction stays open for about a fifth of the configured timeout, it
//     initializes its id, which aborts it. A cluster before 3.0 does not tell, and
//     ends the transaction itself at transaction_timeout. A commit that is slower than that, by a
//     copy that is alive, is aborted too if another copy resumes meanwhile; it
//     is ErrConflict for it. If the transaction is another feed's or another
//     program's, Resume leaves it alone, and says whose it is when the timeout is
//     over.
//   - With one transactional id a busy sink would wait: records that come before the
//     markers of the id's last transaction are written wait for 20 ms in the broker,
//     and to ask first costs about half of what a commit takes. With two ids both
//     transactions lie in the same partitions, in their order, and readers see the
//     second when the first is ended, too.
//   - Kafka 4 may take a transaction for ended and leave it open in partitions that
//     have no leader at that moment (KAFKA-20734), as when brokers crash. No timeout
//     ends that. Resume sees it, for a transaction that is open while its
//     coordinator says otherwise hangs, and ends it in the way in which the
//     coordinator says that it ended. Therefore no sink takes a transactional id
//     while its transaction is open, as far as it can see: the cluster would
//     forget how it ended. If it does, the checkpoint tells, for its batch has the
//     transaction's epoch: where that can be seen, the rest was committed, too.
//     Nor does a sink commit with an id whose last transaction hangs, for if that
//     commit were aborted, both would be. While a commit is confirmed, the sink asks
//     whether the one before it is over. A commit that was confirmed can be gone all
//     the same, if all of it hung when the id was taken: the newest checkpoint is
//     older than one that was seen then, and the IDs are read anew.
//   - Before Kafka 4 the transactions of a client have one epoch, and a broker before
//     3.6 takes records of that epoch also when the transaction has ended: such as
//     arrive after their abort would be published by the next commit. So a sink has
//     the cluster abort what fails, by taking the id, which raises the epoch.
//   - The markers of a transaction are written partition by partition, after the
//     cluster has said that it is committed. So Resume waits for the partitions of
//     the topic, too, before it loads their IDs.
//   - The last offset of a partition is mostly that of a marker. What has been read
//     is counted in offsets, not in records.
//   - Records that were aborted, as by a first commit that failed, are no messages:
//     a topic that has only such is empty. One that has lost messages is not.
//   - A topic that was deleted and created anew is not the one that its
//     checkpoint is about. The checkpoint names the topic's id, in the header
//     Feedbridge-Topic-Id, and a Resume that finds another stops.
//   - max.message.bytes is about a batch as it is stored, compressed. franz-go
//     compares before compression, and sends a batch uncompressed that grows by
//     it. [Sink.Fits] counts without compression, and so is safe.
//   - The time of a message is that of its commit. With the entity's own,
//     retention by time would delete old entities at once.
//   - franz-go may have written to a topic, and have the answer, before it has noted
//     the topic's partitions. A transaction that it ends then it aborts, and says that
//     it is committed. So a commit waits for the note.
//   - A transactional id is initialized again by franz-go itself after some
//     errors. From Kafka 2.5 on the cluster refuses that if another has taken it
//     meanwhile (KIP-360). Before, it would fence the successor.
//
// # Keys, partitions, compaction
//
// Without a key all entities go to one partition, and their order is the feed's.
// With one they go where the Java client's default partitioner puts them (murmur2),
// and order holds per key. If partitions are added to a topic, keys change their
// places.
//
// In a compacted topic the newest entity of each key stays, and older ones go some
// time. Then the topic holds the state of the feed, not the feed. The IDs that
// are held to tell repeated entities are those of messages that are left, so an
// entity that the feed repeats after its first message was compacted away is
// published again after a restart. A topic that is both compacted and without a
// key is refused: Kafka refuses messages without a key there.
//
// The same goes for marks, of which all are held that the topic has. A tombstone
// has one, too, in its headers, which says that the entity is deleted; once it is
// compacted away (delete.retention.ms), a new process takes the entity for one that
// the topic never had. And a key that several entities share leaves the mark of one
// of them.
//
// In a shared topic only the messages count whose Feedbridge-Feed header names
// the feed. For them at most the newest 16 windows of each partition are searched;
// further back only until one is found, and all of the topic if one has a mark.
//
// # Errors
//
// What befalls a commit, and what it becomes. "R" is what franz-go tries again by
// itself, until the configured timeout.
//
//	R  NOT_LEADER_OR_FOLLOWER, LEADER_NOT_AVAILABLE,     transient
//	   REQUEST_TIMED_OUT, NETWORK_EXCEPTION,
//	   KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH
//	R  NOT_ENOUGH_REPLICAS, .._AFTER_APPEND              transient
//	R  COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,       transient
//	   COORDINATOR_LOAD_IN_PROGRESS,
//	   CONCURRENT_TRANSACTIONS
//	R  UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID      transient; Resume says that the topic is gone
//	   TRANSACTION_ABORTABLE                             transient
//	   OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID transient
//	   INVALID_PRODUCER_ID_MAPPING,                      transient: the id was idle for 7 days and is forgotten
//	   TRANSACTIONAL_ID_NOT_FOUND
//	   UNKNOWN_SERVER_ERROR                              transient
//	   PRODUCER_FENCED, INVALID_PRODUCER_EPOCH           [checkpoint.ErrConflict]: another has taken the id,
//	                                                     or the transaction timed out
//	   INVALID_TXN_STATE                                 the same, seen while the fence is being put up
//	   MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE          permanent, [sink.ErrTooLarge]
//	   INVALID_RECORD                                    permanent: compacted, and no key
//	   INVALID_TRANSACTION_TIMEOUT                       permanent: lower transaction_timeout
//	   TOPIC_AUTHORIZATION_FAILED,                       permanent: a right is missing
//	   TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
//	   CLUSTER_AUTHORIZATION_FAILED
//	   SASL_AUTHENTICATION_FAILED, or the end of the     permanent: wrong credentials
//	   connection while they are shown
//	   UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE    permanent
//	   UNSUPPORTED_VERSION                               permanent: the cluster is too old
//	   INVALID_TOPIC_EXCEPTION, POLICY_VIOLATION,        permanent, when a topic is created
//	   INVALID_REPLICATION_FACTOR, INVALID_CONFIG, ...
//	   no answer, no connection                          transient
//	   no answer to the commit itself                    transient: nobody knows, and Resume finds out
//
// After any of them the sink must resume, which finds out what was stored.
//
// # Permissions
//
// A user that is confined needs these, where T is the feed's topic, and C the one
// for checkpoints:
//
//	Read, Write            topics T and C
//	Create                 topics T and C, unless they are there
//	DescribeConfigs        topics T and C, to say what is wrong with them; without it a
//	                       topic is taken to be as Kafka's defaults have it
//	Write, Describe        transactional ids feedbridge.T/<feed> and feedbridge.T/<feed>/2, or
//	                       the prefix "feedbridge."
//	IdempotentWrite        the cluster, before Kafka 2.8
//
// A [Log] needs Read on its topic, and DescribeConfigs to notice that it is compacted.
package kafka
