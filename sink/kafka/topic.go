package kafka

// Topic says where in the cluster a feed goes, and how.
type Topic struct {
	// Feed is the name of the feed; it goes into the Feedbridge-Feed header.
	Feed string
	// Name is the topic's.
	Name string
	// Key says what an entity's key is. Default: none.
	Key Key
	// Window is how many of the newest IDs of the topic are held in memory to
	// tell duplicates by, besides all that have marks. Default 100,000.
	Window int
	Options
}

// Options says what a topic is like and how entities lie in it. Its yaml tags
// are the keys of the configuration file. Start from [DefaultOptions].
type Options struct {
	// Create says whether to create the topic, and the one for checkpoints, when
	// it is missing. Default true. An existing topic is never changed.
	Create bool `yaml:"create"`
	// Partitions, Replication and Config are given to a topic that is created.
	// Defaults: 1; the cluster's; and retention.ms=-1, for the topic is to hold
	// all of the feed. Each of Config is "name=value".
	Partitions  int      `yaml:"partitions"`
	Replication int      `yaml:"replication"`
	Config      []string `yaml:"config"`
	// Shared says that several feeds write into the topic, each with this set.
	Shared bool `yaml:"shared"`
	// Partition is where entities without a key go.
	Partition int `yaml:"partition"`
	// Delete says what a DELETE becomes. Default message.
	Delete Delete `yaml:"delete"`
	// MissingKey says what to do with an entity that has no key though Key
	// says where to find one. Default stop.
	MissingKey MissingKey `yaml:"missing_key"`
}

// DefaultOptions returns Options with every default set.
func DefaultOptions() Options {
	return Options{Create: true, Partitions: 1, Delete: DeleteMessage, MissingKey: KeyStop}
}

// Delete is what an entity that deletes becomes.
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

// UnmarshalText returns an error for an invalid value.
func (d *Delete) UnmarshalText(text []byte) error { return unmarshalEnum(d, text) }

// MissingKey is what to do with an entity that has no key.
type MissingKey string

const (
	// KeyStop publishes nothing from the entity's batch on, until a person
	// decides.
	KeyStop MissingKey = "stop"
	// KeyNull publishes it without a key, on the partition for such.
	KeyNull MissingKey = "null"
)

// Values returns the valid values.
func (MissingKey) Values() []string { return []string{string(KeyStop), string(KeyNull)} }

// UnmarshalText returns an error for an invalid value.
func (m *MissingKey) UnmarshalText(text []byte) error { return unmarshalEnum(m, text) }
