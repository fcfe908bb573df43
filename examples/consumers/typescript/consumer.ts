// Prints the first orders and news of the topics of these names, with the types that generate.mjs has made.
// Usage: node consumer.js URL NUMBER
import { jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import type { Entry, NewsDeleteHeaders, NewsPutHeaders, OrdersDeleteHeaders, OrdersPatchHeaders, OrdersPutHeaders } from "./types.js";

const [url, number] = process.argv.slice(2);
const connection = await connect({ servers: url });

/** Calls handle with the headers and the body of the first messages of a topic. */
async function read<Headers>(topic: string, handle: (headers: Headers, body: string) => void) {
  const consumer = await jetstream(connection).consumers.get(topic, { filter_subjects: topic });
  let left = Number(number);
  for await (const message of await consumer.consume()) {
    const headers = Object.fromEntries(message.headers!.keys().map((name) => [name, message.headers!.get(name)]));
    handle(headers as Headers, message.string());
    if (--left === 0) return;
  }
}

await read<OrdersPutHeaders | OrdersPatchHeaders | OrdersDeleteHeaders>("orders", (headers, body) => {
  console.log([headers["Feedbridge-Operation"], headers["Content-ID"], body].join("\t"));
});
await read<NewsPutHeaders | NewsDeleteHeaders>("news", (headers, body) => {
  const entry: Entry = JSON.parse(body);
  if (headers["Feedbridge-Operation"] === "DELETE") {
    console.log(["DELETE", entry.id, entry.date_modified].join("\t"));
    return;
  }
  const title: string | undefined = headers["Feed-Title"];
  console.log(["PUT", entry.id, title, entry.title, entry.authors?.map((a) => a.name), entry.tags].join("\t"));
});
await connection.close();
