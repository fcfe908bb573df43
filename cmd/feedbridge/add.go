package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/daemon"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/source"
)

// addCommand returns the command "add", which adds feeds to a configuration file.
func addCommand(a *app) *cobra.Command {
	var name string
	var all bool
	cmd := a.addAdminFlags(&cobra.Command{
		Use:   "add URL|OPML",
		Short: "Add a feed, or the feeds of a list, to the configuration file",
		Long: `Add finds the feed that a URL serves, or that the page there names, shows its newest
entries as 'feedbridge discover' does, writes it into the configuration file, and makes
the running daemon read the file again. Of the file all but the new lines stays as it
was. If the page names several feeds, add lists them and writes nothing, unless --all
is given.

With the file or the URL of a list in OPML or YAML, add adds its feeds. They are not
requested. (feeds_from names lists that are watched.) A feed whose URL is in the
configuration is not added again.`,
		Example: `  feedbridge add -c feedbridge.yaml https://shop.example.com
  feedbridge add -c feedbridge.yaml --name shop https://shop.example.com/feed/latest
  feedbridge add -c feedbridge.yaml subscriptions.opml`,
		Args: exactArgs("URL or OPML"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.file == "" {
				return a.noFile("add")
			}
			f, err := openConfigFile(a.file)
			if err != nil {
				return err
			}
			ad := &addition{app: a, file: f, base: f.data, name: name, all: all}
			if added, err := ad.add(cmd.Context(), args[0]); err != nil || !added {
				return err
			}
			return a.reloadAdded(cmd.Context(), a.file)
		},
	})
	cmd.Flags().StringVar(&name, "name", "", "the `NAME` of the feed; default: made from the host and path of its URL")
	cmd.Flags().BoolVar(&all, "all", false, "add all feeds of a page")
	return cmd
}

// noFile returns the error about a command that has no configuration file.
func (a *app) noFile(command string) error {
	text := fmt.Sprintf("no configuration file is named: want %s -c FILE; 'feedbridge init' writes one", command)
	if _, err := os.Stat(defaultFile); err == nil {
		text = fmt.Sprintf("no configuration file is named: there is a %s here, which -c %[1]s would use", defaultFile)
	}
	return &usageError{errors.New(text)}
}

// addition adds feeds to a configuration file.
type addition struct {
	*app
	file *configFile
	base []byte // what the file has, or is to have, without the new feeds
	name string // --name
	all  bool   // --all
	cfg  *config.Config
	// own has the names of the feeds in cfg that are not of lists, and byURL the names of all by their URLs.
	own   map[string]bool
	byURL map[string]string
}

// add adds the feeds of a URL, a page or a list, and reports whether there were new ones.
func (ad *addition) add(ctx context.Context, arg string) (bool, error) {
	if err := ad.load(ctx); err != nil {
		return false, err
	}
	feeds, err := ad.find(ctx, arg)
	if err != nil || len(feeds) == 0 {
		return false, err
	}
	return true, ad.write(feeds)
}

// load reads the configuration, and the lists that it names, as they are before the addition.
func (ad *addition) load(ctx context.Context) error {
	cfg, err := ad.loadData(ad.base, true)
	if err == nil {
		err = daemon.CheckBuild(cfg)
	}
	if err != nil {
		return err
	}
	ad.own, ad.byURL = map[string]bool{}, map[string]string{}
	for name := range cfg.Feeds {
		ad.own[name] = true
	}
	if len(cfg.FeedsFrom) > 0 {
		cfg, _ = daemon.ReadLists(ctx, cfg, daemon.Options{Version: programVersion()}) // check reports the errors
	}
	for name, f := range cfg.Feeds {
		ad.byURL[f.Source.URL] = name
	}
	ad.cfg, ad.redact = cfg, safetext.NewRedactor(cfg.SecretParameters...)
	return nil
}

// loadData returns the configuration that the file has with data in it.
func (ad *addition) loadData(data []byte, feedless bool) (*config.Config, error) {
	opts := ad.configOptions("", "")
	opts.File, opts.Data, opts.Feedless = ad.file.name, data, feedless
	return config.Load(opts)
}

// find returns the feeds of a URL, a page or a list that are not configured, with their names. It prints what it finds.
func (ad *addition) find(ctx context.Context, arg string) ([]config.Entry, error) {
	p := &printer{w: ad.out, redact: ad.redact}
	if ad.isConfigured(p, arg) {
		return nil, p.err
	}
	entries, isList, err := ad.request(ctx, p, arg)
	if err != nil {
		return nil, err
	}
	if isList && ad.name != "" {
		return nil, &usageError{errors.New("--name is for one feed, and this is a list; its entries have names, by the key or attribute name")}
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("the list %s has no feeds; nothing was written", arg)
	}
	var found []config.Entry
	seen, names, repeated, refused := map[string]bool{}, map[string]bool{}, 0, 0
	for _, e := range entries {
		if seen[e.URL] {
			repeated++
			continue
		}
		seen[e.URL] = true
		if ad.isConfigured(p, e.URL) {
			continue
		}
		if err := ad.setName(&e, names); err != nil {
			if !isList {
				return nil, err
			}
			(&printer{w: ad.err, redact: ad.redact}).printLine("line %d: %v; this feed is left out", e.Line, err)
			refused++
			continue
		}
		names[e.Name] = true
		found = append(found, e)
	}
	if repeated > 0 {
		p.printLine("%s of the list have the URL of an entry before them, and are left out", withNoun(repeated, "entry", "entries"))
	}
	switch {
	case len(found) == 0 && refused > 0:
		return nil, errors.New("no feed of the list can be added; nothing was written")
	case len(found) == 0:
		p.printLine("nothing is new, and nothing was written")
	}
	return found, p.err
}

// isConfigured reports whether a feed with the URL is configured, and prints that.
func (ad *addition) isConfigured(p *printer, url string) bool {
	name, ok := ad.byURL[url]
	if !ok {
		return false
	}
	of := ad.file.name
	if !ad.own[name] {
		of = "a list in " + of
	}
	p.printLine("%s is the feed %s of %s already", url, name, of)
	return true
}

// request returns the feeds that a URL or file has, and whether that is a list.
func (ad *addition) request(ctx context.Context, p *printer, arg string) (entries []config.Entry, isList bool, err error) {
	opts := daemon.Options{Version: programVersion()}
	if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() {
		entries, err := daemon.ReadList(ctx, config.List{File: arg}, opts)
		return entries, true, asListError(arg, err)
	}
	f, err := ad.feedOf(arg)
	if err != nil {
		if !strings.Contains(arg, "://") {
			err = fmt.Errorf("%w; and there is no file %s", err, arg)
		}
		return nil, false, err
	}
	sources, err := ad.newSources(f)
	if err != nil {
		return nil, false, err
	}
	feeds, err := sources.Discover(ctx, false)
	if no, ok := errors.AsType[*daemon.NotFeedError](err); ok && no.List {
		list := config.List{URL: arg, Headers: f.Source.Headers, Auth: f.Source.Auth}
		entries, err := daemon.ReadList(ctx, list, opts)
		return entries, true, asListError(arg, err)
	}
	if err != nil {
		return nil, false, err
	}
	if err := printFound(ad.out, ad.redact, feeds); err != nil {
		return nil, false, err
	}
	feeds = slices.DeleteFunc(feeds, func(f daemon.FoundFeed) bool { return f.Format == "" || f.Error != "" })
	switch {
	case len(feeds) == 0:
		return nil, false, errors.New("no feed can be read to its end; nothing was written")
	case len(feeds) > 1 && !ad.all:
		return nil, false, fmt.Errorf("%s names %d feeds; name one of them by its URL, or take all with --all; nothing was written", arg, len(feeds))
	case len(feeds) > 1 && ad.name != "":
		return nil, false, &usageError{errors.New("--name is for one feed, and there are several; name one of them by its URL")}
	}
	p.printLine("")
	for _, f := range feeds {
		entries = append(entries, config.Entry{URL: f.URL})
	}
	return entries, false, nil
}

func asListError(list string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the list %s: %w", list, err)
}

// feedOf returns the feed that a URL would be in the configuration, with its feed_defaults.
func (ad *addition) feedOf(url string) (config.Feed, error) {
	opts := ad.configOptions(url, "")
	opts.File, opts.Data = ad.file.name, ad.base
	if cfg, err := config.Load(opts); err == nil {
		for name, f := range cfg.Feeds {
			if f.Source.URL == url && !ad.own[name] {
				return f, nil
			}
		}
	}
	return feedOfURL(url)
}

// setName checks the URL of an entry, and sets its name: that in --name or in the list, or one that is made from the
// URL and that no other feed has.
func (ad *addition) setName(e *config.Entry, names map[string]bool) error {
	if err := source.CheckURL(e.URL); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	isTaken := func(name string) bool {
		_, ok := ad.cfg.Feeds[name]
		return ok || names[name]
	}
	if e.Name = cmp.Or(ad.name, e.Name); e.Name != "" {
		if err := config.CheckName(e.Name); err != nil {
			return err
		}
		if isTaken(e.Name) {
			return fmt.Errorf("the name %s belongs to another feed already; give this one another", e.Name)
		}
		return nil
	}
	if e.Name = config.ListedName(e.URL); isTaken(e.Name) {
		e.Name = config.DistinctName(e.URL)
	}
	if isTaken(e.Name) {
		return fmt.Errorf("the name %s belongs to another feed already; give this one another, by --name", e.Name)
	}
	return nil
}

// write writes feeds into the file, if the configuration is valid then.
func (ad *addition) write(feeds []config.Entry) error {
	data, err := config.AddFeeds(ad.base, feeds)
	if err != nil {
		return fmt.Errorf("%s: %w; nothing was written", ad.file.name, err)
	}
	cfg, err := ad.loadData(data, false)
	if err != nil {
		return fmt.Errorf("the configuration would be wrong with the new feeds, and nothing was written:\n%w", plainError{err})
	}
	if err := ad.file.replace(data); err != nil {
		return err
	}
	p := &printer{w: ad.out, redact: ad.redact}
	for _, e := range feeds {
		to := cfg.Feeds[e.Name].To
		p.printLine("added %s, whose topic is %s on bus %s: %s", e.Name, to.Topic, to.Bus, e.URL)
	}
	return p.err
}

// plainError is an error without those in it.
type plainError struct{ err error }

func (e plainError) Error() string { return e.err.Error() }

// reloadAdded makes the running daemon of a configuration read the file again. It is no error if none runs.
func (a *app) reloadAdded(ctx context.Context, file string) error {
	p := &printer{w: a.out, redact: a.redact}
	client, err := a.openAdmin()
	var done daemon.Reloaded
	mayChange := err == nil && client.mayChange()
	if mayChange {
		err = client.post(ctx, "/reload", &done)
	}
	switch {
	case !mayChange || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist):
		hint := ""
		if client != nil {
			hint = client.hint
		}
		p.printLine("no daemon that reads it again was found: '%s run -c %s' starts one, and one that runs elsewhere reads it after SIGHUP%s", programName(), file, hint)
		return p.err
	case err != nil:
		return fmt.Errorf("%s was changed, but the running daemon has not read it: %w", file, err)
	}
	return printReloaded(p, done)
}
