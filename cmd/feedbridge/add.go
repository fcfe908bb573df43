package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
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
entries as 'feedbridge discover' does, writes it into the configuration file, before the
feeds there, and makes the running daemon read the file again. Of the file all but the
new lines stays as it was. If the page names several feeds, add lists them and writes
nothing, unless --all is given.

With the file or the URL of a list in OPML or YAML, add adds its feeds. They are not
requested. (feeds_from names lists that are watched.) A feed whose URL is in the
configuration is not added again.

A server to which no feed of the file sends the headers and auth of feed_defaults does
not get them: the lines of the new feed switch them off.

Without -c the file is $FEEDBRIDGE_CONFIG, or else feedbridge.yaml.`,
		Example: `  feedbridge add https://shop.example.com
  feedbridge add -c feedbridge.yaml --name shop https://shop.example.com/feed/latest
  feedbridge add -c feedbridge.yaml subscriptions.opml`,
		Args: exactArgs("URL or OPML"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.file = cmp.Or(a.file, defaultFile)
			f, err := openConfigFile(a.file)
			if err != nil {
				return err
			}
			ad := &addition{app: a, file: f, base: f.data, name: name, all: all}
			if err := ad.add(cmd.Context(), args[0]); err != nil || len(ad.feeds) == 0 {
				return err
			}
			return ad.reload(cmd.Context())
		},
	})
	cmd.Flags().StringVar(&name, "name", "", "the `NAME` of the feed; default: made from the host and path of its URL")
	cmd.Flags().BoolVar(&all, "all", false, "add all feeds of a page")
	return cmd
}

// addition adds feeds to a configuration file.
type addition struct {
	*app
	file *configFile
	base []byte // what the file has, or is to have, without the new feeds
	name string // --name
	all  bool   // --all
	// byURL and byName have the feeds in the configuration before the addition, with those of its lists, and the new ones.
	byURL  map[string]string
	byName map[string]bool
	// trusted has the origins that get the headers and auth of feed_defaults; nil if there are none.
	trusted map[string]bool
	feeds   map[string]config.NewFeed
}

// add adds the feeds of a URL, a page or a list that are not configured. It prints what it finds.
func (ad *addition) add(ctx context.Context, arg string) error {
	if err := ad.load(ctx); err != nil {
		return err
	}
	p := &printer{w: ad.out, redact: ad.redact}
	if ad.isConfigured(p, arg) {
		return p.err
	}
	entries, err := ad.request(ctx, p, arg)
	switch {
	case err != nil:
		return err
	case ad.name != "" && len(entries) > 1:
		return &usageError{fmt.Errorf("--name is for one feed, and %s has %d", arg, len(entries))}
	}
	known := 0
	for _, e := range entries {
		if ad.isConfigured(p, e.URL) {
			known++
			continue
		}
		name, err := ad.nameOf(e)
		if err != nil {
			(&printer{w: ad.err, redact: ad.redact}).printLine("%v", &config.Error{Source: arg, Line: e.Line, Text: err.Error()})
			continue
		}
		ad.byURL[e.URL], ad.byName[name], ad.feeds[name] = name, true, ad.newFeed(e.URL)
	}
	switch {
	case len(ad.feeds) > 0:
		return ad.write(p)
	case known == 0:
		return fmt.Errorf("%s has no feed that can be added; nothing was written", arg)
	}
	p.printLine("nothing is new, and nothing was written")
	return p.err
}

// load reads the configuration, and the lists that it names, as they are before the addition.
func (ad *addition) load(ctx context.Context) error {
	cfg, err := ad.loadData(ad.base, true)
	if err != nil {
		return err
	}
	ad.redact = safetext.NewRedactor(cfg.SecretParameters...)
	ad.byURL, ad.byName, ad.feeds = map[string]string{}, map[string]bool{}, map[string]config.NewFeed{}
	if cfg.IsSet("feed_defaults.headers") || cfg.IsSet("feed_defaults.auth") {
		ad.trusted = map[string]bool{}
		for name, f := range cfg.Feeds {
			if !cfg.IsSet("feeds."+name+".headers") && !cfg.IsSet("feeds."+name+".auth") {
				ad.trusted[originOf(f.Source.URL)] = true
			}
		}
	}
	cfg, _ = daemon.ReadLists(ctx, cfg, daemon.Options{Version: programVersion()}) // check reports the errors
	for name, f := range cfg.Feeds {
		ad.byURL[f.Source.URL], ad.byName[name] = name, true
	}
	return nil
}

// loadData returns the configuration that the file has with data in it, and with more settings.
func (ad *addition) loadData(data []byte, feedless bool, set ...string) (*config.Config, error) {
	opts := ad.configOptions("", "")
	opts.File, opts.Data, opts.Feedless, opts.Set = ad.file.name, data, feedless, slices.Concat(opts.Set, set)
	return config.Load(opts)
}

// originOf returns the scheme, host and port of a valid URL.
func originOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// isConfigured reports whether a feed with the URL is configured, and prints that.
func (ad *addition) isConfigured(p *printer, url string) bool {
	name, ok := ad.byURL[url]
	if ok {
		p.printLine("%s is the URL of the feed %s already", url, name)
	}
	return ok
}

// newFeed returns the feed of a URL. A server gets the headers and credentials of feed_defaults only if a feed of the
// file sends them to it: whoever wrote them had not this server in mind.
func (ad *addition) newFeed(url string) config.NewFeed {
	if ad.trusted == nil || ad.trusted[originOf(url)] {
		return config.NewFeed{URL: url}
	}
	return config.NewFeed{URL: url, Headers: &[0]string{}, Auth: &struct{}{}}
}

// request returns the feeds of a URL, of the page there, or of a list.
func (ad *addition) request(ctx context.Context, p *printer, arg string) ([]config.Entry, error) {
	list := config.List{File: arg}
	if _, err := os.Stat(arg); err != nil && !strings.Contains(arg, "://") {
		return nil, &usageError{fmt.Errorf("there is no file %s; a URL begins with https://", arg)}
	} else if err != nil {
		found, err := ad.discover(ctx, p, arg)
		if no, ok := errors.AsType[*daemon.NotFeedError](err); !ok || !no.List {
			return found, err
		}
		list = config.List{URL: arg}
	}
	entries, err := daemon.ReadList(ctx, list, daemon.Options{Version: programVersion()})
	if err != nil {
		err = fmt.Errorf("the list %s: %w", arg, err)
	}
	return entries, err
}

// discover returns the feeds of a URL, or of the page there. It requests them as the new feed would be.
func (ad *addition) discover(ctx context.Context, p *printer, url string) (entries []config.Entry, err error) {
	if err := source.CheckURL(url); err != nil {
		return nil, &usageError{fmt.Errorf("invalid URL: %w", err)}
	}
	name := config.DistinctName(url)
	cfg, err := ad.loadData(ad.base, true, "feeds."+name+".url="+url)
	if err != nil {
		return nil, wrongWith(err)
	}
	f := cfg.Feeds[name]
	if ad.newFeed(url).Auth != nil {
		f.Source.Headers, f.Source.Auth = nil, source.Auth{}
		p.printLine("the headers and auth of feed_defaults are not sent to %s: no feed of %s gets them there; if it needs them, write it into the file yourself", url, ad.file.name)
	}
	sources, err := sourcesOfFeed(ad.app, f)
	if err != nil {
		return nil, err
	}
	feeds, err := sources.Discover(ctx, false)
	if err == nil {
		err = printFound(ad.out, ad.redact, feeds)
	}
	if err != nil {
		return nil, err
	}
	if n := len(feeds); n > 1 && !ad.all {
		return nil, fmt.Errorf("%s names %d feeds; name one of them by its URL, or take all that can be read with --all; nothing was written", url, n)
	}
	feeds = slices.DeleteFunc(feeds, func(f daemon.FoundFeed) bool { return !f.IsFeed() || f.Error != "" })
	if len(feeds) == 0 {
		return nil, errors.New("no feed can be read to its end; nothing was written")
	}
	p.printLine("")
	for _, f := range feeds {
		entries = append(entries, config.Entry{URL: f.URL})
	}
	return entries, nil
}

// wrongWith returns the error about a configuration with new feeds. Its text has those of err, whose type is for the
// errors of the file as it is.
func wrongWith(err error) error {
	return errors.New("the configuration would be wrong with the new feeds, and nothing was written:\n" + err.Error())
}

// nameOf returns the name of a new feed: that in --name or in the list, or one that is made from the URL and that no
// other feed has.
func (ad *addition) nameOf(e config.Entry) (string, error) {
	if err := source.CheckURL(e.URL); err != nil {
		return "", fmt.Errorf("url: %w", err)
	}
	name := cmp.Or(ad.name, e.Name, config.ListedName(e.URL))
	if ad.name == "" && e.Name == "" && ad.byName[name] {
		name = config.DistinctName(e.URL)
	}
	if ad.byName[name] {
		return "", fmt.Errorf("the name %s belongs to another feed already; give this one another", name)
	}
	return name, config.CheckName(name)
}

// write writes the new feeds into the file, if the configuration is valid then.
func (ad *addition) write(p *printer) error {
	data, err := config.AddFeeds(ad.base, ad.feeds)
	if err != nil {
		return fmt.Errorf("%s is unchanged: %w", ad.file.name, err)
	}
	cfg, err := ad.loadData(data, false)
	if err != nil {
		return wrongWith(err)
	}
	if err := ad.file.replace(data); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(ad.feeds)) {
		f, to, without := ad.feeds[name], cfg.Feeds[name].To, ownText("")
		if f.Auth != nil {
			without = ", without the headers and auth of feed_defaults"
		}
		p.printLine("added %s, whose topic is %s on bus %s: %s%s", name, to.Topic, to.Bus, f.URL, without)
	}
	return p.err
}

// reload makes the running daemon of the configuration read the file again. It is no error if none runs.
func (ad *addition) reload(ctx context.Context) error {
	p, hint := &printer{w: ad.out, redact: ad.redact}, ""
	if client, err := ad.openAdmin(); err == nil && client.mayChange() {
		var done daemon.Reloaded
		err := client.post(ctx, "/reload", &done)
		if err == nil {
			all := len(done.Feeds.Added)
			done.Feeds.Added = slices.DeleteFunc(done.Feeds.Added, func(name string) bool { return ad.feeds[name].URL != "" })
			p.printLine("the running daemon has added %s", withNoun(all-len(done.Feeds.Added), "feed", "feeds"))
			printReloaded(p, done)
			return p.err
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s was changed, but the running daemon has not read it: %w", ad.file.name, err)
		}
	} else if err == nil {
		hint = client.hint
	}
	p.printLine("no daemon that reads it again was found: '%s run -c %s' starts one, and one that runs elsewhere reads it after SIGHUP%s", programName(), ad.file.name, hint)
	return p.err
}
