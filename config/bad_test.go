package config

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// badFileErrors has the error of each testdata/*.bad.yaml, from the line on. Each file
// has one error, which is reported once. ... replaces the text of another package.
var badFileErrors = map[string]string{
	"gap_of_atom":                 `:5: feeds.orders.gap: is for datareplication feeds, and the format of this feed is atom; leave it out`,
	"dedupe_window_of_rss":        `:5: feeds.orders.dedupe_window: is for datareplication feeds, and the format of this feed is rss; leave it out`,
	"dialect_of_datareplication":  `:5: feeds.orders.dialect: is for Atom, RSS and JSON Feed, and the format of this feed is datareplication; leave it out`,
	"dialect_unknown":             `:4: feeds.orders.dialect: want auto, complete, archived, paged, window, feed-history, atomhopper, ict4h or kurrent; did you mean "complete"?`,
	"entry_order_unknown":         `:4: feeds.orders.entry_order: want auto, newest_first, oldest_first or updated; did you mean "newest_first"?`,
	"start_at_entity_of_atom":     `:5: feeds.orders.start: only datareplication feeds can start after an entity, and this one is atom; want beginning, now, or a time such as 2026-01-01T00:00:00Z`,
	"start_at_snapshot_of_rss":    `:5: feeds.orders.start: only datareplication feeds have snapshots, and this one is rss; want beginning, now, or a time such as 2026-01-01T00:00:00Z`,
	"tail_without_relation":       `:4: feeds.orders.mode: ...`,
	"freshness_short":             `:4: feeds.orders.freshness: a feed that works would be late between two polls, as every is 1m0s; want more, such as 3m0s, or leave it out`,
	"full_every_zero":             `:4: feeds.orders.full_every: must be more than zero`,
	"delete_ratio_in_percent":     `:4: feeds.orders.max_delete_ratio: ...`,
	"admin_token_short":           `:4: admin.token: it must have 16 characters or more, such as those of 'openssl rand -hex 32'`,
	"admin_token_with_space":      `:4: admin.token: it must have only printable ASCII characters without spaces`,
	"admin_hosts_with_port":       `:4: admin.hosts[1]: want a host name without a port, such as feedbridge.example.com`,
	"admin_listen":                `:4: admin.listen: want host:port, such as 127.0.0.1:9321; or off`,
	"auth_twice":                  `:4: feeds.orders.auth: ...`,
	"bool_not_one":                `:4: feeds.orders.to.stream.create: want true or false`,
	"cloudevents_off":             `:4: feeds.orders.to.cloudevents_type: needs to.cloudevents: true; set that, or leave this out`,
	"bus_embedded_replicas":       `:6: feeds.orders.to.stream.replicas: the embedded bus is one server; leave it out, or use a cluster of NATS servers`,
	"cloudevents_source":          `:4: feeds.orders.to.cloudevents_source: want a URI or a relative one, such as https://shop.example.com/orders; percent-encode what it cannot have`,
	"cloudevents_type":            `:4: feeds.orders.to.cloudevents_type: want text without control characters, such as com.example.order`,
	"bus_embedded_twice":          `:7: buses.two.embedded: the bus one is embedded already; only one bus can be embedded`,
	"bus_listen":                  `:5: buses.main.embedded.listen: want host:port, such as 127.0.0.1:9321`,
	"bus_name_with_dot":           `:3: buses."eu.west": a name has only lower-case letters, digits and -, and starts with a letter`,
	"bus_not_chosen":              `:2: feeds.orders.to.bus: there are several buses; want main or spare`,
	"bus_url_missing":             `:5: buses.main.nats.url: ...`,
	"bus_unknown":                 `:6: feeds.orders.to.bus: there is no bus "mian"; want main`,
	"bus_with_two_kinds":          `:5: buses.main: want exactly one kind of bus, nats, kafka or embedded`,
	"bus_without_kind":            `:5: buses.main: want exactly one kind of bus, nats, kafka or embedded`,
	"data_dir_empty":              `:1: data_dir: must not be empty, as the bus embedded keeps its streams there`,
	"duplicate_feed":              `:4: feeds.orders: the key is repeated; the first one is in line 2`,
	"duplicate_key":               `:5: feeds.orders.every: the key is repeated; the first one is in line 4`,
	"duration_in_days":            `:5: feeds.orders.to.stream.max_age: the longest unit is the hour: write 168h`,
	"duration_not_one":            `:4: feeds.orders.every: want a duration with a unit, such as 30s`,
	"duration_without_unit":       `:4: feeds.orders.every: want a duration with a unit, such as 30s`,
	"empty":                       `: the file is empty; it needs at least a feed`,
	"feeds_empty":                 `:1: feeds: there are no feeds; add one here or set FEEDBRIDGE_FEEDS_<NAME>_URL`,
	"fleet_bus_unknown":           `:3: fleet.bus: there is no bus "mian"; want main`,
	"fleet_bus_not_chosen":        `:4: fleet.bus: there are several buses; want main or spare`,
	"fleet_embedded":              `:3: fleet.bus: the bus here is embedded in one copy and ends with it; a fleet needs a NATS system or a Kafka cluster that all copies use`,
	"fleet_empty":                 `:3: fleet.name: is missing; want a name that all copies of the fleet have, such as feedbridge`,
	"fleet_name_bad":              `:3: fleet.name: a name has only lower-case letters, digits and -, and starts with a letter; try "my-fleet"`,
	"fleet_name_long":             `:3: fleet.name: must have 64 characters or fewer`,
	"feed_defaults_unknown_key":   `:2: feed_defaults.evry: unknown key; did you mean "every"?`,
	"feed_defaults_url":           `:2: feed_defaults.url: each feed has a URL of its own; set it there`,
	"feed_defaults_bus":           `:2: feed_defaults.to.bus: there is no bus "mian"; want embedded`,
	"feed_defaults_bus_key":       `:3: feed_defaults.to.buss: unknown key; did you mean "bus"?`,
	"feed_defaults_topic":         `:2: feed_defaults.to.topic: news on bus embedded belongs to the feed a already; each feed needs its own, as with a topic of {feed}`,
	"stream_of_host":              `:2: feed_defaults.to.stream.name: the streams s_b_example_com and s_a_example_com, of this feed and of a, would both have the subjects news.> on bus embedded, which NATS refuses; give them one name without {host}, or topics that begin with other words; if you create the streams yourself, set to.stream.create: false`,
	"stream_within_another":       `:2: feeds.a.to.stream.name: the streams news_eu_a and news, of this feed and of b, would both have the subjects news.> on bus embedded, which NATS refuses; give them one name without {host}, or topics that begin with other words; if you create the streams yourself, set to.stream.create: false`,
	"template_unknown":            `:4: feeds.a.to.topic: there is no placeholder {fed}; want {feed} or {host}; did you mean "feed"?`,
	"stream_subjects":             `:4: feeds.a.to.stream.subjects: news.a is not among them; add it`,
	"stream_subjects_max_bytes":   `:3: feed_defaults.to.stream.max_bytes: would delete checkpoints of other topics in a stream for several topics; leave it out, and set max_age`,
	"stream_subjects_wildcard":    `:4: feeds.a.to.stream.subjects[0]: ...`,
	"format_unknown":              `:4: feeds.orders.format: want auto, datareplication, atom, rss, jsonfeed or http-feeds; did you mean "datareplication"?`,
	"gap_unknown":                 `:4: feeds.orders.gap: want halt, resume-at-timestamp or restart`,
	"grace_negative":              `:1: grace: must not be negative`,
	"header_without_colon":        `:4: feeds.orders.headers[1]: ...`,
	"header_without_quotes":       `:5: feeds.orders.headers[0]: want text; write an item with ": " in it in quotes`,
	"headers_is_mapping":          `:5: feeds.orders.headers: want a list, such as ["Name: value"]`,
	"kafka_broker_with_scheme":    `:5: buses.lake.kafka.brokers[0]: ...`,
	"kafka_key_not_one":           `:4: feeds.orders.key: "id": want a JSON pointer such as /id, or header:<name>`,
	"kafka_mechanism":             `:5: buses.lake.kafka.sasl.mechanism: want PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM`,
	"kafka_options_on_nats":       `:5: feeds.orders.to.kafka: is for Kafka, and the bus embedded is NATS; leave it out, or see to.stream`,
	"kafka_password_missing":      `:8: buses.lake.kafka.sasl.password: is missing for PLAIN`,
	"kafka_stream":                `:5: feeds.orders.to.stream: is for NATS, and the bus lake is Kafka; leave it out, or see to.kafka`,
	"kafka_tombstone_without_key": `:5: feeds.orders.to.kafka.delete: ...`,
	"kafka_topic_not_shared":      `:7: feeds.returns.to.topic: shop on bus lake belongs to the feed orders already; each feed needs its own, or all of them to.kafka.shared`,
	"kafka_topic_with_slash":      `:4: feeds.orders.to.topic: ...`,
	"key_not_text":                `:4: feeds.orders: a key must be plain text`,
	"list_without_address":        `:2: feeds_from.a: want url or file`,
	"list_url":                    `:2: feeds_from.a.url: ...`,
	"list_defaults":               `:4: feeds_from.a.defaults.evry: unknown key; did you mean "every"?`,
	"list_is_text":                `:4: feeds.orders.allow_hosts: want a list, such as [a, b]`,
	"log_level_unknown":           `:1: log.level: want debug, info, warn or error`,
	"mapping_is_text":             `:4: feeds.orders.to: want a mapping, such as {bus: ...}`,
	"merge_key":                   `:5: feeds.returns.<<: YAML merge keys are not supported; put the values that all feeds have into feed_defaults, and use an anchor for any other value`,
	"key_on_nats":                 `:4: feeds.orders.key: is for Kafka, and the bus embedded is NATS, where a feed is one ordered topic; leave it out`,
	"name_long":                   `:2: feeds.` + strings.Repeat("n", 101) + `: a name has at most 100 characters`,
	"topic_long":                  `:4: feeds.orders.to.topic: has 256 bytes; NATS takes 255 at most`,
	"stream_name_long":            `:4: feeds.orders.to.stream.name: has 256 bytes; NATS takes 255 at most`,
	"stream_subject_long":         `:4: feeds.orders.to.stream.subjects[1]: has 256 bytes; NATS takes 255 at most`,
	"name_with_capital":           `:2: feeds.Orders: a name has only lower-case letters, digits and -, and starts with a letter; try "orders"`,
	"name_with_digit_first":       `:2: feeds.1st: a name has only lower-case letters, digits and -, and starts with a letter`,
	"name_with_underscore":        `:2: feeds.my_orders: a name has only lower-case letters, digits and -, and starts with a letter; try "my-orders"`,
	"names_is_list":               `:2: feeds: want a mapping of names, such as {main: {url: ...}}`,
	"no_feeds":                    `: feeds: there are no feeds; add one here or set FEEDBRIDGE_FEEDS_<NAME>_URL`,
	"not_yaml":                    `:3: not YAML: did not find expected ',' or '}' of line 2; close it, and put values like ${NAME} or a: b in quotes there`,
	"not_yaml_indent":             `:5: not YAML: did not find expected key; indent the line like the other keys of its mapping`,
	"not_yaml_variable":           `:4: not YAML: did not find expected ',' or '}' of line 4; close it, and put values like ${NAME} or a: b in quotes there`,
	"directive":                   `:1: the directive %YAML has a version that is not supported; remove the line`,
	"not_yaml_quote":              `:4: not YAML: found unexpected end of stream; the quote of this line is not closed`,
	"dead_letter_topic":           `:4: feeds.orders.oversize: the dead letters of this feed would go to orders.dead on bus embedded, which is the topic of the feed returns; give one of the two another topic`,
	"dead_letter_kafka":           `:5: feeds.orders.to.kafka.missing_key: the dead letters of this feed would go to shop.dead on bus lake, which is its topic for checkpoints; give one of the two another name`,
	"dead_letter_long":            `:5: feeds.orders.to.topic: "` + strings.Repeat("t", 246) + `" is too long for dead letters: the name of their topic has 5 characters more, and 249 at most`,
	"null_feed":                   `:2: feeds.orders: the value is missing; want a mapping, such as {url: ...}, or leave the key out`,
	"null_value":                  `:4: feeds.orders.every: the value is missing; want a duration with a unit, such as 30s, or leave the key out`,
	"number_not_one":              `:4: feeds.orders.limits.rate: want a number, such as 2.5`,
	"number_not_whole":            `:4: feeds.orders.dedupe_window: want a whole number from 1 to 10000000`,
	"number_with_unit":            `:4: feeds.orders.limits.entity: want a whole number of bytes, such as 16777216`,
	"only_comments":               `: the file is empty; it needs at least a feed`,
	"oversize_unknown":            `:4: feeds.orders.oversize: want stop, skip or dead-letter`,
	"secret_like_anchor":          `:4: no such anchor; write a value that starts with * in quotes`,
	"secret_like_anchor_name":     `:4: feeds.orders.auth.bearer: this is not the name of an anchor; put a value that starts with & in quotes`,
	"secret_like_tag":             `:5: feeds.orders.auth.bearer: YAML tags are not supported; put a value that starts with ! in quotes`,
	"secret_parameter_slash":      `:4: secret_parameters[1]: "shop/…": no parameter has this name, so nothing would be hidden; a name has none of / ; ! ? & # = and 200 bytes at most`,
	"serve_auth_empty":            `:7: serve.feeds.orders.auth: no credential is set, or it is empty, so everyone could read the feed; remove auth if that is intended`,
	"serve_auth_twice":            `:7: serve.feeds.orders.auth: want bearer or basic, not both`,
	"serve_bus_unknown":           `:6: serve.feeds.orders.from.bus: there is no bus "mian"; want embedded`,
	"serve_format_unknown":        `:6: serve.feeds.orders.format: want datareplication, atom, rss, jsonfeed or http-feeds; did you mean "atom"?`,
	"serve_listen_is_admin":       `:5: serve.listen: is the same as admin.listen; use different addresses`,
	"serve_page_size":             `:6: serve.feeds.orders.page_size: must be between 1 and 10000`,
	"replicas_zero":               `:4: feeds.orders.to.stream.replicas: must be from 1 to 5`,
	"serve_partition_on_nats":     `:6: serve.feeds.orders.from.partition: is for Kafka, and the bus embedded is NATS; leave it out`,
	"serve_public_url":            `:6: serve.feeds.orders.public_url: ...`,
	"serve_tls_without_key":       `:5: serve.tls: want both cert_file and key_file, or neither`,
	"serve_without_feeds":         `:4: serve.feeds: there are no feeds to serve; add one, or leave serve out`,
	"start_snapshot":              `:4: feeds.orders.start: ...`,
	"start_unknown":               `:4: feeds.orders.start: ...`,
	"tab":                         `:3: the line is indented with a tab; YAML requires spaces`,
	"text_is_mapping":             `:3: feeds.orders.url: want text, such as "abc"`,
	"top_is_list":                 `:1: want a mapping, such as {data_dir: ...}`,
	"topic_reserved":              `:4: feeds.orders.to.topic: ...`,
	"topic_shared":                `:7: feeds.returns.to.topic: shop on bus embedded belongs to the feed orders already; each feed needs its own`,
	"topic_with_empty_part":       `:4: feeds.orders.to.topic: ...`,
	"topic_with_space":            `:4: feeds.orders.to.topic: ...`,
	"topic_with_wildcard":         `:4: feeds.orders.to.topic: ...`,
	"two_documents":               `:4: a second document starts here; the file must have only one`,
	"unknown_key":                 `:4: feeds.orders.evry: unknown key; did you mean "every"?`,
	"unknown_key_case":            `:4: feeds.orders.allowHosts: unknown key; did you mean "allow_hosts"?`,
	"unknown_key_deep":            `:4: feeds.orders.limits.entty: unknown key; did you mean "entity"?`,
	"unknown_key_far":             `:4: feeds.orders.colour: unknown key; want one of: url, headers, auth, allow_hosts, timeout, limits, format, every, start, gap, dialect, entry_order, mode, ignore_changes_in, max_delete_ratio, full_every, hints, identity, body, lenient, oversize, dedupe_window, freshness, key, to`,
	"unknown_key_misplaced":       `:4: feeds.orders.topic: unknown key; did you mean "to.topic"?`,
	"unknown_key_top":             `:4: fees: unknown key; did you mean "feeds"?`,
	"url_missing":                 `:2: feeds.orders.url: ...`,
	"url_with_password":           `:3: feeds.orders.url: ...`,
	"url_without_scheme":          `:3: feeds.orders.url: ...`,
	"variable_nested":             `:4: feeds.orders.auth.bearer: want ${NAME} or ${NAME:-default}, not nested; write $${ where ${ itself is meant`,
	"variable_not_closed":         `:4: feeds.orders.auth.bearer: want ${NAME} or ${NAME:-default}, not nested; write $${ where ${ itself is meant`,
	"variable_unset":              `:4: feeds.orders.auth.bearer: the variable ORDERS_TOKEN is not set; give it a default with ${ORDERS_TOKEN:-default}`,
	"variable_wrong_type":         `:4: feeds.orders.every: want a duration with a unit, such as 30s`,
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob("testdata/*.bad.yaml")
	if len(files) != len(badFileErrors) {
		t.Errorf("%d bad files and %d expectations", len(files), len(badFileErrors))
	}
	for _, file := range files {
		want := file + badFileErrors[strings.TrimSuffix(filepath.Base(file), ".bad.yaml")]
		_, err := Load(Options{File: file})
		if !matchesError(err, want) {
			t.Errorf("%s:\n got %v\nwant %s", file, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

// matchesError reports whether err has the text want, where ... at the end matches
// anything in one line.
func matchesError(err error, want string) bool {
	if err == nil {
		return false
	}
	got := err.Error()
	start, open := strings.CutSuffix(want, "...")
	return got == want || open && len(got) > len(start) && strings.HasPrefix(got, start) && !strings.Contains(got, "\n")
}

func TestFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"testdata/none.yaml": "testdata/none.yaml: there is no such file; name another with -c",
		"testdata":           "testdata: this is a directory; name the file in it with -c",
		"config.go/x.yaml":   "config.go/x.yaml: cannot be read: not a directory",
	} {
		_, err := Load(Options{File: file})
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestAllErrorsAtOnceInOrder(t *testing.T) {
	t.Parallel()
	l := newLoader([]string{"FEEDBRIDGE_GRACE=x", "FEEDBRIDGE_ADMIN_LISTEN=x", "FEEDBRIDGE_FOO=x"})
	l.readYAML("f.yaml", []byte(`
grace: 1
feeds:
  b: {url: ftp://shop.example.com/, every: 1ms}
  a:
    url: [x]
    gap: none
    to: {bus: none}
log: {levle: info}
`))
	_, err := l.loadConfig(Options{})
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatalf("error %v, want Errors", err)
	}
	want := []string{
		"f.yaml:2: grace: want a duration with a unit, such as 30s",
		"f.yaml:4: feeds.b.every: must be 100ms or more",
		"f.yaml:4: feeds.b.url: ...",
		"f.yaml:6: feeds.a.url: want text, such as \"abc\"",
		"f.yaml:7: feeds.a.gap: want halt, resume-at-timestamp or restart",
		`f.yaml:8: feeds.a.to.bus: there is no bus "none"; want embedded`,
		`f.yaml:9: log.levle: unknown key; did you mean "level"?`,
		"FEEDBRIDGE_ADMIN_LISTEN: admin.listen: want host:port, such as 127.0.0.1:9321; or off",
		"FEEDBRIDGE_FOO: no key of the configuration has this variable; want FEEDBRIDGE_ and the key in capitals, with _ in place of . and -",
		"FEEDBRIDGE_GRACE: grace: want a duration with a unit, such as 30s",
	}
	same := func(got *Error, want string) bool { return matchesError(got, want) }
	if !slices.EqualFunc(errs, want, same) {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

// Keys below an invalid name are read and checked too.
func TestErrorsBelowABadName(t *testing.T) {
	t.Parallel()
	l := newLoader(nil)
	l.readYAML("f.yaml", []byte(`
feeds:
  Orders:
    url: shop.example.com/feed
    evry: 1s
    every: 30
    headers: ["X: ${NOPE}"]
    to: {topik: x}
`))
	_, err := l.loadConfig(Options{})
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatalf("error %v, want Errors", err)
	}
	var keys []string
	for _, e := range errs {
		keys = append(keys, e.Key)
	}
	want := []string{"feeds.Orders", "feeds.Orders.url", "feeds.Orders.evry", "feeds.Orders.every", "feeds.Orders.headers[0]", "feeds.Orders.to.topik"}
	if !slices.Equal(keys, want) {
		t.Errorf("errors for %q, want %q", keys, want)
	}
}

// A setting that cannot be read is one error, without a second one for the value that
// is missing because of it.
func TestNoErrorFollowsFromAnother(t *testing.T) {
	t.Parallel()
	for _, file := range []string{
		"feeds: {a: {ulr: 'https://shop.example.com/'}}",
		"feeds: {a: 1}",
		"feeds: []",
		"feeds: {A: {url: 'https://shop.example.com/'}}",
		"feeds: {1 a: {url: 'https://shop.example.com/'}, invalid: {url: 'https://shop.example.com/'}}",
		"feeds: {A: {url: 'https://shop.example.com/'}, a: {url: 'https://shop.example.com/'}}",
		"feeds: {<<: {a: {url: 'https://shop.example.com/'}}}",
		"buses: {m: {nats: 1}}\nfeeds: {a: {url: 'https://shop.example.com/', to: {bus: m}}}",
		"buses: {m: {kafka: 1}}\nfeeds: {a: {url: 'https://shop.example.com/', to: {bus: m, kafka: {partitions: 2}}}}",
		"buses: {M: {kafka: {brokers: ['h:9092']}}}\nfeeds: {a: {url: 'https://shop.example.com/', to: {kafka: {partitions: 2}}}}",
		"feeds_from: {Blogs: {file: blogs.opml}}",
		"buses: {main: {nats: {url: 'nats://h'}}, lake: {kafka: {brokers: ['h:9092']}}}\nfeed_defaults: {to: {bus: main}}\nfeeds: {a: {url: 'http://h/', to: {bus: [lake], kafka: {partitions: 2}}}}",
		"feed_defaults: {to: {topic: 'news.{host}.{feed}', stream: {name: news}}}\nfeeds: {a: {url: 'http://h/'}, b: {url: 'http://g/', to: {topic: {}, stream: {name: own}}}}",
		"buses: {m: {natz: {}}}\nfeeds: {a: {url: 'https://shop.example.com/'}}",
		"buses: []\nfeeds: {a: {url: 'https://shop.example.com/', to: {bus: m}}}",
		"buses: {M: {embedded: {}}}\nfeeds: {a: {url: 'https://shop.example.com/', to: {bus: M}}}",
		"buses: {eu.west: {embedded: {}}}\nfeeds: {a: {url: 'https://shop.example.com/', to: {bus: eu.west}}}",
		"feeds: {a: {url: '${NOT_SET}'}}",
	} {
		l := newLoader(nil)
		l.readYAML("f.yaml", []byte(file))
		_, err := l.loadConfig(Options{})
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\n%v\nwant one error", file, err)
		}
	}
}
