package nats_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// operator signs the accounts that a server trusts, as in nsc.
type operator struct {
	t        *testing.T
	key      nkeys.KeyPair
	claims   *jwt.OperatorClaims
	resolver *server.MemAccResolver
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	key, public := newKey(t, nkeys.CreateOperator)
	return &operator{t, key, jwt.NewOperatorClaims(public), &server.MemAccResolver{}}
}

func newKey(t *testing.T, create func() (nkeys.KeyPair, error)) (key nkeys.KeyPair, public string) {
	t.Helper()
	key, err := create()
	must.Succeed(t, err)
	if public, err = key.PublicKey(); err != nil {
		t.Fatal(err)
	}
	return key, public
}

func encode(t *testing.T, claims jwt.Claims, by nkeys.KeyPair) string {
	t.Helper()
	token, err := claims.Encode(by)
	must.Succeed(t, err)
	return token
}

// account makes an account that the servers find.
func (o *operator) account(change func(*jwt.AccountClaims)) nkeys.KeyPair {
	o.t.Helper()
	key, public := newKey(o.t, nkeys.CreateAccount)
	claims := jwt.NewAccountClaims(public)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
	change(claims)
	o.publish(claims)
	return key
}

// limitedAccount is an account with a limit of its storage, which liftLimit lifts.
func (o *operator) limitedAccount(bytes int64) (account nkeys.KeyPair, claims *jwt.AccountClaims) {
	o.t.Helper()
	account = o.account(func(c *jwt.AccountClaims) {
		c.Limits.DiskStorage = bytes
		claims = c
	})
	return account, claims
}

func (o *operator) liftLimit(s *server.Server, claims *jwt.AccountClaims) {
	o.t.Helper()
	claims.Limits.DiskStorage = -1
	o.publish(claims)
	known, err := s.LookupAccount(claims.Subject)
	must.Succeed(o.t, err)
	s.UpdateAccountClaims(known, claims)
}

func (o *operator) publish(claims *jwt.AccountClaims) {
	o.t.Helper()
	must.Succeed(o.t, o.resolver.Store(claims.Subject, encode(o.t, claims, o.key)))
}

// run runs a server that trusts the operator.
func (o *operator) run() *server.Server {
	o.t.Helper()
	system := o.account(func(c *jwt.AccountClaims) { c.Limits.JetStreamLimits = jwt.JetStreamLimits{} })
	public, err := system.PublicKey()
	must.Succeed(o.t, err)
	return runServer(o.t, &server.Options{
		JetStream: true, TrustedOperators: []*jwt.OperatorClaims{o.claims}, AccountResolver: o.resolver, SystemAccount: public,
	})
}

// credentials is the text of a .creds file for a new user of an account.
func credentials(t *testing.T, account nkeys.KeyPair, change func(*jwt.UserClaims)) string {
	t.Helper()
	user, public := newKey(t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(public)
	change(claims)
	seed, err := user.Seed()
	must.Succeed(t, err)
	text, err := jwt.FormatUserConfig(encode(t, claims, account), seed)
	must.Succeed(t, err)
	return string(text)
}

func asIs[Claims any](*Claims) {}

func expired(c *jwt.UserClaims) { c.Expires = time.Now().Add(-time.Hour).Unix() }

func TestCredentialsFile(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	shop := o.account(asIs)
	small := o.account(func(c *jwt.AccountClaims) { c.Limits.JetStreamLimits = jwt.JetStreamLimits{} })
	stranger := newOperator(t).account(asIs)
	s := o.run()
	const refused = "refuses the connection: authorization violation; check the bus's credentials_file"

	for name, test := range map[string]struct {
		credentials string
		want        string
	}{
		"of the account, after a BOM":   {"\ufeff" + credentials(t, shop, asIs), ""},
		"expired":                       {credentials(t, shop, expired), refused},
		"of an unknown account":         {credentials(t, stranger, asIs), refused},
		"of an account with no streams": {credentials(t, small, asIs), "JetStream is off for this account on NATS at " + s.ClientURL()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, nats.Config{URL: s.ClientURL(), CredentialsFile: writeFile(t, test.credentials)})
			snk := c.Sink(orders())
			if test.want == "" {
				must.Succeed(t, c.Check(t.Context()))
				continueTo(t, snk, 0, 3)
				return
			}
			err := c.Check(t.Context())
			wantError(t, err, true, nil, test.want)
			_, err = snk.Resume(t.Context())
			wantError(t, err, true, nil, test.want)
			if _, seed, _ := strings.Cut(test.credentials, "BEGIN USER NKEY SEED"); strings.Contains(err.Error(), strings.Fields(seed)[1]) {
				t.Errorf("error %q shows the seed", err)
			}
		})
	}
}

// Credentials with a short lifetime are renewed by their issuer.
func TestRenewedCredentialsAreTakenUp(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	shop := o.account(asIs)
	s := o.run()
	file := writeFile(t, credentials(t, shop, expired))
	c := connect(t, nats.Config{URL: s.ClientURL(), CredentialsFile: file})
	wantError(t, c.Check(t.Context()), true, nil, "check the bus's credentials_file")
	eventually(t, "it is tried again and again", func() bool {
		v, err := s.Varz(nil)
		return err == nil && v.TotalConnections > 3
	})
	must.Succeed(t, os.WriteFile(file, []byte(credentials(t, shop, asIs)), 0o600))
	eventually(t, "the new credentials are used", func() bool { return c.Check(t.Context()) == nil })
}

func TestCredentialsThatAreRevoked(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	var claims *jwt.AccountClaims
	shop := o.account(func(c *jwt.AccountClaims) { claims = c })
	s := o.run()
	c := connect(t, nats.Config{URL: s.ClientURL(), CredentialsFile: writeFile(t, credentials(t, shop, asIs))})
	resume(t, c.Sink(orders()))

	claims.RevokeAt(jwt.All, time.Now().Add(time.Hour))
	o.publish(claims)
	account, err := s.LookupAccount(claims.Subject)
	must.Succeed(t, err)
	s.UpdateAccountClaims(account, claims)
	wantRefusal(t, c)
}

func TestCredentialsThatExpire(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	shop := o.account(asIs)
	s := o.run()
	soon := credentials(t, shop, func(c *jwt.UserClaims) { c.Expires = time.Now().Add(2 * time.Second).Unix() })
	c := connect(t, nats.Config{URL: s.ClientURL(), CredentialsFile: writeFile(t, soon)})
	wantRefusal(t, c)
}

// wantRefusal waits until the server refuses the credentials of c.
func wantRefusal(t *testing.T, c *nats.Conn) {
	t.Helper()
	var err error
	eventually(t, "the connection is refused", func() bool {
		err = c.Check(t.Context())
		return err != nil && strings.Contains(err.Error(), "refuses the connection")
	})
	wantError(t, err, true, nil, "; check the bus's credentials_file")
}
