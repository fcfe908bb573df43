// Package nats is the sink for NATS JetStream, of nats-server 2.12 or newer.
//
// [Connect] opens a connection to a NATS system, and [Conn.Sink] returns a [Sink] for a topic
// on it. A topic is a subject. It is stored in a stream that has no other subjects unless
// configured otherwise. Its checkpoint is one message on the subject _feedbridge.<topic> in
// the same stream; a consumer that filters on the topic never receives it. [Conn.Log] reads a
// topic back, including messages that other programs have written.
//
// # How a commit works
//
// A commit is one atomic batch: the entities, and last the checkpoint. The
// server stages the messages with the same Nats-Batch-Id, and stores all of them or none
// when it receives the one with Nats-Batch-Commit. That is the checkpoint, and
// the only message that the server acknowledges. It has
//
//   - Nats-Expected-Last-Subject-Sequence, the fence: the stream sequence of the
//     newest checkpoint that this writer knows. The server refuses the batch if
//     there is a newer one. This refuses the commit of a writer that was stopped for a while,
//     a commit that was thought lost and arrives late, and that of a second copy. Nothing of
//     such a batch is stored. The file fence.go has the whole argument.
//   - Nats-Rollup: sub, so that the stream keeps one checkpoint.
//   - Nats-TTL: never, so that the checkpoint outlives the stream's age limit.
//
// While the server stores a batch, the sink sends it the next one without its last message, if
// the caller knows the next entities ([Sink.CommitStaging]). So neither waits
// for the other. The server drops a staged batch after 10 s without a message. The
// fence is in the last message, which is sent after the commit before has been acknowledged.
//
// A commit without entities is the checkpoint as a plain message without batch
// headers. The fence is the same, and the server has nothing to stage.
//
// # Details
//
//   - The server compares the fence once, on the last message. That is enough, because
//     nothing of the batch is stored before. One writer never has two commits in flight,
//     but it may have two batches there.
//   - The IDs in memory are valid as long as the newest message that they were
//     loaded from is in the stream. Messages are recognised by their batch and their number
//     in it, checkpoints by their content. An unchanged topic costs no
//     extra request, one that another copy has written to costs one.
//   - There is no Nats-Msg-Id: one duplicate within the server's window would
//     refuse a batch without naming the entity. An entity's own header
//     of that name, as every header that a server obeys, is stored under another name.
//   - A server before 2.12 accepts the configuration of a stream with atomic
//     batches, ignores it, and stores staged messages as plain ones. So the sink checks
//     the configuration that the server returns, on each Resume, makes no commit on a
//     connection that is newer than that check, and requires that an acknowledgement names
//     its batch and count.
//   - Resume reads from the stream's leader (STREAM.MSG.GET). A
//     replica may be behind, and any of them may answer Direct Get. The IDs may come from
//     any replica: the checkpoint is among the messages, and its arrival ends the load.
//   - Checkpoints use sequences of the stream, too. So if a topic does not begin with the
//     stream, its positions do not show whether messages were removed from its front,
//     and neither do limits, which may have been others before. Therefore the topic's
//     first entity has the header Feedbridge-First. The checkpoints
//     before it have the same header, so that every copy knows that it is yet to come.
//   - A [Log] that is read page after page keeps its consumer for two seconds, with
//     the few messages that were sent for the next page. They are dropped if the
//     stream was deleted and created again, because they belong to the old one.
//   - Only the leader of a stream answers requests about it, and the other servers
//     do not answer: reads are retried, commits never.
//   - If the server refuses a message that it does not acknowledge, such as one
//     beyond the stream's max_msg_size, the whole batch fails with error 10176.
//     Therefore [Sink.Fits] checks every limit.
//   - The order of headers with different names is lost, because NATS clients
//     keep headers in maps. The values of one name keep their order.
//
// # Errors
//
// How the errors of the server are handled:
//
//	10071, 10164         wrong last sequence              [checkpoint.ErrConflict]
//	10163                expected sequence not ready      transient
//	10176                batch incomplete                 transient: a disk that is full, a leader change, 10 s of silence
//	                                                      within the batch, or more than 50 batches at once in the stream
//	10167, 10210         too many requests, batches       transient
//	10059                stream not found                 transient: Resume, which is next, has the cure
//	10077                store failed                     permanent if the stream is full and discards new messages
//	10054                message too large                permanent: the checkpoint, the one message that is answered
//	10002, 10023,        no room for the account, or on   permanent
//	10028, 10047         the server
//	10109                sealed                           permanent
//	10111, 10165, 10166  roll-ups or TTL refused          permanent
//	10174                atomic batches are off           permanent
//	10199                more messages than the server    permanent
//	                     takes in a batch
//	10175, 10177, 10179, the batch's headers are wrong    permanent: this package and the server disagree
//	10200, 10201
//	other 4xx            the request is wrong             permanent
//	other 5xx            the server is in trouble         transient
//	no answer            connection lost, no leader       transient
//	none, but a          the user may not do this         permanent
//	permissions error
//	acknowledged without batch and count                  permanent: a server without atomic batches
//
// After any of them the sink must resume, which reads the checkpoint from the stream.
//
// # Permissions
//
// A user with restricted permissions must be allowed to publish to the topic, to
// _feedbridge.<topic>, and to these subjects, where S is the stream's name:
//
//	$JS.API.INFO                      for [Conn.Check]
//	$JS.API.STREAM.INFO.S
//	$JS.API.STREAM.CREATE.S           unless the stream exists
//	$JS.API.STREAM.NAMES              to find the stream that has a subject
//	$JS.API.STREAM.MSG.GET.S
//	$JS.API.CONSUMER.CREATE.S.>
//	$JS.API.CONSUMER.MSG.NEXT.S.>
//	$JS.API.CONSUMER.DELETE.S.>
//
// and to subscribe to _INBOX.>, or to the configured inbox prefix. With a JetStream
// domain D they begin with $JS.D.API, with an API prefix P with P. A [Log] needs none
// to publish to the topic and its checkpoint, nor CREATE of the stream.
package nats
