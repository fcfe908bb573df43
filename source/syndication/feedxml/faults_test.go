package feedxml

import (
	"strings"
	"testing"
)

// Only the first faults are described. To quote the text at each one would take longer than
// the repair.
func TestFaultsThatAreNotDescribedAreCheap(t *testing.T) {
	const faults = 5000
	for name, tt := range map[string]struct {
		doc string
		// most is the largest number of allocations for each fault: more than without a
		// description, and fewer than with one, because the race detector adds some.
		most float64
	}{
		"a < that begins no tag":     {strings.Repeat("<<", faults/2), 10},
		"an end tag without a start": {strings.Repeat("</b>", faults), 16},
		"attributes without a value": {strings.Repeat("<b a/>", faults), 19},
		"an item that does not end":  {strings.Repeat("<item>", faults), 38},
		"an & that is no reference":  {strings.Repeat("<b/>&", faults), 14},
	} {
		t.Run(name, func(t *testing.T) {
			doc := "<rss><channel>" + tt.doc + "</channel></rss>"
			var counted int
			n := testing.AllocsPerRun(2, func() {
				r := NewReader(strings.NewReader(doc), Options{Lenient: true})
				if _, err := read(r); err != nil {
					t.Fatal(err)
				}
				counted = r.Faults().Count
			})
			if counted < faults {
				t.Fatalf("there are %d faults, want %d", counted, faults)
			}
			if each := n / faults; each > tt.most {
				t.Errorf("%.1f allocations for each fault, want %.0f at most", each, tt.most)
			}
		})
	}
}
