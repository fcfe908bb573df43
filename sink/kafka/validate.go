package kafka

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/feedbridge/feedbridge/sink"
)

// Validate returns everything that is wrong with c, each error starting with
// the key that it is about. It opens no file; [Connect] does. The values of enumerations
// are checked where the configuration is read.
func (c Config) Validate() []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if len(c.Brokers) == 0 {
		fail("brokers: are missing; want a list such as [127.0.0.1:9092]")
	}
	for i, b := range c.Brokers {
		if err := checkBroker(b); err != nil {
			fail("brokers[%d]: %w", i, err)
		}
	}
	if len(c.ClientID) > 256 {
		fail("client_id: has more than 256 bytes")
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		fail("tls: cert_file and key_file need each other")
	}
	if c.Checkpoints != "" {
		if err := checkName(c.Checkpoints); err != nil {
			fail("checkpoints: %w", err)
		}
	}
	return append(errs, c.SASL.validate(c.TLS.IsEnabled())...)
}

// checkBroker returns an error unless s is host:port. The error does not repeat an address with
// an @, which may contain credentials.
func checkBroker(s string) error {
	if strings.Contains(s, "@") {
		return errors.New("want host:port; credentials belong under sasl")
	}
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		return fmt.Errorf("%q: want host:port without a scheme: %s (TLS is turned on under tls, not by %s://)", s, rest, scheme)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil && !strings.Contains(s, ",") && !strings.HasSuffix(s, ":") {
		return fmt.Errorf("%q: has no port; want host:port, such as %s", s, net.JoinHostPort(strings.Trim(s, "[]"), "9092"))
	}
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
		return fmt.Errorf("%q: want host:port, such as 127.0.0.1:9092, one in each item of the list", s)
	}
	return nil
}

func (s SASL) validate(tls bool) []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	// Which mechanism each key is for, and whether that needs it, in the order of the struct.
	user := []string{string(Plain), string(ScramSHA256), string(ScramSHA512)}
	for _, k := range []struct {
		key         string
		set, needed bool
		with        []string
	}{
		{"username", s.Username != "", true, user},
		{"password", s.Password != "", true, user},
		{"token", s.Token != "", false, []string{string(OAuthBearer)}},
		{"oauth2", s.OAuth2.IsSet(), false, []string{string(OAuthBearer)}},
	} {
		switch fits := slices.Contains(k.with, string(s.Mechanism)); {
		case fits && k.needed && !k.set:
			fail("sasl.%s: is missing for %s", k.key, s.Mechanism)
		case fits || !k.set:
		case s.Mechanism == "":
			fail("sasl.mechanism: is missing beside %s; want %s", k.key, strings.Join(k.with, " or "))
			return errs
		default:
			fail("sasl.%s: is for %s, not for %s", k.key, strings.Join(k.with, " and "), s.Mechanism)
		}
	}
	switch s.Mechanism {
	case OAuthBearer:
		if (s.Token == "") != s.OAuth2.IsSet() {
			fail("sasl.token, sasl.oauth2: want exactly one of them")
		}
		if s.OAuth2.IsSet() {
			if u, err := url.Parse(s.OAuth2.TokenURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				fail("sasl.oauth2.token_url: want a URL such as https://login.example.com/oauth2/token")
			} else if u.User != nil {
				fail("sasl.oauth2.token_url: credentials belong into client_id and client_secret")
			}
			errs = append(errs, s.OAuth2.Validate("sasl.oauth2")...)
		}
	case MSKIAM:
		if !tls {
			fail("tls.enabled: must be true, for AWS_MSK_IAM is spoken over TLS only")
		}
	}
	return errs
}

// Validate returns everything that is wrong with t, each error starting with
// the key that it is about.
func (t Topic) Validate() []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if err := checkName(t.Name); err != nil {
		fail("topic: %w", err)
	}
	if dead := t.Name + sink.DeadSuffix; t.DeadLetters && checkName(t.Name) == nil && checkName(dead) != nil {
		fail("topic: %q is too long for dead letters: the name of their topic has %d characters more, and %d at most", t.Name, len(sink.DeadSuffix), 249)
	}
	if _, err := ParseKey(string(t.Key)); err != nil {
		fail("key: %w", err)
	}
	if t.Partitions < 0 || t.Partitions > 100_000 {
		fail("kafka.partitions: %d: want 1 to 100000", t.Partitions)
	}
	if t.Replication < 0 || t.Replication > 100 {
		fail("kafka.replication: %d: want 1 to 100, or 0 for the cluster's default", t.Replication)
	}
	if t.Partition < 0 || t.Create && t.Partition >= max(1, t.Partitions) {
		fail("kafka.partition: %d: a topic of %d partitions has 0 to %d", t.Partition, max(1, t.Partitions), max(1, t.Partitions)-1)
	}
	for i, c := range t.Config {
		name, _, ok := strings.Cut(c, "=")
		if !ok || strings.TrimSpace(name) != name || name == "" {
			fail("kafka.config[%d]: %q: want name=value, such as retention.ms=604800000", i, c)
		}
	}
	if t.Delete == DeleteTombstone && t.Key == "" {
		fail("kafka.delete: a tombstone needs a key; set one, such as \"key: /id\", or \"delete: message\"")
	}
	if t.Delete == DeleteTombstone && t.MissingKey == KeyNull {
		fail("kafka.missing_key: null and \"delete: tombstone\" exclude each other: a tombstone needs a key")
	}
	return errs
}

// checkName returns an error unless s is a valid name of a topic.
func checkName(s string) error {
	if s == "." || s == ".." || len(s) > 249 || strings.HasPrefix(s, "__") || !legalName.MatchString(s) {
		return fmt.Errorf("%q is not the name of a topic: want at most 249 letters, digits, dots, underscores and hyphens, and no __ at the beginning", s)
	}
	return nil
}

var legalName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)
