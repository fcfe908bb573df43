package feedxml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Faults are the breaches of XML that a lenient reader repaired.
type Faults struct {
	// Count is the number of faults, and LeftOut the number of entries that were left out
	// because they could not be read whole.
	Count, LeftOut int
	// Truncated reports that the document breaks off. HeadLeftOut reports that elements
	// which describe the document could not be read, so that links may be missing.
	Truncated, HeadLeftOut bool
	// first are the first of them, in the order of the document.
	first []locatedFault
}

// locatedFault is a fault at a byte of the document. err is the error that a strict
// reader would have returned.
type locatedFault struct {
	offset int64
	text   string
	err    error
}

// Err returns the error that a strict reader would have returned, or nil if there
// was none.
func (f *Faults) Err() error {
	if len(f.first) == 0 {
		return nil
	}
	return f.first[0].err
}

// First describes the first fault; "" if there was none.
func (f *Faults) First() string {
	if len(f.first) == 0 {
		return ""
	}
	return f.first[0].text
}

// String describes the faults.
func (f *Faults) String() string {
	s := fmt.Sprintf("the document is not well-formed; %d faults were repaired", f.Count)
	if f.Count == 1 {
		s = "the document is not well-formed; 1 fault was repaired"
	}
	if f.LeftOut > 0 {
		s += fmt.Sprintf(", and %d entries left out", f.LeftOut)
	}
	var details []string
	for _, one := range f.first {
		details = append(details, one.text)
	}
	return s + ": " + strings.Join(details, "; ") + "; ask the provider to mend it"
}

// countFault counts a fault, and reports whether it is one of the first. Describing all
// of them would take longer than reading the document.
func (f *Faults) countFault(offset int64) bool {
	f.Count++
	return len(f.first) < mostFaults || offset < f.first[mostFaults-1].offset
}

// insertFault records a fault. Characters are repaired before the elements that they
// are in, so faults do not come in the order of the document.
func (f *Faults) insertFault(one locatedFault) {
	f.first = append(f.first, one)
	slices.SortStableFunc(f.first, func(a, b locatedFault) int { return cmp.Compare(a.offset, b.offset) })
	f.first = f.first[:min(len(f.first), mostFaults)]
}
