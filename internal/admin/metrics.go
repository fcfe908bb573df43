package admin

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/singleflight"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/feed"
)

// newRegistry returns the registry of /metrics. There is no default one: two Servers in one
// process do not meet.
func newRegistry(inv *inventory, shared *vectors, opts Options) *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace:   namespace,
		Name:        "build_info",
		Help:        "Always 1; the labels are the version of feedbridge and the version of Go that built it.",
		ConstLabels: prometheus.Labels{"version": opts.Version, "goversion": runtime.Version()},
	})
	build.Set(1)
	registry := prometheus.NewRegistry()
	shared.register(registry)
	registry.MustRegister(build, &collector{inv, metrics()}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// shareGather returns a function that calls gather once for all callers that wait for it at the same
// time. The option CoalesceGather of promhttp would share the metrics for longer, until no client reads
// its answer any more: one that does not read, or a row of slow ones, would get all others old metrics.
func shareGather[T any](gather func() ([]T, error)) func() ([]T, error) {
	var flights singleflight.Group
	return func() ([]T, error) {
		families, err, _ := flights.Do("", func() (any, error) { return gather() })
		return slices.Clone(families.([]T)), err
	}
}

// collector makes metrics from the feeds' records when they are asked for.
type collector struct {
	*inventory
	metrics []metric
}

// metric is made from a record by calling emit for each series, with the
// values of the labels that it has besides the feed. An unknown value is not
// emitted.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	each func(v *feedView, emit func(value float64, labels ...string))
}

// newDesc describes a metric of feeds. labels are those that it has besides feed.
func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return processMetric(name, help, append([]string{"feed"}, labels...)...)
}

// processMetric describes a metric of the process.
func processMetric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// The metrics of the process.
var (
	busUp = processMetric("bus_up",
		"1 if the bus answers and accepts the credentials, 0 if not; checked at each scrape, for 2 s at most.", "bus", "kind")
	reloadSuccess = processMetric("config_reload_success",
		"1 if the last attempt to load the configuration worked, 0 if it was refused and the one before is still in use.")
	reloadedAt = processMetric("config_reload_timestamp_seconds",
		"When the configuration in use was loaded, in Unix time.")
	feedsInState = processMetric("feeds",
		"Number of feeds that are copied, by state.", "state")
	staleFeeds = processMetric("stale_feeds",
		"Number of feeds that were not copied within their freshness limit, as /readyz requires.")
	leftBehindFeeds = processMetric("left_behind_feeds",
		"Number of feeds that were stopped and have not ended: their source does not yield, or their bus does not answer.")
	slowHosts = processMetric("slow_hosts",
		"Number of hosts that have refused requests, as with 429, and are asked less often; slow_hosts of /status names them.")
	logDropped = processMetric("log_lines_dropped_total",
		"Lines of the log that were dropped because the reader of standard error is gone or does not read.")
	fleetMembers = processMetric("fleet_members",
		"Members of the fleet, as far as this copy knows. Absent without a fleet.", "fleet")
	fleetMember = processMetric("fleet_member",
		"1 if this copy is a member of its fleet, 0 if not. Absent without a fleet.", "fleet")
	fleetFeeds = processMetric("fleet_feeds",
		"Feeds that the fleet has assigned to this copy. The sum over all copies is the number of feeds. Absent without a fleet.", "fleet")
	fleetOtherFeeds = processMetric("fleet_members_with_other_feeds",
		"Members whose feeds are not those of this copy, as in a rollout. Absent without a fleet.", "fleet")
	listUp = processMetric("list_up",
		"1 if the last attempt to read the list of feeds worked, 0 if it failed or there was none.", "list")
	listFeeds = processMetric("list_feeds",
		"Feeds of the list that this copy has, whether or not it runs them.", "list")
	listBadEntries = processMetric("list_bad_entries",
		"Errors of entries of the list, which are not used.", "list")
	listHeld = processMetric("list_held",
		"1 while a version of the list is held because most of its feeds are missing, 0 otherwise.", "list")
	listSuccess = processMetric("list_last_success_timestamp_seconds",
		"When the list was last read or found unchanged, in Unix time. Absent before the first time.", "list")
	listDiffers = processMetric("list_differs",
		"1 if the members of the fleet agree on another version of the list than this copy has, 0 if not. Absent without a fleet.", "list")
	fleetNeedPerson = processMetric("fleet_feeds_need_person",
		"Feeds of all members that need a person: halted, or not copied within their freshness limit. Absent without a fleet.", "fleet")
	fleetBehind = processMetric("fleet_feeds_behind",
		"Feeds of all members whose topics lack entities that are being caught up with, or that fail and are tried again. Absent without a fleet.", "fleet")
	fleetGone = processMetric("fleet_members_gone",
		"Members that are gone since less than an hour without having left. Absent without a fleet.", "fleet")
)

var servedUp = newDesc("served_up", "1 if the topic of a served feed can be read, 0 if not; checked at each scrape, for 2 s at most.")

// Describe sends nothing, so the registry checks the metrics at each scrape and not beforehand.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, b := range checkBuses(context.Background(), c.contents().buses, c.redact) {
		sendGauge(out, busUp, oneIf(b.OK), b.Bus, b.Kind)
	}
	for _, f := range inspectServed(context.Background(), c.contents().served) {
		sendGauge(out, servedUp, oneIf(f.OK), f.Feed)
	}
	sendGauge(out, leftBehindFeeds, float64(len(showLeftBehind(c.contents().left, c.redact))))
	sendGauge(out, slowHosts, float64(len(c.slowHosts())))
	dropped := uint64(0)
	if c.opts.LogDropped != nil {
		dropped = c.opts.LogDropped()
	}
	out <- prometheus.MustNewConstMetric(logDropped, prometheus.CounterValue, float64(dropped))
	config := c.config.status(c.redact)
	sendGauge(out, reloadSuccess, oneIf(config.Error == nil))
	sendGauge(out, reloadedAt, float64(config.LoadedAt.UnixMilli())/1000)
	c.collectFleet(out)
	c.collectLists(out)
	now, stale, states := time.Now(), 0, map[bridge.State]int{}
	for _, f := range c.contents().feeds {
		v := f.view(now)
		state, _ := v.currentState()
		states[state]++
		if v.staleReason() != "" {
			stale++
		}
		for _, m := range c.metrics {
			m.each(v, func(value float64, labels ...string) {
				out <- prometheus.MustNewConstMetric(m.desc, m.kind, value, append([]string{f.opts.Name}, labels...)...)
			})
		}
	}
	for _, state := range c.fleet.membership().states() {
		sendGauge(out, feedsInState, float64(states[state]), string(state))
	}
	sendGauge(out, staleFeeds, float64(stale))
}

// collectFleet sends the metrics of the fleet, if there is one.
func (c *collector) collectFleet(out chan<- prometheus.Metric) {
	if c.fleet == nil {
		return
	}
	s, all := c.overview(time.Now())
	own, other, isMember := 0, 0, false
	for _, m := range s.Members {
		if m.OtherFeeds {
			other++
		}
		if m.Self {
			own, isMember = m.Feeds, s.Error == ""
		}
	}
	sendGauge(out, fleetMembers, float64(len(s.Members)), s.Fleet)
	sendGauge(out, fleetMember, oneIf(isMember), s.Fleet)
	sendGauge(out, fleetFeeds, float64(own), s.Fleet)
	sendGauge(out, fleetOtherFeeds, float64(other), s.Fleet)
	sendGauge(out, fleetNeedPerson, float64(all.NeedYou), s.Fleet)
	sendGauge(out, fleetBehind, float64(all.Failing+all.Behind), s.Fleet)
	sendGauge(out, fleetGone, float64(len(s.Gone)), s.Fleet)
}

// collectLists sends the metrics of the lists.
func (c *collector) collectLists(out chan<- prometheus.Metric) {
	for _, row := range c.lists.status() {
		sendGauge(out, listUp, oneIf(row.Error == "" && row.LastSuccess != nil), row.List)
		sendGauge(out, listFeeds, float64(row.Feeds), row.List)
		sendGauge(out, listBadEntries, float64(row.BadEntries), row.List)
		sendGauge(out, listHeld, oneIf(row.Held != nil), row.List)
		if row.LastSuccess != nil {
			sendGauge(out, listSuccess, float64(row.LastSuccess.UnixMilli())/1000, row.List)
		}
		if c.fleet != nil {
			sendGauge(out, listDiffers, oneIf(row.FleetDigest != ""), row.List)
		}
	}
}

// metrics returns the metrics that are made from records.
func metrics() []metric {
	return slices.Concat(plainCounters(), labeledCounters(), progressGauges(), stateGauges())
}

// plainCounters have no label besides the feed.
func plainCounters() []metric {
	return []metric{
		feedCounter("entities_published_total", "Entities that this process has published.",
			func(r *feedRecord) uint64 { return r.published }),
		feedCounter("bytes_published_total", "Bytes of the entities that this process has published: bodies and headers.",
			func(r *feedRecord) uint64 { return r.publishedBytes }),
		feedCounter("duplicates_total", "Entities that were left out because the topic already has their ID.",
			func(r *feedRecord) uint64 { return r.duplicates }),
		feedCounter("oversized_total", "Entities that were left out because they are too large.",
			func(r *feedRecord) uint64 { return r.oversized }),
		feedCounter("panics_total", "Panics of the feed's source or sink, each of which halted the feed.",
			func(r *feedRecord) uint64 { return r.panics }),
		feedCounter("commits_total", "Commits that this process has made.",
			func(r *feedRecord) uint64 { return r.commits }),
	}
}

// labeledCounters have labels besides the feed.
func labeledCounters() []metric {
	return []metric{
		keyedCounter("polls_total", "Calls of the source, by outcome: it advanced, found the feed unchanged, or failed. A permanent_error needs a person.", "outcome",
			func(r *feedRecord) map[outcome]uint64 { return r.polls }),
		{
			newDesc("violations_total", "Breaches of the feed's specification, by kind. One that halts the feed counts once, however often the feed is tried again.", "kind"),
			prometheus.CounterValue,
			func(v *feedView, emit func(float64, ...string)) {
				for kind, b := range v.r.violations {
					emit(float64(b.Count), kind)
				}
			},
		},
		keyedCounter("dead_letters_total", "Entities that this process has published to the dead-letter topic, by reason: too_large, no_key, header.", "reason",
			func(r *feedRecord) map[feed.DeadKind]uint64 { return r.dead }),
		keyedCounter("commit_errors_total", "Failed commits, and failed reads of the checkpoint before them: another copy was first (conflict), a retry will probably work (transient), or a person must act (permanent).", "class",
			func(r *feedRecord) map[class]uint64 { return r.commitErrors }),
	}
}

// progressGauges are about how far the feed has been copied.
func progressGauges() []metric {
	return []metric{
		feedGauge("lag_seconds", "How much older the last published entity is than the newest known entity of the feed; 0 when all is published. Absent while unknown, for example while another copy publishes the feed.",
			func(v *feedView) (float64, bool) {
				lag, known := v.r.publishLag()
				return lag.Seconds(), known
			}),
		// Feeds do not report how many entities they still have, so there is no
		// other value. The series is for alerts and graphs that count entities.
		feedGauge("lag_entities", "0 when all is published; absent otherwise, because a feed does not show how many entities follow.",
			func(v *feedView) (float64, bool) {
				_, known := v.r.publishLag()
				return 0, known && v.r.caughtUp
			}),
		feedGauge("last_successful_poll_timestamp_seconds", "When a poll last worked, in Unix time. Absent before.",
			func(v *feedView) (float64, bool) { return unixSeconds(v.r.goodPoll) }),
		feedGauge("last_commit_timestamp_seconds", "When this process last made a commit, in Unix time. Absent before.",
			func(v *feedView) (float64, bool) { return unixSeconds(v.r.committedAt) }),
		feedGauge("checkpoint_age_seconds", "Age of the newest checkpoint that this process knows, made by any copy. It grows while the feed has nothing new.",
			func(v *feedView) (float64, bool) {
				at := v.r.status.Checkpoint.At
				return max(v.now.Sub(at), 0).Seconds(), !at.IsZero()
			}),
		feedGauge("topic_entities", "Entities that any copy has ever published to the topic, according to the newest checkpoint that this process knows.",
			func(v *feedView) (float64, bool) {
				return float64(v.r.status.Checkpoint.Count), true
			}),
	}
}

// stateGauges are the gauges of the feed's state, and of documents and deletes that its topic lacks.
func stateGauges() []metric {
	return []metric{
		feedGauge("feed_fresh", "1 if the feed was copied within its freshness limit, as /readyz requires; 0 if not.",
			func(v *feedView) (float64, bool) {
				return oneIf(v.staleReason() == ""), true
			}),
		feedGauge("feed_gaps", "Missing documents of an Atom or RSS feed, which hide all older ones; they are requested again. Absent while unknown, and for datareplication feeds.",
			func(v *feedView) (float64, bool) {
				lacking := v.describe().Lacking
				return float64(cmp.Or(lacking, &Lacking{}).Gaps), lacking != nil
			}),
		feedGauge("feed_deletes_held", "Deletes that are held back because most of the feed has vanished at once. Absent like feedbridge_feed_gaps.",
			func(v *feedView) (float64, bool) {
				lacking := v.describe().Lacking
				return float64(cmp.Or(lacking, &Lacking{}).Deletes), lacking != nil
			}),
		{
			newDesc("feed_info", "Always 1; the labels are the format of the feed, if it is known, and its bus and topic.", "format", "bus", "topic"),
			prometheus.GaugeValue,
			func(v *feedView, emit func(float64, ...string)) {
				emit(1, v.describe().Format, v.opts.Bus, v.opts.Topic)
			},
		},
		{
			newDesc("feed_state", "1 for the state that the feed is in, 0 for the others.", "state"),
			prometheus.GaugeValue,
			func(v *feedView, emit func(float64, ...string)) {
				current, _ := v.currentState()
				for _, state := range v.member.states() {
					emit(oneIf(state == current), string(state))
				}
			},
		},
	}
}

// keyedCounter has a label for the keys of counts.
func keyedCounter[K ~string](name, help, label string, counts func(*feedRecord) map[K]uint64) metric {
	return metric{
		newDesc(name, help, label), prometheus.CounterValue,
		func(v *feedView, emit func(float64, ...string)) {
			for key, n := range counts(v.r) {
				emit(float64(n), string(key))
			}
		},
	}
}

func feedCounter(name, help string, value func(*feedRecord) uint64) metric {
	return metric{
		newDesc(name, help), prometheus.CounterValue,
		func(v *feedView, emit func(float64, ...string)) { emit(float64(value(v.r))) },
	}
}

// feedGauge is absent for a feed that another member of the fleet runs: what this copy knows of
// it is out of date.
func feedGauge(name, help string, value func(*feedView) (gauge float64, known bool)) metric {
	return metric{
		newDesc(name, help), prometheus.GaugeValue,
		func(v *feedView, emit func(float64, ...string)) {
			if v.elsewhere {
				return
			}
			if gauge, known := value(v); known {
				emit(gauge)
			}
		},
	}
}

func unixSeconds(t time.Time) (seconds float64, known bool) {
	return float64(t.UnixMilli()) / 1000, !t.IsZero()
}

func sendGauge(out chan<- prometheus.Metric, desc *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
