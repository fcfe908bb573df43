package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/docs"
	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/internal/testkit/sinktest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

func TestNoServerAnswers(t *testing.T) {
	t.Parallel()
	addr := freeAddress(t)
	c := connect(t, nats.Config{URL: "nats://user:pass@" + addr})
	s := c.Sink(orders())
	_, err := s.Resume(t.Context())
	wantError(t, err, false, nil, "no NATS server answers at nats://"+addr, "is it running?")
	wantError(t, c.Check(t.Context()), false, nil, "no NATS server answers at nats://"+addr)

	startServer(t, t.TempDir(), addr)
	eventually(t, "the server is found", func() bool { return c.Check(t.Context()) == nil })
	resumeAndCommit(t, s, 0, 1)
}

func TestConnectEndsWithItsContext(t *testing.T) {
	t.Parallel()
	// A listener that never says a word.
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = nats.Connect(ctx, nats.Config{URL: "nats://" + l.Addr().String(), Timeout: time.Minute}, silent)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that the time is over", err)
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestConnectReportsPermanentErrors(t *testing.T) {
	t.Parallel()
	const url = "nats://127.0.0.1:1"
	user, err := nkeys.CreateUser()
	must.Succeed(t, err)
	seed, err := user.Seed()
	must.Succeed(t, err)
	for name, test := range map[string]struct {
		config nats.Config
		want   string
	}{
		"no URL":                               {nats.Config{}, "url: is missing"},
		"malformed URL":                        {nats.Config{URL: "nats://host:port"}, "url: one of the URLs cannot be read: invalid port"},
		"malformed secret URL":                 {nats.Config{URL: "nats://me:hunter%2@host"}, "are the special characters of its password escaped?"},
		"scheme":                               {nats.Config{URL: "http://me:hunter2@host"}, "url: http://host: the scheme must be nats, tls, ws or wss"},
		"no host":                              {nats.Config{URL: "nats://:4222"}, "has no host"},
		"mixed schemes":                        {nats.Config{URL: "ws://a,nats://b"}, "ws:// and wss:// cannot be mixed"},
		"two ways":                             {nats.Config{URL: url, Token: "hunter2", NKeyFile: "x"}, "nkey_file, token: exclude each other: keep one"},
		"a password without a user":            {nats.Config{URL: url, Password: "hunter2"}, "username: is missing beside the password"},
		"half a certificate":                   {nats.Config{URL: url, TLS: nats.TLS{ClientFiles: credential.ClientFiles{CertFile: "x"}}}, "tls: cert_file and key_file need each other"},
		"inbox":                                {nats.Config{URL: url, InboxPrefix: "a.>"}, `inbox_prefix: "a.>" is not the start of a subject`},
		"prefix":                               {nats.Config{URL: url, APIPrefix: "JS.>"}, `api_prefix: "JS.>" is not the start of a subject`},
		"timeout":                              {nats.Config{URL: url, Timeout: -1}, "timeout: must be more than zero"},
		"no credentials file":                  {nats.Config{URL: url, CredentialsFile: "/not/there.creds"}, "credentials_file: open /not/there.creds: no such file or directory; create the file, or correct its path"},
		"no credentials in it":                 {nats.Config{URL: url, CredentialsFile: writeFile(t, "hunter2")}, "has no user"},
		"a seed in the place of credentials":   {nats.Config{URL: url, CredentialsFile: writeFile(t, "-----BEGIN USER NKEY SEED-----\n"+string(seed)+"\n------END USER NKEY SEED------\n")}, "has no user JWT"},
		"a JWT and a seed without their lines": {nats.Config{URL: url, CredentialsFile: writeFile(t, "a.b.c\n"+string(seed)+"\n")}, "has no user JWT"},
		"no nkey file":                         {nats.Config{URL: url, NKeyFile: "/not/there.nk"}, "nkey_file: open /not/there.nk: no such file or directory; create the file, or correct its path"},
		"no nkey in it":                        {nats.Config{URL: url, NKeyFile: writeFile(t, "hunter2")}, "has no user nkey"},
		"nkey in UTF-16":                       {nats.Config{URL: url, NKeyFile: writeFile(t, "\xff\xfeS\x00")}, "is in UTF-16; write it in UTF-8"},
		"credentials in UTF-16":                {nats.Config{URL: url, CredentialsFile: writeFile(t, "\xff\xfe-\x00")}, "is in UTF-16; write it in UTF-8"},
		"no password file":                     {nats.Config{URL: url, Username: "me", Password: "file:/not/there"}, "password: open /not/there: no such file or directory; create the file, or correct its path"},
		"empty token file":                     {nats.Config{URL: url, Token: credential.Secret("file:" + writeFile(t, "\n"))}, "token: "},
		"no authorities":                       {nats.Config{URL: url, TLS: nats.TLS{ClientFiles: credential.ClientFiles{CAFile: "/not/there.pem"}}}, "tls.ca_file: "},
		"no client certificate":                {nats.Config{URL: url, TLS: nats.TLS{ClientFiles: credential.ClientFiles{CertFile: "/not/a", KeyFile: "/not/b"}}}, "tls.cert_file /not/a with key_file /not/b: "},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			_, err := nats.Connect(t.Context(), test.config, silent)
			wantError(t, err, true, nil, test.want)
			if strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), string(seed)) {
				t.Errorf("error %q shows a secret", err)
			}
		})
	}
}

// Text after a line break in a subject is a command of the NATS protocol. A value from a
// file or an environment variable easily ends with one.
func TestNoControlCharacterReachesASubject(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"hub\n", "hub\r\nPUB a 0\r\n", "\x00hub", "h\x7fub", "h\u0085ub", "h\u00a0ub", "h ub", "h\tub", "h*ub", "hub>"} {
		for key, config := range map[string]nats.Config{
			"api_prefix":   {APIPrefix: bad},
			"inbox_prefix": {InboxPrefix: bad},
		} {
			config.URL = "nats://127.0.0.1:1"
			want := fmt.Sprintf("%s: %q is not ", key, bad)
			if errs := config.Validate(); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) {
				t.Errorf("%s %q: errors %v, want one that starts with %s", key, bad, errs, want)
			}
		}
	}
	good := nats.Config{URL: "nats://127.0.0.1:1", APIPrefix: "js.from-hub.API", InboxPrefix: "_INBOX.überall"}
	if errs := good.Validate(); len(errs) != 0 {
		t.Errorf("errors %v", errs)
	}
}

func TestValidateTopic(t *testing.T) {
	t.Parallel()
	for subject, valid := range map[string]bool{
		"shop.orders": true, "": false, "a..b": false, "a.": false, "a.*": false, "a b": false, "_feedbridge.a": false, "a.$b": false,
	} {
		if errs := (nats.Topic{Subject: subject}).Validate(); (len(errs) == 0) != valid {
			t.Errorf("%q: %v", subject, errs)
		}
	}
	errs := nats.Topic{Subject: "a", Stream: nats.Stream{Name: "a.b"}}.Validate()
	if len(errs) != 1 {
		t.Errorf("errors %v, want 1", errs)
	}
}

func TestProofOfIdentity(t *testing.T) {
	t.Parallel()
	user, err := nkeys.CreateUser()
	must.Succeed(t, err)
	seed, err := user.Seed()
	must.Succeed(t, err)
	public, err := user.PublicKey()
	must.Succeed(t, err)
	for name, test := range map[string]struct {
		server server.Options
		good   nats.Config
		bad    nats.Config
	}{
		"password": {
			server.Options{Username: "me", Password: "right"},
			nats.Config{Username: "me", Password: "right"},
			nats.Config{Username: "me", Password: "hunter2"},
		},
		"password in a file": {
			server.Options{Username: "me", Password: "right"},
			nats.Config{Username: "me", Password: credential.Secret("file:" + writeFile(t, "right\n"))},
			nats.Config{Username: "me", Password: credential.Secret("file:" + writeFile(t, "hunter2"))},
		},
		"token": {
			server.Options{Authorization: "right"},
			nats.Config{Token: "right"},
			nats.Config{},
		},
		"token in a file": {
			server.Options{Authorization: "right"},
			nats.Config{Token: credential.Secret("file:" + writeFile(t, "right\n"))},
			nats.Config{Token: credential.Secret("file:" + writeFile(t, "hunter2\n"))},
		},
		"nkey": {
			server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}},
			nats.Config{NKeyFile: writeFile(t, string(seed))},
			nats.Config{Token: "hunter2"},
		},
		"nkey after a byte order mark": {
			server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}},
			nats.Config{NKeyFile: writeFile(t, "\ufeff"+string(seed)+"\r\n")},
			nats.Config{Token: "hunter2"},
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			test.server.JetStream = true
			s := runServer(t, &test.server)
			test.good.URL, test.bad.URL = s.ClientURL(), s.ClientURL()
			if err := connect(t, test.good).Check(t.Context()); err != nil {
				t.Error(err)
			}
			bad := connect(t, test.bad)
			err := bad.Check(t.Context())
			wantError(t, err, true, nil, "NATS at nats://", "refuses the connection: authorization violation; check the bus's credentials_file")
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %q shows a secret", err)
			}
			_, err = bad.Sink(orders()).Resume(t.Context())
			wantError(t, err, true, nil, "authorization violation")
		})
	}
}

func TestRotatedPasswordIsTakenUp(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "old")
	s := runServer(t, &server.Options{JetStream: true, Username: "me", Password: "new"})
	c := connect(t, nats.Config{URL: s.ClientURL(), Username: "me", Password: credential.Secret("file:" + file)})
	wantError(t, c.Check(t.Context()), true, nil, "refuses the connection: authorization violation")
	must.Succeed(t, os.WriteFile(file, []byte("new\n"), 0o600))
	eventually(t, "the new password is used", func() bool { return c.Check(t.Context()) == nil })
}

func TestJetStreamIsOff(t *testing.T) {
	t.Parallel()
	s := runServer(t, &server.Options{})
	c := connect(t, nats.Config{URL: s.ClientURL()})
	wantError(t, c.Check(t.Context()), false, nil, "JetStream does not answer on NATS at nats://", "start the server with --jetstream")
	_, err := c.Sink(orders()).Resume(t.Context())
	wantError(t, err, false, nil, `topic "shop.orders": JetStream does not answer`)
}

func TestJetStreamIsOffForTheAccount(t *testing.T) {
	t.Parallel()
	account := server.NewAccount("A")
	s := runServer(t, &server.Options{
		JetStream: true, Accounts: []*server.Account{account},
		Users: []*server.User{{Username: "me", Password: "right", Account: account}},
	})
	c := connect(t, nats.Config{URL: s.ClientURL(), Username: "me", Password: "right"})
	wantError(t, c.Check(t.Context()), true, nil, "JetStream is off for this account")
}

func TestUserMayNotPublish(t *testing.T) {
	t.Parallel()
	s := runServer(t, &server.Options{
		JetStream: true,
		Users: []*server.User{{Username: "me", Password: "right", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"$JS.API.>", "_feedbridge.>"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}}},
	})
	c := connect(t, nats.Config{URL: s.ClientURL(), Username: "me", Password: "right"})
	sink := c.Sink(orders())
	resume(t, sink)
	err := sink.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2))
	wantError(t, err, true, nil, `Permissions Violation for Publish to "shop.orders"`, "grant this user the permissions that "+docs.URL+"nats.md#permissions lists")
	// An earlier denial does not change later errors.
	resume(t, sink)
	other := c.Sink(orders())
	resume(t, other)
	if err := other.Commit(t.Context(), nil, sinktest.At(0)); err != nil {
		t.Error(err)
	}
	wantError(t, sink.Commit(t.Context(), nil, sinktest.At(0)), false, checkpoint.ErrConflict)
}

// A permission that another feed of the connection lacks does not explain a conflict.
func TestConflictWhileAnotherFeedLacksAPermission(t *testing.T) {
	t.Parallel()
	s := runServer(t, &server.Options{
		JetStream: true,
		Users: []*server.User{{Username: "me", Password: "right", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"shop.parcels"}},
		}}},
	})
	p := runProxy(t, s.Addr().String())
	c := connect(t, nats.Config{URL: p.url(), Username: "me", Password: "right"})
	sink, other := c.Sink(orders()), c.Sink(orders())
	parcels := c.Sink(nats.Topic{Feed: "parcels", Subject: "shop.parcels", Stream: nats.Stream{Create: true}})
	resume(t, sink)
	resume(t, other)
	resume(t, parcels)
	commit(t, other, 0, 2)
	sink.Hurry() // after a pause it would find the conflict before it sends anything
	err := commitBehind(t, p, sink, "PUB shop.parcels", func() {
		err := parcels.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2))
		wantError(t, err, true, nil, `Permissions Violation for Publish to "shop.parcels"`)
	})
	wantError(t, err, false, checkpoint.ErrConflict)
}

// commitBehind returns the error of a commit that the server receives just behind another request,
// which has some text and which do makes.
func commitBehind(t *testing.T, p *proxy, s *nats.Sink, text string, do func()) error {
	t.Helper()
	p.keepBack()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(do)
	eventually(t, "the request is sent", func() bool { return p.keeps(text) })
	result := make(chan error, 1)
	group.Go(func() { result <- s.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2)) })
	eventually(t, "the commit is sent", func() bool { return p.keeps("PUB _feedbridge.shop.orders") })
	p.release()
	return <-result
}

// A permission that another feed of the connection lacks does not explain an error of a commit.
func TestCommitFailsWhileAnotherFeedLacksAPermission(t *testing.T) {
	t.Parallel()
	for name, denied := range map[string]string{"message": "shop.parcels", "request": "$JS.API.STREAM.INFO.shop_parcels"} {
		parallel.Run(t, name, func(t *testing.T) {
			s := runServer(t, &server.Options{
				JetStream: true,
				Users: []*server.User{{Username: "me", Password: "right", Permissions: &server.Permissions{
					Publish: &server.SubjectPermission{Deny: []string{denied}},
				}}},
			})
			refusal := refusalOf(denied)
			p := runProxy(t, s.Addr().String())
			c := connectLogging(t, nats.Config{URL: p.url(), Username: "me", Password: "right"}, refusal)
			sink := c.Sink(orders())
			parcels := c.Sink(nats.Topic{Feed: "parcels", Subject: "shop.parcels", Stream: nats.Stream{Create: true}})
			resume(t, sink)
			if name == "message" {
				resume(t, parcels)
			}
			must.Succeed(t, admin(t, "nats://me:right@"+s.Addr().String()).DeleteStream(t.Context(), "shop_orders"))
			sink.Hurry() // after a pause it would ask for the stream first
			err := commitBehind(t, p, sink, "PUB "+denied, func() {
				ctx, cancel := refusal.bindContext(t.Context()) // the refused request gets no answer
				defer cancel()
				var err error
				if name == "message" {
					err = parcels.Commit(ctx, sinktest.Entities(0, 2), sinktest.At(2))
				} else {
					_, err = parcels.Resume(ctx)
				}
				wantError(t, err, true, nil, `Permissions Violation for Publish to "`+denied+`"`)
			})
			wantError(t, err, false, nil, "stream shop_orders does not answer")
		})
	}
}

// The connection keeps only its last error. Each feed gets the explanation of its own.
func TestTwoFeedsLackPermissions(t *testing.T) {
	t.Parallel()
	s := runServer(t, &server.Options{
		JetStream: true,
		Users: []*server.User{{Username: "me", Password: "right", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"shop.orders", "shop.parcels"}},
		}}},
	})
	p := runProxy(t, s.Addr().String())
	c := connect(t, nats.Config{URL: p.url(), Username: "me", Password: "right"})
	sink := c.Sink(orders())
	parcels := c.Sink(nats.Topic{Feed: "parcels", Subject: "shop.parcels", Stream: nats.Stream{Create: true}})
	// nats.go reports all refusals but the newest on another goroutine, which may be late.
	eventually(t, "both have their explanation", func() bool {
		resume(t, sink)
		resume(t, parcels)
		var other error
		err := commitBehind(t, p, sink, "PUB shop.parcels", func() {
			other = parcels.Commit(t.Context(), sinktest.Entities(0, 2), sinktest.At(2))
		})
		wantError(t, err, true, nil, `Permissions Violation for Publish to "shop.orders"`)
		return errors.Is(other, feed.ErrPermanent) && strings.Contains(other.Error(), `Permissions Violation for Publish to "shop.parcels"`)
	})
}

func TestInboxPrefix(t *testing.T) {
	t.Parallel()
	s := runServer(t, &server.Options{
		JetStream: true,
		Users: []*server.User{{Username: "me", Password: "right", Permissions: &server.Permissions{
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_me.>"}},
		}}},
	})
	c := connect(t, nats.Config{URL: s.ClientURL(), Username: "me", Password: "right", InboxPrefix: "_INBOX_me"})
	sink := c.Sink(orders())
	continueTo(t, sink, 0, 2)
}

func TestClosedConnection(t *testing.T) {
	t.Parallel()
	server := startServer(t, t.TempDir(), "127.0.0.1:0")
	c := connect(t, nats.Config{URL: server.URL()})
	s := c.Sink(orders())
	resume(t, s)
	c.Close()
	bus.WantClosed(t, s)
}
