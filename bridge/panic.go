package bridge

import (
	"fmt"
	"runtime/debug"

	"github.com/feedbridge/feedbridge/feed"
)

// PanicError is a panic of a source or a sink. It halts the feed and no other. It
// matches [feed.ErrPermanent].
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v; this is a bug of feedbridge: report it with the stack, which is in the log", e.Value)
}

// recoverPanic is deferred by functions that call a source or a sink. It turns a
// panic into the error that they return.
func recoverPanic(err *error) {
	if v := recover(); v != nil {
		*err = feed.Permanent(&PanicError{v, debug.Stack()})
	}
}
