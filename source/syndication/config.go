package syndication

import (
	"fmt"
	"time"

	"github.com/feedbridge/feedbridge/source"
)

// Kind names this kind of source in checkpoints and in the configuration.
const Kind = "syndication"

// Config says which feed to read, from where, and how to understand it. Its
// yaml tags are the keys of the configuration file. Start from [Defaults].
type Config struct {
	// Config says how to speak to the upstream. Its limits.entity bounds an
	// entry, in UTF-8.
	source.Config `yaml:",inline"`
	// Dialect says how the feed keeps what its document has no room for: "auto",
	// which finds out, or one of complete, archived, paged, window, fh-00 to
	// fh-05, pace, atomhopper, ict4h, kurrent.
	Dialect string `yaml:"dialect"`
	// EntryOrder is the order of a document's entries: "auto" goes by their
	// update times, the others are newest_first, oldest_first, and updated,
	// which sorts them.
	EntryOrder string `yaml:"entry_order"`
	// OlderRel and NewerRel are the link relations to the next older and the
	// next newer document. Default: those of the dialect.
	OlderRel string `yaml:"older_rel"`
	NewerRel string `yaml:"newer_rel"`
	// Mode is "poll", which asks for the newest document and looks back from
	// there, or "tail", which follows NewerRel forwards and asks for the page at
	// the end. Tail wants pages that only change by growing.
	Mode string `yaml:"mode"`
	// Start is where reading starts when the topic has no checkpoint.
	Start Start `yaml:"start"`
	// MaxDeleteRatio is the part of a complete feed of 20 entries or more that
	// may vanish at once. More than that is held back until it was seen twice in
	// a row. Default 0.5; 1 holds nothing back.
	MaxDeleteRatio float64 `yaml:"max_delete_ratio"`
	// TombstoneUnknown says what to do with a tombstone of an entry that the
	// topic does not have: "ignore" or "publish".
	TombstoneUnknown string `yaml:"tombstone_unknown"`
	// CompactBackfill would publish only the last version of each entry of a
	// history. It is not in this version.
	CompactBackfill bool `yaml:"compact_backfill"`
	// FullEvery is how long "not modified" is believed, and how often all pages
	// of a paged feed are read. Default 24h.
	FullEvery time.Duration `yaml:"full_every"`
	// RecheckArchives reads archives again that should not change.
	RecheckArchives Recheck `yaml:"recheck_archives"`
	// TrustAhead is how far in the future an update time may be for it to be
	// compared with others. Default 24h.
	TrustAhead time.Duration `yaml:"trust_ahead"`
	// Bounds bound what the feed may make this program do.
	Bounds Bounds `yaml:"bounds"`
	// Window is about how much of a document is held in memory, in bytes; one
	// entry at least. A document that has more to publish than that is read more
	// than once. Default 8 MiB.
	Window int `yaml:"window"`
	// BatchEntities and BatchBytes cut batches, so that a sink can commit
	// each in one go. Zero means 999 and 1 MiB.
	BatchEntities int `yaml:"-"`
	BatchBytes    int `yaml:"-"`
}

// Recheck says which archives to read again, and how often.
type Recheck struct {
	// Newest is how many of the newest archives; 0 for none.
	Newest int `yaml:"newest"`
	// Every is how often. Default 24h.
	Every time.Duration `yaml:"every"`
}

// Bounds bound what a feed may make this program do.
type Bounds struct {
	// Documents is how many documents one walk back may take. Default 10,000.
	// What lies behind them is a gap that is read later.
	Documents int `yaml:"documents"`
	// Entries is how many entries a document may have. Default 1,000,000.
	Entries int `yaml:"entries"`
	// Depth is how deep elements may be nested. Default 256.
	Depth int `yaml:"depth"`
}

// Defaults returns a Config with every default set.
func Defaults() Config {
	return Config{Config: source.Defaults()}.filled()
}

// filled returns c with the defaults of this package.
func (c Config) filled() Config {
	fill(&c.Dialect, "auto")
	fill(&c.EntryOrder, "auto")
	fill(&c.Mode, "poll")
	fill(&c.MaxDeleteRatio, 0.5)
	fill(&c.TombstoneUnknown, "ignore")
	fill(&c.FullEvery, 24*time.Hour)
	fill(&c.RecheckArchives.Every, 24*time.Hour)
	fill(&c.TrustAhead, 24*time.Hour)
	fill(&c.Bounds, Bounds{})
	fill(&c.Bounds.Documents, 10_000)
	fill(&c.Bounds.Entries, 1_000_000)
	fill(&c.Bounds.Depth, 256)
	fill(&c.Window, 8<<20)
	fill(&c.BatchEntities, 999)
	fill(&c.BatchBytes, 1<<20)
	return c
}

func fill[T comparable](at *T, value T) {
	var zero T
	if *at == zero {
		*at = value
	}
}

// Validate returns everything that is wrong with c, each error starting with
// the key that it is about.
func (c Config) Validate() []error {
	errs := c.Config.Validate()
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	c = c.filled()
	if _, ok := profiles[c.Dialect]; !ok {
		fail("dialect: %q is none: want auto, complete, archived, paged, window, fh-00 to fh-05, pace, atomhopper, ict4h or kurrent", c.Dialect)
	}
	if _, ok := orders[c.EntryOrder]; !ok {
		fail("entry_order: %q is none: want auto, newest_first, oldest_first or updated", c.EntryOrder)
	}
	switch p := c.profile(); {
	case c.Mode != "poll" && c.Mode != "tail":
		fail("mode: %q is none: want poll or tail", c.Mode)
	case p.tail && p.newer == "":
		fail("newer_rel: is missing: mode tail needs the relation that leads to the next newer page, such as previous or next-archive")
	case !p.tail && c.NewerRel != "" && p.forced == Window:
		fail("newer_rel: has no meaning where no links are followed (dialect: window)")
	}
	if c.TombstoneUnknown != "ignore" && c.TombstoneUnknown != "publish" {
		fail("tombstone_unknown: %q is none: want ignore or publish", c.TombstoneUnknown)
	}
	if c.CompactBackfill {
		fail("compact_backfill: is not in this version: the whole history is published, in order")
	}
	if c.MaxDeleteRatio < 0 || c.MaxDeleteRatio > 1 {
		fail("max_delete_ratio: must be between 0 and 1")
	}
	for _, n := range []struct {
		key   string
		value int64
	}{
		{"full_every", int64(c.FullEvery)},
		{"recheck_archives.every", int64(c.RecheckArchives.Every)},
		{"recheck_archives.newest", int64(c.RecheckArchives.Newest)},
		{"trust_ahead", int64(c.TrustAhead)},
		{"bounds.documents", int64(c.Bounds.Documents)},
		{"bounds.entries", int64(c.Bounds.Entries)},
		{"bounds.depth", int64(c.Bounds.Depth)},
		{"window", int64(c.Window)},
	} {
		if n.value < 0 {
			fail("%s: must not be negative", n.key)
		}
	}
	return errs
}

// profile is what a configured dialect stands for.
type profile struct {
	forced Dialect // "" finds out
	// older and newer are relations; "" takes what the dialect that was found
	// has.
	older, newer string
	order        Order
	tail         bool
}

var profiles = map[string]profile{
	"auto":       {},
	"complete":   {forced: Complete},
	"archived":   {forced: Archived},
	"paged":      {forced: Paged},
	"window":     {forced: Window},
	"fh-00":      {forced: Snapshots},
	"fh-01":      {forced: ArchivedElement},
	"fh-02":      {forced: ArchivedElement},
	"fh-03":      {forced: ArchivedElement},
	"fh-04":      {forced: ArchivedElement},
	"fh-05":      {forced: Archived, older: "previous"},
	"pace":       {forced: Snapshots},
	"atomhopper": {forced: Archived, older: "next-archive", newer: "prev-archive"},
	"ict4h":      {forced: Archived, order: OldestFirst, newer: "next-archive"},
	"kurrent":    {forced: Paged, older: "next", newer: "previous", tail: true},
}

var orders = map[string]Order{"auto": NoOrder, "newest_first": NewestFirst, "oldest_first": OldestFirst, "updated": Mixed}

func (c Config) profile() profile {
	p := profiles[c.Dialect]
	if c.OlderRel != "" {
		p.older = c.OlderRel
	}
	if c.NewerRel != "" {
		p.newer = c.NewerRel
	}
	if o := orders[c.EntryOrder]; o != NoOrder {
		p.order = o
	}
	p.tail = p.tail || c.Mode == "tail"
	return p
}
