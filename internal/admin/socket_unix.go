//go:build unix

package admin

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
)

// umaskInUse serializes changes of the umask, which belongs to the process.
var umaskInUse sync.Mutex

// listenPrivately listens on a socket that never has rights for other users.
func listenPrivately(path string) (net.Listener, error) {
	umaskInUse.Lock()
	// Files and directories that others create at this moment stay usable by the owner.
	old := syscall.Umask(0o077)
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", path)
	syscall.Umask(old)
	umaskInUse.Unlock()
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
