package bridge

// Unused reports whether all of the budget is free.
func (b *Budget) Unused() bool {
	if !b.tryAcquire(b.total) {
		return false
	}
	b.release(b.total)
	return true
}
