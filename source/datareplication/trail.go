package datareplication

// trail detects links that form a loop, in constant memory and after at most about three
// times as many steps as there are pages (Brent's algorithm: Mark is moved to the current
// page at every power of two).
type trail struct {
	Mark  string `json:"mark,omitempty"`
	Steps int    `json:"steps,omitempty"`
	Power int    `json:"power,omitempty"`
}

// closesLoop counts a step to a page and reports whether it closes a loop.
func (t *trail) closesLoop(page string) bool {
	if page == t.Mark {
		return true
	}
	if t.Steps++; t.Steps > t.Power {
		t.Mark, t.Steps, t.Power = page, 0, max(2*t.Power, 1)
	}
	return false
}
