package bridge

// Unused reports whether all of the budget is free.
func (b *Budget) Unused() bool {
	all := grant{bytes: b.total, alone: true}
	if !b.TryAcquire(all.bytes) {
		return false
	}
	if !b.alone.TryAcquire(1) {
		b.Release(all.bytes)
		return false
	}
	b.release(all)
	return true
}
