package tlstest

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// Mutual returns the configuration of a server that wants a certificate of its clients, and the files of a
// client that has one and trusts the server.
func Mutual(t *testing.T) (server *tls.Config, caFile, certFile, keyFile string) {
	t.Helper()
	serverPair, serverPEM, _ := Certificate(t)
	_, clientPEM, clientKey := Certificate(t)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM([]byte(clientPEM))
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	server = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{serverPair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	}
	return server, write("ca.pem", serverPEM), write("client.pem", clientPEM), write("client.key", clientKey)
}
