package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/trace"
	"github.com/feedbridge/feedbridge/sink/nats"
	"github.com/feedbridge/feedbridge/source"
)

// Run runs until ctx ends, and then lets the commits in flight finish: the feeds stop
// before the servers. It returns nil then, or an error if a commit takes longer than
// the configured grace time. A feed that commits nothing and does not end is left behind. Errors of a feed or a bus while it runs are logged and
// retried; they do not end Run. A file of a bus or a feed that cannot be read halts the feeds
// that need it.
//
// Run returns an error before the first poll if the embedded bus cannot start, an address
// is in use, or the certificate of the server of feeds cannot be read. It returns an error
// later only if one of its servers fails.
func Run(ctx context.Context, cfg *config.Config, o Options) error {
	d := &daemon{cfg: cfg, log: o.Log, opts: o, supervisor: newSupervisor(o.Log)}
	return d.run(ctx)
}

// daemon is a running feedbridge: its buses, feeds and servers.
type daemon struct {
	log        *slog.Logger
	opts       Options
	supervisor *supervisor

	// mu is held while the parts below are started, and changed by a reload, and never while feeds are
	// waited for.
	mu     sync.Mutex
	ctx    context.Context // of the feeds; it ends when the daemon stops
	cfg    *config.Config
	feeds  *feeds
	served *servedFeeds
	lists  *lists
	// membership is nil without a fleet.
	membership *membership

	buses  atomic.Pointer[buses] // stored with mu held
	adm    *admin.Server
	traces *trace.Tracer // nil if none are sent
	stopBy time.Time     // when the grace time ends; set by waitForWork
}

// maxTraceStop limits how long a stop waits for the last spans to be sent.
const maxTraceStop = 2 * time.Second

func (d *daemon) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	writer := WriterName()
	redact := safetext.NewRedactor(d.cfg.SecretParameters...).WithFile(d.cfg.File())
	var err error
	if d.traces, err = trace.Start(ctx, trace.Options{Version: d.opts.Version, Instance: writer, Log: d.log, Redact: redact}); err != nil {
		return asConfigErrors(err)
	}
	d.startLists(ctx, redact)
	left := d.cfg.Grace // of the time for a stop
	defer func() { d.traces.Stop(min(left, maxTraceStop)) }()
	d.mu.Lock() // until the feeds have been started
	starting := sync.OnceFunc(d.mu.Unlock)
	defer starting()
	d.ctx = ctx
	opened, err := openBuses(d.cfg, runEmbedded, d.log)
	if err != nil {
		return err
	}
	opened.connectAll(ctx)
	d.buses.Store(opened)
	// A reload may have replaced some of them.
	defer func() { d.buses.Load().closeAll() }()
	listeners, err := openAdmin(d.cfg.Admin, d.log)
	if err != nil {
		return err
	}
	defer listeners.close()
	d.openFeeds(writer, redact, listeners)
	d.served, err = openServer(ctx, d.cfg.Serve, d.cfg.Memory, opened, d.adm, d.traces, d.log)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // stopped while it was looking up its address
	case err != nil:
		return err
	}
	defer d.served.close()

	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	servers := d.startServers(serving, listeners, cancel)
	d.announce(writer, listeners)
	d.startFeeds()
	d.supervisor.reportReady()
	// Nothing waits for its end: the check of a process that hangs may never return.
	go d.supervisor.feedWatchdog(ctx, d.adm.AwaitFeeds)
	grace := d.cfg.Grace
	starting()
	go d.reloadOnRequest(ctx)
	go d.followLists(ctx)
	leaveFleet := d.joinFleet(ctx)
	err = d.waitForWork(ctx, grace)
	leaveFleet() // after the feeds have ended
	stopServing()
	err = errors.Join(err, servers.Wait())
	left = max(0, time.Until(d.stopBy))
	return err
}

// startServers starts the admin server and the server of feeds, which serve until ctx ends. It
// calls failed as soon as one of them stops: without health and metrics a failure of the feeds
// would go unnoticed.
func (d *daemon) startServers(ctx context.Context, listeners adminListeners, failed func()) *errgroup.Group {
	servers := &errgroup.Group{}
	start := func(serve func(context.Context) error) {
		servers.Go(func() error {
			defer failed()
			return serve(ctx)
		})
	}
	for _, serve := range listeners.servers(d.adm) {
		start(serve)
	}
	if d.served.server != nil {
		start(func(ctx context.Context) error { return d.served.server.Serve(ctx, d.served.listener) })
	}
	return servers
}

// asConfigErrors returns each line of an error as an error of the configuration, since
// variables are part of it.
func asConfigErrors(err error) config.Errors {
	var errs config.Errors
	for line := range strings.Lines(err.Error()) {
		errs = append(errs, &config.Error{Text: strings.TrimSpace(line)})
	}
	return errs
}

// CheckTraces returns an error of the type [config.Errors] if the OTEL_ variables cannot be used.
func CheckTraces() error {
	if err := trace.Check(); err != nil {
		return asConfigErrors(err)
	}
	return nil
}

// openFeeds makes the admin server, and all that the feeds share.
func (d *daemon) openFeeds(writer string, redact *safetext.Redactor, listeners adminListeners) {
	_, connections := connectionLimits(openFiles())
	// Pages that are requested ahead have a part of the memory of their own, so that no batch
	// ever waits for them.
	pagesAhead := d.cfg.Memory / 4
	hosts := &source.Hosts{PageBudget: readahead.NewBudget(pagesAhead)}
	d.membership = newMembership(d.cfg, writer, d.lists, d.log)
	d.adm = admin.New(admin.Options{
		Version: d.opts.Version, Started: time.Now(), Writer: writer, Config: d.cfg.File(), Program: newProgram(d.opts, d.cfg, listeners),
		Buses: slices.Collect(maps.Values(d.buses.Load().readinessChecks(d.cfg))), Log: d.log, Connections: connections, Redact: redact,
		Token: tokenReader(d.cfg.Admin), Hosts: d.cfg.Admin.Hosts,
		Fleet: d.membership.adminFleet(), Lists: d.lists.status, SlowHosts: func() []status.SlowHost { return slowHosts(hosts) },
		LogDropped: d.opts.LogQueue.Dropped, LogStuck: d.opts.LogQueue.Stuck,
	})
	d.adm.AddChange("/reload", d.serveReload)
	commands := &feedCommands{}
	if m := d.membership; m != nil {
		commands.elsewhere, commands.forward = d.remoteFeed, d.adm.Forward
		m.status.Follow(m.member.Name(), m.member.Seen, advertisedAddress(d.cfg, listeners.tcp))
		m.member.SetNote(d.adm.Note)
	}
	commands.addTo(d.adm)
	d.feeds = &feeds{running: map[string]*runningFeed{}, commands: commands, pipelines: &pipelines{
		writer: writer, hosts: hosts, adm: d.adm, redact: redact, failures: newFailureLog(d.log), traces: d.traces, opts: d.opts, pacer: bridge.NewPacer(),
		reading: readAhead{feed: int(d.cfg.FeedMemory()), budget: readahead.NewBudget(d.cfg.Memory - pagesAhead)},
	}}
}

// newProgram returns how commands find this daemon. Without a file it is found by its address: its variables may not be
// those of the shell.
func newProgram(o Options, cfg *config.Config, listeners adminListeners) admin.Program {
	p := admin.Program{Name: o.Program, Flags: o.Flags, Daemon: o.Flags}
	switch {
	case cfg.File() != "":
	case listeners.socket != nil:
		p.Daemon = []string{"--admin", "unix:" + listeners.socket.Addr().String()}
	case listeners.tcp != nil:
		p.Daemon = []string{"--admin", "http://" + listeners.tcp.Addr().String()}
	}
	return p
}

// slowHosts returns the hosts that are asked less often, as the admin server shows them.
func slowHosts(hosts *source.Hosts) (rows []status.SlowHost) {
	for _, h := range hosts.SlowHosts() {
		rows = append(rows, status.SlowHost{Host: h.Host, RequestsPerMinute: 60 * h.Rate, Share: h.Share, Status: h.Status, Since: &h.Since, EasesAt: &h.Eases})
	}
	return rows
}

// startFeeds starts all configured feeds, or without an assignment of the fleet none of them.
func (d *daemon) startFeeds() {
	d.countFeeds(d.cfg, d.membership.assigned())
	prepared := map[string]*runningFeed{}
	for name, f := range d.cfg.Feeds {
		if !d.membership.isOwner(d.cfg, name) {
			d.feeds.pipelines.showFeed(name, f)
			continue
		}
		prepared[name] = d.feeds.prepare(name, f, d.buses.Load().byName[f.To.Bus])
	}
	d.feeds.startAll(d.ctx, prepared)
}

// announce logs that the daemon is up and where it listens, and calls Started.
func (d *daemon) announce(writer string, admin adminListeners) {
	attrs := []any{"version", d.opts.Version, "writer", writer, "feeds", len(d.cfg.Feeds)}
	var at Addresses
	if d.buses.Load().server != nil {
		at.Bus = d.buses.Load().server.URL()
		attrs = append(attrs, "embedded_bus", at.Bus, "data_dir", d.cfg.DataDir)
	}
	if admin.tcp != nil {
		at.Status = "http://" + admin.tcp.Addr().String()
		attrs = append(attrs, "status", at.Status+"/status", "status_page", at.Status+"/")
	}
	if admin.socket != nil {
		at.Socket = admin.socket.Addr().String()
		attrs = append(attrs, "admin_socket", at.Socket)
	}
	if d.served.listener != nil {
		at.Feeds = urlScheme(d.cfg.Serve) + "://" + d.served.listener.Addr().String()
		attrs = append(attrs, "served_feeds", len(d.cfg.Serve.Feeds), "serve", at.Feeds)
	}
	d.log.Info("feedbridge is up", attrs...)
	if keys := d.cfg.Overridden(); len(keys) > 0 {
		d.log.Info("variables override keys of the file", "keys", keys)
	}
	warnOfMemory(d.cfg, d.log)
	announceTopics(d.cfg, d.log)
	if d.opts.Started != nil {
		d.opts.Started(at)
	}
}

// namedTopics is how many topics of a bus a line names.
const namedTopics = 10

// announceTopics logs where messages go: a line for each bus that feeds are copied to.
func announceTopics(cfg *config.Config, log *slog.Logger) {
	topics, streams := map[string][]string{}, map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Feeds)) {
		to := cfg.Feeds[name].To
		topics[to.Bus] = append(topics[to.Bus], to.Topic)
		if to.Stream != nil {
			streams[to.Bus] = append(streams[to.Bus], nats.Topic{Subject: to.Topic, Stream: *to.Stream}.StreamName())
		}
	}
	for _, bus := range slices.Sorted(maps.Keys(topics)) {
		attrs := []any{"bus", bus, "kind", busKind(cfg.Buses[bus]), "feeds", len(topics[bus]), "topics", namedList(topics[bus])}
		if len(streams[bus]) > 0 {
			attrs = append(attrs, "streams", namedList(streams[bus]))
		}
		log.Info("feeds are copied to topics of a bus", attrs...)
	}
}

// namedList returns the names, the first namedTopics of them if there are more.
func namedList(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if more := len(names) - namedTopics; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedTopics], ", "), more)
	}
	return strings.Join(names, ", ")
}

// waitForWork returns when all feeds have ended after the end of ctx, or are left behind, or when the
// grace time is over. It returns an error if a commit is in flight then.
func (d *daemon) waitForWork(ctx context.Context, grace time.Duration) error {
	<-ctx.Done()
	d.stopBy = time.Now().Add(grace)
	d.supervisor.reportStopping()
	d.log.Info("stopping", "grace", grace)
	d.mu.Lock() // a reload starts no feed any more
	all := d.feeds.all()
	d.mu.Unlock()
	committing, others := endAll(all, grace)
	if len(others) > 0 {
		d.log.Warn("feeds do not end and are left behind; nothing of them was being stored", "feeds", describeLeft(others))
	}
	if len(committing) > 0 {
		return fmt.Errorf("stopped without waiting any longer: a commit was still in flight after the grace time of %v; the next start finds out whether it was stored: %s", grace, describeLeft(committing))
	}
	d.log.Info("stopped")
	return nil
}

// describeLeft returns the names of feeds with what they wait for, of the first namedTopics of them.
func describeLeft(left []LeftBehind) string {
	var names []string
	for _, l := range left {
		names = append(names, fmt.Sprintf("%s (%s)", l.Feed, l.Work))
	}
	return namedList(names)
}
