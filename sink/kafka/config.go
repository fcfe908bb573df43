package kafka

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/setting"
)

// Config is the configuration of the connection to a Kafka cluster. Its yaml tags are the keys
// of the configuration file. A zero value means the default.
type Config struct {
	// Brokers are the bootstrap brokers, each host:port. The cluster names the others.
	Brokers []string `yaml:"brokers"`
	// ClientID identifies the client in the brokers' logs and quotas. With a dot and
	// <topic>/<feed> behind it, it is a feed's transactional id. Default feedbridge. Every
	// copy of a feed must have the same, or neither fences the other.
	ClientID string `yaml:"client_id" default:"feedbridge"`
	TLS      TLS    `yaml:"tls" doc:"TLS with the brokers."`
	SASL     SASL   `yaml:"sasl" doc:"Authentication by SASL."`
	// Timeout bounds connecting, every request, and the wait for transactions
	// that hold a partition back; a commit as a whole has three times as long.
	// Default 10s. kgo accepts no record timeout below a second.
	Timeout time.Duration `yaml:"timeout" default:"10s" min:"1s" max:"5m"`
	// TransactionTimeout is after how long the cluster aborts the transaction of
	// a copy that died and that no other copy has replaced. Default: six times Timeout, as a
	// commit takes up to three times as long, and at most 15m, which is the default of the
	// cluster's transaction.max.timeout.ms.
	TransactionTimeout time.Duration `yaml:"-"`
	// Compression is that of the messages. Default snappy.
	Compression Compression `yaml:"compression" default:"snappy"`
	// Checkpoints is the compacted topic that has the checkpoints of all feeds.
	// Default feedbridge.checkpoints. Every copy of a feed must have the same.
	Checkpoints string `yaml:"checkpoints" default:"feedbridge.checkpoints"`
}

// withDefaults returns c with a default in place of every zero.
func (c Config) withDefaults() Config {
	setting.Complete(&c)
	c.TransactionTimeout = cmp.Or(c.TransactionTimeout, min(6*c.Timeout, 15*time.Minute))
	return c
}

// TLS has PEM files: a client certificate with its key, read again at every
// handshake, and the authorities to trust in place of the system's, read once
// at the start.
type TLS struct {
	// Enabled turns TLS on. So does each of the other fields.
	Enabled                bool `yaml:"enabled"`
	credential.ClientFiles `yaml:",inline"`
	// ServerName is the host name to verify in the brokers' certificates, in place of the host
	// of each broker.
	ServerName string `yaml:"server_name"`
}

// aclCommand returns the start of a command that grants this user rights.
func (c Config) aclCommand() string {
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal User:%s", c.Brokers[0], cmp.Or(c.SASL.Username, "NAME"))
}

// errTopicRights reports that this user lacks a right to one of some topics.
func (c Config) errTopicRights(err error, topics ...string) error {
	return feed.Permanent(fmt.Errorf("this user lacks a right to topic %s (%w); run '%s --operation Read --operation Write --operation Create --operation DescribeConfigs --topic %s'",
		strings.Join(topics, " or "), err, c.aclCommand(), strings.Join(topics, " --topic ")))
}

// IsEnabled reports whether connections use TLS.
func (t TLS) IsEnabled() bool { return t != TLS{} }

// SASL is the authentication of the client. Files are read again at every connect. For AWS_MSK_IAM
// the credentials are in the variables of the AWS tools.
type SASL struct {
	Mechanism Mechanism `yaml:"mechanism"`
	// Username and Password are for PLAIN and SCRAM.
	Username string            `yaml:"username"`
	Password credential.Secret `yaml:"password"`
	// Token, or OAuth2, is for OAUTHBEARER.
	Token  credential.Secret `yaml:"token"`
	OAuth2 credential.OAuth2 `yaml:"oauth2" doc:"For OAUTHBEARER: tokens from a token endpoint."`
}

// Mechanism is a SASL mechanism; empty for none.
type Mechanism string

// The mechanisms.
const (
	Plain       Mechanism = "PLAIN"
	ScramSHA256 Mechanism = "SCRAM-SHA-256"
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
	OAuthBearer Mechanism = "OAUTHBEARER"
	MSKIAM      Mechanism = "AWS_MSK_IAM"
)

// Values returns the valid values.
func (Mechanism) Values() []string {
	return []string{string(Plain), string(ScramSHA256), string(ScramSHA512), string(OAuthBearer), string(MSKIAM)}
}

// Compression is how messages are compressed on the way and at rest.
type Compression string

// The compressions.
const (
	None   Compression = "none"
	Gzip   Compression = "gzip"
	Snappy Compression = "snappy"
	LZ4    Compression = "lz4"
	Zstd   Compression = "zstd"
)

// Values returns the valid values.
func (Compression) Values() []string {
	return []string{string(None), string(Gzip), string(Snappy), string(LZ4), string(Zstd)}
}
