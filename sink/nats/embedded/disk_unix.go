//go:build !noembedded && (linux || darwin || freebsd)

package embedded

import "syscall"

// measureDisk returns the size of the disk that has dir, and the space that users may take.
func measureDisk(dir string) (space, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return space{}, err
	}
	block := int64(fs.Bsize) //nolint:unconvert // the type depends on the system
	return space{free: int64(fs.Bavail) * block, size: int64(fs.Blocks) * block}, nil
}
