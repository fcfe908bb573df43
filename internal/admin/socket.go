package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// ListenSocket listens on the Unix socket of the configuration's admin.socket. Only the user
// of the process can connect (mode 0600). A socket that a dead process has left behind is
// replaced. The errors contain their cure and match [feed.ErrPermanent].
func ListenSocket(path string) (net.Listener, error) {
	err := removeStaleSocket(path)
	var l net.Listener
	if err == nil {
		l, err = listenPrivately(path)
	}
	switch {
	case err == nil:
		return l, nil
	case len(path) > longestSocket:
		err = fmt.Errorf("%w; set a path of at most %d bytes", err, longestSocket)
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w; create its directory, or set another path", err)
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w; set a path in a directory that this user may write", err)
	}
	return nil, feed.Permanent(fmt.Errorf("admin.socket: %w", err))
}

// longestSocket is a length of paths, in bytes, that every system allows for a Unix socket.
const longestSocket = 100

// removeStaleSocket removes the socket at path if nobody listens on it. It removes nothing else.
func removeStaleSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket; set another path", path)
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("%s is in use by another program; set another path", path)
	}
	return os.Remove(path)
}
