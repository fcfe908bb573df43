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

// Format is the format of a served feed.
type Format string

// The formats.
const (
	DataReplication Format = "datareplication"
	Atom            Format = "atom"
	RSS             Format = "rss"
	JSONFeed        Format = "jsonfeed"
	HTTPFeeds       Format = "http-feeds"
)

// Values returns the valid values.
func (Format) Values() []string {
	return []string{string(DataReplication), string(Atom), string(RSS), string(JSONFeed), string(HTTPFeeds)}
}

// Snapshot describes the snapshots of a feed.
type Snapshot = snapshot.Config

// Config describes a served feed.
type Config struct {
	// Name is the feed's name, as in its URL. It is part of the IDs that messages
	// without one get.
	Name string
	// Format is the format of the feed. Default [DataReplication].
	Format Format
	// PageSize is the number of positions that a page has. Default 500, at most
	// 10,000. Clients that are reading pages of
	// another size can finish: page URLs stay valid.
	PageSize int
	// PublicURL is the URL of the feed for its readers: links start with it, and the
	// entry point is PublicURL/latest. Without it, links in documents of Atom and RSS are
	// relative. Links of pages and snapshots of datareplication, which must be absolute, lead to
	// the host that the request names, and shared caches must not store them.
	PublicURL string
	// ReadAuth returns the credentials of the feed, for each request. They must not be the zero Auth. After an error
	// requests are answered with 503. Nil admits every client.
	ReadAuth func() (Auth, error)
	// Title is the title of the feed in Atom and RSS. Default Name.
	Title string
	// Snapshot describes the snapshots. The zero Snapshot builds none. With snapshots the
	// Last-Modified of an entity is the time at which the bus took it: time separates a snapshot
	// from the feed behind it, so a late entity would be in neither. Without, entities whose message
	// has a Last-Modified keep theirs, unless times would decrease.
	Snapshot Snapshot
	// Memory holds the pages. Default: one for this feed only.
	Memory *PageCache
	// Log gets the errors.
	Log *slog.Logger
	// Observe is called for each answered request, with the status and the time that
	// the answer took. It is not called if the client left before there was an answer.
	// It may be nil, and is called by several goroutines.
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
	if c.PageSize < 0 || c.PageSize > maxPageSize {
		fail("page_size: must be between 1 and %d", maxPageSize)
	}
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
			fail("public_url: %q must be an http or https URL without user, query and fragment", c.PublicURL)
		case strings.ContainsAny(c.PublicURL, ",;<>\""):
			fail("public_url: %q must not contain any of , ; < > \", which clients misread in links", c.PublicURL)
		}
	}
	if c.Snapshot.Every > 0 && c.Format != DataReplication && c.Format != "" {
		fail("snapshot: is only for feeds of the format datareplication")
	}
	if c.Snapshot.Every < 0 {
		fail("snapshot.every: must not be negative")
	}
	return errs
}

// feedPath returns the path of the feed on its server.
func (c *Config) feedPath() string { return "/feeds/" + c.Name }

// feedURL returns the URL of the feed, or its path if the URL is not configured.
func (c *Config) feedURL() string {
	if c.PublicURL != "" {
		return c.PublicURL
	}
	return c.feedPath()
}

// entryURL returns where readers begin.
func (c *Config) entryURL() string { return c.Format.EntryURL(c.feedURL()) }

// EntryURL returns where readers of a feed with that URL begin.
func (f Format) EntryURL(feed string) string {
	if f == HTTPFeeds {
		return feed
	}
	return feed + "/latest"
}

// linkBase returns the URL that the links of an answer start with where they must be absolute.
func (c *Config) linkBase(r *http.Request) (string, error) {
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
	return scheme + "://" + r.Host + c.feedPath(), nil
}

// isProtected reports whether clients need credentials.
func (c *Config) isProtected() bool { return c.ReadAuth != nil }

// isLinked reports whether a page has its links in its body, and its newest entity
// first.
func (c *Config) isLinked() bool {
	return c.Format == Atom || c.Format == RSS || c.Format == JSONFeed
}

// cacheControl returns the Cache-Control of a page. closed is whether the page does not
// change any more, except that its prev link goes when older pages do. Links that have the host of
// the request are only for the client that sent it: the key of a cache may lack the Host.
//
// A shared cache stores other pages too, and asks once a second whether they have changed. With
// no-cache many, such as nginx, would store nothing, and request the whole page for each client.
func (c *Config) cacheControl(closed bool) string {
	reach, age := "public", "max-age=0, s-maxage=1, must-revalidate"
	if c.isProtected() || c.Format == DataReplication && c.PublicURL == "" {
		reach, age = "private", "no-cache"
	}
	switch {
	case c.Format == HTTPFeeds && !closed:
		return "no-store"
	case closed && c.Format != DataReplication:
		age = "max-age=31536000"
	case closed:
		age = "max-age=86400"
	}
	return reach + ", " + age
}
