package bridge

import "sync/atomic"

// hint reports which copies may have committed since the last step.
type hint int32

const (
	hintNone hint = iota
	hintOne       // a copy has committed
	hintAll       // a copy may have committed to any feed, so their reads are spread by the Pacer
)

// pendingHints keeps the hints between two steps. Any goroutine may add one. It must be added before
// the stepper is woken: then the step that follows takes it. The zero value has none.
type pendingHints struct{ strongest atomic.Int32 }

// addHint adds a hint that the copy writer has committed, or that any may have if writer is empty.
func (h *pendingHints) addHint(writer string) {
	if writer == "" {
		h.strongest.Store(int32(hintAll))
	} else {
		h.strongest.CompareAndSwap(int32(hintNone), int32(hintOne))
	}
}

// takeHints returns the strongest hint since the last call.
func (h *pendingHints) takeHints() hint { return hint(h.strongest.Swap(int32(hintNone))) }
