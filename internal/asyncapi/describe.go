// Package asyncapi describes the topics of a configuration as an AsyncAPI document: their servers, channels,
// messages with the schemas of headers and bodies, and bindings. It needs neither the bus nor the feeds.
//
// The document is about feedbridge, so its operations are to send; a consumer receives. It has no
// credentials: those of a consumer are others.
package asyncapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/docs"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// Document is an AsyncAPI document. Below its keys, keys are sorted by name.
type Document struct {
	AsyncAPI   string            `json:"asyncapi"`
	Info       object            `json:"info"`
	Servers    map[string]object `json:"servers"`
	Channels   map[string]object `json:"channels"`
	Operations map[string]object `json:"operations"`
	Components struct {
		Schemas map[string]object `json:"schemas"`
	} `json:"components"`
}

// object is a JSON object, such as a schema or a binding.
type object map[string]any

func ref(path ...string) object { return object{"$ref": "#/" + strings.Join(path, "/")} }

// Describe returns the document about some topics of a configuration. version is that of the program.
func Describe(cfg *config.Config, topics []Topic, version string) *Document {
	d := &Document{
		AsyncAPI: "3.1.0",
		Info: object{"title": "Topics of feedbridge", "version": version, "description": "The topics that feedbridge writes. " +
			"The operations are those of feedbridge, which sends; consumers receive. Each entity of a feed is in its topic once, in the feed's order."},
		Servers: map[string]object{}, Channels: map[string]object{}, Operations: map[string]object{},
	}
	d.Components.Schemas = map[string]object{}
	for _, t := range topics {
		messages := map[string]object{}
		for _, name := range t.feeds {
			for _, m := range messageKinds(name, cfg.Feeds[name], t.isDead) {
				messages[m.key()] = m.describe(d, t.key)
			}
		}
		d.Channels[t.key] = object{"address": t.Address, "description": t.description(), "servers": d.addServers(t.bus, cfg.Buses[t.bus]), "messages": messages}
		if stream := cfg.Feeds[t.feeds[0]].To.Stream; stream != nil {
			// The binding of NATS has no place for the stream.
			d.Channels[t.key]["x-nats-stream"] = nats.Topic{Subject: t.Of, Stream: *stream}.StreamName()
		} else {
			d.Channels[t.key]["bindings"] = t.kafkaBindings(cfg)
		}
		var refs []object
		for _, key := range slices.Sorted(maps.Keys(messages)) {
			refs = append(refs, ref("channels", t.key, "messages", key))
		}
		d.Operations["send-"+t.key] = object{"action": "send", "channel": ref("channels", t.key), "messages": refs}
	}
	return d
}

// description returns a sentence about the topic.
func (t Topic) description() string {
	feeds := "the feed " + t.feeds[0]
	if len(t.feeds) > 1 {
		feeds = "the feeds " + strings.Join(t.feeds, ", ")
	}
	if t.isDead {
		return fmt.Sprintf("Dead letters of %s: entities that the bus does not take in %s.", feeds, t.Of)
	}
	return "Entities of " + feeds + "."
}

// addServers adds the servers of a bus to the document, and returns references to them.
func (d *Document) addServers(name string, bus config.Bus) (refs []object) {
	add := func(s object) {
		key := name
		if len(refs) > 0 {
			key = fmt.Sprintf("%s_%d", name, len(refs)+1) // names of buses have no _
		}
		d.Servers[key], refs = s, append(refs, ref("servers", key))
	}
	switch {
	case bus.Kafka != nil:
		protocol := map[bool]string{false: "kafka", true: "kafka-secure"}[bus.Kafka.TLS.IsEnabled()]
		for _, broker := range bus.Kafka.Brokers {
			add(object{"host": broker, "protocol": protocol})
		}
	case bus.NATS != nil:
		urls, _ := bus.NATS.ServerURLs() // the configuration is valid
		for _, u := range urls {
			s := object{"host": u.Host, "protocol": "nats", "description": "The URL begins with " + u.Scheme + "://."}
			if u.Path != "" {
				s["pathname"] = u.Path
			}
			if bus.NATS.APIPrefix != "" {
				s["x-nats-api-prefix"] = bus.NATS.APIPrefix
			}
			add(s)
		}
	default:
		add(object{"host": bus.Embedded.Listen, "protocol": "nats"})
	}
	return refs
}

// addEntrySchema adds docs/entry.schema.json, and the schemas in it, to the document. It returns a reference.
func (d *Document) addEntrySchema() object {
	entry := ref("components", "schemas", "entry")
	if d.Components.Schemas["entry"] != nil {
		return entry
	}
	var schema object
	_ = json.Unmarshal(bytes.ReplaceAll(docs.EntrySchema, []byte(`"#/$defs/`), []byte(`"#/components/schemas/`)), &schema) // it is valid
	for name, def := range schema["$defs"].(map[string]any) {
		d.Components.Schemas[name] = def.(map[string]any)
	}
	// With an $id, references would be relative to it.
	schema["$comment"] = fmt.Sprint("$id: ", schema["$id"])
	for _, key := range []string{"$schema", "$id", "$defs"} {
		delete(schema, key)
	}
	d.Components.Schemas["entry"] = schema
	return entry
}

const kafkaVersion = "0.5.0"

// kafkaBindings returns how the topic is created. Feeds that differ in that may share it; the first that runs creates it.
func (t Topic) kafkaBindings(cfg *config.Config) object {
	unknown := object{"topic": t.Address, "bindingVersion": kafkaVersion}
	var all object
	for _, name := range t.feeds {
		o, binding := cfg.Feeds[name].To.Kafka, maps.Clone(unknown)
		if o.Create {
			binding["partitions"], binding["topicConfiguration"] = o.Partitions, settingValues(o.Settings())
			if t.isDead {
				binding["partitions"], binding["topicConfiguration"] = 1, settingValues(o.DeadLetterSettings())
			}
			if o.Replication > 0 {
				binding["replicas"] = o.Replication
			}
		}
		if all != nil && !reflect.DeepEqual(all, binding) {
			binding = unknown
		}
		all = binding
	}
	return object{"kafka": all}
}

// settingValues returns settings of a topic with the types that AsyncAPI wants.
func settingValues(settings []string) object {
	values := object{}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		switch n, err := strconv.ParseInt(value, 10, 64); {
		case err == nil:
			values[name] = n
		case name == "cleanup.policy":
			values[name] = strings.Split(value, ",")
		case value == "true", value == "false":
			values[name] = value == "true"
		default:
			values[name] = value
		}
	}
	return values
}
