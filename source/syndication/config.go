package syndication

import (
	"encoding/xml"
	"fmt"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/setting"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// Kind names this kind of source in checkpoints and in the configuration.
const Kind = "syndication"

// Config is the configuration of a feed: its URL and how to interpret it. Start from
// [Defaults].
type Config struct {
	// Config configures the requests to upstream. Its limits.entity bounds an
	// entry, in UTF-8.
	source.Config `yaml:",inline"`
	// Settings configure how the feed is interpreted.
	Settings `yaml:",inline"`
	// Start selects the first entries to publish when the topic has no checkpoint, of those that are updated at a time
	// or later. For entries without an update time, it uses their date of publication. It has no ID and no Snapshot.
	Start source.Start `yaml:"start"`
	// Format is the required format; RSS includes RDF. The default is the format that
	// the feed has at the first poll. A change of format is an error, because the
	// entries would have other IDs and all of them would be published again.
	Format feedxml.Format `yaml:"-"`
	// Every is the interval between calls of Next for a feed that has nothing new.
	Every time.Duration `yaml:"-"`
	// Once reports that the feed is read once. Then nothing is waited for that only another
	// poll can bring.
	Once bool `yaml:"-"`
	// Redact hides the secrets of the URLs in the headers that the source adds. Nil
	// means a Redactor with the usual parameter names.
	Redact *safetext.Redactor `yaml:"-"`
	// Budget bounds the memory for documents of all sources that share it. Each source
	// may use another 256 KiB, so none stops because of the others. Nil means that only
	// Bounds.Memory applies.
	Budget *readahead.Budget `yaml:"-"`
	// Bounds limit the work and memory that the feed can cause.
	Bounds Bounds `yaml:"-"`
}

// Settings configure how a feed is interpreted. Their yaml tags are the keys of the
// configuration file.
type Settings struct {
	// Dialect is the way in which the feed keeps the entries that its document has no
	// room for: "auto", which detects it, or one of complete, archived, paged, window,
	// feed-history, atomhopper, ict4h, kurrent.
	Dialect DialectName `yaml:"dialect" default:"auto"`
	// EntryOrder is the order of a document's entries: "auto" uses their
	// update times, or else their dates of publication; the others are newest_first,
	// oldest_first, and updated, which sorts them by update time.
	EntryOrder OrderName `yaml:"entry_order" default:"auto"`
	// Mode is "poll", which requests the newest document and walks back from there, or
	// "tail", which follows the dialect's links to newer pages and requests the page at the
	// end. Mode tail requires pages that only change by growing.
	Mode Mode `yaml:"mode" default:"poll"`
	// IgnoreChangesIn names elements of entries, at any depth, that do not count as changes
	// of the entry: "viewers", or "{namespace}viewers" for the one of that namespace. The
	// usual counters of views, ratings and comments never count.
	IgnoreChangesIn []string `yaml:"ignore_changes_in"`
	// MaxDeleteRatio is the part of a complete feed of 20 entries or more that may
	// vanish at once. More than that is held back until the same entries are missing
	// again after a quarter of an hour, or after Every or the wait that the feed asks
	// for, if that is longer. Default 0.5; 1 holds nothing back.
	MaxDeleteRatio float64 `yaml:"max_delete_ratio" default:"0.5"`
	// FullEvery is the longest time for which "not modified" is accepted, and the
	// interval between complete reads of a paged feed. Default 24h.
	FullEvery time.Duration `yaml:"full_every" default:"24h"`
	// Hints sets whether the polling hints of the feed are followed (Cache-Control,
	// Expires, ttl, skipHours, skipDays, updatePeriod): "heed" or "ignore". A
	// Retry-After is always followed.
	Hints HintPolicy `yaml:"hints" default:"heed"`
	// Identity sets the preferred ID of an item or entry: "guid", the guid of RSS and
	// the id of Atom; "link"; or "content", a hash of the content that a reader would
	// show. If an item lacks it, the next one is used. "auto" is guid, and rejects a
	// document in which most guids have changed while titles, links and dates have not.
	Identity feedxml.Identity `yaml:"identity" default:"auto"`
	// Body is the body of messages: "json", the fields of the entry in one schema for all formats, or
	// "source", the entry as the feed has it, which for Atom and RSS is called "xml" too. IDs do not depend on it, and a change publishes nothing again.
	Body BodyFormat `yaml:"body" default:"json"`
	// Lenient sets whether documents that are not well-formed are read: "true",
	// "false", or "auto", which reads those of window and paged feeds. A complete feed
	// is never read leniently, and nothing is deleted because of a document that is not
	// well-formed.
	Lenient Leniency `yaml:"lenient" default:"auto"`
}

// Leniency selects which documents are read that are not well-formed.
type Leniency string

// Values returns the valid values.
func (Leniency) Values() []string { return []string{"auto", "true", "false"} }

// BodyFormat is the format of the bodies of messages.
type BodyFormat string

// Values returns the valid values.
func (BodyFormat) Values() []string { return []string{"json", "xml", "source"} }

// isOwn reports whether the body is the entry as the feed has it.
func (b BodyFormat) isOwn() bool { return b == "xml" || b == "source" }

// DialectName names a dialect in the configuration.
type DialectName string

// Values returns the valid values.
func (DialectName) Values() []string {
	return []string{"auto", "complete", "archived", "paged", "window", "feed-history", "atomhopper", "ict4h", "kurrent"}
}

// OrderName names an order in the configuration.
type OrderName string

// Values returns the valid values.
func (OrderName) Values() []string {
	return []string{"auto", "newest_first", "oldest_first", "updated"}
}

// Mode is the direction in which a feed is read.
type Mode string

// Values returns the valid values.
func (Mode) Values() []string { return []string{"poll", "tail"} }

// HintPolicy is for the feed's own polling hints.
type HintPolicy string

// Values returns the valid values.
func (HintPolicy) Values() []string { return []string{"heed", "ignore"} }

// Bounds limit the work and memory that a feed can cause.
type Bounds struct {
	// Documents is the maximum number of documents that one walk reads. Older documents are a
	// missing archive that is read later. Default 10,000: more would delay the first commit.
	Documents int
	// Memory is the approximate memory for the entries of a document, in bytes; it
	// always has room for one entry. A document that has more to publish is read more
	// than once. Default 8 MiB.
	Memory int64
}

// Defaults returns a Config with every default set.
func Defaults() Config {
	c := setting.Defaults[Config]()
	c.Bounds = Bounds{Documents: 10_000, Memory: 8 << 20}
	return c
}

// Validate returns one error for each invalid setting of c, each beginning with the
// setting's key.
func (c Config) Validate() []error {
	return append(c.Config.Validate(), c.Settings.Validate()...)
}

// Validate returns one error for each invalid setting of s, each beginning with the
// setting's key.
func (s Settings) Validate() []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if p := s.profile(); p.tail && p.newer == "" {
		fail("mode: tail needs links to newer pages, which the dialect %s does not name: want a dialect that does, kurrent, ict4h or atomhopper", s.Dialect)
	}
	for i, name := range s.IgnoreChangesIn {
		if n := childName(name); n.Local == "" || strings.ContainsAny(n.Local, ":<>/{} ") {
			fail("ignore_changes_in[%d]: %q is no name of an element: write comments, without a prefix, or {http://purl.org/rss/1.0/modules/slash/}comments", i, name)
		}
	}
	if s.MaxDeleteRatio < 0 || s.MaxDeleteRatio > 1 {
		fail("max_delete_ratio: must be between 0 and 1")
	}
	if s.FullEvery <= 0 {
		fail("full_every: must be more than zero")
	}
	return errs
}

// childName parses a name in the form of IgnoreChangesIn.
func childName(text string) xml.Name {
	if space, local, ok := strings.Cut(text, "}"); ok && strings.HasPrefix(space, "{") {
		return xml.Name{Space: space[1:], Local: local}
	}
	return xml.Name{Space: "*", Local: text}
}
