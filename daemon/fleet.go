package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/source"
)

// membership decides which feeds this copy runs. A nil membership means all of them.
type membership struct {
	cfg    config.Fleet
	log    *slog.Logger
	status *admin.Fleet
	member *fleet.Member
	lists  *lists // nil without any
	// assignment is the last one; nil before the first. It is guarded by daemon.mu.
	assignment *fleet.Assignment
}

// newMembership returns nil if no fleet is configured.
func newMembership(cfg *config.Config, self string, lists *lists, log *slog.Logger) *membership {
	if cfg.Fleet == nil {
		return nil
	}
	log = log.With("fleet", cfg.Fleet.Name)
	m := &membership{cfg: *cfg.Fleet, log: log, status: admin.NewFleet(cfg.Fleet.Name, cfg.Fleet.Bus), member: fleet.NewMember(self, log), lists: lists}
	m.configure(cfg)
	return m
}

// configure takes the feeds of a configuration. Those that are new are run once they are assigned.
func (m *membership) configure(cfg *config.Config) {
	if m == nil {
		return
	}
	var topics []string
	lists := m.lists.readLists()
	for name, f := range cfg.Feeds {
		if list, ok := lists[cfg.ListOf[name]]; ok {
			list.URLs[f.To.Topic] = f.Source.URL
		} else {
			topics = append(topics, f.To.Topic)
		}
	}
	m.member.SetTopics(topics, lists)
}

// assigned returns the last assignment; nil before the first, and without a fleet.
func (m *membership) assigned() *fleet.Assignment {
	if m == nil {
		return nil
	}
	return m.assignment
}

// isOwner reports whether this copy runs a feed. Before the first assignment it runs none.
func (m *membership) isOwner(cfg *config.Config, name string) bool {
	return m == nil || m.assignment != nil && owns(*m.assignment, cfg, name)
}

// owns reports whether an assignment has a feed for this copy. A feed of a list has to be in the version of the list
// that the members agree on: another one may have another URL for the topic.
func owns(a fleet.Assignment, cfg *config.Config, name string) bool {
	f, list := cfg.Feeds[name], cfg.ListOf[name]
	return a.Owns(f.To.Topic) && (list == "" || a.Agrees(list, f.To.Topic, f.Source.URL))
}

// adminFleet returns the fleet as the admin server shows it; nil without a fleet.
func (m *membership) adminFleet() *admin.Fleet {
	if m == nil {
		return nil
	}
	return m.status
}

// fleetLeave limits how long a stop waits until this copy has left the fleet.
const fleetLeave = 4 * time.Second

// joinFleet takes part in the fleet, if there is one, until leave is called, which returns
// when this copy has left, or after a few seconds.
func (d *daemon) joinFleet(ctx context.Context) (leave func()) {
	m := d.membership
	if m == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	left := make(chan struct{})
	go func() {
		defer close(left)
		m.member.Run(ctx, d.openFleet(), d.assign, m.status.Failed)
	}()
	return func() {
		cancel()
		select {
		case <-left:
		case <-time.After(fleetLeave):
		}
	}
}

// openFleet returns a function that returns the fleet on the connection to its bus, which a reload may
// replace.
func (d *daemon) openFleet() func(ctx context.Context) (fleet.Bus, error) {
	var opened fleet.Bus
	var using *connection
	name := d.membership.cfg.Bus
	return func(ctx context.Context) (fleet.Bus, error) {
		conn, err := d.buses.Load().byName[name].open(ctx)
		if err == nil && conn != using {
			opened, using = conn.openFleet(d.config()), conn
		}
		return opened, err
	}
}

// openFleet returns the fleet of a configuration. A missing bucket or topic is created like those of the
// feeds on the bus.
func (c *connection) openFleet(cfg *config.Config) fleet.Bus {
	var feeds []config.To
	for _, f := range cfg.Feeds {
		if f.To.Bus == cfg.Fleet.Bus {
			feeds = append(feeds, f.To)
		}
	}
	return c.fleet(cfg.Fleet.Name, feeds)
}

// config returns the configuration in use.
func (d *daemon) config() *config.Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg
}

// remoteFeed returns a configured feed that this copy does not run.
func (d *daemon) remoteFeed(name string) (f commandedFeed, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	cfg, ok := d.cfg.Feeds[name]
	if !ok || d.feeds.running[name] != nil {
		return f, false
	}
	f.cfg, f.bus = cfg, d.buses.Load().byName[cfg.To.Bus]
	if a := d.membership.assignment; a != nil {
		f.owner = a.Owner(cfg.To.Topic)
	}
	return f, true
}

// assign starts the feeds that this copy owns, and stops the others. It returns when those have ended
// or are left behind. A commit that hangs, as on another bus that does not answer, keeps neither a
// reload nor the next assignment waiting.
func (d *daemon) assign(a fleet.Assignment) { d.feeds.settle(d.changeFeeds(a)) }

// countFeeds divides the rates of the feeds' hosts among the members of the fleet, if there is one. Nil is no
// assignment. Feeds are shown with the titles of cfg.
func (d *daemon) countFeeds(cfg *config.Config, a *fleet.Assignment) {
	feeds, members := make([]source.HostFeed, 0, len(cfg.Feeds)), 1
	if a != nil {
		members = len(a.Members)
	}
	for _, f := range cfg.Feeds {
		feeds = append(feeds, source.HostFeed{URL: f.Source.URL, Rate: f.Source.Limits.Rate, Own: a == nil || a.Owns(f.To.Topic)})
	}
	d.feeds.pipelines.hosts.SetFeeds(feeds, members)
	d.feeds.pipelines.titles.Store(cfg)
}

// changeFeeds is assign, and returns the feeds that were stopped.
func (d *daemon) changeFeeds(a fleet.Assignment) (stopped []*runningFeed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return nil // all feeds are being stopped
	}
	d.countFeeds(d.cfg, &a)
	gained := map[string]*runningFeed{}
	var lost []string
	for name, f := range d.cfg.Feeds {
		switch owned, running := owns(a, d.cfg, name), d.feeds.running[name] != nil; {
		case owned && !running:
			// Before the new assignment is shown: it follows another member.
			gained[name] = d.feeds.prepare(name, f, d.buses.Load().byName[f.To.Bus])
		case !owned && running:
			lost = append(lost, name)
		}
	}
	d.membership.assignment = &a
	d.membership.status.Assigned(a)
	d.feeds.startAll(d.ctx, gained)
	d.lists.useConfirmed(a)
	for _, others := range a.OtherLists {
		d.lists.lookSoon(others)
	}
	d.membership.log.Info("the feeds of the fleet were assigned", "members", len(a.Members), "feeds", len(d.feeds.running)-len(lost), "gained", len(gained), "lost", len(lost))
	return d.feeds.stop(lost)
}
