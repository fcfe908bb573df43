package bridge

// Unused reports whether all of the budget is free.
func (b *Budget) Unused() bool {
	if !b.TryAcquire(b.total) {
		return false
	}
	b.Release(b.total)
	return true
}
