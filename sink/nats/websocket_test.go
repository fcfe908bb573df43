package nats_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/tlstest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

func TestWebSocket(t *testing.T) {
	t.Parallel()
	pair, pem, _ := tlstest.Certificate(t)
	ca := writeFile(t, pem)
	for scheme, test := range map[string]struct {
		server server.WebsocketOpts
		ca     string
	}{
		"ws://":  {server.WebsocketOpts{NoTLS: true}, ""},
		"wss://": {server.WebsocketOpts{TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}}, ca},
	} {
		t.Run(strings.TrimSuffix(scheme, "://"), func(t *testing.T) {
			t.Parallel()
			test.server.Host, test.server.Port = "127.0.0.1", server.RANDOM_PORT
			s := runServer(t, &server.Options{JetStream: true, Websocket: test.server, Username: "me", Password: "right"})
			url := s.WebsocketURL()
			if !strings.HasPrefix(url, scheme) {
				t.Fatalf("the server listens at %s", url)
			}
			config := nats.Config{URL: url, Username: "me", Password: "right", TLS: nats.TLS{ClientFiles: credential.ClientFiles{CAFile: test.ca}}}
			c := connect(t, config)
			must.Succeed(t, c.Check(t.Context()))
			snk := c.Sink(orders())
			continueTo(t, snk, 0, 3)

			if config.TLS.CAFile = ""; test.ca != "" {
				wantError(t, connect(t, config).Check(t.Context()), true, nil, "the certificate of NATS at "+url+" is not trusted", "set tls.ca_file")
			}
		})
	}
}

func TestNoWebSocketAnswers(t *testing.T) {
	t.Parallel()
	s := runServer(t, &server.Options{JetStream: true})
	url := strings.Replace(s.ClientURL(), "nats://", "ws://", 1)
	wantError(t, connect(t, nats.Config{URL: url}).Check(t.Context()), false, nil, "no NATS server answers at "+url)
}
