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
	Start Start `yaml:"start"`
	// Gap is the policy for a cursor whose position is no longer in the feed.
	Gap Gap `yaml:"gap"`
	// Memory bounds the memory of pages, besides a buffer of 64 KiB. If it is nil,
	// the limits of Next and Limits.Entity are the only bounds.
	Memory *readahead.Share `yaml:"-"`
}
