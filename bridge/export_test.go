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

// Abandon ends the batch of a share and returns its reservation.
func (s *Share) Abandon() {
	taken, _ := s.endBatch()
	s.budget.release(taken)
}
