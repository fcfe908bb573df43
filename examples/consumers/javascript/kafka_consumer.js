// Prints what happens to the orders of a topic on Kafka. Usage: node kafka_consumer.js BROKER TOPIC
import { Consumer, FetchIsolationLevels, MessagesStreamModes, stringDeserializers } from "@platformatic/kafka";

const [broker, topic] = process.argv.slice(2);
const consumer = new Consumer({
  bootstrapBrokers: [broker], clientId: "my-service", groupId: "my-service", deserializers: stringDeserializers,
});
const messages = await consumer.consume({
  topics: [topic],
  isolationLevel: FetchIsolationLevels.READ_COMMITTED, // without entities of aborted transactions
  mode: MessagesStreamModes.COMMITTED,
  fallbackMode: "earliest",
  autocommit: false,
});
for await (const message of messages) {
  const operation = message.headers.get("Feedbridge-Operation");
  const order = JSON.parse(message.value);
  console.log(operation, order.id, order.status);
  await message.commit(); // the position; a crash before it repeats the message
}
