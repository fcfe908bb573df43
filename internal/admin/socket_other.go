//go:build !unix

package admin

import (
	"context"
	"net"
)

// listenPrivately listens on a socket. Its rights are those of its directory.
func listenPrivately(path string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(context.Background(), "unix", path)
}
