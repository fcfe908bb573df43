package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/feedbridge/feedbridge/docs"
)

// StarterAddresses are the usual addresses of the kinds of bus.
var StarterAddresses = map[string]string{"nats": "nats://127.0.0.1:4222", "kafka": "127.0.0.1:9092", "embedded": "127.0.0.1:4222"}

// starterBuses have the keys of each kind of bus, for an address, and what is created on it.
var starterBuses = map[string]struct{ bus, created string }{
	"nats": {`    nats:
      url: %s
      # How feedbridge identifies itself; ` + docs.URL + `nats.md has the permissions that it needs.
#      credentials_file: /run/secrets/nats.creds
`, "stream: {max_age: 720h, replicas: 3}"},
	"kafka": {`    kafka:
      brokers: [%s]
      # How feedbridge identifies itself; ` + docs.URL + `kafka.md has the permissions that it needs.
#      tls: {enabled: true}
#      sasl: {mechanism: SCRAM-SHA-512, username: feedbridge, password: file:/run/secrets/kafka-password}
`, "kafka: {partitions: 1, replication: 3, config: [retention.ms=2592000000]}"},
	"embedded": {`    # A NATS server inside feedbridge, which other programs can connect to.
    embedded:
      listen: %s
`, "stream: {max_age: 720h}"},
}

// Starter returns a commented configuration without feeds for a bus of one of the kinds of [StarterAddresses]. The
// address is a URL of NATS, brokers of Kafka, or the host:port of the embedded bus, and admin that of the admin server.
// The result is not checked by [Load].
func Starter(kind, address, admin string) []byte {
	addresses := []string{address}
	if kind == "kafka" {
		addresses = strings.Split(address, ",")
	}
	for i, a := range addresses {
		addresses[i] = strconv.Quote(strings.TrimSpace(a))
	}
	bus := fmt.Sprintf(starterBuses[kind].bus, strings.Join(addresses, ", "))
	return []byte(fmt.Sprintf(`# A configuration of feedbridge. Keys that begin with # are switched off: remove the # only.
# `+docs.URL+`configuration.md describes all keys, and 'feedbridge check' validates the file.

# The directory of the embedded bus, and of the socket for 'feedbridge add' and 'feedbridge reload'.
data_dir: ./feedbridge-data

# Where messages go.
buses:
  main:
%s
# Values of the keys that a feed does not set.
feed_defaults:
  # The wait between polls that find nothing new.
  every: 1m
#  to:
    # The name of the topic, on NATS the subject, of each feed; {feed} is the name of the feed. The default is that name.
#    topic: news.{feed}
    # What is created; a stream or topic that exists is never changed.
#    %s

admin:
  # The status page, http://%[3]s/, and metrics.
  listen: %[3]s

# What is copied, by names of your own.
feeds:
`, bus, starterBuses[kind].created, admin))
}
