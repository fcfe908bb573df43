// Generates the types of the messages of a document. Usage: node generate.mjs DOCUMENT > types.ts
import { readFileSync } from "node:fs";
import { AsyncAPIInputProcessor, TypeScriptGenerator } from "@asyncapi/modelina";
import { Parser } from "@asyncapi/parser";

AsyncAPIInputProcessor.supportedVersions.push("3.1.0"); // Modelina 5 reads it, but does not list it
const text = readFileSync(process.argv[2], "utf8");
const generator = new TypeScriptGenerator({ modelType: "interface", rawPropertyNames: true, mapType: "record", enumType: "union" });
const models = await generator.generate(JSON.parse(text));

// Modelina has types of the bodies only. Those of the headers are called OrdersPutHeaders.
const { document } = await new Parser().parse(text);
for (const message of document.allMessages().all()) {
  const $id = `${message.name()}-headers`.replace(/[^A-Za-z0-9]+(.)/g, (_, next) => next.toUpperCase());
  const schema = { $schema: "http://json-schema.org/draft-07/schema#", ...message.headers().json(), $id };
  models.push(...(await generator.generate(schema)));
}
const types = new Map(models.map((m) => [m.modelName, m.result]));
for (const type of types.values()) console.log(`export ${type}`);
