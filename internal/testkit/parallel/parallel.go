// Package parallel runs subtests that do not wait for each other.
package parallel

import (
	"testing"
	"testing/synctest"
)

// Run runs f as a parallel subtest of t.
func Run(t *testing.T, name string, f func(t *testing.T)) bool {
	t.Helper()
	return t.Run(name, func(t *testing.T) {
		t.Parallel()
		f(t)
	})
}

// RunVirtual runs f as a parallel subtest of t, in virtual time.
func RunVirtual(t *testing.T, name string, f func(t *testing.T)) bool {
	t.Helper()
	return Run(t, name, func(t *testing.T) { synctest.Test(t, f) })
}
