package snapshot

import (
	"fmt"
	"runtime/debug"

	"github.com/feedbridge/feedbridge/feed"
)

// RecoverPanic is deferred by functions that run in a goroutine of their own, where a panic
// would end the process. It turns a panic into the error that they return, which matches
// [feed.ErrPermanent] and has the stack.
func RecoverPanic(err *error) {
	if v := recover(); v != nil {
		// The innermost error is the same each time, so it is logged once.
		cause := fmt.Errorf("panic: %v; this is a bug of feedbridge", v)
		*err = feed.Permanent(fmt.Errorf("%w: report it with the stack: %s", cause, debug.Stack()))
	}
}
