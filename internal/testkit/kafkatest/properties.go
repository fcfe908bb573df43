package kafkatest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Option changes how a broker is configured.
type Option func(*settings)

type settings struct {
	properties map[string]string
	users      map[string]string // passwords by name
	jvm        []string
}

// Property sets one of the broker's properties.
func Property(name, value string) Option {
	return func(s *settings) { s.properties[name] = value }
}

// Java adds flags for the JVM, which override those that are set already.
func Java(flags ...string) Option {
	return func(s *settings) { s.jvm = append(s.jvm, flags...) }
}

// User adds a user, who logs in at [Broker.SASLAddr] by PLAIN, SCRAM-SHA-256 or
// SCRAM-SHA-512, and may do there what ACLs allow. With any user the broker
// denies what no ACL allows. At [Broker.Addr] everyone may do everything still.
func User(name, password string) Option {
	return func(s *settings) { s.users[name] = password }
}

// properties returns the text of server.properties, without those that are empty.
func properties(store string, p ports, s settings) string {
	all := map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        "1",
		"controller.quorum.voters":       fmt.Sprintf("1@%s", address(p.controller)),
		"listeners":                      fmt.Sprintf("PLAIN://%s,CONTROLLER://%s", address(p.plain), address(p.controller)),
		"advertised.listeners":           fmt.Sprintf("PLAIN://%s", address(p.plain)),
		"controller.listener.names":      "CONTROLLER",
		"inter.broker.listener.name":     "PLAIN",
		"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT,SASL:SASL_PLAINTEXT",
		"log.dirs":                       store,

		"auto.create.topics.enable": "false",

		"offsets.topic.num.partitions":                     "1",
		"offsets.topic.replication.factor":                 "1",
		"transaction.state.log.num.partitions":             "1",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.num.partitions":     "1",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",

		// For a quick start: a single controller has no quorum to wait for.
		"controller.quorum.election.timeout.ms":     "100",
		"controller.quorum.election.backoff.max.ms": "100",
		"broker.heartbeat.interval.ms":              "300",
		"broker.session.timeout.ms":                 "2000",
		// Of 128 MiB, which are taken at the start.
		"log.cleaner.dedupe.buffer.size": "4194304",
	}
	if len(s.users) > 0 {
		maps.Copy(all, secured(p, s.users))
	}
	maps.Copy(all, s.properties)

	escape := strings.NewReplacer(`\`, `\\`)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] == "" {
			continue
		}
		fmt.Fprintf(&text, "%s=%s\n", name, escape.Replace(all[name]))
	}
	return text.String()
}

// secured are the properties of a broker with users.
func secured(p ports, users map[string]string) map[string]string {
	const security = "org.apache.kafka.common.security."
	plain := security + "plain.PlainLoginModule required"
	for _, name := range slices.Sorted(maps.Keys(users)) {
		plain += fmt.Sprintf(" user_%s=%q", name, users[name])
	}
	scram := security + "scram.ScramLoginModule required;"
	return map[string]string{
		"listeners": fmt.Sprintf("PLAIN://%s,SASL://%s,CONTROLLER://%s",
			address(p.plain), address(p.sasl), address(p.controller)),
		"advertised.listeners":                              fmt.Sprintf("PLAIN://%s,SASL://%s", address(p.plain), address(p.sasl)),
		"sasl.enabled.mechanisms":                           "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.sasl.plain.sasl.jaas.config":         plain + ";",
		"listener.name.sasl.scram-sha-256.sasl.jaas.config": scram,
		"listener.name.sasl.scram-sha-512.sasl.jaas.config": scram,
		"authorizer.class.name":                             "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		// The controller, and clients without authentication.
		"super.users": "User:ANONYMOUS",
	}
}
