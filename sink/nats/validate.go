package nats

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// Validate returns everything that is wrong with c, each error starting with
// the key that it is about. It opens no file; [Connect] does.
func (c Config) Validate() []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	servers, err := c.ServerURLs()
	if err != nil {
		fail("url: %w", err)
	}
	websocket := 0
	for _, u := range servers {
		if u.Scheme == "ws" || u.Scheme == "wss" {
			websocket++
		}
	}
	if websocket != 0 && websocket != len(servers) {
		fail("url: ws:// and wss:// cannot be mixed with other schemes")
	}
	c.validateCredentials(fail)
	if p := c.InboxPrefix; hasWildcardOrSpace(p) || strings.HasPrefix(p, ".") || strings.HasSuffix(p, ".") {
		fail("inbox_prefix: %q is not the start of a subject: want words with dots between them, without wildcards, white space and control characters", p)
	}
	if p := c.APIPrefix; hasWildcardOrSpace(p) || strings.HasPrefix(p, ".") || strings.Contains(p, "..") {
		fail("api_prefix: %q is not the start of a subject: want words with dots between them, without wildcards, white space and control characters", p)
	}
	if c.Timeout < 0 {
		fail("timeout: must be more than zero")
	}
	return errs
}

// validateCredentials calls fail for credentials that exclude each other or are incomplete, and
// for a client certificate without its key.
func (c Config) validateCredentials(fail func(format string, args ...any)) {
	var ways []string
	for _, way := range []struct {
		key string
		set bool
	}{
		{"credentials_file", c.CredentialsFile != ""},
		{"nkey_file", c.NKeyFile != ""},
		{"username", c.Username != ""},
		{"token", c.Token != ""},
	} {
		if way.set {
			ways = append(ways, way.key)
		}
	}
	if len(ways) > 1 {
		fail("%s: exclude each other: keep one", strings.Join(ways, ", "))
	}
	if c.Username == "" && c.Password != "" {
		fail("username: is missing beside the password")
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		fail("tls: cert_file and key_file need each other")
	}
}

// hasWildcardOrSpace reports whether s has a wildcard, white space or a control
// character. A line break in a subject would end the line of the NATS protocol early,
// and the server would read the rest as a command.
func hasWildcardOrSpace(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return r == '*' || r == '>' || unicode.IsSpace(r) || unicode.IsControl(r)
	})
}

// ServerURLs returns the URLs of the servers. Its errors show no user name or
// password.
func (c Config) ServerURLs() ([]*url.URL, error) {
	var servers []*url.URL
	for s := range strings.SplitSeq(c.URL, ",") {
		s = strings.TrimSpace(s)
		if s == "" {
			continue
		}
		if !strings.Contains(s, "://") {
			s = "nats://" + s
		}
		u, err := url.Parse(s)
		if err != nil {
			// The error of url.Parse quotes the URL, which may have a password.
			if parse, ok := errors.AsType[*url.Error](err); ok {
				err = parse.Err
			}
			if strings.Contains(s, "@") {
				return nil, errors.New("one of the URLs cannot be read; are the special characters of its password escaped?")
			}
			return nil, fmt.Errorf("one of the URLs cannot be read: %w", err)
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return nil, fmt.Errorf("%s: the scheme must be nats, tls, ws or wss", redactURL(u))
		}
		if u.Hostname() == "" {
			return nil, fmt.Errorf("%s: has no host", redactURL(u))
		}
		servers = append(servers, u)
	}
	if len(servers) == 0 {
		return nil, errors.New("is missing; want a URL such as nats://127.0.0.1:4222")
	}
	return servers, nil
}

// redactURL returns a URL without user name, password and path.
func redactURL(u *url.URL) string { return u.Scheme + "://" + u.Host }

// maxName is the most bytes of the name of a stream, which the server limits, and of a subject. A subject from the
// URL of others could exceed the longest line of the protocol, after which the server ends the connection of all feeds.
const maxName = 255

// Validate returns everything that is wrong with t, each error starting with
// the key that it is about.
func (t Topic) Validate() []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	for token := range strings.SplitSeq(t.Subject, ".") {
		if token == "" || hasWildcardOrSpace(token) || token[0] == '_' || token[0] == '$' {
			fail("topic: %q is not a subject for entities: want words with dots between them, such as shop.orders, without wildcards and white space, of which none starts with _ or $", t.Subject)
			break
		}
	}
	name := t.Stream.Name
	limit := func(key, name string) {
		if len(name) > maxName {
			fail("%s: has %d bytes; NATS takes %d at most", key, len(name), maxName)
		}
	}
	limit("topic", t.Subject)
	limit("stream.name", name)
	for i, subject := range t.Stream.Subjects {
		limit(fmt.Sprintf("stream.subjects[%d]", i), subject)
		if subject == "" || strings.ContainsFunc(subject, unicode.IsSpace) || strings.HasPrefix(subject, "_") || strings.HasPrefix(subject, "$") ||
			strings.HasPrefix(subject, "*") || strings.HasPrefix(subject, ">") || slices.Contains(strings.Split(subject, "."), "") {
			fail("stream.subjects[%d]: %q: want a subject whose first word has no wildcard and starts with neither _ nor $, such as news.>", i, subject)
		}
	}
	switch {
	case len(t.Stream.Subjects) == 0 || errs != nil:
	case name == "":
		fail("stream.subjects: want stream.name beside it: a stream with the name of one topic is for that only")
	case t.Stream.MaxBytes > 0:
		fail("stream.max_bytes: would delete checkpoints of other topics in a stream for several topics; leave it out, and set max_age")
	default:
		for _, subject := range t.entitySubjects() {
			if !coversSubject(t.Stream.Subjects, subject) {
				fail("stream.subjects: %s is not among them; add it", subject)
			}
		}
	}
	if name != "" && name != streamName(name) {
		fail("stream.name: %q: a stream's name has no dots, wildcards, slashes or white space", name)
	}
	return errs
}
