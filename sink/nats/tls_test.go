package nats_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/sink/nats"
)

// certificate makes a certificate for this host that signs itself, and returns
// it with the PEM texts of it and its key.
func certificate(t *testing.T) (pair tls.Certificate, certPEM, keyPEM string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must.Succeed(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	must.Succeed(t, err)
	certPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	keyPEM = string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
	if pair, err = tls.X509KeyPair([]byte(certPEM), []byte(keyPEM)); err != nil {
		t.Fatal(err)
	}
	return pair, certPEM, keyPEM
}

func TestTLS(t *testing.T) {
	t.Parallel()
	serverPair, serverPEM, _ := certificate(t)
	_, clientPEM, clientKey := certificate(t)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM([]byte(clientPEM))
	ca := writeFile(t, serverPEM)
	for name, first := range map[string]bool{"after the greeting": false, "before the greeting": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := runServer(t, &server.Options{
				JetStream: true, TLS: true, TLSVerify: true, TLSHandshakeFirst: first, TLSTimeout: 5,
				TLSConfig: &tls.Config{
					MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{serverPair},
					ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
				},
			})
			config := nats.Config{URL: s.ClientURL(), TLS: nats.TLS{
				CAFile: ca, CertFile: writeFile(t, clientPEM), KeyFile: writeFile(t, clientKey), First: first,
			}}
			if err := connect(t, config).Check(t.Context()); err != nil {
				t.Error(err)
			}
			config.TLS.CAFile = ""
			err := connect(t, config).Check(t.Context())
			wantError(t, err, true, nil, "the certificate of NATS at", "is not trusted: x509: ", "set tls.ca_file")
		})
	}
}
