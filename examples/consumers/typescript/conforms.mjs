// Reports messages that do not have exactly one of the forms that a document has for their channel, and prints the
// names of the forms that there were. Usage: node conforms.mjs DOCUMENT < MESSAGES, which are lines of
// {"channel": ..., "headers": {...}, "payload": ..., "key": ...}
import { readFileSync } from "node:fs";
import Ajv from "ajv";
import formats from "ajv-formats";

const document = JSON.parse(readFileSync(process.argv[2], "utf8"));
const ajv = new Ajv.default({ strict: false });
formats.default(ajv);
ajv.addSchema(document, "document");
const schemas = {}; // by channel and message
for (const [channel, { address, messages }] of Object.entries(document.channels)) {
  schemas[address] = {};
  for (const [message, { name, bindings }] of Object.entries(messages)) {
    const at = `document#/channels/${channel}/messages/${message}`;
    const properties = { headers: { $ref: `${at}/headers` }, payload: { $ref: `${at}/payload` } };
    if (bindings) properties.key = { $ref: `${at}/bindings/kafka/key` };
    schemas[address][name] = ajv.compile({ type: "object", properties });
  }
}
const found = new Set();
for (const line of readFileSync(0, "utf8").trim().split("\n")) {
  const message = JSON.parse(line);
  const errors = {};
  const fitting = Object.entries(schemas[message.channel]).filter(([name, validate]) => validate(message) || ((errors[name] = validate.errors), false));
  if (fitting.length === 1) found.add(fitting[0][0]);
  else console.log(`${fitting.length} forms fit ${line}: ${JSON.stringify(errors)}`);
}
console.log([...found].sort().join(" "));
