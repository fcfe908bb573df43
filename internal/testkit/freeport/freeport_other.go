//go:build !linux

package freeport

import (
	"context"
	"net"
)

// Reserve returns a port of 127.0.0.1 on which nobody listens. On Linux it is reserved, too.
func Reserve() (int, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
