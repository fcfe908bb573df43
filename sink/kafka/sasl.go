package kafka

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/feedbridge/feedbridge/internal/credential"
)

// mechanism returns the SASL mechanism, nil for none. Secrets are read at every connect.
func (c Config) mechanism() (sasl.Mechanism, error) {
	s := c.SASL
	password := func() (string, error) {
		p, err := credential.Read(s.Password, "sasl.password")
		return p.Reveal(), err
	}
	switch s.Mechanism {
	case "":
		return nil, nil
	case Plain:
		_, err := password()
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			p, err := password()
			return plain.Auth{User: s.Username, Pass: p}, err
		}), err
	case ScramSHA256, ScramSHA512:
		_, err := password()
		auth := func(context.Context) (scram.Auth, error) {
			p, err := password()
			return scram.Auth{User: s.Username, Pass: p}, err
		}
		if s.Mechanism == ScramSHA256 {
			return scram.Sha256(auth), err
		}
		return scram.Sha512(auth), err
	case OAuthBearer:
		token, err := c.newTokenSource()
		return oauthMechanism{oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			t, err := token(ctx)
			return oauth.Auth{Token: t.Reveal()}, err
		})}, err
	case MSKIAM:
		_, err := awsCredentials(context.Background())
		return aws.ManagedStreamingIAM(awsCredentials), err
	}
	return nil, fmt.Errorf("sasl.mechanism: %q is unknown", s.Mechanism) // never without credentials by mistake
}

// newTokenSource returns a function that returns a valid token.
func (c Config) newTokenSource() (func(context.Context) (credential.Secret, error), error) {
	if token := c.SASL.Token; token != "" {
		read := func(context.Context) (credential.Secret, error) { return credential.Read(token, "sasl.token") }
		_, err := read(context.Background())
		return read, err
	}
	o := c.SASL.OAuth2
	secret := func() (credential.Secret, error) {
		return credential.Read(o.ClientSecret, "sasl.oauth2.client_secret")
	}
	tokens := credential.NewTokens(o, secret, http.Client{Timeout: c.Timeout}, nil)
	_, err := secret()
	return func(ctx context.Context) (credential.Secret, error) {
		token, err := tokens.Get(ctx)
		if err != nil {
			return "", err
		}
		return token.Value, nil
	}, err
}

// awsCredentials returns the credentials that the variables of the AWS tools have.
func awsCredentials(context.Context) (aws.Auth, error) {
	a := aws.Auth{AccessKey: os.Getenv("AWS_ACCESS_KEY_ID"), SecretKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), SessionToken: os.Getenv("AWS_SESSION_TOKEN")}
	var missing []string
	if a.AccessKey == "" {
		missing = append(missing, "AWS_ACCESS_KEY_ID")
	}
	if a.SecretKey == "" {
		missing = append(missing, "AWS_SECRET_ACCESS_KEY")
	}
	if len(missing) > 0 {
		return a, fmt.Errorf("sasl.mechanism: AWS_MSK_IAM lacks the environment variable %s; instance roles are not used", strings.Join(missing, " and "))
	}
	return a, nil
}

// oauthMechanism answers a refusal of a token as RFC 7628, section 3.2.3, requires. Then the
// broker returns an authentication error; kgo by itself closes the connection.
type oauthMechanism struct{ sasl.Mechanism }

func (p oauthMechanism) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	s, first, err := p.Mechanism.Authenticate(ctx, host)
	return oauthSession{s}, first, err
}

type oauthSession struct{ sasl.Session }

func (s oauthSession) Challenge(answer []byte) (bool, []byte, error) {
	if len(answer) > 0 {
		return false, []byte{1}, nil
	}
	return s.Session.Challenge(answer)
}
