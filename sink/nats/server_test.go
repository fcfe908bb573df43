package nats_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/feedbridge/feedbridge/internal/testkit/freeport"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// runServer runs a server that is configured otherwise than the embedded one.
func runServer(t testing.TB, opts *server.Options) *server.Server {
	t.Helper()
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	if opts.StoreDir == "" {
		opts.StoreDir = t.TempDir()
	}
	opts.Host, opts.NoSigs, opts.NoLog = "127.0.0.1", true, true
	s, err := server.NewServer(opts)
	must.Succeed(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	return s
}

// runCluster runs three servers and returns them with the URLs of all.
func runCluster(t testing.TB) (servers []*server.Server, urls string) {
	t.Helper()
	var ports []int
	var routes, clients []string
	for range 3 {
		port := freePort(t)
		ports = append(ports, port)
		routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", port))
	}
	for i, port := range ports {
		s := runServer(t, &server.Options{
			ServerName: "n" + strconv.Itoa(i),
			JetStream:  true,
			Cluster:    server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port},
			Routes:     server.RoutesFromStr(strings.Join(routes, ",")),
		})
		servers = append(servers, s)
		clients = append(clients, s.ClientURL())
	}
	return servers, strings.Join(clients, ",")
}

// freePort returns a port that is reserved, also while its server is stopped.
func freePort(t testing.TB) int {
	t.Helper()
	port, err := freeport.Reserve()
	must.Succeed(t, err)
	return port
}

// freeAddress returns an address for a server that is stopped for a time.
func freeAddress(t testing.TB) string { return fmt.Sprintf("127.0.0.1:%d", freePort(t)) }
