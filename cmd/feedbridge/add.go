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

A server to which no feed of the file sends the headers or auth of feed_defaults does
not get them: the lines of the new feed switch them off.`,
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
	// cfg is the configuration before the addition, with the feeds of its lists.
	cfg *config.Config
	// byURL has the names of the feeds in cfg, and of the new ones, and sentTo the keys of feed_defaults that are sent
	// to servers, with the origins to which feeds send them.
	byURL  map[string]string
	sentTo map[string]map[string]bool
	feeds  map[string]config.NewFeed
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
	entries, isList, err := ad.request(ctx, p, arg)
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
		if err != nil && !isList {
			return err
		}
		if err != nil {
			(&printer{w: ad.err, redact: ad.redact}).printLine("line %d: %v; this feed is left out", e.Line, err)
			continue
		}
		ad.byURL[e.URL], ad.feeds[name] = name, ad.newFeed(e.URL)
	}
	switch {
	case len(ad.feeds) > 0:
		return ad.write(p)
	case known == 0:
		return fmt.Errorf("the list %s has no feed that can be added; nothing was written", arg)
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
	ad.byURL, ad.sentTo, ad.feeds = map[string]string{}, map[string]map[string]bool{}, map[string]config.NewFeed{}
	for _, key := range []string{"headers", "auth"} {
		if !cfg.IsSet("feed_defaults." + key) {
			continue
		}
		ad.sentTo[key] = map[string]bool{}
		for name, f := range cfg.Feeds {
			if !cfg.IsSet("feeds." + name + "." + key) {
				ad.sentTo[key][originOf(f.Source.URL)] = true
			}
		}
	}
	ad.cfg, _ = daemon.ReadLists(ctx, cfg, daemon.Options{Version: programVersion()}) // check reports the errors
	for name, f := range ad.cfg.Feeds {
		ad.byURL[f.Source.URL] = name
	}
	ad.redact = safetext.NewRedactor(cfg.SecretParameters...)
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
	f := config.NewFeed{URL: url}
	if to, ok := ad.sentTo["headers"]; ok && !to[originOf(url)] {
		f.Headers = &[0]string{}
	}
	if to, ok := ad.sentTo["auth"]; ok && !to[originOf(url)] {
		f.Auth = &struct{}{}
	}
	return f
}

// withheld returns the keys of feed_defaults that a new feed does not get, as text.
func withheld(f config.NewFeed) string {
	switch {
	case f.Headers != nil && f.Auth != nil:
		return "headers and auth"
	case f.Headers != nil:
		return "headers"
	case f.Auth != nil:
		return "auth"
	}
	return ""
}

// request returns the feeds that a URL or file has, and whether that is a list.
func (ad *addition) request(ctx context.Context, p *printer, arg string) (entries []config.Entry, isList bool, err error) {
	list := config.List{File: arg}
	if _, err := os.Stat(arg); err != nil && !strings.Contains(arg, "://") {
		return nil, false, &usageError{fmt.Errorf("there is no file %s; a URL begins with https://", arg)}
	} else if err != nil {
		found, err := ad.discover(ctx, p, arg)
		if no, ok := errors.AsType[*daemon.NotFeedError](err); !ok || !no.List {
			return found, false, err
		}
		list = config.List{URL: arg}
	}
	if entries, err = daemon.ReadList(ctx, list, daemon.Options{Version: programVersion()}); err != nil {
		err = fmt.Errorf("the list %s: %w", arg, err)
	}
	return entries, true, err
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
	f, added := cfg.Feeds[name], ad.newFeed(url)
	if added.Headers != nil {
		f.Source.Headers = nil
	}
	if added.Auth != nil {
		f.Source.Auth = source.Auth{}
	}
	if keys := withheld(added); keys != "" {
		p.printLine("the %s of feed_defaults are not sent to %s: no feed of %s gets them there; if it needs them, write it into the file yourself", keys, url, ad.file.name)
	}
	sources, err := ad.newSources(f)
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
	feeds = slices.DeleteFunc(feeds, func(f daemon.FoundFeed) bool { return f.Format == "" || f.Error != "" })
	switch {
	case len(feeds) == 0:
		return nil, errors.New("no feed can be read to its end; nothing was written")
	case len(feeds) > 1 && !ad.all:
		return nil, fmt.Errorf("%s names %d feeds; name one of them by its URL, or take all with --all; nothing was written", url, len(feeds))
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
	isTaken := func(name string) bool {
		_, before := ad.cfg.Feeds[name]
		_, now := ad.feeds[name]
		return before || now
	}
	name := cmp.Or(ad.name, e.Name, config.ListedName(e.URL))
	if ad.name == "" && e.Name == "" && isTaken(name) {
		name = config.DistinctName(e.URL)
	}
	if isTaken(name) {
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
		f, to, without := ad.feeds[name], cfg.Feeds[name].To, ""
		if keys := withheld(f); keys != "" {
			without = fmt.Sprintf(", without the %s of feed_defaults", keys)
		}
		p.printLine("added %s, whose topic is %s on bus %s: %s%s", name, to.Topic, to.Bus, f.URL, ownText(without))
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
