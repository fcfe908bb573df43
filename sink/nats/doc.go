// Package nats is the sink for NATS JetStream, of nats-server 2.12 or newer.
//
// [Connect] keeps a connection to a NATS system, [Conn.Sink] makes a [Sink] for
// a topic on it. A topic is a subject, and lies in a stream that it has for
// itself unless configured otherwise. Its checkpoint is one message, on the
// subject _feedbridge.<topic> in the same stream; a consumer that filters on the
// topic never sees it. [Conn.Log] reads a topic back, whoever wrote it.
//
// # How a commit works
//
// A commit is one atomic batch: the entities, and last the checkpoint. The
// server stages what has the same Nats-Batch-Id, and stores all of it or nothing
// when it gets the message with Nats-Batch-Commit, which is the checkpoint and
// the only one that it acknowledges. That message has
//
//   - Nats-Expected-Last-Subject-Sequence, the fence: the stream sequence of the
//     newest checkpoint that this writer knows. The server refuses the batch if
//     there is a newer one. A writer that was held up, a commit that was thought
//     lost and arrives late, a second copy: each is refused, and nothing of it is
//     stored.
//   - Nats-Rollup: sub, by which one checkpoint is kept.
//   - Nats-TTL: never, by which it outlives the stream's age limit.
//
// While the server stores a batch it is sent the next one but for its end, if
// the caller knows what that will be ([Sink.CommitStaging]), so that neither waits
// for the other. What was staged and never committed is dropped after 10 s; the
// fence is in the end, which is sent when the commit before has been answered.
//
// A commit that only moves the checkpoint is that message alone, without batch
// headers: the fence is the same, and the server need not stage anything.
//
// # What is not obvious
//
//   - The fence is compared once, on the last message; that is enough, because
//     nothing before it is stored until then. Two commits of one writer are
//     never under way at once, though two of its batches may be.
//   - The fence is a sequence, and a stream may go back in time: a server that does not
//     sync before it acknowledges loses its tail in a power cut. If other copies fill the
//     tail again until the newest checkpoint has the same sequence as before, the server
//     accepts a commit that goes on from the lost one. In a cluster, or over a leaf node,
//     the connection lasts meanwhile. So the content of the checkpoint is compared before
//     a commit that comes a second or more after the last look at it, or commit. A fence
//     that is bound to the content would be better, and there is none: the server
//     refuses Nats-Expected-Last-Msg-Id in batches, and on a replicated stream
//     a plain message that fails it stops the stream.
//   - What remains: a commit that is held back between the comparison and the server
//     while all of this happens, by the network or because the process is stopped;
//     and a leader that answers the comparison and no longer leads.
//   - The memory of IDs is valid as long as the newest message that they were
//     loaded from is in the stream, because a stream loses messages at its end. The
//     checkpoint's sequence and Count would not do: a tail may be filled again with other
//     commits, or other entities. Message and checkpoint are recognised by what
//     only one has: its batch and number, its content. An unchanged topic takes no
//     extra request, one that another copy has written to takes one.
//   - There is no Nats-Msg-Id: one duplicate within the server's window would
//     refuse a batch without saying which entity it was. An entity's own header
//     of that name, as all that a server obeys, travels under another name.
//   - A server before 2.12 takes the configuration of a stream with atomic
//     batches, ignores it, and stores what is staged as plain messages. So the
//     configuration that counts is the one that the server returns, it is looked
//     at whenever the sink resumes, no commit is made on a connection that is
//     newer than that look, and an acknowledgement must name its batch and count.
//   - What is read to resume comes from the stream's leader (STREAM.MSG.GET). A
//     replica may be behind, and Direct Get asks any of them. For the IDs, which
//     any replica may deliver, the checkpoint itself is the end mark.
//   - Checkpoints take sequences, too. So where a topic does not begin with the
//     stream, its positions do not tell whether something was taken from its front,
//     and neither do limits, which may have been others before. Therefore the topic's
//     first entity says what it is, by the header Feedbridge-First; the checkpoints
//     before it have the same header, so that every copy knows that it is yet to come.
//   - A [Log] that is read page after page keeps its consumer for two seconds, with
//     the few messages that were sent for the next page. They are forgotten when the
//     stream is found to be another one: they were read from the one that is gone.
//   - Only the leader of a stream answers what is asked about it, and the others
//     keep silent: questions are repeated, commits never.
//   - A message without acknowledgement that the server refuses, such as one
//     beyond the stream's max_msg_size, shows as error 10176 of the whole batch.
//     Therefore [Sink.Fits] knows every limit.
//   - The order of headers with different names is lost, because NATS clients
//     keep headers in maps; that of values of the same name stays.
//
// # Errors
//
// What the answers of the server become:
//
//	10071, 10164         wrong last sequence              [checkpoint.ErrConflict]
//	10163                expected sequence not ready      transient
//	10176                batch incomplete                 transient: a disk that is full, a leader change, 10 s of silence
//	                                                      within the batch, or more than 50 batches at once in the stream
//	10167, 10210         too many requests, batches       transient
//	10077                store failed                     permanent if the stream is full and discards what is new
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
// After any of them the sink must resume, which finds out what was stored.
//
// # Permissions
//
// A user that is confined needs to publish to the topic, to _feedbridge.<topic>,
// and to these, where S is the stream's name:
//
//	$JS.API.INFO                      for [Conn.Check]
//	$JS.API.STREAM.INFO.S
//	$JS.API.STREAM.CREATE.S           unless the stream is there
//	$JS.API.STREAM.NAMES              to say, or find out, which stream has a subject
//	$JS.API.STREAM.MSG.GET.S
//	$JS.API.CONSUMER.CREATE.S.>
//	$JS.API.CONSUMER.MSG.NEXT.S.>
//	$JS.API.CONSUMER.DELETE.S.>
//
// and to subscribe to _INBOX.>, or to the configured inbox prefix. With a JetStream
// domain D they begin with $JS.D.API, with an API prefix P with P. A [Log] needs none
// to publish to the topic and its checkpoint, nor CREATE of the stream.
package nats
