package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// FoundFeed is a feed that a URL serves, or that the page there names.
type FoundFeed struct {
	URL    string        `json:"url"`
	Format config.Format `json:"format,omitempty"`
	// The fields below are of Atom and RSS. Newest are the newest entries, and Interval is the mean time
	// between them.
	Dialect  syndication.Dialect `json:"dialect,omitempty"`
	Title    string              `json:"title,omitempty"`
	Newest   []FoundEntry        `json:"newest,omitempty"`
	Interval string              `json:"interval,omitempty"`
	// Error tells why the feed cannot be read, or not to its end.
	Error string `json:"error,omitempty"`

	answered string // the URL after redirects
}

// IsFeed reports whether the URL serves a feed, perhaps one that cannot be read to its end.
func (f FoundFeed) IsFeed() bool { return f.Format != "" }

// FoundEntry is an entry of a feed that was found.
type FoundEntry struct {
	Title string    `json:"title"`
	Time  time.Time `json:"time,omitzero"`
}

// mostFoundEntries is the number of entries of each feed that is found.
const mostFoundEntries = 3

// usualPaths are the paths at which many sites have their feed.
var usualPaths = []string{"/feed", "/rss.xml", "/atom.xml", "/feed.json", "/index.xml"}

// FindFeeds requests the feed's URL, and returns the feeds of the page there, also those that cannot be read; none if the
// URL serves anything but a page that names feeds.
func (s *Sources) FindFeeds(ctx context.Context) []FoundFeed {
	_, err := detectFormat(ctx, s.client, s.feed.Source.URL, s.opts.Redact, closeResponse)
	page, ok := errors.AsType[*NotFeedError](err)
	if !ok {
		return nil
	}
	return s.readNamed(ctx, page.Feeds)
}

// Discover requests the feed's URL, and returns that feed, or the feeds of the page there. With guess it also requests
// the usual paths of the host. It returns an error if there is no feed.
func (s *Sources) Discover(ctx context.Context, guess bool) ([]FoundFeed, error) {
	own, err := s.readFound(ctx, s.feed.Source.URL)
	if err == nil || own.Format != "" {
		return []FoundFeed{own}, nil
	}
	page, ok := errors.AsType[*NotFeedError](err)
	if !ok && (!guess || !errors.Is(err, feed.ErrPermanent)) {
		return nil, err
	}
	var found []FoundFeed
	if ok {
		found = s.readNamed(ctx, page.Feeds)
	}
	if base, parseErr := url.Parse(s.feed.Source.URL); guess && parseErr == nil {
		for _, path := range usualPaths {
			guessed, guessErr := s.readFound(ctx, base.ResolveReference(&url.URL{Path: path}).String())
			same := func(f FoundFeed) bool { return f.answered == guessed.answered }
			if guessErr == nil && !slices.ContainsFunc(found, same) && len(found) < mostPageFeeds {
				found = append(found, guessed)
			}
		}
	}
	if ctx.Err() != nil {
		return found, ctx.Err()
	}
	if len(found) == 0 {
		if ok && guess {
			page.cure = strings.TrimSuffix(page.cure, guessCure) + "; none of the usual paths has a feed either"
		}
		return nil, err
	}
	return found, nil
}

// readNamed requests feeds that a page names. Those on other hosts must have public addresses.
func (s *Sources) readNamed(ctx context.Context, urls []string) []FoundFeed {
	var found []FoundFeed
	for _, u := range urls {
		s.client.AddReached(u)
		f, err := s.readFound(ctx, u)
		if err != nil {
			f.Error = err.Error()
		}
		found = append(found, f)
	}
	return found
}

// readFound requests a feed, and describes it. Its format is empty if it is no feed.
func (s *Sources) readFound(ctx context.Context, at string) (FoundFeed, error) {
	f := FoundFeed{URL: at}
	var read []byte
	var answer *source.Response
	var err error
	f.Format, err = detectFormat(ctx, s.client, at, s.opts.Redact, func(_ source.Request, resp *source.Response, head []byte) {
		answer, read = resp, bytes.Clone(head)
	})
	if err != nil {
		return f, err
	}
	defer answer.Body.Close()
	if f.answered = answer.URL.String(); f.Format.Kind() != syndication.Kind {
		return f, nil
	}
	opts := feedxml.Options{URL: f.answered, ContentType: answer.Header.Get("Content-Type"), Interrupted: ctx.Err, Redact: s.opts.Redact}
	p, err := syndication.ReadPreview(io.MultiReader(bytes.NewReader(read), answer.Body), opts, mostFoundEntries)
	f.Dialect, f.Title = p.Dialect, p.Title
	var times []time.Time
	for _, e := range p.Newest {
		f.Newest = append(f.Newest, FoundEntry(e))
		if !e.Time.IsZero() {
			times = append(times, e.Time)
		}
	}
	if n := len(times); n > 1 {
		f.Interval = (times[0].Sub(times[n-1]) / time.Duration(n-1)).Round(time.Second).String()
	}
	if err != nil {
		f.Error = err.Error()
	}
	return f, nil
}
