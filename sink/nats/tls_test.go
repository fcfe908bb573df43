package nats_test

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/testkit/tlstest"
	"github.com/feedbridge/feedbridge/sink/nats"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	serverConfig, ca, cert, key := tlstest.Mutual(t)
	for name, first := range map[string]bool{"after the greeting": false, "before the greeting": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := runServer(t, &server.Options{
				JetStream: true, TLS: true, TLSVerify: true, TLSHandshakeFirst: first, TLSTimeout: 5,
				TLSConfig: serverConfig.Clone(),
			})
			config := nats.Config{URL: s.ClientURL(), TLS: nats.TLS{First: first, ClientFiles: credential.ClientFiles{CAFile: ca, CertFile: cert, KeyFile: key}}}
			if err := connect(t, config).Check(t.Context()); err != nil {
				t.Error(err)
			}
			config.TLS.CAFile = ""
			err := connect(t, config).Check(t.Context())
			wantError(t, err, true, nil, "the certificate of NATS at", "is not trusted: x509: ", "set tls.ca_file")
		})
	}
}
