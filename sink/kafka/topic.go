package kafka

import (
	"slices"
	"strings"

	"github.com/feedbridge/feedbridge/internal/setting"
	"github.com/feedbridge/feedbridge/message"
)

// Topic is the topic that a feed is published to, with its options.
type Topic struct {
	// Feed is the name of the feed; it goes into the Feedbridge-Feed header.
	Feed string
	// Name is the topic's.
	Name string
	// Key is the location of an entity's key. Default: no key.
	Key Key
	// Window is the number of the topic's newest IDs that are held in memory to detect
	// duplicates, besides all that have marks. Default 100,000.
	Window int
	// DeadLetters reports whether there is a topic for dead letters, whose name is Name with
	// [sink.DeadSuffix].
	DeadLetters bool
	// Events makes the messages CloudEvents. Nil if they are none.
	Events *message.Events
	Options
}

// Options are the properties of a topic, and of the messages in it. Its yaml tags are the keys
// of the configuration file. Start from [DefaultOptions].
type Options struct {
	// Create allows to create the topic, and the one for checkpoints, when it is missing.
	// Default true. An existing topic is never changed.
	Create bool `yaml:"create" default:"true"`
	// Partitions, Replication and Config are given to a topic that is created.
	// Defaults: 1; the cluster's; and retention.ms=-1, for the topic is to hold
	// all of the feed. Each of Config is "name=value".
	Partitions  int      `yaml:"partitions" default:"1"`
	Replication int      `yaml:"replication"`
	Config      []string `yaml:"config"`
	// Shared allows several feeds to write to the topic. All of them must set it.
	Shared bool `yaml:"shared"`
	// Partition is the partition of entities without a key.
	Partition int `yaml:"partition"`
	// Delete is the form of the message for a DELETE. Default message.
	Delete Delete `yaml:"delete" default:"message"`
	// MissingKey is the action for an entity without a key when Key is set. Default stop.
	MissingKey MissingKey `yaml:"missing_key" default:"stop"`
}

// Settings returns the settings with which the topic is created, each "name=value". The last of a name counts.
func (o Options) Settings() []string { return append([]string{"retention.ms=-1"}, o.Config...) }

// DeadLetterSettings returns the settings with which the topic for dead letters is created: those of the topic,
// without compaction, which needs keys.
func (o Options) DeadLetterSettings() []string {
	return slices.DeleteFunc(o.Settings(), func(kv string) bool { return strings.HasPrefix(kv, "cleanup.policy=") })
}

// DefaultOptions returns Options with every default set.
func DefaultOptions() Options { return setting.Defaults[Options]() }

// Delete is the form of the message for an entity that deletes.
type Delete string

const (
	// DeleteMessage: a message like any other.
	DeleteMessage Delete = "message"
	// DeleteTombstone: a null value under the entity's key, with the entity's headers,
	// by which a compacted topic forgets the key, and some time later the tombstone
	// and its headers.
	DeleteTombstone Delete = "tombstone"
)

// Values returns the valid values.
func (Delete) Values() []string { return []string{string(DeleteMessage), string(DeleteTombstone)} }

// MissingKey is the action for an entity without a key.
type MissingKey string

const (
	// KeyStop publishes nothing of the entity's batch and after it, until a person decides.
	KeyStop MissingKey = "stop"
	// KeyNull publishes it without a key, on the partition for such.
	KeyNull MissingKey = "null"
	// KeyDeadLetter publishes it to the dead-letter topic.
	KeyDeadLetter MissingKey = "dead-letter"
)

// Values returns the valid values.
func (MissingKey) Values() []string {
	return []string{string(KeyStop), string(KeyNull), string(KeyDeadLetter)}
}
