// Reports what AsyncAPI's parser finds in documents. Usage: node validate.mjs DOCUMENT...
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";

for (const file of process.argv.slice(2)) {
  const { document, diagnostics } = await new Parser().parse(readFileSync(file, "utf8"));
  for (const d of diagnostics) console.log(`${file}: ${d.path.join("/")}: ${d.code}: ${d.message}`);
  if (!document || diagnostics.length > 0) process.exitCode = 1;
}
