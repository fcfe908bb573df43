//go:build chaos && linux

package chaos

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// row is the result of a fault on one bus.
type row struct {
	tried, injected int
	defects
	behind int // feeds that did not catch up
	cured  int // feeds that halted and needed the command that their error names
	stall  time.Duration
}

// table counts faults and defects of all scenarios of one bus.
type table struct {
	mu      sync.Mutex
	rows    map[string]*row // by fault
	skipped map[string]string
	// messages and dead count those that were compared and found equal.
	messages, dead int
	reached        func() // is called when there are most faults
	most           int    // 0 for no limit
}

func newTable() *table {
	return &table{rows: map[string]*row{}, skipped: map[string]string{}}
}

// update changes the row of a fault.
func (t *table) update(fault string, change func(*row)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[fault]
	if r == nil {
		r = &row{}
		t.rows[fault] = r
	}
	change(r)
}

// limit has reached called when so many faults are counted.
func (t *table) limit(most int, reached func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.most, t.reached = most, reached
}

// injected counts a fault.
func (t *table) injected(fault string) {
	t.update(fault, func(r *row) { r.injected++ })
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, r := range t.rows {
		n += r.injected
	}
	if n == t.most {
		t.reached()
	}
}

// equal counts messages of a topic, and its dead letters, that were compared and found equal.
func (t *table) equal(messages, dead int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.messages += messages
	t.dead += dead
}

// skip notes why a fault cannot be injected.
func (t *table) skip(fault, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.skipped[fault] = why
}

// print writes the table as Markdown, with the faults in the given order.
func (t *table) print(w io.Writer, names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(w, "| Fault | Injected | Lost | Repeated | Out of order | Not caught up | Cured by command | Longest stall |")
	fmt.Fprintln(w, "|---|--:|--:|--:|--:|--:|--:|--:|")
	var sum row
	for _, name := range names {
		r := t.rows[name]
		if r == nil {
			if why, ok := t.skipped[name]; ok {
				fmt.Fprintf(w, "| %s | skipped: %s | | | | | | |\n", name, why)
			}
			continue
		}
		r.print(w, name)
		sum.injected += r.injected
		sum.add(r.defects)
		sum.behind += r.behind
		sum.cured += r.cured
		sum.stall = max(sum.stall, r.stall)
	}
	sum.print(w, "**all**")
	fmt.Fprintf(w, "\n%d messages and %d dead letters were compared and equal.\n", t.messages, t.dead)
}

// enoughTries is the number of tries after which a fault that had no effect is a defect of the test.
const enoughTries = 5

// withoutEffect returns the faults that were tried and never injected, and those of them that were
// tried so often that the run proves nothing of them.
func (t *table) withoutEffect(names []string) (some, many []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		r := t.rows[name]
		if r == nil || r.tried == 0 || r.injected > 0 {
			continue
		}
		some = append(some, fmt.Sprintf("%s (%d tries)", name, r.tried))
		if r.tried >= enoughTries {
			many = append(many, name)
		}
	}
	return some, many
}

func (r *row) print(w io.Writer, name string) {
	lost := fmt.Sprint(r.lost)
	if r.foreign > 0 {
		lost += fmt.Sprintf(" (%d foreign)", r.foreign)
	}
	fmt.Fprintf(w, "| %s | %d | %s | %d | %d | %d | %d | %.1f s |\n", name, r.injected, lost, r.repeated, r.disordered, r.behind, r.cured, r.stall.Seconds())
}
