package nats_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/internal/testkit/tlstest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// feedbridge is up first, and the server that comes then refuses it.
func TestServerThatComesLaterAndRefuses(t *testing.T) {
	t.Parallel()
	pair, _, _ := tlstest.Certificate(t)
	for name, test := range map[string]struct {
		server server.Options
		want   string
	}{
		"password":    {server.Options{Username: "me", Password: "right"}, "refuses the connection: authorization violation"},
		"certificate": {server.Options{TLS: true, TLSTimeout: 5, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}}, "is not trusted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := freePort(t)
			c := connect(t, nats.Config{URL: fmt.Sprintf("nats://127.0.0.1:%d", port), Username: "me", Password: "hunter2"})
			wantError(t, c.Check(t.Context()), false, nil, "is it running?")
			test.server.Port, test.server.JetStream = port, true
			runServer(t, &test.server)
			var err error
			eventually(t, "it says "+test.want, func() bool {
				err = c.Check(t.Context())
				return err != nil && strings.Contains(err.Error(), test.want)
			})
			wantError(t, err, true, nil)
		})
	}
}
