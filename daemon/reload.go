package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// Reloaded lists the changes of a reload, by name.
type Reloaded struct {
	Buses  Changed `json:"buses"`
	Feeds  Changed `json:"feeds"`
	Served Changed `json:"served"`
	// LeftBehind are the feeds that were stopped and have not ended in time.
	LeftBehind []LeftBehind `json:"left_behind"`
	// Held are the lists of feeds of which a version is not used yet.
	Held []HeldList `json:"held_lists,omitempty"`
	// Confirmed are the lists whose version in this copy was confirmed for the members of the fleet that hold it.
	Confirmed map[string][]string `json:"confirmed_lists,omitempty"`
}

// HeldList is a list of feeds that has lost most of its feeds.
type HeldList struct {
	List string `json:"list"`
	status.HeldList
}

// Changed lists the names of one kind, sorted.
type Changed struct {
	Added []string `json:"added"`
	// Restarted are those whose settings or files have changed, and feeds whose bus has.
	Restarted []string `json:"restarted"`
	Removed   []string `json:"removed"`
}

// Changes calls yield with the kind of what has changed, such as feeds, how it has, and the names.
func (r *Reloaded) Changes(yield func(kind, how string, names []string)) {
	for _, of := range []struct {
		kind string
		Changed
	}{{"buses", r.Buses}, {"feeds", r.Feeds}, {"served", r.Served}} {
		for i, names := range [][]string{of.Added, of.Restarted, of.Removed} {
			if len(names) > 0 {
				yield(of.kind, []string{"added", "restarted", "removed"}[i], names)
			}
		}
	}
}

func (c Changed) all() []string { return slices.Concat(c.Added, c.Restarted, c.Removed) }

// stopped returns the names that were there and have to be stopped, and started those that have
// to be started then.
func (c Changed) stopped() []string { return slices.Concat(c.Restarted, c.Removed) }
func (c Changed) started() []string { return slices.Concat(c.Added, c.Restarted) }

// reloadOnRequest reloads the configuration for each value of Options.Reload.
func (d *daemon) reloadOnRequest(ctx context.Context) {
	for {
		select {
		case <-d.opts.Reload:
			_, _ = d.reload(d.loadChanged, false) // it logs its errors
		case <-ctx.Done():
			return
		}
	}
}

// serveReload reloads the configuration for a request, which may confirm the versions of lists that are held, or that
// would be after a look.
func (d *daemon) serveReload(ctx context.Context, r *http.Request) (any, error) {
	confirm := r.URL.Query().Get("lists") == "use"
	if confirm {
		d.mu.Lock()
		looked := d.lists.configure(d.ctx, d.cfg.FeedsFrom)
		d.mu.Unlock()
		looking, cancel := context.WithTimeout(ctx, firstLists)
		defer cancel()
		awaitLooks(looking, looked)
	}
	reloaded, err := d.reload(d.loadChanged, confirm)
	if err == nil {
		if confirm {
			d.mu.Lock()
			reloaded.Confirmed = d.lists.confirmOthers(d.membership.assigned())
			d.mu.Unlock()
		}
		for _, row := range d.lists.status() {
			if row.Held != nil {
				reloaded.Held = append(reloaded.Held, HeldList{row.List, *row.Held})
			}
		}
		return reloaded, nil
	}
	failed := &admin.ChangeError{Status: http.StatusUnprocessableEntity, Errs: []error{err}}
	if errs, ok := errors.AsType[config.Errors](err); ok {
		failed.Errs = nil
		for _, err := range errs {
			failed.Errs = append(failed.Errs, err)
		}
	}
	return nil, failed
}

// followLists changes to the feeds of the lists whenever they are other ones. It does not read the configuration
// again.
func (d *daemon) followLists(ctx context.Context) {
	for {
		select {
		case <-d.lists.changed:
			_, _ = d.reload(func() (*config.Config, error) { return d.cfg, nil }, false) // it logs its errors
		case <-d.lists.noted:
			d.mu.Lock()
			d.membership.configure(d.cfg)
			d.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// startLists reads the lists of feeds, for as long as a start may wait for them, and adds their feeds.
func (d *daemon) startLists(ctx context.Context, redact *safetext.Redactor) {
	d.lists = newLists(d.opts.Version, redact, d.log)
	looking, cancel := context.WithTimeout(ctx, firstLists)
	defer cancel()
	awaitLooks(looking, d.lists.configure(ctx, d.cfg.FeedsFrom))
	if looking.Err() == nil {
		select {
		case <-d.lists.changed: // these feeds are added here
		default:
		}
	}
	var accept func()
	d.cfg, accept = d.lists.addTo(d.cfg, d.cfg, false)
	accept()
}

// reload loads the configuration, adds the feeds of its lists, whose held versions a person may confirm, and changes
// what differs. After an error nothing has changed. Every reload begins and ends in this function.
//
// A feed that is restarted finishes its commit in flight first, unless that takes longer than
// [bridge.YieldTime]. Its successor reads the checkpoint from the bus, as at any start, so the topic
// stays exact. While a reload waits for feeds the daemon is not locked: a stop and another reload may
// take place.
func (d *daemon) reload(load func() (*config.Config, error), confirm bool) (*Reloaded, error) {
	if d.ctx.Err() == nil {
		d.supervisor.reportReloading()
		defer d.supervisor.reportReady()
	}
	cfg, reloaded, finish, err := d.loadAndApply(load, confirm)
	if err == nil {
		finish()
	}
	if errors.Is(err, errStoppingNow) {
		return nil, err
	}
	if err != nil {
		errs, ok := errors.AsType[config.Errors](err)
		if !ok {
			d.log.Error("the configuration was not reloaded; the one before stays in use", "error", err)
		}
		for _, err := range errs {
			d.log.Error("the configuration was not reloaded; the one before stays in use", "error", err)
		}
		return nil, err
	}
	attrs := []any{"feeds", len(cfg.Feeds)}
	reloaded.Changes(func(kind, how string, names []string) {
		attrs = append(attrs, kind+"_"+how, namedList(names))
	})
	d.log.Info("the configuration was reloaded", attrs...)
	return reloaded, nil
}

// errStoppingNow is the error of a reload that began after the daemon was stopped.
var errStoppingNow = errors.New("feedbridge is stopping, and nothing was reloaded")

// loadAndApply loads the configuration and applies it, with the daemon locked.
func (d *daemon) loadAndApply(load func() (*config.Config, error), confirm bool) (cfg *config.Config, reloaded *Reloaded, finish func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.cfg
	cfg, err = load()
	isSame := cfg == before // only the lists have changed
	var accept func()
	if err == nil {
		cfg, accept = d.lists.addTo(cfg, before, confirm)
	}
	switch {
	case err == nil && d.ctx.Err() != nil:
		return nil, nil, nil, errStoppingNow
	case err == nil:
		reloaded, finish, err = d.apply(cfg, accept)
	}
	if !isSame {
		d.adm.ConfigLoaded(err)
		if err == nil {
			d.lists.configure(d.ctx, cfg.FeedsFrom)
		}
	}
	return cfg, reloaded, finish, err
}

// loadChanged loads the configuration and returns it if the daemon can change to it.
func (d *daemon) loadChanged() (*config.Config, error) {
	if d.opts.Load == nil {
		return nil, errors.New("this feedbridge has no configuration that it could read again")
	}
	cfg, err := d.opts.Load()
	if err != nil {
		return nil, err
	}
	if errs := needRestart(d.cfg, cfg, d.opts.Level != nil); len(errs) > 0 {
		return nil, errs
	}
	return cfg, nil
}

// needRestart returns an error for each key that has another value and cannot be changed
// while feedbridge runs.
func needRestart(old, now *config.Config, levelCanChange bool) config.Errors {
	var errs config.Errors
	check := func(same bool, key string) {
		if !same {
			errs = append(errs, &config.Error{Key: key, Text: "cannot be changed while feedbridge runs; restart it, or set the value that it was started with"})
		}
	}
	check(old.DataDir == now.DataDir, "data_dir")
	check(old.Log.Level == now.Log.Level || levelCanChange, "log.level")
	check(old.Log.Format == now.Log.Format, "log.format")
	check(slices.Equal(old.SecretParameters, now.SecretParameters), "secret_parameters")
	check(old.Grace == now.Grace, "grace")
	check(old.Memory == now.Memory, "memory")
	check(reflect.DeepEqual(old.Fleet, now.Fleet), "fleet")
	check(reflect.DeepEqual(old.Admin, now.Admin), "admin")
	names := maps.Clone(old.Buses)
	maps.Copy(names, now.Buses)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if before, after := old.Buses[name].Embedded, now.Buses[name].Embedded; before != nil || after != nil {
			check(reflect.DeepEqual(before, after), fmt.Sprintf("buses.%s.embedded", name))
		}
	}
	switch {
	case old.Serve == nil && now.Serve == nil:
	case old.Serve == nil || now.Serve == nil:
		check(false, "serve")
	default:
		check(old.Serve.Listen == now.Serve.Listen, "serve.listen")
		check(old.Serve.TLS == now.Serve.TLS, "serve.tls")
	}
	return errs
}

// apply changes the daemon to a configuration, and calls accept if nothing can fail any more. After an error nothing has
// changed. It does not wait for the feeds that it stops: finish does, and must be called, without a lock.
func (d *daemon) apply(cfg *config.Config, accept func()) (_ *Reloaded, finish func(), _ error) {
	changed := d.compare(cfg)
	// Connections that are not needed any more are closed after their feeds have ended.
	next := &buses{byName: maps.Clone(d.buses.Load().byName), server: d.buses.Load().server}
	var unused []*bus
	for _, name := range changed.Buses.stopped() {
		unused = append(unused, next.byName[name])
		delete(next.byName, name)
	}
	for _, name := range changed.Buses.started() {
		next.byName[name] = newBus(name, cfg.Buses[name], d.log)
	}
	served := map[string]*runningServed{}
	for _, name := range changed.Served.started() {
		r, err := d.served.prepare(name, cfg.Serve.Feeds[name], next)
		if err != nil {
			return nil, nil, err
		}
		served[name] = r
	}
	// Nothing fails from here on.
	accept()
	d.countFeeds(cfg, d.membership.assigned())
	prepared := map[string]*runningFeed{}
	for _, name := range changed.Feeds.started() {
		f := cfg.Feeds[name]
		if !d.membership.isOwner(cfg, name) {
			d.feeds.pipelines.showFeed(name, f)
			continue
		}
		prepared[name] = d.feeds.prepare(name, f, next.byName[f.To.Bus])
	}
	d.membership.configure(cfg)
	stopped := d.feeds.stop(changed.Feeds.stopped())
	d.served.replace(changed.Served.stopped(), served)
	d.forget(changed)
	before := d.buses.Load().readinessChecks(d.cfg)
	d.buses.Store(next)
	d.cfg = cfg
	for name, check := range next.readinessChecks(cfg) {
		if slices.Contains(changed.Buses.started(), name) || check.ServedOnly != before[name].ServedOnly {
			d.adm.AddBus(check)
		}
	}
	next.connectAll(d.ctx)
	start := d.feeds.addAll(d.ctx, prepared)
	if d.opts.Level != nil {
		_ = d.opts.Level.UnmarshalText([]byte(cfg.Log.Level)) // it was checked
	}
	return changed, func() {
		changed.LeftBehind = d.feeds.settle(stopped)
		start()
		for _, bus := range unused {
			bus.close()
		}
	}, nil
}

// forget removes feeds, served feeds and buses that the configuration no longer has from the
// admin server.
func (d *daemon) forget(changed *Reloaded) {
	for _, name := range changed.Feeds.Removed {
		d.adm.RemoveFeed(name)
	}
	for _, name := range changed.Served.Removed {
		d.adm.RemoveServed(name)
	}
	for _, name := range changed.Buses.Removed {
		d.adm.RemoveBus(name)
	}
}

// compare compares a configuration with the running one, and returns what differs there and in the files that
// it names.
func (d *daemon) compare(cfg *config.Config) *Reloaded {
	changed := &Reloaded{}
	changed.Buses = compareNames(d.cfg.Buses, cfg.Buses, func(name string) bool {
		return reflect.DeepEqual(d.cfg.Buses[name], cfg.Buses[name]) && d.buses.Load().byName[name].files == fingerprintFiles(cfg.Buses[name])
	})
	busRestarted := func(name string) bool { return slices.Contains(changed.Buses.all(), name) }
	changed.Feeds = compareNames(d.cfg.Feeds, cfg.Feeds, func(name string) bool {
		f := cfg.Feeds[name]
		return reflect.DeepEqual(d.cfg.Feeds[name], f) && d.feeds.hasFiles(name, f) && !busRestarted(f.To.Bus)
	})
	if cfg.Serve != nil {
		changed.Served = compareNames(d.cfg.Serve.Feeds, cfg.Serve.Feeds, func(name string) bool {
			f := cfg.Serve.Feeds[name]
			return reflect.DeepEqual(d.cfg.Serve.Feeds[name], f) && !busRestarted(f.From.Bus)
		})
	}
	return changed
}

// compareNames compares the names of one kind. same reports whether a name that both have means
// the same in both.
func compareNames[T any](old, now map[string]T, same func(name string) bool) (c Changed) {
	c = Changed{Added: []string{}, Restarted: []string{}, Removed: []string{}}
	for name := range old {
		if _, ok := now[name]; !ok {
			c.Removed = append(c.Removed, name)
		} else if !same(name) {
			c.Restarted = append(c.Restarted, name)
		}
	}
	for name := range now {
		if _, ok := old[name]; !ok {
			c.Added = append(c.Added, name)
		}
	}
	for _, names := range [][]string{c.Added, c.Restarted, c.Removed} {
		slices.Sort(names)
	}
	return c
}
