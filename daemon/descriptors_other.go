//go:build !unix

package daemon

// openFiles returns how many files the process may have open; 0 if there is no
// limit.
func openFiles() uint64 { return 0 }
