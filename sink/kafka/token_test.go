package kafka_test

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/tlstest"
	"github.com/feedbridge/feedbridge/sink/kafka"
)

// bearer makes a cluster without OAUTHBEARER and AWS_MSK_IAM accept the credentials that right
// accepts, and returns those that it got.
func bearer(c *kfake.Cluster, mechanism string, right func(shown string) bool) (shown func() []string) {
	var mu sync.Mutex
	var all []string
	c.ControlKey(kmsg.SASLHandshake.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.SASLHandshakeRequest)
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		if req.Mechanism != mechanism {
			resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		}
		return resp, nil, true
	})
	c.ControlKey(kmsg.SASLAuthenticate.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.SASLAuthenticateRequest)
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		mu.Lock()
		all = append(all, string(req.SASLAuthBytes))
		mu.Unlock()
		if resp.SASLAuthBytes = []byte("{}"); !right(string(req.SASLAuthBytes)) {
			resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		} else if mechanism == "OAUTHBEARER" {
			resp.SASLAuthBytes = nil
		}
		return resp, nil, true
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func TestTokenFile(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	bearer(c, "OAUTHBEARER", func(shown string) bool { return strings.Contains(shown, "auth=Bearer good\x01") })
	file := writeFile(t, "bad")
	cfg := configFor(c)
	cfg.SASL = kafka.SASL{Mechanism: kafka.OAuthBearer, Token: credential.Secret("file:" + file)}
	conn := connect(t, cfg)
	wantError(t, conn.Check(t.Context()), true, nil, "refuses the credentials")
	must.Succeed(t, os.WriteFile(file, []byte("good\n"), 0o600))
	if err := conn.Check(t.Context()); err != nil {
		t.Error(err)
	}
	cfg.SASL = kafka.SASL{Mechanism: kafka.Plain, Username: "u", Password: "p"}
	wantError(t, connect(t, cfg).Check(t.Context()), true, nil, "check sasl.mechanism")
}

func TestClientCredentials(t *testing.T) {
	t.Parallel()
	var fetched atomic.Int32
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, ok := r.BasicAuth()
		if !ok {
			id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
		}
		if r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "a b" || id != "me" {
			http.Error(w, "what?", http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if secret != "hunter2" {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_client", "error_description": "it is not " + secret})
			return
		}
		fetched.Add(1)
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "good", "token_type": "Bearer", "expires_in": 3600})
	}))
	t.Cleanup(login.Close)
	c := startCluster(t)
	bearer(c, "OAUTHBEARER", func(shown string) bool { return strings.Contains(shown, "auth=Bearer good\x01") })
	cfg := configFor(c)
	cfg.SASL = kafka.SASL{Mechanism: kafka.OAuthBearer, OAuth2: credential.OAuth2{TokenURL: login.URL + "/token", ClientID: "me", ClientSecret: "hunter2", Scopes: []string{"a", "b"}}}
	s := connect(t, cfg).Sink(orders())
	resumeAndCommit(t, s, 0, 2)
	if n := fetched.Load(); n != 1 {
		t.Errorf("%d tokens were fetched for all connections, want 1", n)
	}
	cfg.SASL.OAuth2.ClientSecret = "hunter3"
	err := connect(t, cfg).Check(t.Context())
	wantError(t, err, false, nil, "fetching a token (sasl.oauth2) from "+login.URL+"/token: 401 Unauthorized invalid_client it is not ***", "check token_url, client_id")
	if strings.Contains(err.Error(), "hunter") {
		t.Errorf("the secret shows: %v", err)
	}
}

func TestAWSKeys(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_REGION", "eu-central-1")
	pair, ca, _ := tlstest.Certificate(t)
	c := startCluster(t, kfake.TLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}))
	shown := bearer(c, "AWS_MSK_IAM", func(shown string) bool { return strings.Contains(shown, "AKIAENV") })
	cfg := configFor(c)
	cfg.TLS.CAFile = writeFile(t, ca)
	cfg.SASL = kafka.SASL{Mechanism: kafka.MSKIAM}
	if err := connect(t, cfg).Check(t.Context()); err != nil {
		t.Error(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAOWN")
	wantError(t, connect(t, cfg).Check(t.Context()), true, nil, "refuses the credentials")
	if all := strings.Join(shown(), ""); !strings.Contains(all, "AKIAOWN") || strings.Contains(all, "secret") {
		t.Errorf("the broker was shown %s", all)
	}
}
