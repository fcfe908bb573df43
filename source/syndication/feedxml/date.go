package feedxml

import "time"

// Date is a date of a document.
type Date struct {
	// Time is in UTC; zero if there is no date or it cannot be read. Nothing is
	// ever made up in its place.
	Time time.Time
	// Raw is the date as written, and From the local name of the element that
	// it was written in.
	Raw, From string
}

// number reads decimal digits, nine at most; it is negative if there is anything
// else.
func number(s string) int {
	if s == "" || len(s) > 9 {
		return -1
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n = n*10 + int(s[i]-'0')
	}
	return n
}
