package datareplication

import (
	"github.com/feedbridge/feedbridge/source"
)

// Kind names this kind of source in checkpoints and in the configuration.
const Kind = "datareplication"

// Config says which feed to read and from where.
type Config struct {
	// Config says how to speak to the upstream.
	source.Config `yaml:",inline"`
	// Start is where reading starts when the topic has no checkpoint.
	Start Start `yaml:"start"`
	// Gap says what to do when the place in the cursor is no longer in the
	// feed.
	Gap Gap `yaml:"gap"`
	// BatchEntities and BatchBytes cut batches, so that a sink can commit
	// each in one go. Zero means no limit in number, and 1 MiB.
	BatchEntities int `yaml:"-"`
	BatchBytes    int `yaml:"-"`
	// Memory bounds what the Source holds of pages besides a buffer of 64 KiB. Nil means
	// that only BatchBytes and Limits.Entity do.
	Memory Memory `yaml:"-"`
}
