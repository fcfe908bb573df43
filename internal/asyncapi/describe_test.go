package asyncapi

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/docs"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// everything has each setting that changes the document, and the names and secrets of users.
const everything = `
buses:
  main: {nats: {url: "nats://naomi:s3cret@n1:4222, tls://n2:4223", api_prefix: $JS.hub.API}}
  socket: {nats: {url: "wss://n3/path", username: naomi, password: s3cret}}
  here: {embedded: {listen: "127.0.0.1:4333"}}
  lake: {kafka: {brokers: ["k1:9092", "k2:9092"], client_id: naomi, tls: {enabled: true}, sasl: {mechanism: PLAIN, username: naomi, password: s3cret}}}
feeds:
  orders: {url: "https://x.example/", format: datareplication, auth: {bearer: s3cret}, oversize: dead-letter, to: {bus: main, topic: shop.orders, cloudevents: true}}
  plain: {url: "https://x.example/", format: datareplication, to: {bus: here, stream: {name: OTHER}}}
  auto: {url: "https://x.example/", headers: ["A: s3cret"], to: {bus: socket, topic: shop/orders}}
  news: {url: "https://x.example/", format: rss, key: /id, to: {bus: lake, topic: shop.orders, kafka: {delete: tombstone, partitions: 3, replication: 2, config: ["cleanup.policy=compact,delete", retention.ms=604800000, min.insync.replicas=2, compression.type=zstd, preallocate=true]}}}
  keyed: {url: "https://x.example/", format: atom, body: xml, key: "header:Content-ID", oversize: dead-letter, to: {bus: lake, kafka: {missing_key: "null", config: [cleanup.policy=compact]}}}
  first: {url: "https://x.example/", format: datareplication, to: {bus: lake, topic: many, cloudevents: true, kafka: {shared: true}}}
  second: {url: "https://x.example/", to: {bus: lake, topic: many, kafka: {shared: true, partitions: 2}}}
  by-hand: {url: "https://x.example/", format: rss, body: xml, to: {bus: lake, kafka: {create: false}}}
`

func describe(t *testing.T, text string, topics ...string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "feedbridge.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	cfg, err := config.Load(config.Options{File: file})
	must.Succeed(t, err)
	chosen := slices.DeleteFunc(Topics(cfg), func(t Topic) bool { return len(topics) > 0 && !slices.Contains(topics, t.Address) })
	document, err := json.MarshalIndent(Describe(cfg, chosen, "v1"), "", "  ")
	must.Succeed(t, err)
	return document
}

// valueAt returns the value at a path, as JSON.
func valueAt(t *testing.T, document []byte, path string) string {
	t.Helper()
	var v any
	must.Succeed(t, json.Unmarshal(document, &v))
	for name := range strings.SplitSeq(path, "|") {
		if list, ok := v.([]any); ok {
			i, err := strconv.Atoi(name)
			must.Succeed(t, err)
			v = list[i]
			continue
		}
		v = v.(map[string]any)[name]
		if v == nil {
			return ""
		}
	}
	text, err := json.Marshal(v)
	must.Succeed(t, err)
	return string(text)
}

func TestDocument(t *testing.T) {
	t.Parallel()
	document := describe(t, everything)
	for path, want := range map[string]string{
		"asyncapi":          `"3.1.0"`,
		"servers|main|host": `"n1:4222"`,
		"components|schemas|natsEventHeaders|properties|ce-sequence|pattern": `"^[0-9]{20}$"`,
		"components|schemas|kafkaEventHeaders|properties|content-type|type":  `"string"`,
		"servers|main_2|host":              `"n2:4223"`,
		"servers|main_2|x-nats-api-prefix": `"$JS.hub.API"`,
		"servers|socket|pathname":          `"/path"`,
		"servers|here|host":                `"127.0.0.1:4333"`,
		"servers|lake_2":                   `{"host":"k2:9092","protocol":"kafka-secure"}`,

		"channels|shop.orders|address":            `"shop.orders"`,
		"channels|shop.orders_|address":           `"shop.orders"`,
		"channels|shop_orders|address":            `"shop/orders"`,
		"operations|send-shop.orders_":            `{"action":"send","channel":{"$ref":"#/channels/shop.orders_"},"messages":[{"$ref":"#/channels/shop.orders_/messages/delete"},{"$ref":"#/channels/shop.orders_/messages/patch"},{"$ref":"#/channels/shop.orders_/messages/put"}]}`,
		"channels|shop.orders_|x-nats-stream":     `"shop_orders"`,
		"channels|shop.orders.dead|x-nats-stream": `"shop_orders"`,
		"channels|plain|x-nats-stream":            `"OTHER"`,
		"channels|shop.orders_|bindings":          ``,
		"channels|shop.orders|x-nats-stream":      ``,

		"channels|shop.orders|bindings|kafka": `{"bindingVersion":"0.5.0","partitions":3,"replicas":2,"topic":"shop.orders","topicConfiguration":` +
			`{"cleanup.policy":["compact","delete"],"compression.type":"zstd","min.insync.replicas":2,"preallocate":true,"retention.ms":604800000}}`,
		"channels|keyed.dead|bindings|kafka": `{"bindingVersion":"0.5.0","partitions":1,"topic":"keyed.dead","topicConfiguration":{"retention.ms":-1}}`,
		"channels|by-hand|bindings|kafka":    `{"bindingVersion":"0.5.0","topic":"by-hand"}`,
		"channels|many|bindings|kafka":       `{"bindingVersion":"0.5.0","topic":"many"}`,

		"channels|shop.orders|messages|put|payload":                     `{"$ref":"#/components/schemas/entry"}`,
		"channels|shop.orders|messages|put|contentType":                 `"application/json"`,
		"channels|shop.orders|messages|patch":                           ``,
		"channels|shop.orders|messages|delete|payload|type":             `"null"`,
		"channels|shop.orders|messages|put|bindings|kafka|key":          `{"description":"The value in the body at /id.","type":"string"}`,
		"channels|keyed|messages|delete|bindings|kafka|key":             `{"description":"The header Content-ID.","type":["string","null"]}`,
		"channels|keyed|messages|put|contentType":                       `"application/atom+xml;type=entry"`,
		"channels|keyed|messages|delete|payload|type":                   `"string"`,
		"channels|keyed.dead|messages|dead|bindings|kafka|key":          `{"type":"null"}`,
		"channels|by-hand|messages|put|contentType":                     `"application/xml"`,
		"channels|by-hand|messages|put|bindings|kafka|key":              `{"type":"null"}`,
		"channels|shop.orders_|messages|patch|contentType":              ``,
		"channels|shop.orders_|messages|patch|headers|properties":       `{"Feedbridge-Feed":{"const":"orders","type":"string"},"Feedbridge-Operation":{"const":"PATCH","type":"string"}}`,
		"channels|shop.orders.dead|messages|dead|headers|allOf":         `[{"$ref":"#/components/schemas/entityHeaders"},{"$ref":"#/components/schemas/deadLetterHeaders"}]`,
		"channels|plain|messages|put|headers|allOf":                     `[{"$ref":"#/components/schemas/entityHeaders"}]`,
		"channels|many|messages|first-patch|name":                       `"many-first-patch"`,
		"channels|many|messages|second-entry-put|headers|required":      `["Content-ID","Feedbridge-Feed","Feedbridge-Operation","Operation-Type","Content-Type","Feedbridge-Mark"]`,
		"channels|many|messages|second-datareplication-put|headers|not": `{"required":["Feedbridge-Mark"]}`,
		"components|schemas|entry|required":                             `["id"]`,
		"components|schemas|entry|$id":                                  ``,
		"components|schemas|entry|$comment":                             `"$id: https://github.com/feedbridge/feedbridge/schema/entry/1"`,
		"components|schemas|element|properties|children|items":          `{"$ref":"#/components/schemas/element"}`,
	} {
		if got := valueAt(t, document, path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	for _, secret := range []string{"s3cret", "naomi"} {
		if strings.Contains(string(document), secret) {
			t.Errorf("the document has %q", secret)
		}
	}
}

// A document has the servers and schemas that it refers to, and no others.
func TestDocumentOfOneTopic(t *testing.T) {
	t.Parallel()
	document := describe(t, everything, "plain")
	var d Document
	must.Succeed(t, json.Unmarshal(document, &d))
	names := slices.Concat(slices.Sorted(maps.Keys(d.Servers)), slices.Sorted(maps.Keys(d.Channels)), slices.Sorted(maps.Keys(d.Operations)), slices.Sorted(maps.Keys(d.Components.Schemas)))
	if got := strings.Join(names, " "); got != "here plain send-plain entityHeaders" {
		t.Errorf("got %s", got)
	}
}

// AsyncAPI's parser has no remark about documents.
func TestDocumentsAreValid(t *testing.T) {
	t.Parallel()
	const packages = "../../examples/consumers/typescript"
	if _, err := os.Stat(packages + "/node_modules"); err != nil {
		if os.Getenv("REQUIRE_CONSUMERS") != "" {
			t.Fatal(err)
		}
		t.Skipf("the packages are not installed: run npm install --no-package-lock in %s", packages)
	}
	args := []string{packages + "/validate.mjs"}
	example, err := os.ReadFile("../../deploy/feedbridge.yaml")
	must.Succeed(t, err)
	for _, document := range [][]byte{
		describe(t, everything), describe(t, everything, "many"), describe(t, everything, "shop.orders.dead"),
		describe(t, "feeds: {orders: {url: 'https://x.example/'}}"), describe(t, string(example)),
	} {
		file := filepath.Join(t.TempDir(), "asyncapi.json")
		must.Succeed(t, os.WriteFile(file, document, 0o600))
		args = append(args, file)
	}
	if out, err := exec.CommandContext(t.Context(), "node", args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// The document has the headers of docs/consuming.md and no others, without those that consumers ignore.
func TestHeadersAreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	var described []string
	for _, set := range headerSets {
		for _, h := range set.headers {
			described = append(described, h.name)
			if text := headerDescriptions()[h.name]; text == "" || strings.ContainsAny(text, "`[") {
				t.Errorf("%s is described as %q, want text in docs/consuming.md or docs/consuming-cloudevents.md", h.name, text)
			}
		}
	}
	ignored := []string{"Feedbridge-Header-X", "Feedbridge-Event", "ce-X", "Feedbridge-Mark", "Feedbridge-Sequence", "Feedbridge-First"}
	documented := 0
	tables := regexp.MustCompile(`(?m)^\| Header \|.*\n(\|.*\n)+`).FindAllString(docs.Consuming, -1)
	for _, row := range headerRow.FindAllStringSubmatch(strings.Join(tables, ""), -1) {
		for _, name := range headerName.FindAllStringSubmatch(row[1], -1) {
			if documented++; !slices.Contains(described, name[1]) && !slices.Contains(ignored, name[1]) {
				t.Errorf("docs/consuming.md has the header %s, which is in no set", name[1])
			}
		}
	}
	if documented < 20 {
		t.Errorf("found only %d headers in docs/consuming.md: this test looks in the wrong place", documented)
	}
}
