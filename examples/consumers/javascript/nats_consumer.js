// Prints what happens to the orders of a topic on NATS. Usage: node nats_consumer.js URL STREAM TOPIC
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { DeliverPolicy, jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

const [url, stream, topic] = process.argv.slice(2);
const position = existsSync("position") ? Number(readFileSync("position", "utf8")) : 0;
const connection = await connect({ servers: url, maxReconnectAttempts: -1 });
const consumer = await jetstream(connection).consumers.get(stream, {
  filter_subjects: topic,
  deliver_policy: DeliverPolicy.StartSequence,
  opt_start_seq: position + 1,
});
for await (const message of await consumer.consume()) {
  const operation = message.headers.get("Feedbridge-Operation");
  const order = message.json();
  console.log(operation, order.id, order.status);
  writeFileSync("position.new", String(message.seq)); // after the effect; a crash before it repeats the message
  renameSync("position.new", "position");
}
