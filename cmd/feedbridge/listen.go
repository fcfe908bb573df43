package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"
)

// localhost returns the address of a port on the loopback interface.
func localhost(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func listenTCP(ctx context.Context, addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", addr)
}

// addressOrFree returns the local address of a port if it is not in use, and otherwise one with a free port.
func addressOrFree(ctx context.Context, port int) string {
	addr := localhost(port)
	listener, err := listenTCP(ctx, addr)
	if err != nil || listener.Close() != nil {
		return localhost(0)
	}
	return addr
}

// serveUntil serves handler until ctx ends.
func serveUntil(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
