package config

import (
	"fmt"
	"strings"
)

// nearestWord returns the known word that a person who typed word most likely
// meant, or the empty string. Case, - and _ do not count, as in maxAge.
func nearestWord(word string, known []string) string {
	if len(word) > 200 {
		return "" // the distance takes quadratic time
	}
	plain := strings.NewReplacer("_", "", "-", "", ".", "")
	typed := plain.Replace(strings.ToLower(word))
	best, least := "", max(1, len(typed)/3)+1
	for _, k := range known {
		if d := editDistance(typed, plain.Replace(strings.ToLower(k))); d < least {
			best, least = k, d
		}
	}
	return best
}

// DidYouMean returns the end of an error text that suggests the known word that a person who typed
// word most likely meant; empty if there is none.
func DidYouMean(word string, known []string) string { return didYouMean(nearestWord(word, known)) }

// didYouMean returns the end of an error text that suggests word, if there is one.
func didYouMean(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", word)
}

// editDistance returns the number of bytes to insert, delete, replace or swap with
// their neighbour that turn a into b.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
