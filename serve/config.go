package serve

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/serve/snapshot"
)

// Format is what a feed is served as.
type Format string

// The formats.
const (
	DataReplication Format = "datareplication"
	Atom            Format = "atom"
	RSS             Format = "rss"
)

// Snapshot describes the snapshots of a feed.
type Snapshot = snapshot.Config

// Config says how one topic is served.
type Config struct {
	// Name is the feed's name, as in its URL. It is part of the IDs that messages
	// without one get.
	Name string
	// Format is what the feed is served as. Default [DataReplication].
	Format Format
	// PageSize is the number of positions that a page has. Default 500, at most
	// 10,000. A change does not disturb those who read pages of another size.
	PageSize int
	// PublicURL is where the feed lies for those who read it: links start with it,
	// and /latest follows it at the entry point. Without it links lead to the
	// host that the request names, which is right where nothing stands between.
	PublicURL string
	// BusTime dates all entities by when the bus took them. Without it those
	// whose message has a Last-Modified keep theirs, as far as times do not run
	// back. A feed with snapshots has the bus's times always: a snapshot and the
	// feed behind it are divided by time, so what is late would be in neither.
	BusTime bool
	// Auth is what who asks has to know. The zero Auth lets in everyone.
	Auth Auth
	// Title is what the feed is called in Atom and RSS. Default Name.
	Title string
	// Snapshot says how to build snapshots. The zero Snapshot builds none.
	Snapshot Snapshot
	// Memory is what holds pages. Default: one for this feed alone.
	Memory *Memory
	// Log gets what goes wrong.
	Log *slog.Logger
	// Observe is told of each request, when it has been answered: the status, and
	// how long that took. Of one whose client left before that it is told nothing. It may be nil, and is called by several goroutines.
	Observe func(status int, took time.Duration)
}

var names = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// Validate returns everything that is wrong with c, each error starting with
// the key that it is about.
func (c Config) Validate() []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !names.MatchString(c.Name) {
		fail("name: %q must be of lower case letters, digits and -, and start with a letter", c.Name)
	}
	switch c.Format {
	case "", DataReplication, Atom, RSS:
	default:
		fail("format: %q is none: want datareplication, atom or rss", c.Format)
	}
	if c.PageSize < 0 || c.PageSize > MaxPageSize {
		fail("page_size: must be between 1 and %d", MaxPageSize)
	}
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
			fail("public_url: %q must be an http or https URL without user, query and fragment", c.PublicURL)
		case strings.ContainsAny(c.PublicURL, ",;<>\""):
			fail("public_url: %q must not have any of , ; < > \", which clients misread in links", c.PublicURL)
		}
	}
	if c.Snapshot.Every > 0 && c.Format != DataReplication && c.Format != "" {
		fail("snapshot: is for feeds of the format datareplication alone")
	}
	errs = append(errs, c.Auth.validate()...)
	return append(errs, c.Snapshot.Validate()...)
}

// path returns the path of the feed on its server.
func (c *Config) path() string { return "/feeds/" + c.Name }

// home returns the URL of the feed, or its path if the URL is not configured.
func (c *Config) home() string {
	if c.PublicURL != "" {
		return c.PublicURL
	}
	return c.path()
}

// entry returns where readers begin.
func (c *Config) entry() string { return c.home() + "/latest" }

// base returns the URL that the links of an answer start with.
func (c *Config) base(r *http.Request) (string, error) {
	if c.PublicURL != "" {
		return c.PublicURL, nil
	}
	// These characters would end a link early in clients that parse it carelessly.
	if r.Host == "" || strings.ContainsAny(r.Host, ",;<>\"'& ") {
		return "", newAnswer(http.StatusBadRequest, "The request names no host.")
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + c.path(), nil
}

// isLinked reports whether a page has its links in its body, and its newest entity
// first.
func (c *Config) isLinked() bool { return c.Format == Atom || c.Format == RSS }

// cacheControl returns the Cache-Control of a page. closed is whether the page does not
// change any more, except that its prev link goes when older pages do.
func (c *Config) cacheControl(closed bool) string {
	switch {
	case !closed && c.Auth.set():
		return "private, no-cache"
	case !closed:
		return "no-cache"
	}
	reach := "public"
	if c.Auth.set() {
		reach = "private"
	}
	if c.isLinked() {
		return reach + ", max-age=31536000"
	}
	return reach + ", max-age=86400"
}
