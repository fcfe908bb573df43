package kafka_test

import (
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

func texts(errs []error) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

func TestConfigIsWrong(t *testing.T) {
	t.Parallel()
	one := []string{"127.0.0.1:9092"}
	for name, test := range map[string]struct {
		cfg  kafka.Config
		want []string
	}{
		"fine":       {kafka.Config{Brokers: []string{"a:1", "[::1]:9092", "b.example.com:65535"}}, nil},
		"no brokers": {kafka.Config{}, []string{"brokers: are missing; want a list such as [127.0.0.1:9092]"}},
		"brokers": {kafka.Config{Brokers: []string{"kafka://a:1", "a", "u:secret@a:1", "a:1,b:1", ":9092", "a:x", "::1"}}, []string{
			`brokers[0]: "kafka://a:1": want host:port without a scheme: a:1 (TLS is turned on under tls, not by kafka://)`,
			`brokers[1]: "a": has no port; want host:port, such as a:9092`,
			`brokers[2]: want host:port; credentials belong under sasl`,
			`brokers[3]: "a:1,b:1": want host:port, such as 127.0.0.1:9092, one in each item of the list`,
			`brokers[4]: ":9092": want host:port, such as 127.0.0.1:9092, one in each item of the list`,
			`brokers[5]: "a:x": want host:port, such as 127.0.0.1:9092, one in each item of the list`,
			`brokers[6]: "::1": has no port; want host:port, such as [::1]:9092`,
		}},
		"several at once": {kafka.Config{
			Brokers: one, Checkpoints: "a b",
			TLS: kafka.TLS{ClientFiles: credential.ClientFiles{CertFile: "c"}}, ClientID: strings.Repeat("c", 257),
		}, []string{
			"client_id: has more than 256 bytes",
			"tls: cert_file and key_file need each other",
			`checkpoints: "a b" is not the name of a topic: want at most 249 letters, digits, dots, underscores and hyphens, and no __ at the beginning`,
		}},
		"a password without a mechanism": {kafka.Config{Brokers: one, SASL: kafka.SASL{Password: "x"}}, []string{
			"sasl.mechanism: is missing beside password; want PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512",
		}},
		"a token for a password": {kafka.Config{Brokers: one, SASL: kafka.SASL{Mechanism: kafka.Plain, Token: "t"}}, []string{
			"sasl.username: is missing for PLAIN",
			"sasl.password: is missing for PLAIN",
			"sasl.token: is for OAUTHBEARER, not for PLAIN",
		}},
		"no token": {kafka.Config{Brokers: one, SASL: kafka.SASL{Mechanism: kafka.OAuthBearer}}, []string{
			"sasl.token, sasl.oauth2: want exactly one of them",
		}},
		"half of a grant": {kafka.Config{Brokers: one, SASL: kafka.SASL{Mechanism: kafka.OAuthBearer, OAuth2: credential.OAuth2{TokenURL: "login"}}}, []string{
			"sasl.oauth2.token_url: want a URL such as https://login.example.com/oauth2/token",
			"sasl.oauth2.client_id: is missing",
			"sasl.oauth2.client_secret: is missing",
		}},
		"AWS without TLS": {kafka.Config{Brokers: one, SASL: kafka.SASL{Mechanism: kafka.MSKIAM}}, []string{
			"tls.enabled: must be true, for AWS_MSK_IAM is spoken over TLS only",
		}},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			must.Match(t, "errors", test.want, texts(test.cfg.Validate()))
		})
	}
}

func TestTopicIsWrong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*kafka.Topic)
		want   []string
	}{
		"fine": {func(*kafka.Topic) {}, nil},
		"zero": {func(t *kafka.Topic) { t.Options = kafka.Options{} }, nil},
		"several at once": {func(t *kafka.Topic) {
			t.Name, t.Key, t.Partitions, t.Replication, t.Partition = "a/b", "id", -1, -1, -1
			t.Config = []string{"retention.ms"}
		}, []string{
			`topic: "a/b" is not the name of a topic: want at most 249 letters, digits, dots, underscores and hyphens, and no __ at the beginning`,
			`key: "id": want a JSON pointer such as /id, or header:<name>`,
			"kafka.partitions: -1: want 1 to 100000",
			"kafka.replication: -1: want 1 to 100, or 0 for the cluster's default",
			"kafka.partition: -1: a topic of 1 partitions has 0 to 0",
			`kafka.config[0]: "retention.ms": want name=value, such as retention.ms=604800000`,
		}},
		"no name":                {func(t *kafka.Topic) { t.Name = "" }, []string{`topic: "" is not the name of a topic: want at most 249 letters, digits, dots, underscores and hyphens, and no __ at the beginning`}},
		"Kafka's own":            {func(t *kafka.Topic) { t.Name = "__x" }, []string{`topic: "__x" is not the name of a topic: want at most 249 letters, digits, dots, underscores and hyphens, and no __ at the beginning`}},
		"a partition too far":    {func(t *kafka.Topic) { t.Partitions, t.Partition = 3, 3 }, []string{"kafka.partition: 3: a topic of 3 partitions has 0 to 2"}},
		"one that is there":      {func(t *kafka.Topic) { t.Create, t.Partition = false, 3 }, nil},
		"a tombstone has no key": {func(t *kafka.Topic) { t.Delete = kafka.DeleteTombstone }, []string{`kafka.delete: a tombstone needs a key; set one, such as "key: /id", or "delete: message"`}},
		"a tombstone may have none": {
			func(t *kafka.Topic) { t.Key, t.Delete, t.MissingKey = "/id", kafka.DeleteTombstone, kafka.KeyNull },
			[]string{`kafka.missing_key: null and "delete: tombstone" exclude each other: a tombstone needs a key`},
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			topic := orders()
			test.change(&topic)
			must.Match(t, "errors", test.want, texts(topic.Validate()))
		})
	}
}

func TestConfigCannotBeUsed(t *testing.T) {
	t.Parallel()
	empty := writeFile(t, "\n")
	for name, test := range map[string]struct {
		change func(*kafka.Config)
		want   string
	}{
		"authorities":    {func(c *kafka.Config) { c.TLS.CAFile = "/nowhere/ca" }, "tls.ca_file: open /nowhere/ca"},
		"no authorities": {func(c *kafka.Config) { c.TLS.CAFile = empty }, "tls.ca_file: " + empty + " has no certificate in PEM form"},
		"a certificate":  {func(c *kafka.Config) { c.TLS.CertFile, c.TLS.KeyFile = empty, empty }, "tls.cert_file " + empty + " with key_file " + empty},
		"a password": {func(c *kafka.Config) {
			c.SASL = kafka.SASL{Mechanism: kafka.ScramSHA256, Username: "u", Password: credential.Secret("file:" + empty)}
		}, "sasl.password: " + empty + " is empty"},
		"a token": {func(c *kafka.Config) {
			c.SASL = kafka.SASL{Mechanism: kafka.OAuthBearer, Token: "file:/nowhere/token"}
		}, "sasl.token: open /nowhere/token"},
		"an unknown mechanism": {func(c *kafka.Config) { c.SASL.Mechanism = "GSSAPI" }, `sasl.mechanism: "GSSAPI" is unknown`},
		"no AWS keys": {
			func(c *kafka.Config) { c.TLS.Enabled, c.SASL.Mechanism = true, kafka.MSKIAM },
			"sasl.mechanism: AWS_MSK_IAM lacks the environment variable AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
		},
		"a client's secret": {func(c *kafka.Config) {
			c.SASL = kafka.SASL{Mechanism: kafka.OAuthBearer, OAuth2: credential.OAuth2{TokenURL: "http://a/t", ClientID: "i", ClientSecret: "file:/nowhere/secret"}}
		}, "sasl.oauth2.client_secret: open /nowhere/secret"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			cfg := kafka.Config{Brokers: []string{"127.0.0.1:1"}}
			test.change(&cfg)
			_, err := kafka.Connect(t.Context(), cfg, silent)
			wantError(t, err, true, nil, "kafka: "+test.want)
		})
	}
}
