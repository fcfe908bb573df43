package datareplication

import (
	"github.com/feedbridge/feedbridge/internal/readahead"
	"github.com/feedbridge/feedbridge/source"
)

// Kind names this kind of source in checkpoints and in the configuration.
const Kind = "datareplication"

// Config selects a feed and where reading starts.
type Config struct {
	// Config configures the HTTP client.
	source.Config `yaml:",inline"`
	// Start selects the first entity to read when the topic has no checkpoint.
	Start source.Start `yaml:"start"`
	// Gap is the policy for a cursor whose position is no longer in the feed.
	Gap Gap `yaml:"gap"`
	// Memory bounds the memory of pages, besides a buffer of 64 KiB. If it is nil,
	// the limits of Next and Limits.Entity are the only bounds.
	Memory *readahead.Share `yaml:"-"`
	// SearchPages limits the pages that one call of Next searches for the start; 0 for 100.
	SearchPages int `yaml:"-"`
}

// Gap is the policy for a cursor whose position is no longer in the feed.
type Gap string

// The policies for a gap. With each of them a gap counts as a violation.
const (
	// GapHalt stops with an error until a person decides, or until the feed has the
	// position again.
	GapHalt Gap = "halt"
	// GapResume continues with the first entity that was modified at the time of the last
	// published entity, or later. Entities that the topic holds already are left out.
	GapResume Gap = "resume-at-timestamp"
	// GapRestart continues from the oldest entity that is left of the feed. Entities that are
	// among the newest IDs of the topic are left out.
	GapRestart Gap = "restart"
)

// Values returns the valid values.
func (Gap) Values() []string { return []string{string(GapHalt), string(GapResume), string(GapRestart)} }
