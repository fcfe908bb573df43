// Package must has the two checks that most tests make.
package must

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// test is the part of [testing.TB] that the T of a property has, too.
type test interface {
	Helper()
	Fatal(args ...any)
}

// Succeed ends the test unless err is nil.
func Succeed(t test, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Match fails the test unless got equals want, and reports the difference of what, which may be empty.
// Options are those of [cmp.Diff].
func Match(t testing.TB, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
