package nats

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/message"
	"github.com/feedbridge/feedbridge/sink"
)

// Config has the settings of a connection to a NATS system. Its yaml tags are the keys of the
// configuration file. At most one of CredentialsFile, NKeyFile, Username and Token may be set.
type Config struct {
	// URL is one server or several, separated by commas:
	// nats://127.0.0.1:4222, tls://..., ws://..., wss://...
	URL string `yaml:"url"`
	// CredentialsFile is a .creds file: a user's JWT and nkey seed.
	CredentialsFile string `yaml:"credentials_file"`
	// NKeyFile has an nkey seed.
	NKeyFile string `yaml:"nkey_file"`
	Username string `yaml:"username"`
	// Files of Password and Token are read again at every connect.
	Password credential.Secret `yaml:"password"`
	Token    credential.Secret `yaml:"token"`
	TLS      TLS               `yaml:"tls" doc:"TLS with the NATS servers."`
	// InboxPrefix replaces _INBOX, for accounts that allow only their own.
	InboxPrefix string `yaml:"inbox_prefix"`
	// APIPrefix replaces $JS.API: $JS.DOMAIN.API over a leaf node that has no JetStream or another
	// domain, and otherwise the prefix under which the account imports the JetStream of another one.
	APIPrefix string `yaml:"api_prefix"`
	// Timeout bounds connecting and every request to the bus but a commit's
	// acknowledgement, which has three times as long. Default 10s.
	Timeout time.Duration `yaml:"timeout" default:"10s"`

	// FullCure is what to do when the streams of the account have no more room. Default: raise
	// the limits. The embedded server sets the limits itself.
	FullCure string `yaml:"-"`
}

// apiPrefix returns the prefix of the subjects of JetStream requests, with its last dot.
func (c Config) apiPrefix() string {
	return strings.TrimSuffix(cmp.Or(c.APIPrefix, jetstream.DefaultAPIPrefix), ".") + "."
}

// TLS has PEM files: a client certificate with its key, read again at every
// handshake, and the authorities to trust in place of the system's, read once
// at the start.
type TLS struct {
	credential.ClientFiles `yaml:",inline"`
	// First starts TLS before the server's greeting, as servers with
	// handshake_first want it.
	First bool `yaml:"first"`
}

// Stream describes the stream that stores a topic.
type Stream struct {
	// Name is the stream's name. Default: the topic, with every character
	// that a stream's name may not have replaced by _.
	Name string `yaml:"name"`
	// Create reports whether a missing stream is created. Default
	// true. An existing stream is never changed.
	Create bool `yaml:"create" default:"true"`
	// Subjects are the subjects of a stream that is created for several topics, such as news.>.
	// They include that of the topic. It has the checkpoints of these topics too. Default: the topic
	// only.
	Subjects []string `yaml:"subjects"`
	// Replicas, MaxAge and MaxBytes are given to a stream that is created.
	// Defaults: 1, and no limits. At a limit the oldest messages make room for
	// new ones; the checkpoint stays.
	Replicas int           `yaml:"replicas" default:"1" min:"1" max:"5"`
	MaxAge   time.Duration `yaml:"max_age" min:"0s"`
	MaxBytes int64         `yaml:"max_bytes" min:"0"`
}

// Topic describes the subject and the stream that a feed is published to.
type Topic struct {
	// Feed is the name of the feed; it goes into the Feedbridge-Feed header.
	Feed string `yaml:"-"`
	// Subject is the subject of every entity. It has no wildcards and no
	// token that starts with an underscore or a dollar sign. Its checkpoint
	// has the subject _feedbridge.<subject>.
	Subject string `yaml:"topic"`
	// Stream is the stream that stores the topic.
	Stream Stream `yaml:"stream"`
	// DeadLetters reports whether the stream has to have the subject for dead letters, which
	// is Subject with [sink.DeadSuffix].
	DeadLetters bool `yaml:"-"`
	// Events makes the messages CloudEvents. Nil if they are none.
	Events *message.Events `yaml:"-"`
	// Window is the number of the newest IDs of the topic that are held in memory to
	// detect duplicates, besides all IDs with marks. Default 100,000.
	Window int `yaml:"-"`
}

// bucketPrefix begins the names of the buckets of fleets.
const bucketPrefix = "feedbridge-fleet-"

// checkpointPrefix precedes a topic's subject in the subject of its checkpoint.
const checkpointPrefix = "_feedbridge."

// StreamName returns the name of the topic's stream.
func (t Topic) StreamName() string { return cmp.Or(t.Stream.Name, streamName(t.Subject)) }

// streamName returns subject with every character that the name of a stream may not have
// replaced by _.
func streamName(subject string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`.*>/\`, r) || unicode.IsSpace(r) || unicode.IsControl(r) {
			return '_'
		}
		return r
	}, subject)
}

// checkpointSubject returns the subject of the topic's checkpoint.
func (t Topic) checkpointSubject() string { return checkpointPrefix + t.Subject }

// deadSubject returns the subject of the topic's dead letters.
func (t Topic) deadSubject() string { return t.Subject + sink.DeadSuffix }

// entitySubjects returns the subjects of the topic's entities: its own, and that of its dead
// letters if they are configured.
func (t Topic) entitySubjects() []string {
	if t.DeadLetters {
		return []string{t.Subject, t.deadSubject()}
	}
	return []string{t.Subject}
}

// subjects returns the subjects of the topic's entities and of its checkpoint.
func (t Topic) subjects() []string { return append(t.entitySubjects(), t.checkpointSubject()) }

// createdSubjects returns the subjects of a stream that is created for the topic.
func (t Topic) createdSubjects() []string {
	if len(t.Stream.Subjects) == 0 {
		return t.subjects()
	}
	all := slices.Clone(t.Stream.Subjects)
	for _, subject := range t.Stream.Subjects {
		all = append(all, checkpointPrefix+subject)
	}
	return all
}

// ownsAll reports whether all subjects of a stream are the topic's. Its stream keeps the subject
// of dead letters when they are no longer configured.
func (t Topic) ownsAll(subjects []string) bool {
	own := []string{t.Subject, t.deadSubject(), t.checkpointSubject()}
	return !slices.ContainsFunc(subjects, func(subject string) bool { return !slices.Contains(own, subject) })
}
