// Package must ends a test at an error that the test does not expect.
package must

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
