package feed

import (
	"fmt"
	"runtime/debug"
)

// PanicError is in the errors of [RecoverPanic]. It is the innermost of them, and the same each time,
// so it is logged once.
type PanicError struct{ Value any }

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v; this is a bug of feedbridge", e.Value)
}

// RecoverPanic is deferred by functions that run in a goroutine of their own, where a panic
// would end the process and all other feeds. It turns a panic into the error that they return,
// which matches [ErrPermanent] and has the stack.
func RecoverPanic(err *error) {
	if v := recover(); v != nil {
		*err = Permanent(fmt.Errorf("%w: report it with the stack: %s", &PanicError{v}, debug.Stack()))
	}
}
