package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/httpfeed"
	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// checkFeeds checks each feed, its destination, and that no two feeds have the same topic.
func (v *validator) checkFeeds() {
	names := v.locations.namesBelow("feeds")
	if len(names) == 0 && len(v.cfg.FeedsFrom) == 0 && v.cfg.Serve == nil && !v.feedless {
		v.addError("feeds", "there are no feeds; add one here or set FEEDBRIDGE_FEEDS_<NAME>_URL")
	}
	owners := map[[2]string]string{} // the last feed of each topic, by bus and topic
	for _, name := range names {
		to := v.cfg.Feeds[name].To
		topic := [2]string{to.Bus, to.Topic}
		v.topics[topic] = append(v.topics[topic], name)
	}
	slices.SortStableFunc(names, func(a, b string) int { return v.rank(a) - v.rank(b) })
	streams := v.wildcardStreams(names)
	for _, name := range names {
		f, path := v.cfg.Feeds[name], joinPath("feeds", name)
		v.reportAll(path, f.Source.Validate())
		v.reportAll(path, f.Syndication.Validate())
		v.checkFormat(path, f)
		if f.Freshness <= f.Every {
			v.addError(joinPath(path, "freshness"), fmt.Sprintf("a feed that works would be late between two polls, as every is %v; want more, such as %v, or leave it out", f.Every, 3*f.Every))
		}
		v.checkTo(path, f)
		v.checkStream(name, f.To, streams)
		if f.DeadLetters() {
			v.checkDeadLetters(name, f)
		}
		topic := [2]string{f.To.Bus, f.To.Topic}
		if other := owners[topic]; other != "" && (!f.To.isShared() || !v.cfg.Feeds[other].To.isShared()) {
			if v.rank(other) == newcomer {
				// Which of the new feeds of lists gets the topic must not depend on their order.
				v.addError(joinPath(joinPath("feeds", other), "to.topic"), fmt.Sprintf("%s on bus %s belongs to the feed %s, too; each feed needs its own, as with a topic of {feed}", topic[1], topic[0], name))
			}
			mine, cure := path, "each feed needs its own"
			if v.isFromURL(other) {
				// The feed of the file was there before.
				mine, other = joinPath("feeds", other), name
			}
			if v.isFromURL(strings.TrimPrefix(mine, "feeds.")) {
				cure = "give this one another with --topic"
			}
			if topic := joinPath(mine, "to.topic"); v.layer(topic) != topic {
				cure += ", as with a topic of {feed}"
			}
			if f.To.Kafka != nil {
				cure += ", or all of them to.kafka.shared"
			}
			v.addError(joinPath(mine, "to.topic"), fmt.Sprintf("%s on bus %s belongs to the feed %s already; %s", topic[1], topic[0], other, cure))
		}
		if other := owners[topic]; other == "" || v.rank(name) == v.rank(other) {
			owners[topic] = name
		}
	}
}

// wildcardStreams returns the first feed whose stream is created with a subject, by bus and subject.
func (v *validator) wildcardStreams(names []string) map[[2]string]string {
	streams := map[[2]string]string{}
	for _, name := range names {
		if to := v.cfg.Feeds[name].To; to.Stream != nil && to.Stream.Create {
			for _, subject := range to.Stream.Subjects {
				streams[[2]string{to.Bus, subject}] = cmp.Or(streams[[2]string{to.Bus, subject}], name)
			}
		}
	}
	return streams
}

// checkStream reports a stream that cannot be created besides one of streams, whose subjects include one of its own.
func (v *validator) checkStream(name string, to To, streams map[[2]string]string) {
	if to.Stream == nil || !to.Stream.Create {
		return
	}
	subjects := to.Stream.Subjects
	if len(subjects) == 0 {
		subjects = []string{to.Topic}
	}
	for _, subject := range subjects {
		patterns := []string{subject}
		for i, c := range subject {
			if c == '.' {
				patterns = append(patterns, subject[:i]+".>")
			}
		}
		for _, pattern := range patterns {
			other := streams[[2]string{to.Bus, pattern}]
			if other == "" || v.cfg.Feeds[other].To.streamName() == to.streamName() {
				continue
			}
			if v.rank(other) > v.rank(name) {
				name, other = other, name
			}
			v.addError(joinPath(joinPath("feeds", name), "to.stream.name"), fmt.Sprintf("the streams %s and %s, of this feed and of %s, would both have the subjects %s on bus %s, which NATS refuses; "+
				"give them one name without {host}, or topics that begin with other words; if you create the streams yourself, set to.stream.create: false",
				v.cfg.Feeds[name].To.streamName(), v.cfg.Feeds[other].To.streamName(), other, pattern, to.Bus))
			return
		}
	}
}

// newcomer is the rank of a feed of a list that the configuration in use does not have.
const newcomer = 2

// rank orders feeds that want the same topic: those of the configuration itself come first, and those of lists that
// the configuration in use has next.
func (d *diagnostics) rank(name string) int {
	switch {
	case d.listOf[name] == "":
		return 0
	case d.incumbents[name]:
		return 1
	}
	return newcomer
}

// checkLists checks the lists of feeds, but not their content.
func (v *validator) checkLists() {
	for name, list := range v.cfg.FeedsFrom {
		path := joinPath("feeds_from", name)
		switch {
		case (list.URL == "") == (list.File == ""):
			v.addError(path, "want url or file")
		case list.URL != "":
			v.reportAll(path, list.Source().Validate())
		}
	}
}

// isFromURL reports whether a feed was made from the URL of a command line.
func (v *validator) isFromURL(name string) bool {
	return v.locations[joinPath(joinPath("feeds", name), "url")].source == "URL"
}

// checkDeadLetters reports a dead-letter topic that is used for something else.
func (v *validator) checkDeadLetters(name string, f Feed) {
	path := joinPath("feeds", name)
	dead, key := f.To.Topic+sink.DeadSuffix, joinPath(path, "oversize")
	if f.Oversize != sink.DeadLetter {
		key = joinPath(path, "to.kafka.missing_key")
	}
	for _, other := range v.topics[[2]string{f.To.Bus, dead}] {
		if v.listOf[other] != "" && v.rank(other) >= v.rank(name) {
			key = joinPath(joinPath("feeds", other), "to.topic")
		}
		v.addError(key, fmt.Sprintf("the dead letters of this feed would go to %s on bus %s, which is the topic of the feed %s; give one of the two another topic", dead, f.To.Bus, other))
	}
	if bus := v.cfg.Buses[f.To.Bus].Kafka; bus != nil && bus.Checkpoints == dead {
		v.addError(key, fmt.Sprintf("the dead letters of this feed would go to %s on bus %s, which is its topic for checkpoints; give one of the two another name", dead, f.To.Bus))
	}
}

// checkFormat reports settings that have no meaning for the format of the feed at path.
func (v *validator) checkFormat(path string, f Feed) {
	switch f.Format.Kind() {
	case datareplication.Kind:
		v.require(!f.Start.IsEvent(), joinPath(path, "start"), "after: is for http-feeds, and this one is datareplication; want id:<content-id>@<time>")
	case httpfeed.Kind:
		v.require(f.Start.ID == "" || f.Start.IsEvent(), joinPath(path, "start"), "id: is for datareplication feeds, and this one is http-feeds; want after: and the id of an event")
		v.require(f.Start.Snapshot == "", joinPath(path, "start"), "only datareplication feeds have snapshots, and this one is http-feeds; want beginning, now, a time, or after: and the id of an event")
	case syndication.Kind:
		cure := fmt.Sprintf(", and this one is %s; want beginning, now, or a time such as 2026-01-01T00:00:00Z", f.Format)
		v.require(f.Start.ID == "", joinPath(path, "start"), "only datareplication feeds can start after an entity"+cure)
		v.require(f.Start.Snapshot == "", joinPath(path, "start"), "only datareplication feeds have snapshots"+cure)
	}
	v.require(f.Format != Format(feedxml.JSON) || f.Syndication.Body != "xml", joinPath(path, "body"), "xml is for Atom and RSS, and the format of this feed is jsonfeed; want json, or source for its items")
	for _, k := range schemaRoot.findKey("feeds").elem.keys {
		if !v.locations.isSet(joinPath(path, k.name)) || k.appliesTo(f.Format) {
			continue
		}
		which := "is for Atom, RSS and JSON Feed"
		if strings.HasPrefix(k.kind, datareplication.Kind) {
			which = "is for datareplication feeds"
		}
		v.addError(joinPath(path, k.name), fmt.Sprintf("%s, and the format of this feed is %s; leave it out", which, f.Format))
	}
}

// checkTo checks the destination of the feed f, which is at feed.
func (v *validator) checkTo(feed string, f Feed) {
	path, to := joinPath(feed, "to"), f.To
	v.checkBusName(joinPath(path, "bus"), to.Bus)
	v.checkCloudEvents(path, to)
	if !v.checkTemplate(joinPath(path, "topic"), to.Topic) || to.Stream != nil && !v.checkTemplate(joinPath(path, "stream.name"), to.Stream.Name) {
		return
	}
	bus, isKnown := v.cfg.Buses[to.Bus]
	switch {
	case bus.Kafka != nil:
		v.require(to.Stream == nil, joinPath(path, "stream"), fmt.Sprintf("is for NATS, and the bus %s is Kafka; leave it out, or see to.kafka", to.Bus))
		v.reportAll(path, kafka.Topic{Name: to.Topic, Key: f.Key, DeadLetters: f.DeadLetters(), Options: *to.Kafka}.Validate())
	case to.Kafka != nil && isKnown:
		v.addError(joinPath(path, "kafka"), fmt.Sprintf("is for Kafka, and the bus %s is NATS; leave it out, or see to.stream", to.Bus))
	case f.Key != "" && isKnown:
		v.addError(joinPath(feed, "key"), fmt.Sprintf("is for Kafka, and the bus %s is NATS, where a feed is one ordered topic; leave it out", to.Bus))
	case to.Stream != nil:
		v.require(bus.Embedded == nil || to.Stream.Replicas <= 1, joinPath(path, "stream.replicas"), "the embedded bus is one server; leave it out, or use a cluster of NATS servers")
		v.reportAll(path, nats.Topic{Subject: to.Topic, Stream: *to.Stream, DeadLetters: f.DeadLetters()}.Validate())
	}
}

// checkTemplate reports whether the name at path has no placeholders that were not replaced.
func (v *validator) checkTemplate(path, name string) bool {
	m := placeholderForm.FindStringSubmatch(name)
	if m == nil || slices.Contains(placeholders, m[1]) {
		return true
	}
	v.addError(path, fmt.Sprintf("there is no placeholder %s; want {feed} or {host}%s", m[0], DidYouMean(m[1], placeholders)))
	return false
}

// checkCloudEvents checks the attributes of the events of the destination at path. The default source is as valid
// as the URL of the feed.
func (v *validator) checkCloudEvents(path string, to To) {
	typ, source := joinPath(path, "cloudevents_type"), joinPath(path, "cloudevents_source")
	if to.CloudEvents {
		v.require(message.IsEventType(to.CloudEventsType), typ, "want text without control characters, such as com.example.order")
		v.require(!v.locations.isSet(v.layer(source)) || message.IsEventSource(to.CloudEventsSource), source,
			"want a URI or a relative one, such as https://shop.example.com/orders; percent-encode what it cannot have")
		return
	}
	const cure = "needs to.cloudevents: true; set that, or leave this out"
	v.require(to.CloudEventsType == "", typ, cure)
	v.require(to.CloudEventsSource == "", source, cure)
}
