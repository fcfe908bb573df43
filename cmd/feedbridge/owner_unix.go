//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a new file the owner and the group of an old one.
func keepOwner(file *os.File, old fs.FileInfo) error {
	was, known := old.Sys().(*syscall.Stat_t)
	info, err := file.Stat()
	if err != nil || !known {
		return err
	}
	if is, ok := info.Sys().(*syscall.Stat_t); ok && is.Uid == was.Uid && is.Gid == was.Gid {
		return nil
	}
	if err := file.Chown(int(was.Uid), int(was.Gid)); err != nil {
		return fmt.Errorf("the file belongs to the user %d and the group %d; run the command as that user: %w", was.Uid, was.Gid, err)
	}
	return nil
}
