// Prints the entities of a topic on NATS. Usage: node nats_consumer.js URL STREAM TOPIC
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

function handle(operation, id, body) {
  console.log([operation, id, body].join("\t"));
}

const [url, stream, topic] = process.argv.slice(2);
const connection = await connect({ servers: url });
const manager = await jetstreamManager(connection);
await manager.consumers.add(stream, {
  durable_name: "my-service",
  filter_subject: topic,
  ack_policy: AckPolicy.Explicit,
  max_ack_pending: 1, // one message at a time: with more, one that failed comes again after its successors
});
const consumer = await jetstream(connection).consumers.get(stream, "my-service");
let last = 0; // better: the sequence that you have stored together with the effect of its message
for await (const message of await consumer.consume()) {
  if (message.seq > last) { // otherwise the acknowledgement was lost, and it was handled before
    const operation = message.headers.get("Feedbridge-Operation"); // PUT, PATCH or DELETE
    handle(operation, message.headers.get("Content-ID"), message.string());
    last = message.seq;
  }
  await message.ackAck();
}
