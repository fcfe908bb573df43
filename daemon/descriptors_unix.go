//go:build unix

package daemon

import "syscall"

// openFiles returns how many files the process may have open, which Go has raised
// as far as the system lets it; 0 if there is no limit.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur)
}
